"""The common part of the verbs for a terminal: options, connection, output and exit."""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, Self

import trio

import sphtp
from sphtp import Client, Peer
from sphtp.core.printable import peer_label, printable, printable_lines
from sphtp.errors import SettingsError, SphtpError, UnreachableError
from sphtp.observe import Instrument
from sphtp_client.connection import ConnectionOptions
from sphtp_client.options import CLIENT_DEFAULTS
from sphtp_client.program import ExitStatus, run_until_stopped, write_line
from sphtp_client.terminal.values import to_json

LOST: Final = (SphtpError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""The errors that end a verb with an error text."""


class EarlyEndError(Exception):
    """The end of a verb with an exit code: 0 after its output was closed."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class TerminalOptions(ConnectionOptions):
    """The values of the command line of a verb, with defaults for the options that it lacks."""

    server: tuple[str, ...] = ()
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    seed: int | None = None
    heartbeat: float = CLIENT_DEFAULTS["heartbeat"]
    expiry: float = CLIENT_DEFAULTS["expiry"]
    channel_timeout: float = CLIENT_DEFAULTS["channel_timeout"]
    resend_time: float = CLIENT_DEFAULTS["resend_time"]
    wait: float = CLIENT_DEFAULTS["wait"]
    timeout: float
    json: bool
    name: str = ""

    @classmethod
    def at(cls, address: str, values: Mapping[str, Any]) -> Self:
        """Return the options of a verb with an argument ADDRESS, which overrides ``--server``."""
        return cls(**{**values, "server": (address,) if address else values["server"]})

    def config(self, instruments: Sequence[Instrument] = ()) -> sphtp.Config:
        """Return the config of a client that does not wait for servers to start.

        Raises ``SettingsError``.
        """
        config = replace(self.connection(), wait=self.timeout).config(instruments)
        assert config.timers is not None
        return replace(
            config,
            timers=replace(config.timers, start_timeout=0.0),
            channel=replace(config.channel, connect_timeout=self.timeout),
        )

    def open(self) -> AbstractAsyncContextManager[Client]:
        """Register with the given or found servers for the length of the block."""
        config = self.config()
        return sphtp.open_client(list(self.server) or None, name=self.name, config=config)

    async def find_peer(self, client: Client, text: str) -> Peer:
        """Return the peer with a name or id. Raises ``UnreachableError`` after ``timeout``."""
        number = parse_peer(text)

        def find() -> Peer | None:
            return client.peer_named(text) or client.peers.get(number or 0)

        with trio.move_on_after(self.timeout), client.events() as events:
            while (found := find()) is None:
                await anext(events)
            return found
        others = ", ".join(peer_label(each.name, each.id) for each in client.peers.values())
        missing = f"no peer {printable(text)!r} within {self.timeout:g} s"
        raise UnreachableError(f"{missing}; there are: {others or 'none'}")


def parse_peer(text: str) -> int | None:
    """Return the id in a text, such as 0x1a2b3c4d or 439041101; None if it is no number."""
    try:
        return int(text, 0)
    except ValueError:
        return None


class Output:
    """The standard output of a verb: lines for people, or JSON objects with the key ``event``."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def event(self, event: str, line: str, /, **values: Any) -> None:
        """Print an event: the line, or the values as JSON."""
        self.line(json.dumps({"event": event, **values}) if self.as_json else line)

    def line(self, line: str) -> None:
        """Print a line. Raises ``EarlyEndError`` if the output is closed, else ``OSError``."""
        try:
            print(printable_lines(line), flush=True)
        except OSError as error:
            # Python flushes the stream again at its end, which must not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise EarlyEndError from None
            raise


def facts_of(peer: Peer) -> dict[str, Any]:
    """Return the id and the name of a peer, for JSON."""
    return {"peer": peer.id, "name": peer.name}


def shown(value: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(to_json(value), ensure_ascii=False)


def run_verb(work: Callable[[], Awaitable[None]], *, as_json: bool) -> NoReturn:
    """Run the work of a verb, and exit with its code. Prints an error of ``LOST`` as a line."""
    try:
        status = trio.run(run_until_stopped, work) or ExitStatus.FINISHED
    except EarlyEndError as end:
        sys.exit(end.code)
    except LOST as error:
        message = str(error) or type(error).__name__
        if as_json:
            write_line(sys.stdout, json.dumps({"event": "failed", "message": message}))
        else:
            write_line(sys.stderr, f"failed: {message}")
        status = ExitStatus.USAGE if isinstance(error, SettingsError) else ExitStatus.FAILED
    sys.exit(status.code)
