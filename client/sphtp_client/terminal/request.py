"""The verb ``sphtp request``: send one request to a peer."""

from functools import partial
from typing import Any

import click
import trio

from sphtp.core.printable import peer_label
from sphtp.errors import RequestError, UnreachableError
from sphtp_client.options import REQUEST_OPTIONS, with_options
from sphtp_client.terminal.connection import Output, TerminalOptions, facts_of, run_verb, shown
from sphtp_client.terminal.values import parse_value, to_json
from sphtp_server.client_config import CONTEXT


@click.command(
    short_help="Send a request to a peer, and print the reply.", context_settings=CONTEXT
)
@click.argument("peer")
@click.argument("service")
@click.argument("value", required=False)
@with_options(REQUEST_OPTIONS)
def request(peer: str, service: str, value: str | None, **values: Any) -> None:
    """Send a request to PEER for the name SERVICE, and print the reply as JSON.

    PEER is a name or an id such as 0x1a2b3c4d. SERVICE is the name under which the peer serves the
    request. VALUE is JSON: 3.5, '"a text"' or '{"x": [1, 2]}'; without it, the handler gets None.
    The handler has to reply within --timeout seconds.

    Exit codes: 0 the reply is printed, 2 wrong arguments, 3 there is no such server, peer or
    service, the peer refused, no reply arrived in time, or the handler raised an error, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    options = TerminalOptions(**values)
    run_verb(partial(_request, options, peer, service, value), as_json=options.json)


async def _request(options: TerminalOptions, text: str, service: str, value: str | None) -> None:
    output = Output(as_json=options.json)
    sent = None if value is None else parse_value(value, "VALUE")
    async with options.open() as client:
        peer = await options.find_peer(client, text)
        try:
            with trio.fail_after(options.timeout):
                reply = await client.request(peer, service, sent)
        except trio.TooSlowError as error:
            label = peer_label(peer.name, peer.id)
            raise UnreachableError(f"no reply of {label} within {options.timeout:g} s") from error
        except RequestError as error:
            kind = "" if error.kind == RequestError.__name__ else f"{error.kind}: "
            raise RequestError(f"{kind}{error.text}", data=error.data) from error
    output.event("reply", shown(reply), **facts_of(peer), service=service, value=to_json(reply))
