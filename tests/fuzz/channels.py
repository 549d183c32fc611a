"""A channel whose messages come through shared memory, and one of requests, whatever peers send.

Nothing is raised but what their pages say, each message is received or counted, and every call
ends.
"""

import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import trio
from trio.testing import MockClock

from sphtp.config import ChannelSettings
from sphtp.core.channel.shared_memory import (
    COMMON,
    DATA_START,
    DESCRIPTOR_SIZE,
    HEAD,
    Region,
    SegmentTerms,
    encode_descriptor,
    write_entry,
)
from sphtp.core.group.messages import contribution_head
from sphtp.core.packing import MALFORMED, Parts, pack, unpack
from sphtp.core.requests import wire
from sphtp.core.requests.table import RequestArrived, RequestStatistics
from sphtp.errors import RemoteError
from sphtp.shell import group_watch
from sphtp.shell.channel import Channel
from sphtp.shell.encoding import encoding_for
from sphtp.shell.group import REUSED, ArrayMemory
from sphtp.shell.requests import RequestChannel
from sphtp.shell.shared_memory import ChannelMemory, InboundSegment
from sphtp.testing import Pair
from tests.fuzz.choices import Choices, Script
from tests.fuzz.decoders import SEGMENT, peer_segment
from tests.fuzz.mutations import mutate

PLAIN: Final = encoding_for(None)
MARKER: Final = bytes(range(16))
MOST_MESSAGE: Final = 2**20
MOST_KEPT: Final = 8
FRONT: Final = 64
MOST_READ: Final = 1000
WAITS: Final = (0.0, 0.1, 3.0, 40.0)


class Port:
    """What a channel takes messages from, and the counts of those that it had."""

    is_credit_due = False

    def __init__(self) -> None:
        self.arrived = deque[bytes]()
        self.given = self.undecodable = 0

    @property
    def readable(self) -> int:
        return len(self.arrived)

    def receive_many(self, limit: int) -> list[bytes]:
        taken = [self.arrived.popleft() for _ in range(min(limit, len(self.arrived)))]
        self.given += len(taken)
        return taken

    def deliver_beside_untrusted(self, _: int, __: int, descriptor: bytes) -> bool:
        self.arrived.append(descriptor)
        return len(self.arrived) < MOST_KEPT

    def count_shared_received(self, size: int) -> None: ...

    def count_undecodable(self, number: int) -> None:
        assert number > 0
        self.undecodable += number


class SharedChannel:
    """A channel with the segment of a peer; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._memory, file = peer_segment()
        self._memory[:DATA_START] = bytes(DATA_START)
        settings = ChannelSettings(array_views=choices.below(2) > 0)
        memory = ChannelMemory(lambda *_: False, settings)
        self._segment = InboundSegment(
            (os.dup(file), os.dup(file)), SegmentTerms(MARKER, SEGMENT, SEGMENT), MOST_MESSAGE
        )
        memory.inbound = self._segment
        self._port = Port()
        self._head = self._received = 0
        self._kept = deque[Any](maxlen=MOST_KEPT)
        connection: Any = SimpleNamespace(port=self._port, closed=None)
        self._channel = Channel[Any](
            connection, cast("Any", None), lambda *_: None, lambda _: None, PLAIN, memory
        )

    def step(self) -> None:
        """Let one thing happen, and receive what there is."""
        choices = self._choices
        match choices.below(8):
            case 0:
                self._port.arrived.append(choices.some_bytes(60))
            case 1:
                self._port.arrived.append(choices.pick(_messages()))
            case 2:
                # The peer may write whenever it likes, while somebody has a view of it, too.
                at, data = DATA_START + choices.below(4000), choices.some_bytes(200)
                self._memory[at : at + len(data)] = data
            case 3:
                self._receive()
            case 4 | 5:
                self._port.arrived.append(self._descriptor())
            case _:
                lane, message_id = choices.below(256), choices.below(2**16)
                descriptor = self._descriptor()[:DESCRIPTOR_SIZE].ljust(DESCRIPTOR_SIZE, b"\0")
                with memoryview(self._memory) as view:
                    write_entry(view, self._head, descriptor, lane, message_id)
                self._head = (self._head + choices.pick((1, 1, 1, 2, 2**20))) % 2**32
                self._memory[4 * HEAD : 4 * HEAD + 4] = self._head.to_bytes(4, "little")

    def _descriptor(self) -> bytes:
        """Write a message into memory; return its descriptor, which may lie."""
        choices = self._choices
        data = choices.pick(_messages())
        start = DATA_START + 64 * choices.below(64)
        self._memory[start : start + len(data)] = data
        size = choices.pick((len(data), len(data), len(data), 1 + choices.below(5000)))
        slot = choices.below(64) + choices.pick((0, 0, COMMON))
        region = Region(slot, choices.below(2**32), start, size)
        descriptor = encode_descriptor(MARKER, region)
        return descriptor if choices.below(4) else mutate(choices, descriptor)

    def _receive(self) -> None:
        with suppress(trio.WouldBlock):
            for _ in range(MOST_READ):
                self._kept.append(self._channel.receive_nowait())
                self._received += 1

    def finish(self) -> None:
        """Receive the rest, and compare the counts."""
        self._receive()
        port = self._port
        assert port.given == self._received + port.undecodable
        self._kept.clear()
        self._segment.close()


@cache
def _messages() -> Sequence[bytes]:
    values = (None, {"step": 7}, bytes(300), np.arange(40.0), np.arange(6).reshape(2, 3), [b"a", 1])
    encoded = [PLAIN.encode(value, None) for value in values]
    return tuple(it.join() if isinstance(it, Parts) else bytes(it) for it in encoded)


def shared_channel(data: bytes) -> None:
    """Play a script to a channel with shared memory."""
    script = Script(data)
    it = SharedChannel(script)
    while script:
        it.step()
    it.finish()


def shared_entries(data: bytes) -> None:
    """Play a script to a connection that has messages from beside its packets."""
    script = Script(data)
    pair = Pair(1)
    _, right = pair.open()
    while script:
        payload = script.some_bytes(60)
        with suppress(RemoteError):
            right.port.deliver_beside_untrusted(script.below(2**9), script.below(2**16), payload)
        if script.below(4) == 0:
            right.port.receive_many(1 + script.below(9))
    assert right.closed is None


class Waiter:
    """A caller that waits for an answer."""

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.outcome: object = None


class RequestPeer:
    """The other end of a channel of requests; what it sends comes as fast as it is read."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._is_aborted = False
        self.requests: RequestChannel
        self.arrived = deque[int](maxlen=MOST_KEPT)

    def __aiter__(self) -> "RequestPeer":
        return self

    async def __anext__(self) -> bytes:
        choices = self._choices
        if choices.below(4) == 0:
            await trio.sleep(choices.pick(WAITS))
        for _ in range(choices.below(3)):
            self._use()
        await trio.lowlevel.checkpoint()
        if self._is_aborted or not choices:
            raise choices.pick((StopAsyncIteration, trio.BrokenResourceError))
        data = wire.encode_message(self._message())
        return data if choices.below(4) else mutate(choices, data)

    async def send(self, data: bytes, *, lane: int) -> None:
        assert 0 <= lane < 256
        wire.decode_message_untrusted(data)
        await trio.sleep(self._choices.pick(WAITS[:2]))
        if self._is_aborted:
            raise trio.BrokenResourceError

    def abort(self, _: str) -> None:
        self._is_aborted = True

    def _message(self) -> wire.Message:
        number = self._choices.below(4)
        options: list[wire.Message] = [
            wire.RequestMessage(number, "load", b"\x07", self._choices.pick((None, 0.0, 5.0))),
            wire.CancelMessage(number),
            wire.ReplyMessage(number, b"\xc0"),
            wire.ErrorMessage(number, wire.ErrorReason.BUSY),
            wire.GoodbyeMessage(),
        ]
        return self._choices.pick(options)

    def _use(self) -> None:
        """Do what the program on this side may do."""
        choices, requests, table = self._choices, self.requests, self.requests.table
        match choices.below(6):
            case 0 if table.has_room and requests.slots.available_tokens:
                waiter: Any = Waiter()
                requests.slots.acquire_on_behalf_of_nowait(waiter)
                number, outgoing = table.ask(trio.current_time(), "load", b"\x07", None)
                requests.waiters[number] = waiter
                table.handle_sent(trio.current_time(), outgoing)
            case 1 if self.arrived:
                if (reply := table.reply(self.arrived.popleft(), b"\xc0")) is not None:
                    table.handle_sent(trio.current_time(), reply)
            case 2 if self.arrived:
                table.fail(wire.ErrorMessage(self.arrived.popleft(), wire.ErrorReason.CRASHED))
            case 3 if requests.waiters:
                table.cancel(next(iter(requests.waiters)))
            case 4:
                requests.retire()
            case _:
                table.handle_timeout(trio.current_time())
        requests.settle()


async def _converse(choices: Choices) -> None:
    peer = RequestPeer(choices)

    def handle(_: RequestChannel, event: RequestArrived) -> None:
        peer.arrived.append(event.number)

    peer.requests = RequestChannel(cast("Any", peer), 5, RequestStatistics(), handle)
    await peer.requests.run()
    assert peer.requests.table.is_over
    assert not peer.requests.waiters
    assert not peer.requests.slots.borrowed_tokens


class WatchedChannel:
    """A channel from a member of a group, which says anything."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    async def receive(self) -> bytes:
        if not self._choices:
            raise trio.EndOfChannel
        data = self._choices.pick(_of_a_member())
        return data if self._choices.below(3) else mutate(self._choices, data, _of_a_member())


@cache
def _of_a_member() -> Sequence[bytes]:
    hello = (5, 1, "ada")
    rows = ((0, *hello), (1, 7, [hello, (7, 2, "bob")]), (2, 3, 4), (3, 9), (9,), 7, ("", None))
    return *(group_watch.CONTROL + pack(row) for row in rows), group_watch.HEAD.pack(2, 7) + b"\xc0"


def watched_member(data: bytes) -> None:
    """Play a script to somebody who watches a group."""
    taken = list[group_watch.Watched]()

    async def watch() -> None:
        with suppress(RemoteError, trio.EndOfChannel):
            await group_watch.read_member_untrusted(WatchedChannel(Script(data)), taken.append)

    trio.run(watch, clock=MockClock())
    assert len(taken) <= len(data)


class GroupArrays:
    """The arrays of a group's steps; the peer may write where it wrote them whenever it likes."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._are_views = choices.below(2) > 0
        self._memory = ArrayMemory(are_views=self._are_views, least=2048)
        # What the program holds, each with the bytes that it was.
        self._held = deque[tuple[Any, bytes]](maxlen=MOST_KEPT)

    def step(self) -> None:
        """Take a contribution, whose memory changes at once, or drop an older one."""
        choices = self._choices
        data = choices.pick(_contributions())
        if choices.below(4) == 0:
            # The head says what it is; a large one is too long to be changed anywhere.
            data = mutate(choices, data[:FRONT]) + data[FRONT:]
        if choices.below(4) == 0 and self._held:
            del self._held[choices.below(len(self._held))]
        payload = bytearray(contribution_head(7) + (data or b"\xc0"))
        start = len(contribution_head(7))
        with suppress(*MALFORMED):
            value = self._memory.unpack_untrusted(memoryview(payload), start)
            packed = pack(value)
            assert packed == pack(unpack(bytes(payload), start))
            if not self._are_views:
                payload[:] = bytes(len(payload))
                self._held.append((value, packed))
        assert all(pack(value) == packed for value, packed in self._held)


@cache
def _contributions() -> Sequence[bytes]:
    large = [np.full(REUSED // 8 + more, 7.0 + more) for more in (0, 0, 1)]
    return tuple(
        map(pack, (*large, np.arange(6).reshape(2, 3), {"step": 7}, bytes(9000), [1, b"a"]))
    )


def group_arrays(data: bytes) -> None:
    """Play a script to the arrays of a group's steps."""
    script = Script(data)
    it = GroupArrays(script)
    while script:
        it.step()


def request_channel(data: bytes) -> None:
    """Play a script to the requests of a channel, in a time of its own."""
    trio.run(partial(_converse, Script(data)), clock=MockClock(autojump_threshold=0))
