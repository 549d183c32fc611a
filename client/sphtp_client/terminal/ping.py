"""The verb ``sphtp ping``: measure round trips of requests to a peer.

A ping is a request for the name ``sphtp/ping``. A client whose program does not serve this name
refuses the request by itself, without its program. So the round trip includes the sealed channel,
and the process of the peer.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import click
import trio

from sphtp import Client, Peer, RefusedError
from sphtp.core.printable import peer_label
from sphtp.errors import HandlerCrashedError, RequestError, UnreachableError
from sphtp_client.options import PING_OPTIONS, with_options
from sphtp_client.terminal.connection import (
    LOST,
    Output,
    TerminalOptions,
    facts_of,
    run_verb,
)
from sphtp_server.client_config import CONTEXT

NAME: Final = "sphtp/ping"
"""The name of the request, which no program should serve."""

ANSWERS: Final = frozenset(("unknown", "busy", "malformed", "cancelled", "ended"))
"""The refusals that the peer sends in reply; others mean that no channel was opened."""


async def answer_of(client: Client, peer: Peer, patience: float, value: Any = None) -> float:
    """Send a ping to a peer; return the seconds until its reply.

    Raises ``UnreachableError`` after ``patience`` seconds without a reply, and ``RefusedError`` if
    the peer refuses this client.
    """
    began = trio.current_time()
    try:
        with trio.fail_after(patience):
            await client.request(peer, NAME, value)
    except trio.TooSlowError as error:
        raise UnreachableError(f"no answer within {patience:g} s") from error
    except (RequestError, HandlerCrashedError):
        pass  # the peer's program serves the name
    except RefusedError as error:
        if error.reason not in ANSWERS:
            raise
    return trio.current_time() - began


@click.command(short_help="Measure round trips to a peer.", context_settings=CONTEXT)
@click.argument("peer")
@with_options(PING_OPTIONS)
def ping(peer: str, count: int | None, interval: float, **values: Any) -> None:
    """Measure round trips to PEER, a name or an id such as 0x1a2b3c4d.

    The first line has the time to open a channel and to get a first reply; each further line has
    one round trip. The process of the peer replies, without its program. After the last ping, or at
    Ctrl-C, the command prints a summary.

    Exit codes: 0 a ping after the first line got a reply, 2 wrong arguments, 3 none did, or there
    is no such server or peer, 130 after Ctrl-C, 143 after SIGTERM.
    """
    options = TerminalOptions(**values)
    run_verb(partial(_ping, options, peer, count, interval), as_json=options.json)


class _Tally:
    """The pings with an outcome so far, and their round trips in milliseconds."""

    def __init__(self) -> None:
        self.sent = 0
        self.times: list[float] = []

    def show(self, output: Output) -> None:
        times, missing = self.times, self.sent - len(self.times)
        text = f"{len(times)} answers, {missing} missing"
        values: dict[str, Any] = {"answers": len(times), "missing": missing}
        if times:
            figures = {"min": min(times), "mean": sum(times) / len(times), "max": max(times)}
            values |= {f"{name}_ms": round(time, 3) for name, time in figures.items()}
            words = ", ".join(f"{name} {time:.3f}" for name, time in figures.items())
            text += f"; {words} ms"
        output.event("summary", text, **values)


async def _ping(options: TerminalOptions, text: str, count: int | None, interval: float) -> None:
    output = Output(as_json=options.json)
    async with options.open() as client:
        peer = await options.find_peer(client, text)
        label = peer_label(peer.name, peer.id)
        opened = 1000 * await answer_of(client, peer, options.timeout)
        output.event(
            "opened",
            f"channel to {label}: {opened:.3f} ms",
            **facts_of(peer),
            time_ms=round(opened, 3),
        )
        async with _summed_up(output) as tally:
            while count is None or tally.sent < count:
                if tally.sent:
                    await trio.sleep(interval)
                await _one(options, client, peer, tally, output)
    if not tally.times:
        raise UnreachableError(f"{label} has stopped replying")


@asynccontextmanager
async def _summed_up(output: Output) -> AsyncIterator[_Tally]:
    tally = _Tally()
    try:
        yield tally
    finally:
        tally.show(output)


async def _one(
    options: TerminalOptions, client: Client, peer: Peer, tally: _Tally, output: Output
) -> None:
    label, number = peer_label(peer.name, peer.id), tally.sent + 1
    try:
        time = 1000 * await answer_of(client, peer, options.timeout)
    except LOST as error:
        tally.sent += 1
        text = f"{label}: ping {number}: {error}"
        output.event("missing", text, **facts_of(peer), number=number, reason=str(error))
        return
    tally.sent += 1
    tally.times.append(time)
    text = f"{label}: ping {number}: {time:.3f} ms"
    output.event("answer", text, **facts_of(peer), number=number, time_ms=round(time, 3))
