"""A channel as users hold it: messages to one peer and from it.

The usual calls are ``await channel.send(x)`` in a loop, and ``async for x in channel``, so these
cost least. ``send`` appends the message to a list, which is queued in the core when the loop sends
(see ``loop``). Room for several messages is reserved at a time. So a message on the list always
fits, and a call that is cancelled has sent nothing. ``receive`` takes messages from a list as well.
It is filled with more at a time the faster the program reads.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from types import TracebackType
from typing import Any, Final, NamedTuple

import trio

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import Closed, CloseReason, Opened
from sphtp.core.channel.message_port import OFFERED
from sphtp.core.channel.reassembly import MessageProgress
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.settings import Delivery
from sphtp.core.channel.statistics import ChannelStatistics
from sphtp.core.packing import NO_LIMIT, PLAIN
from sphtp.errors import LocalError, RefusedError, UnreachableError
from sphtp.shell.encoding import Encoding, check_limit
from sphtp.shell.loop import Loop
from sphtp.shell.receipt import Callback, Receipt, ReceiptCallbacks

PARTING: Final = 0.5
"""The seconds that messages may still take to arrive after an error has ended the block."""

RESERVED: Final = 128
RESERVED_SIZE: Final = 4096
"""The messages for which room is reserved at a time, and the bytes of each; larger ones go singly.
"""

MOST_AHEAD: Final = 64
"""The most messages that are taken ahead of a program that reads fast."""

FAST: Final = 50e-6
"""The seconds per message within which a program counts as reading fast."""


class _Cork:
    """The messages of one lane that are held back, and the room for more."""

    __slots__ = ("payloads", "room")

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.room = 0


class ChannelHooks(NamedTuple):
    """The functions by which a node, but no program, drives a channel."""

    wake: Callable[[], bool]
    """Wake the tasks that wait. Return true if one waited for messages, and there are some."""
    detach: Callable[[], None]
    """Mark the channel as closed with its node."""
    wait_open: Callable[[], Awaitable[None]]
    """Wait until the peer has answered. Raises ``UnreachableError`` or ``RefusedError``."""


class Channel(trio.abc.Channel[Any]):
    """Reliable messages in order, and unreliable ones, between this node and one peer.

    A message is anything that msgpack carries: None, booleans, numbers, text, bytes, lists and
    maps; or, where the node was opened with ``messages``, of one of their types. A channel is
    closed by leaving its ``async with`` block, which waits until everything sent has arrived; after
    an error in the block for half a second at most, and the error leaves it as it is. Several tasks
    may send, and several receive.

    A message leaves at once when nothing has left within the last 100 us; else with those that are
    sent in the same turn, as soon as this task waits for anything. A task that sends or receives
    without ever waiting lets others have a turn every half millisecond, not at every message;
    whether it was cancelled is looked at in every call.
    """

    def __init__(
        self,
        connection: Connection,
        loop: Loop,
        run_callback: Callable[[Callback, Receipt], None],
        attach: Callable[[ChannelHooks], None],
        encoding: Encoding = PLAIN,
    ) -> None:
        attach(ChannelHooks(self._wake, self._detach, self._wait_open))
        self._connection = connection
        self._loop = loop
        self._callbacks = ReceiptCallbacks(run_callback)
        self._encoding = encoding
        self._corks: dict[int, _Cork] = {}
        # Whether it stands in the loop's line, and what is held back will be queued.
        self._is_corked = False
        self._changed = trio.lowlevel.ParkingLot()
        # Who waits for messages; those taken ahead, how many to take next, and when the last ones
        # were taken.
        self._readers = trio.lowlevel.ParkingLot()
        self._deliver: Callable[[], bool] | None = None
        self._taken: deque[Any] = deque()
        self._ahead = 1
        self._taken_at = -math.inf
        self._is_open = False
        self._closing = False
        # Whether somebody has been told that messages may be lost.
        self._has_told = False

    def __repr__(self) -> str:
        host, port = self.peer_address or ("?", 0)
        closed = self._connection.closed
        if closed is not None:
            state = f"closed ({closed.reason.name})"
        elif self._closing:
            state = "closing"
        else:
            state = self._connection.state.name.lower()
        return f"<Channel to {self.peer_id:#010x} at {host}:{port} {state}>"

    @property
    def peer_id(self) -> int:
        """The peer's id in the cluster, 0 when it has none."""
        return self._connection.peer_id

    @property
    def peer_address(self) -> tuple[str, int] | None:
        """The address from which the peer sends; None before it answered."""
        return self._connection.address

    @property
    def peer_key(self) -> bytes:
        """The public key that the peer has proven to have, 32 bytes; empty in the clear."""
        return self._connection.peer_key

    @property
    def has_vanished(self) -> bool:
        """True if the channel ended because the peer vanished."""
        closed = self._connection.closed
        return closed is not None and closed.reason is CloseReason.VANISHED

    @property
    def undecodable(self) -> int:
        """The messages dropped because they are not msgpack, of no known type, or too large."""
        return self.statistics().undecodable

    def statistics(self) -> ChannelStatistics:
        """Return the figures so far; they stay when the channel has closed.

        A message counts as read when the program has it, even if it was taken ahead.
        """
        figures = self._connection.port.statistics()
        # These are not queued in the core yet, or the channel ended before they could be.
        held_back = sum([len(cork.payloads) for cork in self._corks.values()])
        if not held_back and not self._taken:
            return figures
        return replace(
            figures,
            messages_sent=figures.messages_sent + held_back,
            waiting=figures.waiting + held_back,
            messages_received=figures.messages_received - len(self._taken),
            unread=figures.unread + len(self._taken),
        )

    def arriving(self) -> list[MessageProgress]:
        """Return the progress of large messages of which a part is here, by lane, oldest first."""
        return self._connection.port.arriving()

    async def send(self, value: Any, *, lane: int = 0, compress: bool | None = None) -> None:
        """Send a reliable message; waits while too many messages are unacknowledged.

        If cancelled, nothing was sent. ``post`` returns a receipt with the outcome.

        Args:
            lane: the lane, which gives the message its order and its priority.
            compress: True or False decides for this message if ``messages`` have compression; by
                default its threshold does.

        Raises:
            MessageTooLargeError: over the limit of the channel.
            trio.ClosedResourceError: this channel was closed on this side.
            trio.BrokenResourceError: the peer closed it or vanished; the message says which.
            TypeError, OverflowError: msgpack cannot carry the value.
            WireError: it is of no type of ``messages``, or out of bounds; the message says which.
            LocalError: there is no such lane.
        """
        payload = self._encoding.encode(value, compress)
        await trio.lowlevel.checkpoint_if_cancelled()
        cork = self._corks.get(lane)
        if cork is None or not cork.room or len(payload) > RESERVED_SIZE:
            cork = await self._wait_for_room(len(payload), lane)
        cork.payloads.append(payload)
        cork.room -= 1
        if not self._is_corked:
            self._is_corked = True
            if self._loop.cork(self._connection, self._push_corked):
                await self._loop.end_lone_send()
                return
        if self._loop.is_turn_over:
            await self._loop.give_way()

    def send_nowait(self, value: Any, *, lane: int = 0, compress: bool | None = None) -> None:
        """Send a reliable message, or raise ``trio.WouldBlock`` where ``send`` would wait.

        What was sent before without a wait leaves when this task next waits for anything.
        """
        payload = self._encoding.encode(value, compress)
        cork = self._corks.get(lane)
        if cork is None or not cork.room or len(payload) > RESERVED_SIZE:
            cork = self._reserve(len(payload), lane)
            if cork is None:
                raise trio.WouldBlock
        cork.payloads.append(payload)
        cork.room -= 1
        if not self._is_corked:
            self._is_corked = True
            self._loop.cork(self._connection, self._push_corked)

    async def send_many(
        self, values: Iterable[Any], *, lane: int = 0, compress: bool | None = None
    ) -> None:
        """Send reliable messages, in order; much faster than one by one.

        Waits as ``send`` does. Cancelled, it has sent those before the one it waited for.

        Raises as ``send``; when one message is too large or of no type, none has been sent.
        """
        payloads = self._encoding.encode_many(values, compress)
        await trio.lowlevel.checkpoint()
        self._check_sendable()
        self._uncork()
        sizes, sent = list(map(len, payloads)), 0
        if len(sizes) > OFFERED:
            # Where one is too large, none is sent, but those behind the first are queued later.
            self._connection.port.room_for(sizes, lane)
        while sent < len(payloads):
            number = self._connection.port.queue_from(sent, payloads, sizes, lane)
            if number:
                sent += number
                self._loop.flush_now(self._connection)
                if sent < len(payloads):
                    # What leaves can show that the path takes nothing, which ends the channel.
                    self._check_sendable()
            else:
                await self._changed.park()
                self._check_sendable()
                self._uncork()

    async def post(
        self,
        value: Any,
        *,
        delivery: Delivery = Delivery.RELIABLE,
        lane: int = 0,
        deadline: float | None = None,
        copies: int = 0,
        compress: bool | None = None,
    ) -> Receipt:
        """Send a message as ``send`` does, and return a receipt for its outcome.

        A message that is sent once never waits. If cancelled, nothing was sent.

        Args:
            delivery: the guarantee; see ``Delivery``.
            lane, compress: as ``send``.
            deadline: seconds from the call after which a message is given up if it was not
                acknowledged, or, sent once, did not leave. Later messages do not wait for it. If
                there is no room for it until then, nothing is sent and the outcome is
                ``EXPIRED``.
            copies: the number of further packets that repeat the message without waiting for a
                loss, for a message that cannot wait a round trip.

        Raises as ``send``; ``MessageTooLargeError`` also for a message that is sent once and does
        not fit one packet, and ``LocalError`` where ``deadline`` is no number, or ``copies``
        negative.
        """
        ticket = _make_ticket(lane, deadline, copies)
        payload = self._encoding.encode(value, compress)
        ticket.size = len(payload)
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_sendable()
        while delivery is Delivery.RELIABLE and not self._has_room(ticket.size, lane):
            if ticket.deadline is not None and trio.current_time() >= ticket.deadline:
                # Nothing comes between: a channel that ended meanwhile gives no receipts.
                await trio.lowlevel.checkpoint_if_cancelled()
                receipt = self._expire(ticket)
                await self._loop.give_way()
                return receipt
            with trio.CancelScope(
                deadline=math.inf if ticket.deadline is None else ticket.deadline
            ):
                await self._changed.park()
            self._check_sendable()
        receipt, is_gone = self._queue(payload, ticket, delivery)
        if is_gone:
            await self._loop.end_lone_send()
        elif self._loop.is_turn_over:
            await self._loop.give_way()
        return receipt

    def post_nowait(
        self,
        value: Any,
        *,
        delivery: Delivery = Delivery.RELIABLE,
        lane: int = 0,
        deadline: float | None = None,
        copies: int = 0,
        compress: bool | None = None,
    ) -> Receipt:
        """Send a message as ``post`` does, or raise ``trio.WouldBlock`` where that would wait.

        A message that is sent once, ``UNRELIABLE`` or ``SEQUENCED``, never waits: this is the call
        for it.
        """
        ticket = _make_ticket(lane, deadline, copies)
        payload = self._encoding.encode(value, compress)
        ticket.size = len(payload)
        self._check_sendable()
        if delivery is Delivery.RELIABLE and not self._has_room(ticket.size, lane):
            raise trio.WouldBlock
        receipt, _ = self._queue(payload, ticket, delivery)
        return receipt

    async def receive(self) -> Any:
        """Wait for the next message.

        Messages that arrived before the channel ended are still received after it. Of a program
        that reads fast, up to 64 messages and 2 MiB are taken ahead at a time: the peer is allowed
        to send as many more as if they had been read. Cancelled, it has lost nothing.

        Raises:
            trio.ClosedResourceError: this channel was closed on this side.
            trio.EndOfChannel: the peer closed it, and everything it sent has been received.
            trio.BrokenResourceError: the peer vanished or gave up; the message says which.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._loop.is_turn_over:
            await self._loop.give_way()
        if not self._taken:
            self._choose_ahead()
            while not self._take(self._ahead):
                await self._loop.wait_for_messages(self._readers)
            self._taken_at = perf_counter()
            if len(self._taken) > 1:
                self._readers.unpark_all()
        return self._taken.popleft()

    async def receive_many(self, limit: int = 4096) -> list[Any]:
        """Wait for messages, and take those that are there: at least one, at most ``limit``.

        Raises as ``receive``, and ``LocalError`` where ``limit`` is less than one.
        """
        check_limit(limit)
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._taken or self._connection.port.readable:
            await self._loop.give_way()
        while not self._take(limit, is_all=True):
            await self._loop.wait_for_messages(self._readers)
        return [self._taken.popleft() for _ in range(min(limit, len(self._taken)))]

    def receive_nowait(self) -> Any:
        """Take the next message. Raises ``trio.WouldBlock`` if there is none."""
        if not self._take(1):
            raise trio.WouldBlock
        return self._taken.popleft()

    # For services: their messages go from the loop to a function, and wake no task of their own.

    def _deliver_to(self, deliver: Callable[[], bool] | None) -> None:
        """Call a function when messages came or the channel changed.

        It returns true if a task that waited for messages goes on.
        """
        self._deliver = deliver

    def _take_ready(self) -> list[Any]:
        """Take the messages that are here, perhaps none. Raises as ``receive``."""
        if not self._connection.port.readable and self._connection.closed is None:
            return []
        self._take(NO_LIMIT, is_all=True)
        taken = list(self._taken)
        self._taken.clear()
        return taken

    def _hold_nowait(self, payload: bytes) -> None:
        """Send as ``send_nowait``, but with the loop's next ``flush_now`` or ``ask``."""
        cork = self._corks.get(0)
        if cork is None or not cork.room or len(payload) > RESERVED_SIZE:
            cork = self._reserve(len(payload), 0)
            if cork is None:
                raise trio.WouldBlock
        cork.payloads.append(payload)
        cork.room -= 1
        if not self._is_corked:
            self._is_corked = True
            self._loop.hold(self._connection, self._push_corked)

    def _check_size(self, size: int) -> None:
        """Raise ``MessageTooLargeError`` for a message that this channel never carries."""
        if self._connection.closed is None and self._is_open:
            self._connection.port.has_room(size, 0)

    async def aclose(self) -> None:
        """Wait until everything sent has arrived, then close. Cancelled, it aborts.

        Raises:
            trio.BrokenResourceError: messages may not have arrived, because the peer vanished,
                closed first, or took nothing for ``close_timeout``. Not raised where ``send`` or
                ``receive`` have said so before.
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
        # What went wrong in the block leaves it: neither a message that did not arrive takes its
        # place, nor a cancellation. Tasks that find this channel closed under them raise, their
        # nursery cancels this one, and the first error would be lost among those that it caused.
        with trio.move_on_after(PARTING), suppress(trio.BrokenResourceError, trio.Cancelled):
            await self.aclose()

    def abort(self, why: str = "aborted") -> None:
        """Close at once. The peer is told the reason, once. Unacknowledged messages may be lost."""
        self._detach()
        self._connection.abort(trio.current_time(), why)
        self._loop.flush_now(self._connection)

    # Sending

    def _push_corked(self) -> None:
        """Queue the corked messages in the core; the loop calls this before it sends."""
        self._is_corked = False
        if self._connection.closed is not None:
            return
        for lane, cork in self._corks.items():
            if cork.payloads:
                self._connection.port.queue(cork.payloads, lane)
                cork.payloads = []

    def _uncork(self) -> None:
        """Queue the corked messages and release reserved room, before others take room."""
        if self._is_corked:
            self._push_corked()
            # It keeps its place in the loop's line.
            self._is_corked = True
        for cork in self._corks.values():
            cork.room = 0

    def _reserve(self, size: int, lane: int) -> _Cork | None:
        """Reserve room in a lane for a message and some later ones; None if there is none.

        Raises as ``send``.
        """
        self._check_sendable()
        self._uncork()
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
            # The line was not idle: what follows now leaves together.
            self._loop.flush_soon(self._connection)
            cork = self._reserve(size, lane)
        return cork

    def _has_room(self, size: int, lane: int) -> bool:
        self._uncork()
        return self._connection.port.has_room(size, lane)

    def _queue(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> tuple[Receipt, bool]:
        """Queue a message with a receipt. Return that, and true if the message left at once."""
        self._uncork()
        self._connection.port.send(payload, ticket, delivery)
        receipt = Receipt(ticket, self._callbacks)
        if self._is_corked:
            return receipt, False
        self._is_corked = True
        return receipt, self._loop.cork(self._connection, self._push_corked)

    def _expire(self, ticket: Ticket) -> Receipt:
        """Return the receipt of a message for which there was no room in time."""
        self._connection.port.expire(trio.current_time(), ticket)
        receipt = Receipt(ticket, self._callbacks)
        self._loop.flush_soon(self._connection)
        return receipt

    # Receiving

    def _choose_ahead(self) -> None:
        """Choose the number of messages to take ahead: the more, the faster the program reads.

        A slow program gets them one by one, so that an unread message can still expire, and can
        hold the peer up.
        """
        is_fast = perf_counter() - self._taken_at < FAST * self._ahead
        self._ahead = min(2 * self._ahead, MOST_AHEAD) if is_fast else 1

    def _take(self, limit: int, *, is_all: bool = False) -> bool:
        """Take messages, up to ``limit``. Return false if there is none yet.

        Where one was taken ahead, only ``is_all`` takes those that are there as well. Raises as
        ``receive`` where none will come.
        """
        if self._closing:
            raise trio.ClosedResourceError("this channel is closed")
        port, taken = self._connection.port, self._taken
        most = min(limit, self._encoding.most_at_once)
        while not taken or (is_all and len(taken) < most):
            payloads = port.receive_many(most - len(taken) if taken else most)
            if not payloads:
                if taken:
                    break
                self._check_receivable()
                return False
            if port.is_credit_due:
                self._loop.flush_soon(self._connection)
            values = self._encoding.decode_many_untrusted(payloads)
            if len(values) != len(payloads):
                port.count_undecodable(len(payloads) - len(values))
            taken.extend(values)
        return True

    # The loop's side

    def _detach(self) -> None:
        """Mark the channel as closed on this side: by itself, or with its node."""
        self._uncork()
        self._closing = True
        self._taken.clear()
        self._readers.unpark_all()
        self._changed.unpark_all()

    def _check_delivered(self, closed: Closed) -> None:
        if self.statistics().waiting and not self._has_told:
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
        if self._changed:
            self._changed.unpark_all()
        if self._deliver is not None:
            return self._deliver()
        if not self._readers:
            return False
        is_awaited = connection.port.readable
        if is_awaited or connection.closed is not None:
            self._readers.unpark_all()
        return is_awaited

    def _check_open(self) -> None:
        if self._closing:
            raise trio.ClosedResourceError("this channel is closed")

    def _check_sendable(self) -> None:
        self._check_open()
        if self._connection.closed is not None:
            self._has_told = True
            raise trio.BrokenResourceError(self._connection.closed.text)

    def _check_receivable(self) -> None:
        closed = self._connection.closed
        if closed is None:
            return
        if closed.reason is CloseReason.DONE:
            raise trio.EndOfChannel(closed.text)
        self._has_told = True
        raise trio.BrokenResourceError(closed.text)


def _make_ticket(lane: int, deadline: float | None, copies: int) -> Ticket:
    now = trio.current_time()
    if copies < 0:
        raise LocalError(f"copies is {copies}; allowed is 0 or more")
    if deadline is None:
        return Ticket(now, lane, copies=copies)
    if math.isnan(deadline):
        raise LocalError("deadline is not a number of seconds")
    return Ticket(now, lane, now + deadline, copies)


def _failure(closed: Closed) -> Exception:
    if closed.reason in {CloseReason.REFUSED, CloseReason.SCHEMA}:
        return RefusedError(closed.text, closed.refusal)
    return UnreachableError(closed.text)
