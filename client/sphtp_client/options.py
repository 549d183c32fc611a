"""The command-line options of the verbs that are clients or start clients."""

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from sphtp.config import ChannelSettings
from sphtp.core.control.records import MAX_MEMBERS
from sphtp_server.client_config import config_option

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

# A wheel carries them beside this file; a checkout keeps them at its top.
_CARRIED = Path(__file__).parent / "scenarios"
FOLDER = _CARRIED if _CARRIED.is_dir() else Path(__file__).parents[2] / "scenarios"


def shipped_scenarios() -> list[str]:
    """Return the names of the scenarios that come with the project, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


class ScenarioFile(click.ParamType[Path]):
    """A scenario: the path of a file, or the name of a scenario of the project."""

    name = "file or name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of the scenario; raises ``click.BadParameter`` if none is found."""
        path = Path(value)
        try:
            is_directory = stat.S_ISDIR(path.stat().st_mode)
        except FileNotFoundError:
            complaint = f"{str(value)!r} is neither a file nor one of"
        except OSError as error:
            # The file may exist all the same, so the error says why it cannot be read.
            if path.name != str(value):
                why = f"cannot read {path}: {error.strerror}"
                raise click.BadParameter(why, ctx, param) from error
            complaint = f"cannot read {path}: {error.strerror}; and it is none of"
        else:
            if not is_directory:
                return path
            complaint = f"{str(value)!r} is a directory, and neither a file nor one of"
        if value in shipped_scenarios():
            return FOLDER / f"{value}.toml"
        raise click.BadParameter(f"{complaint} {', '.join(shipped_scenarios())}.", ctx, param)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the scenarios of the project that begin with ``incomplete``, and files.

        The last item stands for the files: the shell looks for them itself.
        """
        names = [name for name in shipped_scenarios() if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


SECONDS = click.FloatRange(0, min_open=True)
SHARE = click.FloatRange(0, 1, max_open=True)
COUNT = click.IntRange(1)
METAVARS = {SECONDS: "SECONDS", SHARE: "SHARE", COUNT: "N"}


def with_options(options: Sequence[Option]) -> Callable[[Command], Command]:
    """Give a click command these options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def channel_settings(channel_timeout: float, resend_time: float) -> ChannelSettings:
    """Return the channel settings for these options, in seconds. Raises ``SettingsError``."""
    return ChannelSettings(
        timeout=channel_timeout,
        resend_time=resend_time,
        # Long enough for the peer to retransmit its close a few times.
        linger=6 * resend_time,
    )


def _option(name: str, text: str, **settings: Any) -> Option:
    settings.setdefault("metavar", METAVARS.get(settings.get("type")))
    shown = settings.get("default") is not None and not settings.get("is_flag")
    return click.option(name, help=text, show_default=shown, **settings)


_IMPAIRMENT = (
    _option(
        "--loss",
        "Share of the received UDP datagrams that each node drops, to simulate a bad network.",
        type=SHARE,
        default=0.0,
    ),
    _option(
        "--duplicate",
        "Share of the received UDP datagrams that each node processes twice.",
        type=SHARE,
        default=0.0,
    ),
    _option(
        "--reorder",
        "Share of the received UDP datagrams that each node delays, so that later ones overtake.",
        type=SHARE,
        default=0.0,
    ),
)


def _common(defaults: Mapping[str, float]) -> tuple[Option, ...]:
    return (
        *_IMPAIRMENT,
        _option(
            "--seed",
            "Random seed that makes ids, timers and simulated faults repeatable.",
            type=int,
            metavar="NUMBER",
        ),
        _option(
            "--heartbeat",
            "Seconds between heartbeats; give all servers and clients the same.",
            type=SECONDS,
            default=defaults["heartbeat"],
        ),
        _option(
            "--expiry",
            "Seconds of silence after which a server or client counts as gone; give all servers "
            "and clients the same.",
            type=SECONDS,
            default=defaults["expiry"],
        ),
        _option(
            "--channel-timeout",
            "Seconds of silence after which a peer counts as vanished.",
            type=SECONDS,
            default=defaults["channel_timeout"],
        ),
        _option(
            "--resend-time",
            "Shortest interval, in seconds, in which a few packets may leave whatever the "
            "congestion window.",
            type=SECONDS,
            default=defaults["resend_time"],
        ),
        _option(
            "--wait",
            "Longest wait for the servers, and for the peers of a simulation, in seconds.",
            type=SECONDS,
            default=defaults["wait"],
        ),
    )


_FILE = click.Path(dir_okay=False, path_type=Path)

CLIENT_DEFAULTS = {
    "heartbeat": 1.0,
    "expiry": 10.0,
    "channel_timeout": 10.0,
    "resend_time": 0.1,
    "wait": 60.0,
}
CLUSTER_DEFAULTS = {
    "heartbeat": 0.5,
    "expiry": 4.0,
    "channel_timeout": 5.0,
    "resend_time": 0.03,
    "wait": 30.0,
}

_SCENARIO = _option(
    "--scenario",
    "Scenario file, or the name of one that comes with the project.",
    type=ScenarioFile(),
    default="gas",
)

_SERVER = _option(
    "--server",
    "Address of a server, tcp://host:port; repeatable.",
    metavar="ADDRESS",
    multiple=True,
    default=("tcp://127.0.0.1:8764",),
)

_KEYS = (
    _option(
        "--server-key",
        "Public key of a server to accept, or of a cluster that certifies its servers; "
        "repeatable. Without it: any server, or with --secret-file any that has the secret.",
        metavar="KEY",
        multiple=True,
    ),
    *(
        _option(name, text, type=_FILE, metavar="FILE")
        for name, text in (
            ("--secret-file", "File with the cluster's secret (sphtp keygen)."),
            ("--server-key-file", "File with public keys as for --server-key, one per line."),
            (
                "--identity-file",
                "File with this client's identity. Without it: a new one each time.",
            ),
            ("--tls-ca", "Authority in PEM that signed the servers' certificates."),
            ("--tls-cert", "Certificate in PEM, for servers that require one."),
            ("--tls-key", "The private key of --tls-cert, in PEM."),
        )
    ),
    _option(
        "--relay",
        "Relay for peers to which there is no direct path through NAT: a TURN server; needs the "
        "extra nat.",
        metavar="turn://USER@HOST[:PORT]",
    ),
    _option(
        "--relay-password-file",
        "File with the password of the --relay's user.",
        type=_FILE,
        metavar="FILE",
    ),
)

CLIENT_OPTIONS = (
    config_option,
    _SERVER,
    _SCENARIO,
    _option(
        "--slab",
        "Number of the slab that this client simulates.",
        type=click.IntRange(0),
        metavar="N",
        default=0,
    ),
    _option("--slabs", "Number of slabs.", type=COUNT, default=1),
    _option(
        "--run",
        "Name of the run; only clients with the same name work together.",
        metavar="TEXT",
        default="",
    ),
    _option("--steps", "Steps to simulate. Default: the number in the scenario.", type=COUNT),
    *_common(CLIENT_DEFAULTS),
    _option("--json", "Print JSON objects, one per line.", is_flag=True),
    _option("--alone", "Simulate the whole box here, without servers and peers.", is_flag=True),
    _option(
        "--qlog",
        "Log the events of the channels to this file, in the format qlog (NAME.sqlog).",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
    ),
    *_KEYS,
    _option(
        "--metrics",
        "Serve metrics for Prometheus, and health, over HTTP; without HOST, on loopback.",
        metavar="[HOST:]PORT",
    ),
    _option(
        "--metrics-token-file",
        "File with the token that requests for metrics must contain; needed on more than loopback.",
        type=_FILE,
        metavar="FILE",
    ),
    _option(
        "--web",
        "Serve a page of the cluster, with metrics and health, over HTTP; without HOST, on "
        "loopback.",
        metavar="[HOST:]PORT",
    ),
    _option(
        "--web-token-file",
        "File with the token that requests for the page must contain; needed on more than "
        "loopback.",
        type=_FILE,
        metavar="FILE",
    ),
    _option("--exit-with-stdin", "Exit when standard input closes.", is_flag=True),
)

CLUSTER_OPTIONS = (
    _option(
        "--servers",
        "Number of servers.",
        type=click.IntRange(1, MAX_MEMBERS),
        metavar="N",
        default=2,
    ),
    _option(
        "--clients",
        "Number of clients, one per slab. With 0 only the servers run, until Ctrl-C, for your own "
        "programs.",
        type=click.IntRange(0),
        metavar="N",
        default=4,
    ),
    _SCENARIO,
    _option("--steps", "Steps to simulate. Default: the number in the scenario.", type=COUNT),
    _option(
        "--on",
        "Where the processes run: local, slurm, dask://HOST:PORT, tls+dask://HOST:PORT.",
        metavar="LAUNCHER",
        default="local",
    ),
    _option(
        "--network",
        "Network on which the processes reach each other, such as 10.0.0.0/16; each process uses "
        "its machine's address in this network. Default: the network of the engine.",
        metavar="NETWORK",
    ),
    _option(
        "--registry",
        "Registry on etcd that the servers share, etcd://HOST:2379,HOST:2379/NAME. Without NAME: "
        "a registry with a new name for this run.",
        metavar="ADDRESS",
    ),
    _option(
        "--verify",
        "Simulate the same scenario in one process, too, and compare the final states.",
        is_flag=True,
    ),
    _option(
        "--json",
        "Print only one JSON document, at the end; with --clients 0 at the start.",
        is_flag=True,
    ),
    _option(
        "--qlog",
        "Log the events of the clients' channels to files in this directory, in the format qlog.",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIRECTORY",
    ),
    _option(
        "--metrics",
        "Serve metrics of each server and client over HTTP on loopback: the first server at this "
        "port, the others at the following ports, servers before clients. 0 takes any free ports.",
        type=click.IntRange(0, 65535),
        metavar="PORT",
    ),
    _option(
        "--web",
        "Serve a page of the cluster at this port of loopback: its members, the causes of slow "
        "steps, and the simulation as it moves. 0 takes any free port.",
        type=click.IntRange(0, 65535),
        metavar="PORT",
    ),
    *_common(CLUSTER_DEFAULTS),
)

WATCH_OPTIONS = (
    config_option,
    _SERVER,
    _option(
        "--steps",
        "End when each slab is this many steps after the first received state.",
        type=COUNT,
    ),
    _option("--seconds", "End this many seconds after finding a simulation.", type=SECONDS),
    _option("--once", "End when a state of every slab has arrived.", is_flag=True),
    _option("--json", "Print JSON objects, one per line.", is_flag=True),
    *_common(CLIENT_DEFAULTS),
    *_KEYS,
)

RECORD_OPTIONS = (
    config_option,
    _SERVER,
    _option(
        "--topic",
        "Record the topics that this pattern selects, as in sim/*/state; repeatable.",
        metavar="PATTERN",
        multiple=True,
    ),
    _option(
        "--stream",
        "Record a source that belongs to no cluster, HOST:PORT/TOPIC; repeatable.",
        metavar="ADDRESS",
        multiple=True,
    ),
    _option(
        "--group",
        "Record the contributions to this group in lock step; repeatable.",
        metavar="NAME",
        multiple=True,
    ),
    _option(
        "--late-join", "Begin with the earlier messages that the sources retain.", is_flag=True
    ),
    _option("--seconds", "End after this time, in seconds.", type=SECONDS),
    _option("--force", "Replace FILE if it exists.", is_flag=True),
    _option("--json", "Print JSON objects, one per line.", is_flag=True),
    *_common(CLIENT_DEFAULTS),
    *_KEYS,
)


class Speed(click.ParamType[float | None]):
    """The type of ``--speed``: a factor, or "max"."""

    name = "factor or max"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | None:
        """Return the factor; None for "max"."""
        if value == "max":
            return None
        return SECONDS.convert(value, param, ctx)


_FROM_TO = (
    _option(
        "--from",
        "Begin with the messages this many seconds after the beginning of the recording.",
        type=click.FloatRange(0),
        metavar="SECONDS",
        default=0.0,
    ),
    _option(
        "--to",
        "End with the messages this many seconds after the beginning of the recording. "
        "Default: the end.",
        type=SECONDS,
    ),
)

REPLAY_OPTIONS = (
    config_option,
    _SERVER,
    _option(
        "--topic",
        "Replay the topics that this pattern selects; repeatable. Default: all.",
        metavar="PATTERN",
        multiple=True,
    ),
    _option(
        "--speed",
        'Factor by which the replay is faster than the recording; "max" for no pauses.',
        type=Speed(),
        metavar="FACTOR|max",
        default="1",
    ),
    *_FROM_TO,
    _option(
        "--loop",
        "Number of times to send the recording, one after the other; 0 repeats it without end.",
        type=click.IntRange(0),
        metavar="N",
        default=1,
    ),
    _option(
        "--gather",
        "Longest wait, in seconds, for a receiver of each source before the first message.",
        type=click.FloatRange(0),
        metavar="SECONDS",
        default=3.0,
    ),
    _option(
        "--group",
        "Repeat the recorded steps of this group in lock step; needs --changed.",
        metavar="NAME",
    ),
    _option(
        "--changed",
        "With --group: name of the member that your own program replaces; the replay contributes "
        "as all other members.",
        metavar="MEMBER",
    ),
    _option(
        "--on-death",
        "With --group: the policy at a death, the same as that of your program (on_death).",
        type=click.Choice(["raise", "continue", "wait"]),
        default="raise",
    ),
    _option("--json", "Print JSON objects, one per line.", is_flag=True),
    *_common(CLIENT_DEFAULTS),
    *_KEYS,
)

_ANY_SERVER = _option(
    "--server",
    "Address of a server, tcp://host:port; repeatable. Without it: the cluster that announces "
    "itself on this machine or network.",
    metavar="ADDRESS",
    multiple=True,
)

_TERMINAL = (
    _option("--json", "Print JSON objects, one per line.", is_flag=True),
    _option(
        "--timeout",
        "Longest wait for servers, and for peers, in seconds.",
        type=SECONDS,
        default=5.0,
    ),
    *_KEYS,
)

TERMINAL_OPTIONS = (config_option, _ANY_SERVER, *_TERMINAL)

TOP_OPTIONS = (
    *TERMINAL_OPTIONS,
    _option("--interval", "Seconds between two refreshes.", type=SECONDS, default=1.0),
    _option("--once", "Print one state in tables, and exit.", is_flag=True),
    _option(
        "--metrics-token-file",
        "File with the token that requests for metrics must contain.",
        type=_FILE,
        metavar="FILE",
    ),
)

_NAME = _option("--name", "Name of this client in the cluster.", default="", metavar="TEXT")

PING_OPTIONS = (
    config_option,
    _ANY_SERVER,
    _option("--count", "Exit after this many pings. Default: at Ctrl-C.", type=COUNT),
    _option("--interval", "Seconds from one ping to the next.", type=SECONDS, default=1.0),
    *_TERMINAL,
)

PUB_OPTIONS = (
    config_option,
    _ANY_SERVER,
    _NAME,
    _option("--receivers", "Number of subscriptions to wait for.", type=COUNT, default=1),
    *_TERMINAL,
)

SUB_OPTIONS = (
    config_option,
    _ANY_SERVER,
    _NAME,
    _option("--count", "Exit after this many messages. Default: at Ctrl-C.", type=COUNT),
    _option(
        "--latest", "Print only the newest unread message of each source and topic.", is_flag=True
    ),
    _option(
        "--late-join", "Also print the earlier messages that the sources retain.", is_flag=True
    ),
    *_TERMINAL,
)

REQUEST_OPTIONS = (config_option, _ANY_SERVER, _NAME, *_TERMINAL)
