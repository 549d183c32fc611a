"""The public channel: messages to one peer and from it.

The usual calls are ``await channel.send(x)`` in a loop, and ``async for x in channel``, so these
cost least. ``send`` appends the message to a list, the cork. The loop queues the messages of the
cork in the core before it sends (see ``loop``). Room for several messages is reserved at a time. So
a message on the cork always fits, and a call that is cancelled has sent nothing. ``receive`` takes
messages from a list, too. The faster the program reads, the more messages the channel takes from
the core into that list at a time.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from sphtp.core.arrays import is_view
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import Closed, CloseReason, Opened
from sphtp.core.channel.message_port import OFFERED
from sphtp.core.channel.reassembly import MessageProgress
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.settings import Delivery
from sphtp.core.channel.shared_memory import DESCRIPTOR_SIZE, Region
from sphtp.core.channel.statistics import ChannelStatistics
from sphtp.core.packing import NO_LIMIT, PLAIN, Parts
from sphtp.core.printable import peer_label
from sphtp.errors import LocalError, RefusedError, RemoteError, UnreachableError
from sphtp.shell.encoding import Encoding, check_limit
from sphtp.shell.loop import Loop, Readers
from sphtp.shell.receipt import Callback, Receipt, ReceiptCallbacks
from sphtp.shell.shared_memory import (
    HAS_RING,
    PACKETED,
    PATIENCE,
    PAUSE,
    ChannelMemory,
    InboundSegment,
)

if TYPE_CHECKING:
    # A class without its parameter carries anything: PEP 696, which Python has from 3.13 on.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

PARTING: Final = 0.5
"""The seconds for which the end of a block waits for acks after an error in the block."""

RESERVED: Final = 128
RESERVED_SIZE: Final = 2047
"""The messages for which room is reserved at a time, and the most bytes of each. A larger message
gets a reservation of its own.
"""

FEW: Final = 4
"""The most small messages between two receptions, or in a turn, that leave by shared memory: more
share a packet, which then costs less."""

MOST_AHEAD: Final = 64
"""The most messages that are taken ahead of a program that reads fast."""

FAST: Final = 50e-6
"""The seconds per message within which a program counts as reading fast."""


class _Cork:
    """The corked messages of one lane, and the reserved room for more."""

    __slots__ = ("payloads", "room")

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.room = 0


class ChannelHooks(NamedTuple):
    """The functions by which a node drives a channel; programs do not use them."""

    wake: Callable[[], bool]
    """Wake the waiting tasks. Return true if a task waited for messages and some have arrived."""
    detach: Callable[[], None]
    """Mark the channel as closed, because its node closes."""
    wait_open: Callable[[], Awaitable[None]]
    """Wait until the channel is open. Raises ``UnreachableError`` or ``RefusedError``."""


class Channel(trio.abc.Channel[T]):
    """A channel to one peer, for reliable messages in order and for unreliable ones.

    A message is any value that msgpack carries: None, booleans, numbers, text, bytes, lists and
    maps, and NumPy arrays. If ``Config.messages`` of the node is a ``MessageFactory``, a message
    has one of its types. Leaving the ``async with`` block waits until all reliable messages have
    arrived, and closes the channel. After an error in the block it waits for half a second at most,
    and raises the error unchanged. Several tasks may send, and several may receive.

    As far as congestion control allows, a message leaves at once if its node has sent nothing
    within the last 100 us. Otherwise it leaves together with other messages as soon as the sending
    task waits for anything. A task whose calls of ``send`` and ``receive`` never wait yields to
    other tasks every half millisecond, not at every message. Each call that is awaited checks for
    cancellation.

    Type checkers take the type of messages from an annotation: ``channel: Channel[Step]``.
    """

    def __init__(
        self,
        connection: Connection,
        loop: Loop,
        run_callback: Callable[[Callback, Receipt], None],
        attach: Callable[[ChannelHooks], None],
        encoding: Encoding = PLAIN,
        memory: ChannelMemory | None = None,
    ) -> None:
        attach(ChannelHooks(self._wake, self._detach, self._wait_open))
        self._connection = connection
        self._loop = loop
        self._callbacks = ReceiptCallbacks(run_callback)
        self._encoding = encoding
        self._memory = memory
        # The encoding's own function until there is shared memory for large messages.
        self._encode: Callable[[Any, bool | None], Any] = encoding.encode
        self._corks: dict[int, _Cork] = {}
        # True while the loop has an order to queue the corked messages; true if some have been
        # queued before the loop calls for them; and the most that leave by shared memory.
        self._is_corked = self._is_queued = False
        self._few = FEW
        # The small messages that may leave by shared memory before the program next receives; and
        # the messages sent when it last did.
        self._at_once = self._sent_before = 0
        self._changed = trio.lowlevel.ParkingLot()
        # The tasks that wait for messages; the messages taken ahead, the number of messages to take
        # next, and the time at which the last ones were taken.
        self._readers = Readers(loop)
        self._deliver: Callable[[], bool] | None = None
        self._taken: deque[T] = deque()
        self._ahead = 1
        self._taken_at = -math.inf
        self._is_open = False
        self._closing = False
        # True if a call has raised that messages may be lost.
        self._has_reported = False

    def __repr__(self) -> str:
        host, port = self.peer_address or ("?", 0)
        closed = self._connection.closed
        if closed is not None:
            state = f"closed ({closed.reason.name})"
        elif self._closing:
            state = "closing"
        else:
            state = self._connection.state.name.lower()
        who = peer_label(self._connection.known_as, self.peer_id)
        return f"<Channel to {who} at {host}:{port} {state}>"

    @property
    def peer_id(self) -> int:
        """The peer's id in the cluster; 0 if it has none."""
        return self._connection.peer_id

    @property
    def peer_address(self) -> tuple[str, int] | None:
        """The address of the peer; None until it has answered."""
        return self._connection.address

    @property
    def peer_key(self) -> bytes:
        """The peer's public key, 32 bytes, verified by the handshake; empty in the clear."""
        return self._connection.peer_key

    @property
    def has_vanished(self) -> bool:
        """True if the channel ended because the peer was silent or has forgotten the channel."""
        closed = self._connection.closed
        return closed is not None and closed.reason is CloseReason.VANISHED

    @property
    def undecodable(self) -> int:
        """The number of messages dropped: not msgpack, of no known type, or out of bounds."""
        return self.statistics().undecodable

    def statistics(self) -> ChannelStatistics:
        """Return the statistics since the channel opened; they stay when it has closed.

        A message counts as read when the program has received it. When this side closes the
        channel, messages that it has taken ahead of the program count as read, too.
        """
        figures = self._connection.port.statistics()
        # Corked messages are not queued in the core yet, or the channel ended before they were.
        held_back = self._corked_count
        beside = 0 if self._memory is None else self._memory.waiting
        if not held_back and not self._taken and not beside:
            return figures
        return replace(
            figures,
            messages_sent=figures.messages_sent + held_back,
            waiting=figures.waiting + held_back + beside,
            messages_received=figures.messages_received - len(self._taken),
            unread=figures.unread + len(self._taken),
        )

    def arriving(self) -> list[MessageProgress]:
        """Return the progress of large messages that arrived in part, by lane, oldest first."""
        return self._connection.port.arriving()

    async def send(self, value: T, *, lane: int = 0) -> None:
        """Send a reliable message; wait while the send buffer or the peer has no room for it.

        A cancelled call has sent nothing. ``post`` has more options, and returns a receipt with the
        outcome. ``lane`` is the index of a lane in ``ChannelSettings.lanes``, which gives the
        message its order and its priority.

        Raises:
            MessageTooLargeError: the message is over the limit of the channel.
            trio.ClosedResourceError: this channel was closed on this side.
            trio.BrokenResourceError: the channel ended otherwise: the peer closed it or vanished,
                for example. The text has the cause.
            TypeError, OverflowError: msgpack cannot carry the value. A tuple arrives as a list,
                which is no key of a dict: a dict whose first key is a tuple raises, and the peer
                drops a message that has a tuple as any other key, or as a key inside.
            WireError: the value has no type of ``messages``, or a field is out of bounds; the text
                names it.
            LocalError: there is no such lane.
        """
        payload = self._encode(value, None)
        await trio.lowlevel.checkpoint_if_cancelled()
        if type(payload) is Parts:
            payload = None if self._send_beside(payload, lane) else await self._share(payload, lane)
        elif self._at_once and payload:
            # A program that waits for a message after each of its own pays nothing for a cork.
            self._at_once -= 1
            if self._send_beside(Parts(payload), lane):
                payload = None
        if payload is not None:
            cork = self._corks.get(lane)
            if cork is None or not cork.room or len(payload) > RESERVED_SIZE:
                cork = await self._wait_for_room(len(payload), lane)
            cork.payloads.append(payload)
            cork.room -= 1
            if not self._is_corked:
                self._is_corked = True
                self._loop.cork(self._connection, self._push_corked)
        if self._loop.is_turn_over:
            await self._loop.give_way()

    def send_nowait(
        self, value: T, *, lane: int = 0, delivery: Delivery = Delivery.RELIABLE
    ) -> None:
        """Send a message, or raise ``trio.WouldBlock`` if there is no room for it.

        ``UNRELIABLE`` and ``SEQUENCED`` messages are sent once, and never wait. Some messages
        leave only when this task next waits for anything. Raises as ``send``, and
        ``MessageTooLargeError`` for a message that is sent once and does not fit one packet.
        """
        if delivery is not Delivery.RELIABLE:
            payload = self._encoding.encode(value, None)
            self._check_sendable()
            self._queue(payload, Ticket(trio.current_time(), lane, size=len(payload)), delivery)
            return
        if self._put_nowait(value, lane):
            self._loop.cork(self._connection, self._push_corked)

    async def send_many(self, values: Iterable[T], *, lane: int = 0) -> None:
        """Send reliable messages in order, much faster than one by one.

        Waits as ``send`` does. A cancelled call has sent the messages before the one for which it
        waited.

        Raises as ``send``. If one of the messages is too large or cannot be encoded, none is sent.
        """
        payloads = self._encoding.encode_many(values, None)
        await trio.lowlevel.checkpoint()
        self._check_sendable()
        sizes = list(map(len, payloads))
        memory = self._memory
        if memory is None or max(sizes, default=0) < memory.threshold:
            await self._queue_many(payloads, sizes, lane)
            return
        # Raises for a message that is too large, before any is sent.
        self._connection.port.room_for(sizes, lane)
        self._seek_memory(max(sizes))
        start = 0
        for at, size in enumerate(sizes):
            if size >= memory.threshold and memory.outbound is not None:
                await self._queue_many(payloads[start:at], sizes[start:at], lane)
                start = at + 1
                parts = Parts(payloads[at])
                shared = None
                if not self._send_beside(parts, lane):
                    shared = await self._share(parts, lane)
                if shared is not None and len(shared) != DESCRIPTOR_SIZE:
                    await self._queue_many([shared], [len(shared)], lane)
                    continue
                if shared is not None:
                    # Room for the descriptor is reserved; it leaves with the messages behind it.
                    self._uncork()
                    self._connection.port.queue([shared], lane)
                    self._loop.flush_soon(self._connection)
                if self._loop.is_turn_over:
                    await self._loop.give_way()
        await self._queue_many(payloads[start:], sizes[start:], lane)

    async def _queue_many(self, payloads: list[bytes], sizes: list[int], lane: int) -> None:
        """Queue messages, and wait for room as long as there is too little. Raises as ``send``."""
        if not payloads:
            return
        self._check_sendable()
        self._uncork()
        sent = 0
        if len(sizes) > OFFERED:
            # ``queue_from`` checks sizes ``OFFERED`` at a time. Check all before any is sent.
            self._connection.port.room_for(sizes, lane)
        while sent < len(payloads):
            number = self._connection.port.queue_from(sent, payloads, sizes, lane)
            if number:
                sent += number
                self._loop.flush_now(self._connection)
                if sent < len(payloads):
                    # Sending may have ended the channel: it shows that the path MTU is too small.
                    self._check_sendable()
            else:
                await self._changed.park()
                self._check_sendable()
                self._uncork()

    async def post(
        self,
        value: T,
        *,
        delivery: Delivery = Delivery.RELIABLE,
        lane: int = 0,
        expiry: float | None = None,
        redundancy: int = 0,
        compress: bool | None = None,
    ) -> Receipt:
        """Send a message as ``send`` does, and return a receipt for its outcome.

        ``UNRELIABLE`` and ``SEQUENCED`` messages are sent once, and never wait. A cancelled call
        has sent nothing.

        Args:
            delivery: the guarantee; see ``Delivery``.
            lane: as for ``send``.
            expiry: seconds from the call after which the outcome of the message is ``EXPIRED``,
                unless the peer has acknowledged it. The channel then gives the message up, and
                later messages do not wait for it. A message for which there is no room in this time
                is not sent.
            redundancy: the number of further packets that repeat a reliable message without waiting
                for a loss, for a message that cannot wait a round trip.
            compress: with compression in ``messages``, True compresses this message and False does
                not. By default its size decides.

        Raises as ``send``, ``MessageTooLargeError`` also for a message that is sent once and does
        not fit one packet, and ``LocalError`` if ``expiry`` is not a number, or ``redundancy`` is
        negative, or a message that is sent once has any. If ``compress`` is True and nothing
        compresses, raises ``StateError`` without ``messages``, and ``WireError`` with them.
        """
        ticket = _make_ticket(delivery, lane, expiry, redundancy)
        payload = self._encode_posted(value, compress, delivery, ticket)
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_sendable()
        if isinstance(payload, Parts):
            shared = await self._share(payload, lane, is_packeted=True)
            assert shared is not None
            payload = shared
        while delivery is Delivery.RELIABLE and not self._has_room(len(payload), lane):
            if ticket.deadline is not None and trio.current_time() >= ticket.deadline:
                # There is no checkpoint between the check and the receipt: a channel that has ended
                # gives no receipts.
                await trio.lowlevel.checkpoint_if_cancelled()
                receipt = self._expire(ticket)
                await self._loop.give_way()
                return receipt
            with trio.CancelScope(
                deadline=math.inf if ticket.deadline is None else ticket.deadline
            ):
                await self._changed.park()
            self._check_sendable()
        receipt = self._queue(payload, ticket, delivery)
        if self._loop.is_turn_over:
            await self._loop.give_way()
        return receipt

    def post_nowait(
        self,
        value: T,
        *,
        delivery: Delivery = Delivery.RELIABLE,
        lane: int = 0,
        expiry: float | None = None,
        redundancy: int = 0,
        compress: bool | None = None,
    ) -> Receipt:
        """Send a message as ``post`` does, or raise ``trio.WouldBlock`` if there is no room."""
        ticket = _make_ticket(delivery, lane, expiry, redundancy)
        payload = self._encode_posted(value, compress, delivery, ticket)
        self._check_sendable()
        if isinstance(payload, Parts):
            payload = self._share_nowait(payload, lane)
        if delivery is Delivery.RELIABLE and not self._has_room(len(payload), lane):
            raise trio.WouldBlock
        return self._queue(payload, ticket, delivery)

    async def receive(self) -> T:
        """Wait for the next message.

        Messages that arrived before the end of the channel can be received after it. For a program
        that reads fast, the channel takes up to 64 messages or 2 MiB ahead of the program, which
        count as read for flow control. A cancelled call loses no message.

        Raises:
            trio.ClosedResourceError: this channel was closed on this side.
            trio.EndOfChannel: the peer closed it, and the program has received all its messages.
            trio.BrokenResourceError: the channel ended otherwise: the peer vanished or aborted it,
                for example. The text has the cause.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._loop.is_turn_over:
            await self._loop.give_way()
        if not self._taken:
            self._choose_ahead()
            while not self._take(self._ahead):
                await self._wait_for_messages()
            self._taken_at = perf_counter()
            if len(self._taken) > 1:
                self._readers.wake()
        return self._taken.popleft()

    async def receive_many(self, limit: int = 4096) -> list[T]:
        """Wait for messages, and return those that have arrived: at least one, at most ``limit``.

        With shared memory or compression it may return fewer than have arrived, and so it may if
        2 MiB of reliable messages have. Raises as ``receive``, and ``LocalError`` if ``limit`` is
        less than 1.
        """
        check_limit(limit)
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._taken or self._connection.port.readable or self._loop.is_turn_over:
            await self._loop.give_way()
        while not self._take(limit, is_all=True):
            await self._wait_for_messages()
        taken = self._taken
        if len(taken) > limit:
            return [taken.popleft() for _ in range(limit)]
        messages = list(taken)
        taken.clear()
        return messages

    def receive_nowait(self) -> T:
        """Take the next message. Raises as ``receive``, or ``trio.WouldBlock`` without one."""
        if not self._take(1):
            raise trio.WouldBlock
        return self._taken.popleft()

    async def aclose(self) -> None:
        """Wait until all reliable messages have arrived, then close. A cancelled call aborts.

        If the program or the node has closed the channel already, it returns at once.

        Raises:
            trio.BrokenResourceError: messages may not have arrived, because the peer vanished,
                closed first, or took no message for ``close_timeout``, for example. It is not
                raised if a call that sends or receives has raised it before.
        """
        if self._closing:
            await trio.lowlevel.checkpoint()
            return
        self._detach()
        self._connection.close(trio.current_time())
        self._loop.flush_now(self._connection)
        try:
            await trio.lowlevel.checkpoint()
            while (closed := self._connection.closed) is None:
                await self._changed.park()
        except trio.Cancelled:
            self.abort("closed without waiting")
            raise
        self._check_delivered(closed)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.aclose()
            return
        # The error of the block is raised, and neither the error of an undelivered message nor a
        # cancellation replaces it. Other tasks that use this channel raise when it closes, and
        # their nursery cancels this task. Then the first error would be lost among its effects.
        with trio.move_on_after(PARTING), suppress(trio.BrokenResourceError, trio.Cancelled):
            await self.aclose()

    def abort(self, why: str = "aborted") -> None:
        """Close the channel at once; unacknowledged messages may be lost.

        One packet carries the text ``why``, up to 120 bytes of it, to the peer, whose calls raise
        ``trio.BrokenResourceError`` with it. If this packet is lost, it is not sent again.
        """
        self._detach()
        self._connection.abort(trio.current_time(), why)
        self._loop.flush_now(self._connection)

    # Sending

    def _encode_parts(self, value: Any, compress: bool | None) -> bytes | Parts:
        """Return the payload of a message, in parts if it is large enough for shared memory."""
        parts = self._encoding.encode_parts(value, compress)
        is_large = self._memory is not None and parts.size >= self._memory.threshold
        return parts if is_large else parts.join()

    def _encode_posted(
        self, value: Any, compress: bool | None, delivery: Delivery, ticket: Ticket
    ) -> bytes | Parts:
        """Return the payload of a message with a ticket, in parts only if it cannot be given up.

        After an unreliable message, or one that has expired, this side would not know whether the
        peer still reads its shared memory.
        """
        is_kept = delivery is Delivery.RELIABLE and ticket.deadline is None
        encode = self._encode if is_kept else self._encoding.encode
        payload: bytes | Parts = encode(value, compress)
        ticket.size = len(payload)
        if is_kept and ticket.size > RESERVED_SIZE:
            self._seek_memory(ticket.size)
        return payload

    def _seek_memory(self, size: int) -> None:
        """Request shared memory for large messages, of which one has ``size`` bytes."""
        memory = self._memory
        if memory is None or size < memory.threshold:
            return
        memory.count(self._connection, size)
        if memory.outbound is not None:
            self._encode = self._encode_parts

    def _send_beside(self, parts: Parts, lane: int) -> bool:
        """Send a message by shared memory alone, without a packet; return False if impossible.

        Raises as ``send``.
        """
        self._check_sendable()
        cork = self._corks.get(lane)
        if (cork is not None and cork.payloads) or not self._push_beside(parts, lane):
            return False
        if cork is not None:
            # The message may have taken the room that was reserved in the lane.
            cork.room = 0
        return True

    def _push_beside(self, parts: Parts, lane: int) -> bool:
        """Do as ``_send_beside``, with the room that is reserved in the lane."""
        segment = None if self._memory is None else self._memory.outbound
        if segment is None or not HAS_RING or segment.is_ring_full:
            return False
        port = self._connection.port
        if not port.may_send_beside(lane, parts.size):
            return False
        if (descriptor := segment.store(parts)) is None:
            return False
        segment.push(descriptor, *port.send_beside(lane, parts.size, DESCRIPTOR_SIZE))
        return True

    async def _share(self, parts: Parts, lane: int, *, is_packeted: bool = False) -> bytes | None:
        """Return the payload of a packet for a message.

        The payload is a descriptor, for which room is reserved. If the message is too small for
        that, or no shared memory gets free for it, the payload is the message itself. Return None
        if the message has left by shared memory alone after all; never with ``is_packeted``. No
        checkpoint follows the copy, so that a cancelled call has taken no memory. Raises as
        ``send``.
        """
        for _ in range(PATIENCE):
            # Raises for a message that is too large.
            self._connection.port.has_room(parts.size, lane)
            if parts.size < PACKETED:
                break
            cork = self._corks.get(lane)
            if cork is None or not cork.room:
                await self._wait_for_room(DESCRIPTOR_SIZE, lane)
            segment = None if self._memory is None else self._memory.outbound
            if segment is None:
                break
            if (descriptor := segment.store(parts)) is not None:
                self._connection.port.count_shared_sent(parts.size)
                return descriptor
            if segment.is_stuck:
                break
            # Corked messages leave meanwhile; the peer reads them and frees memory.
            await trio.sleep(PAUSE)
            self._check_sendable()
            if not is_packeted and self._send_beside(parts, lane):
                return None
        else:
            assert segment is not None
            segment.is_stuck = True
        return parts.join()

    def _share_nowait(self, parts: Parts, lane: int) -> bytes:
        """Do as ``_share``, but never wait. Raises ``trio.WouldBlock`` if there is no room."""
        self._check_sendable()
        self._connection.port.has_room(parts.size, lane)
        if parts.size < PACKETED:
            return parts.join()
        cork = self._corks.get(lane)
        if (cork is None or not cork.room) and self._reserve(DESCRIPTOR_SIZE, lane) is None:
            raise trio.WouldBlock
        memory = self._memory
        if memory is not None and memory.outbound is not None:
            descriptor = memory.outbound.store(parts)
            if descriptor is not None:
                self._connection.port.count_shared_sent(parts.size)
                return descriptor
        return parts.join()

    def _push_corked(self) -> bool:
        """Queue the corked messages in the core; the loop calls this before it sends.

        A few of them leave by shared memory instead, which costs less than a packet and its ack.
        Return False if none is queued: all have left, or the connection has ended.
        """
        is_queued, self._is_queued = self._is_queued, False
        self._is_corked = False
        if self._connection.closed is not None:
            return False
        for lane, cork in self._corks.items():
            if (payloads := cork.payloads) and not self._push_few(payloads, lane):
                self._connection.port.queue(payloads, lane)
                is_queued = True
            cork.payloads = []
        return is_queued

    def _push_few(self, payloads: list[bytes], lane: int) -> bool:
        """Send messages by shared memory if they are few, and return True if all have left.

        Remove those that have left from ``payloads``. A segment has no regions for empty messages,
        and a descriptor has to travel in a packet.
        """
        memory = self._memory
        if memory is None or len(payloads) > self._few:
            return False
        if memory.outbound is None:
            memory.count_small(self._connection, trio.current_time())
            return False
        if not all(payloads) or any(map(memory.outbound.is_descriptor, payloads)):
            return False
        while payloads and self._push_beside(Parts(payloads[0]), lane):
            del payloads[0]
        return not payloads

    def _uncork(self) -> None:
        """Queue the corked messages and release the reserved room, before others take it."""
        if self._is_corked:
            self._is_queued = self._push_corked()
            # The order at the loop stays.
            self._is_corked = True
        for cork in self._corks.values():
            cork.room = 0

    def _put_nowait(self, value: Any, lane: int, *, is_packeted: bool = False) -> bool:
        """Put a reliable message into shared memory or a cork; return True if the cork must leave.

        Raises ``trio.WouldBlock`` if there is no room, and as ``send``.
        """
        payload = self._encode(value, None)
        if isinstance(payload, Parts):
            if not is_packeted and self._send_beside(payload, lane):
                return False
            payload = self._share_nowait(payload, lane)
        cork = self._corks.get(lane)
        if cork is None or not cork.room or len(payload) > RESERVED_SIZE:
            cork = self._reserve(len(payload), lane)
            if cork is None:
                raise trio.WouldBlock
        cork.payloads.append(payload)
        cork.room -= 1
        is_first, self._is_corked = not self._is_corked, True
        return is_first

    def _reserve(self, size: int, lane: int) -> _Cork | None:
        """Reserve room in a lane for a message and some later ones; return None if there is none.

        Raises as ``send``.
        """
        self._check_sendable()
        self._uncork()
        if size > RESERVED_SIZE:
            self._seek_memory(size)
        port = self._connection.port
        room = port.reserve(RESERVED, RESERVED_SIZE, lane) if size <= RESERVED_SIZE else 0
        room = room or int(port.has_room(size, lane))
        if not room:
            return None
        cork = self._corks.get(lane)
        if cork is None:
            cork = self._corks[lane] = _Cork()
        cork.room = room
        return cork

    async def _wait_for_room(self, size: int, lane: int) -> _Cork:
        """Wait for room in a lane, and reserve it as ``_reserve`` does."""
        cork = self._reserve(size, lane)
        while cork is None:
            self._loop.flush_soon(self._connection)
            await self._changed.park()
            # The channel was not idle: the messages that follow leave together.
            self._loop.flush_soon(self._connection)
            cork = self._reserve(size, lane)
        return cork

    def _has_room(self, size: int, lane: int) -> bool:
        self._uncork()
        return self._connection.port.has_room(size, lane)

    def _queue(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> Receipt:
        """Queue a message, and return its receipt."""
        self._uncork()
        self._connection.port.send(payload, ticket, delivery)
        self._is_queued = True
        receipt = Receipt(ticket, self._callbacks)
        if not self._is_corked:
            self._is_corked = True
            self._loop.cork(self._connection, self._push_corked)
        return receipt

    def _expire(self, ticket: Ticket) -> Receipt:
        """Return the receipt of a message that expired before there was room for it."""
        self._connection.port.expire(trio.current_time(), ticket)
        receipt = Receipt(ticket, self._callbacks)
        self._loop.flush_soon(self._connection)
        return receipt

    # Receiving

    async def _wait_for_messages(self) -> None:
        readers = self._readers
        if await readers.poll(self._has_arrived, self._connection.port.sent + self._corked_count):
            return
        memory = self._memory
        try:
            if memory is None or memory.inbound is None or memory.inbound.await_entry():
                await readers.sleep()
        finally:
            if memory is not None and memory.inbound is not None:
                self._stop_waiting()

    @property
    def _corked_count(self) -> int:
        """The number of corked messages."""
        return sum([len(cork.payloads) for cork in self._corks.values()])

    def _stop_waiting(self) -> None:
        """Have the peer stop waking this side, unless a task sleeps."""
        segment = None if self._memory is None else self._memory.inbound
        if segment is not None and not self._readers:
            segment.stop_waiting()

    def _has_arrived(self) -> bool:
        """Return True if there is a message to take, or none can follow."""
        connection = self._connection
        if connection.port.readable or connection.closed is not None or self._closing:
            return True
        segment = None if self._memory is None else self._memory.inbound
        return segment is not None and segment.has_entry

    def _choose_ahead(self) -> None:
        """Choose the number of messages to take ahead: the faster the program reads, the more.

        For a slow program messages are taken one by one. So an unread message can still be
        displaced by a later one, and holds back the peer by flow control.
        """
        is_fast = perf_counter() - self._taken_at < FAST * self._ahead
        self._ahead = min(2 * self._ahead, MOST_AHEAD) if is_fast else 1

    def _take(self, limit: int, *, is_all: bool = False) -> bool:
        """Take messages from the core, up to ``limit``. Return False if there is none yet.

        If messages were taken ahead, more are taken only with ``is_all``. Raises as ``receive`` if
        no message can follow.
        """
        if self._closing:
            raise trio.ClosedResourceError("this channel is closed")
        port, taken, memory = self._connection.port, self._taken, self._memory
        segment = None if memory is None else memory.inbound
        if memory is not None and memory.outbound is not None:
            sent = port.sent - self._sent_before
            if sent:
                self._at_once = self._few if sent <= self._few else 0
                self._sent_before += sent
        most = min(limit, self._encoding.most_at_once)
        if segment is not None:
            # The size of a descriptor does not show the size of its message.
            most = min(most, MOST_AHEAD)
        if taken and not (is_all and len(taken) < most):
            return True
        # One call of the port returns all that has arrived, or about ``READ_BYTES`` of it. Decoded,
        # more could fill the memory. Another one follows only if all messages were malformed.
        while True:
            if segment is not None:
                segment.take_entries_untrusted(port.deliver_beside_untrusted)
            payloads = port.receive_many(most - len(taken))
            if not payloads and not taken:
                self._check_receivable()
                return False
            if port.is_credit_due:
                self._loop.flush_soon(self._connection)
            if segment is None:
                values = self._encoding.decode_many_untrusted(payloads)
            else:
                values = self._decode_shared_untrusted(segment, payloads)
            if len(values) != len(payloads):
                port.count_undecodable(len(payloads) - len(values))
            taken.extend(values)
            if taken:
                return True

    def _decode_shared_untrusted(
        self, segment: InboundSegment, payloads: Sequence[bytes]
    ) -> list[Any]:
        """Return the messages, those in shared memory included, without malformed ones."""
        values: list[Any] = []
        start = 0
        for at, payload in enumerate(payloads):
            if segment.is_descriptor(payload):
                if start < at:
                    values += self._encoding.decode_many_untrusted(payloads[start:at])
                try:
                    region, shared = segment.open_untrusted(payload)
                except RemoteError:
                    # It is malformed.
                    pass
                else:
                    values += self._read_shared_untrusted(segment, region, shared)
                    self._connection.port.count_shared_received(region.size)
                start = at + 1
        if start < len(payloads):
            values += self._encoding.decode_many_untrusted(payloads[start:])
        return values

    def _read_shared_untrusted(
        self, segment: InboundSegment, region: Region, payload: memoryview
    ) -> list[Any]:
        """Return the message in a region in a list, empty if it is malformed; free the region."""
        assert self._memory is not None
        # A view of a small array would occupy a region for little.
        is_copied = self._memory.is_copied or len(payload) < self._memory.threshold
        values = self._encoding.decode_shared_untrusted(payload, is_copied=is_copied)
        if values and (values[0] is payload or (not is_copied and is_view(values[0]))):
            segment.lend(region, values[0])
        else:
            segment.free(region)
        return values

    # The loop's side

    def _detach(self) -> None:
        """Mark the channel as closed on this side, by the program or with its node."""
        self._uncork()
        self._closing = True
        self._taken.clear()
        self._release_memory()
        self._readers.wake()
        self._changed.unpark_all()

    def _release_memory(self) -> None:
        """Free the outbound memory of an ended channel, and all of it if this side closed it."""
        if self._memory is not None and self._connection.closed is not None:
            self._memory.close_outbound()
            if self._closing:
                self._memory.close()

    def _check_delivered(self, closed: Closed) -> None:
        if self.statistics().waiting and not self._has_reported:
            raise trio.BrokenResourceError(closed.text)

    async def _wait_open(self) -> None:
        while not self._is_open:
            closed = self._connection.closed
            if closed is not None:
                raise _failure(closed)
            await self._changed.park()

    def _wake(self) -> bool:
        connection = self._connection
        while connection.events:
            self._is_open |= isinstance(connection.poll_event(), Opened)
        if self._callbacks.open:
            while (ticket := connection.port.poll_settled()) is not None:
                self._callbacks.open.pop(ticket)()
            self._callbacks.report_progress()
        if connection.closed is not None:
            self._uncork()
            self._release_memory()
        if self._changed:
            self._changed.unpark_all()
        if self._deliver is not None:
            return self._deliver()
        is_readable = connection.port.readable
        if (is_readable or connection.closed is not None) and self._readers.wake():
            return is_readable
        if not self._readers:
            # The event was for a task that sleeps no more.
            self._stop_waiting()
        return False

    def _check_sendable(self) -> None:
        if self._closing:
            raise trio.ClosedResourceError("this channel is closed")
        if self._connection.closed is not None:
            self._has_reported = True
            raise trio.BrokenResourceError(self._connection.closed.text)

    def _check_receivable(self) -> None:
        closed = self._connection.closed
        if closed is None:
            return
        if closed.reason is CloseReason.DONE:
            raise trio.EndOfChannel(closed.text)
        self._has_reported = True
        raise trio.BrokenResourceError(closed.text)


class ServiceChannel(Channel[Any]):
    """A channel of a service (see ``services``): the loop calls a function, and wakes no task."""

    def deliver_to(self, deliver: Callable[[], bool] | None) -> None:
        """Set the function that the loop calls when messages came or the channel changed.

        The function returns true if a task that waited for messages goes on. For messages that come
        by shared memory alone, the loop calls it only after ``await_shared``. The peer has such a
        function as well, and no task that sleeps until there is an entry. So from now on small
        messages of this side leave in packets, which wake it, except those of ``hold_nowait``.
        """
        self._deliver = deliver
        self._few = 0

    def await_shared(self, number: int) -> bool:
        """Have the function called for the next message by shared memory.

        Return False if a message is there already, or the notice with this number.
        """
        segment = None if self._memory is None else self._memory.inbound
        is_armed = segment is None or (segment.await_entry() and not segment.has_notice(number))
        return is_armed and not self._connection.port.readable

    def stop_waiting(self) -> None:
        """Undo ``await_shared``: the next messages by shared memory cause no call."""
        segment = None if self._memory is None else self._memory.inbound
        if segment is not None:
            segment.stop_waiting()

    @property
    def has_ended(self) -> bool:
        """True if no message follows those that have arrived."""
        return self._closing or self._connection.closed is not None

    def post_notice(self, parts: Parts) -> bool:
        """Send a contribution as a notice; return False if that is impossible.

        The counters of the channel include it. Its observer gets no event. Raises as ``send``.
        """
        self._check_sendable()
        segment = None if self._memory is None else self._memory.outbound
        if segment is None or not HAS_RING or not segment.post(parts):
            return False
        self._connection.port.count_beside_sent(parts.size)
        return True

    def has_notice(self, number: int) -> bool:
        """Return True if the next notice has this number."""
        segment = None if self._memory is None else self._memory.inbound
        return segment is not None and segment.has_notice(number)

    def take_notice(self, least: int, before: float) -> Any:
        """Return the payload of the next notice with a number from ``least`` on, below ``before``.

        Return None if there is none. Raises ``RemoteError`` if the notice is malformed.
        """
        segment = None if self._memory is None else self._memory.inbound
        if segment is None or (opened := segment.take_notice_untrusted(least, before)) is None:
            return None
        self._connection.port.count_notice_received(opened[0].size)
        return self._read_shared_untrusted(segment, *opened)[0]

    @property
    def has_ready(self) -> bool:
        """True if ``take_ready`` has a message to take."""
        segment = None if self._memory is None else self._memory.inbound
        has_entry = segment is not None and segment.has_entry
        return has_entry or bool(self._connection.port.readable)

    def take_ready(self) -> list[Any]:
        """Take messages that have arrived, perhaps not all, and none if there are none.

        Raises as ``receive``.
        """
        if not self._take(NO_LIMIT):
            return []
        taken = list(self._taken)
        self._taken.clear()
        return taken

    def hold_nowait(self, payload: Any, *, is_packeted: bool = False) -> bool:
        """Send as ``send_nowait``, but with the loop's next ``flush_now`` or ``ask``.

        ``payload`` is a value for the encoding of the service. A message by shared memory leaves at
        once, and wakes the peer only after the peer's ``await_shared``. A packet always wakes the
        peer; ``is_packeted`` requires one. Return true if the cork of the channel has to leave.
        """
        memory = self._memory
        if memory is not None and type(payload) is Parts and not is_packeted:
            if memory.outbound is not None:
                if self._send_beside(payload, 0):
                    return False
            elif payload.size < memory.threshold:
                memory.count_small(self._connection, trio.current_time())
        is_held = self._put_nowait(payload, 0, is_packeted=is_packeted)
        if is_held:
            self._loop.hold(self._connection, self._push_corked)
        return is_held

    def share_copies(self) -> None:
        """Have a message to several channels copied once, into memory that all peers read."""
        if self._memory is not None:
            self._memory.has_common = True

    def check_size(self, size: int) -> None:
        """Raise ``MessageTooLargeError`` for a message that this channel never carries."""
        if self._connection.closed is None and self._is_open:
            self._connection.port.has_room(size, 0)


def _make_ticket(delivery: Delivery, lane: int, expiry: float | None, redundancy: int) -> Ticket:
    now = trio.current_time()
    if redundancy < 0:
        raise LocalError(f"redundancy is {redundancy}; allowed is 0 or more")
    if redundancy and delivery is not Delivery.RELIABLE:
        raise LocalError(
            f"redundancy is {redundancy} for a message of delivery {delivery.name}, which is sent "
            "once; only RELIABLE messages are repeated"
        )
    if expiry is None:
        return Ticket(now, lane, copies=redundancy)
    if math.isnan(expiry):
        raise LocalError("expiry is not a number of seconds")
    return Ticket(now, lane, now + expiry, redundancy)


def _failure(closed: Closed) -> Exception:
    if closed.reason in {CloseReason.REFUSED, CloseReason.SCHEMA}:
        return RefusedError(closed.text, closed.refusal)
    return UnreachableError(closed.text)
