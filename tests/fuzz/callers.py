"""What comes over a connection to a source's history, at either end, and over a stream's channel.

From those who have keys and from those who have none: nothing is raised, and every call ends.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final, cast

import trio
from trio.testing import MockClock, memory_stream_pair

from sphtp.core.stream.late_join_wire import (
    AskRequest,
    FetchRequest,
    RequestKey,
    encode_ask,
    encode_fetch,
    prefixed,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.sealing import SealCounters, TcpSeal, fetch_keys
from sphtp.errors import RemoteError
from sphtp.shell.channel import Channel
from sphtp.shell.hosted_streams import HostedSubscription
from sphtp.shell.stream_admission import PendingReceivers, receive_message_untrusted
from sphtp.shell.stream_history import (
    HELLO,
    SALT_SIZE,
    HistoryConnection,
    receive_answers_untrusted,
    serve_connection,
)
from tests.fuzz.choices import Choices, Script
from tests.fuzz.mutations import mutate
from tests.fuzz.stands import Socket, make_attendance, make_hosting
from tests.reach import count

SALT: Final = bytes(range(SALT_SIZE))
CHUNKS: Final = (1, 7, 100, 70_000)
MOST_READ: Final = 1 << 24


async def call_history(choices: Choices) -> None:
    """Somebody connects to a source's history."""
    hosting = make_hosting(Socket(), is_sealed=choices.below(2) > 0)
    attendance = make_attendance(hosting, trio.current_time())
    hosting.source.send_many(trio.current_time(), 0, [bytes(n) for n in range(40)])
    here, there = memory_stream_pair()
    strangers = PendingReceivers(4, 5.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, hosting, strangers, Random(3), cast("Any", there))
        with suppress(trio.BrokenResourceError):
            await _send_requests(choices, attendance, here)
        nursery.start_soon(_read_out, here)
    assert not len(strangers)
    assert not count(trio.CancelScope, hosting)


async def _send_requests(
    choices: Choices, attendance: HostedSubscription, stream: trio.StapledStream[Any, Any]
) -> None:
    welcome = attendance.welcome
    wrong = choices.pick((0, 0, 0, 1))
    hello = HELLO.pack(welcome.session, welcome.receiver ^ wrong, SALT)
    await stream.send_all(hello if choices.below(8) else mutate(choices, hello))
    if wrong or not choices.below(4):
        await stream.send_all(choices.some_bytes(100))
    else:
        salt = bytes(await stream.receive_some(SALT_SIZE))
        outgoing, incoming = fetch_keys(welcome.receiver_key, SALT + salt)
        seal = TcpSeal(outgoing, incoming, SealCounters())
        session = welcome.session
        await _send(choices, stream, [seal.seal(it) for it in _questions(choices, session)])
    await stream.send_eof()


def _questions(choices: Choices, session: int) -> Sequence[bytes]:
    asked = []
    for number in range(1 + choices.below(80)):
        request_key = RequestKey(session, 0, number)
        first = choices.below(60)
        spans = [Span(first, first + choices.pick((0, 5, 60_000)))]
        whole = (
            encode_fetch(FetchRequest(request_key, spans))
            if number
            else encode_ask(AskRequest(request_key))
        )
        asked.append((whole if choices.below(4) else mutate(choices, whole)) or b"?")
    return asked


async def hear_history(choices: Choices) -> None:
    """A source's history answers as it likes."""
    hosting = make_hosting(Socket(), is_sealed=choices.below(2) > 0)
    attendance = make_attendance(hosting, trio.current_time(), late_join=10)
    attendance.subscription.handle_connected(trio.current_time())
    here, there = memory_stream_pair()
    outgoing, incoming = fetch_keys(attendance.welcome.receiver_key, SALT)
    line = HistoryConnection(cast("Any", there), TcpSeal(incoming, outgoing, attendance.counters))
    seal = TcpSeal(outgoing, incoming, SealCounters())
    frames = [choices.some_bytes(60) for _ in range(1 + choices.below(20))]
    sealed = [seal.seal(it) if it and choices.below(8) else it for it in frames]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_send, choices, here, sealed)
        with suppress(RemoteError, trio.BrokenResourceError):
            await receive_answers_untrusted(attendance, line)
        nursery.cancel_scope.cancel()


async def hear_membership(choices: Choices) -> None:
    """The other side of a stream's channel says as it likes."""
    said = choices.some_bytes(200)
    with suppress(RemoteError):
        await receive_message_untrusted(
            cast("Channel", Saying(said if choices.below(8) else "text"))
        )


class Saying:
    """A channel whose other side says one thing."""

    def __init__(self, said: object) -> None:
        self._said = said

    async def receive(self) -> object:
        return self._said


async def _send(
    choices: Choices, stream: trio.StapledStream[Any, Any], frames: Sequence[bytes]
) -> None:
    data = b"".join(map(prefixed, frames))
    data = data if choices.below(4) else mutate(choices, data)
    step = choices.pick(CHUNKS)
    for at in range(0, len(data), step):
        await stream.send_all(data[at : at + step])
    await stream.send_eof()


async def _read_out(stream: trio.StapledStream[Any, Any]) -> None:
    size = 0
    while data := await stream.receive_some(65_536):
        size += len(data)
        assert size < MOST_READ, "it answers without end"


CALLS: Final[Sequence[Callable[[Choices], Awaitable[None]]]] = (
    call_history,
    hear_history,
    hear_membership,
)


def call(data: bytes) -> None:
    """One of these, in a time of its own."""
    script = Script(data)
    trio.run(partial(script.pick(CALLS), script), clock=MockClock(autojump_threshold=0))
