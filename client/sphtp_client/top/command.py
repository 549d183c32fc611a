"""The verb ``sphtp top``."""

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
    """The values of the command line."""

    addresses: tuple[str, ...]
    interval: float
    once: bool

    @property
    def wants_screen(self) -> bool:
        """True if the screen is wanted, and there is a terminal for it."""
        is_terminal = (
            sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM") != "dumb"
        )
        return is_terminal and not (self.once or self.json)

    def token(self) -> str | None:
        """Return the token for pages, None without one. Raises ``SettingsError``."""
        return None if self.metrics_token_file is None else load_token(self.metrics_token_file)

    def places(self) -> tuple[str, ...]:
        """Return the addresses to ask. Raises ``SphtpError`` if none is given and none found."""
        given = self.addresses or self.server
        return given or tuple(map(str, trio.run(find_servers, self.config())))


@click.command(short_help="Watch peers, channels, streams and groups.", context_settings=CONTEXT)
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@with_options(TOP_OPTIONS)
def top(**values: Any) -> None:
    """Show what nodes do, as it changes, and why something waits.

    ADDRESS is a page of metrics, [http://][HOST:]PORT, as --metrics of servers and clients serves
    it; PORT may be a range, 9464-9469. It may also be a server, tcp://HOST:PORT, which knows its
    clients alone. Without ADDRESS and --server, the cluster is looked for that is announced on this
    machine, and then on this network.

    Keys: 1 to 5 choose peers, channels, lanes, streams or groups; s sorts by the next column, r
    turns the order around, / filters, p pauses, the space bar looks at once, q ends. The sentences
    at the bottom explain what waits for what; those with > are about the row of the cursor. A place
    that does not answer is asked again.

    With --once or --json, and if the output is no terminal, one state is printed, after an interval
    that the rates are of.

    Exit codes: 0 it was ended, or a state was printed, 2 wrong arguments, 3 no server was found, or
    with --once or --json no place answered, 130 after Ctrl-C.
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
    """Show or print; return the exit code."""
    # Only here, because Textual takes a while, and may be missing.
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
