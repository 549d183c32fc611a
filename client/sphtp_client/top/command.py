"""The verb ``sphtp top``: show the activity of nodes on a screen, or print it."""

import os
import sys
from dataclasses import dataclass
from typing import Any, NoReturn

import click
import trio

from sphtp.__main__ import how_to_get
from sphtp.errors import SettingsError, SphtpError
from sphtp.shell.discovery import find_servers
from sphtp.shell.keys import load_token
from sphtp_client.options import TOP_OPTIONS, with_options
from sphtp_client.program import ExitStatus
from sphtp_client.terminal.connection import EarlyEndError, Output, TerminalOptions
from sphtp_server.client_config import CONTEXT


@dataclass(frozen=True, kw_only=True)
class TopOptions(TerminalOptions):
    """The options of ``sphtp top``, from the command line, the environment and the file."""

    addresses: tuple[str, ...]
    interval: float
    once: bool

    @property
    def wants_screen(self) -> bool:
        """True if input and output are a terminal with a screen, and the options want one."""
        is_terminal = (
            sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM") != "dumb"
        )
        return is_terminal and not (self.once or self.json)

    def token(self) -> str | None:
        """Return the token for metrics; None without a file. Raises ``SettingsError``."""
        return None if self.metrics_token_file is None else load_token(self.metrics_token_file)

    def places(self) -> tuple[str, ...]:
        """Return the given addresses, or without any those of the servers that a search finds.

        Raises as ``find_servers``, and ``SettingsError`` for wrong options.
        """
        given = self.addresses or self.server
        return given or tuple(map(str, trio.run(find_servers, self.config())))


@click.command(short_help="Watch peers, channels, streams and groups.", context_settings=CONTEXT)
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@with_options(TOP_OPTIONS)
def top(**values: Any) -> None:
    """Show the activity of nodes, with the causes of waiting.

    ADDRESS is an address of metrics, [http://][HOST:]PORT, as --metrics of servers and clients
    serves them; PORT may be a range, 9464-9469. It may also be a server, tcp://HOST:PORT, which
    reports only the servers and clients of its cluster. Without ADDRESS and --server, the command
    searches for a cluster that announces itself on this machine, and then on this network.

    Keys: 1 to 5 show peers, channels, lanes, streams or groups; s sorts by the next column, r
    reverses the order, / filters, p pauses, the space bar refreshes at once, q quits. The sentences
    at the bottom explain which program or path causes the waiting; those with > concern the row of
    the cursor. The screen repeats requests to an address that does not reply.

    With --once or --json, or if the input or the output is no terminal, the command prints one
    state and exits. It measures the rates over one --interval before that.

    Exit codes: 0 after q or Ctrl-C on the screen, or a state was printed, 2 wrong arguments, 3 no
    server was found, or for a printed state no address replied, 130 after Ctrl-C without the
    screen, 143 after SIGTERM.
    """
    options = TopOptions(**values)
    output = Output(as_json=options.json)
    try:
        sys.exit(_run(options, output))
    except EarlyEndError as end:
        sys.exit(end.code)
    except KeyboardInterrupt:
        sys.exit(ExitStatus.INTERRUPTED.code)
    except ModuleNotFoundError as error:
        sentence = how_to_get("sphtp top", error)
        if sentence is None:
            raise
        _fail(SettingsError(sentence), output)
    except (SphtpError, OSError) as error:
        _fail(error, output)


def _run(options: TopOptions, output: Output) -> int:
    """Show the screen, or print one state; return the exit code."""
    # Imported here, because Textual takes long to load, and may be missing.
    from sphtp_client.top.places import parse_places
    from sphtp_client.top.printing import print_state
    from sphtp_client.top.screen import TopApp

    config = options.config()
    readers = parse_places(options.places(), config, options.timeout, options.token())
    if options.wants_screen:
        app = TopApp(readers, options.interval)
        app.run()
        return app.return_code or 0
    if not print_state(readers, options.interval, output):
        return ExitStatus.FAILED.code
    return 0


def _fail(error: Exception, output: Output) -> NoReturn:
    if output.as_json:
        output.event("failed", "", message=str(error))
    else:
        click.echo(f"failed: {error}", err=True)
    is_usage = isinstance(error, SettingsError)
    sys.exit((ExitStatus.USAGE if is_usage else ExitStatus.FAILED).code)
