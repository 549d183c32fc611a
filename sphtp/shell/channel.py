"""A channel as users hold it: messages to one peer and from it."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import trio

from sphtp.core.channel.burst import Burst
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.delivery import Delivery
from sphtp.core.channel.lifecycle import Closed, CloseReason, Opened
from sphtp.core.channel.reassembly import Arriving
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.statistics import ChannelStatistics
from sphtp.errors import LocalError, RefusedError, UnreachableError
from sphtp.shell.busy_poll import BusyPoll
from sphtp.shell.courtesy import Courtesy
from sphtp.shell.encoding import PLAIN, Encoding, check_limit
from sphtp.shell.readers import Readers
from sphtp.shell.receipt import Callback, Desk, Receipt

PARTING: Final = 0.5
"""Seconds that what was sent may take to arrive once an error has ended the block of a channel."""


class Channel(trio.abc.ReceiveChannel[Any]):
    """Reliable messages in order, and unreliable ones, between this node and one peer.

    A message is anything that msgpack carries: None, booleans, numbers, text, bytes, lists and
    maps; or, where the node was opened with ``messages``, of one of their types. A channel is
    closed by leaving its ``async with`` block, which waits until everything sent has arrived; after
    an error in the block for half a second at most, and the error leaves it as it is. Several tasks
    may send, and several receive.
    """

    def __init__(
        self,
        connection: Connection,
        touched: Callable[[], None],
        run_callback: Callable[[Callback, Receipt], None],
        courtesy: Courtesy,
        busy_poll: BusyPoll,
        encoding: Encoding = PLAIN,
    ) -> None:
        self._connection = connection
        self._touched = touched
        self._desk = Desk(run_callback)
        self._courtesy = courtesy
        self._encoding = encoding
        self._receipts: dict[Ticket, Receipt] = {}
        self._readers = Readers(connection, busy_poll)
        self._changed = trio.lowlevel.ParkingLot()
        self._is_open = False
        self._closing = False
        # Whether somebody has been told that messages may be lost.
        self._has_told = False

    @property
    def peer_id(self) -> int:
        """The peer's id in the cluster, 0 when it has none."""
        return self._connection.peer_id

    @property
    def peer_address(self) -> tuple[str, int] | None:
        """Where the peer sends from; None before it answered."""
        return self._connection.address

    @property
    def peer_key(self) -> bytes:
        """The public key that the peer has proven to have, 32 bytes; empty in the clear."""
        return self._connection.peer_key

    @property
    def has_vanished(self) -> bool:
        """Whether the channel has ended because the peer went without a word."""
        closed = self._connection.closed
        return closed is not None and closed.reason is CloseReason.VANISHED

    @property
    def undecodable(self) -> int:
        """Messages dropped because they are not msgpack, or not of a type or within its bounds."""
        return self.statistics().undecodable

    def statistics(self) -> ChannelStatistics:
        """Return the figures so far; they stay when the channel has closed."""
        return self._connection.port.statistics()

    def arriving(self) -> list[Arriving]:
        """Return how far large messages are of which a part is here, by lane, oldest first."""
        return self._connection.port.arriving()

    async def send(
        self,
        value: Any,
        *,
        delivery: Delivery = Delivery.RELIABLE,
        lane: int = 0,
        deadline: float | None = None,
        copies: int = 0,
        compress: bool | None = None,
    ) -> Receipt:
        """Send a message; waits while too many messages are unacknowledged.

        Cancelled, it has sent nothing. A message that is sent once never waits.

        Args:
            delivery: what is promised; see ``Delivery``.
            lane: whose order it takes part in, and whose priority it has.
            deadline: seconds from the call after which a message is given up that was not
                acknowledged, or is sent once and did not leave; those behind it do not wait for
                it. Where there is no room for it until then, nothing of it is sent, and its
                receipt says ``EXPIRED``.
            copies: with how many further packets it goes again without waiting for a loss, for
                what cannot wait a round trip: in them, or behind them when they are full.
            compress: True or False decides for this message where ``messages`` have compression;
                by default its threshold does.

        Raises:
            MessageTooLargeError: over the limit of the channel or, sent once, of one packet.
            trio.ClosedResourceError: this channel was closed on this side.
            trio.BrokenResourceError: the peer closed it or vanished; the message says which.
            TypeError, OverflowError: msgpack cannot carry the value.
            WireError: it is of no type of ``messages``, or out of bounds; the message says which.
            LocalError: there is no such lane, ``deadline`` is no number, or ``copies`` negative.
        """
        now = trio.current_time()
        ticket = _follow(now, lane, deadline, copies)
        payload = self._encoding.encode(value, compress)
        ticket.size = len(payload)
        # The message leaves before others get a turn, as with Trio's own sockets.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_sendable()
        port = self._connection.port
        while delivery is Delivery.RELIABLE and not port.has_room(ticket.size, lane):
            if ticket.deadline is not None and trio.current_time() >= ticket.deadline:
                # Nothing comes between: a channel that ended meanwhile gives no receipts.
                await trio.lowlevel.checkpoint_if_cancelled()
                receipt = self._expire(ticket)
                await trio.lowlevel.cancel_shielded_checkpoint()
                return receipt
            with trio.CancelScope(
                deadline=math.inf if ticket.deadline is None else ticket.deadline
            ):
                await self._changed.park()
            self._check_sendable()
        receipt = self._queue(payload, ticket, delivery)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return receipt

    def send_nowait(self, value: Any, *, lane: int = 0, compress: bool | None = None) -> Receipt:
        """Send a reliable message, or raise ``trio.WouldBlock`` where ``send`` would wait."""
        payload = self._encoding.encode(value, compress)
        self._check_sendable()
        if not self._connection.port.has_room(len(payload), lane):
            raise trio.WouldBlock
        ticket = Ticket(trio.current_time(), lane, size=len(payload))
        return self._queue(payload, ticket, Delivery.RELIABLE)

    async def send_many(
        self, values: Iterable[Any], *, lane: int = 0, compress: bool | None = None
    ) -> None:
        """Send reliable messages, in order; much faster than one by one.

        Waits as ``send`` does. Cancelled, it has sent those before the one it waited for.

        Raises as ``send``; when one message is too large or of no type, none has been sent.
        """
        payloads = self._encoding.encode_many(values, compress)
        self._courtesy.note(trio.current_time(), payloads)
        await trio.lowlevel.checkpoint()
        self._check_sendable()
        burst = Burst(self._connection.port, payloads, lane)
        while burst.left:
            if burst.send():
                self._touched()
            else:
                await self._changed.park()
                self._check_sendable()

    async def receive(self) -> Any:
        """Wait for the next message.

        Messages that arrived before the channel ended are still received after it.

        Raises:
            trio.ClosedResourceError: this channel was closed on this side.
            trio.EndOfChannel: the peer closed it, and everything it sent has been received.
            trio.BrokenResourceError: the peer vanished or gave up; the message says which.
        """
        return (await self.receive_many(1))[0]

    async def receive_many(self, limit: int = 4096) -> list[Any]:
        """Wait for messages, and take those that are there: at least one, at most ``limit``.

        Raises as ``receive``, and ``LocalError`` where ``limit`` is less than one.
        """
        check_limit(limit)
        if self._connection.port.readable:
            # Before anything is taken, so that cancelling loses nothing; waiting is one, too.
            await trio.lowlevel.checkpoint()
        limit = min(limit, self._encoding.most_at_once)
        while True:
            self._check_open()
            payloads = self._connection.port.receive_many(limit)
            if not payloads:
                self._check_receivable()
                await self._readers.wait()
            elif values := self._decode(payloads):
                return values

    def receive_nowait(self) -> Any:
        """Take the next message; raises ``trio.WouldBlock`` when there is none by now."""
        self._check_open()
        while payloads := self._connection.port.receive_many(1):
            if values := self._decode(payloads):
                return values[0]
        self._check_receivable()
        raise trio.WouldBlock

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
        self._touched()
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
        # What went wrong in the block is the news; that something was not delivered follows.
        with trio.move_on_after(PARTING), suppress(trio.BrokenResourceError):
            await self.aclose()

    def abort(self, why: str = "aborted") -> None:
        """Close at once; the peer is told why, once, and what is not acknowledged may be lost."""
        self._detach()
        self._connection.abort(trio.current_time(), why)
        self._touched()

    def _queue(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> Receipt:
        self._connection.port.send(payload, ticket, delivery)
        receipt = self._receipts[ticket] = Receipt(ticket, self._desk)
        self._touched()
        self._courtesy.note(ticket.sent_at, (payload,))
        return receipt

    def _expire(self, ticket: Ticket) -> Receipt:
        """Give the receipt of a message for which there was no room in time."""
        self._connection.port.expire(trio.current_time(), ticket)
        receipt = self._receipts[ticket] = Receipt(ticket, self._desk)
        self._touched()
        return receipt

    def _detach(self) -> None:
        """Let everybody see that it is closed on this side: by itself, or with its node."""
        self._closing = True
        self._readers.end()
        self._changed.unpark_all()

    def _check_delivered(self, closed: Closed) -> None:
        if self._connection.port.statistics().waiting and not self._has_told:
            raise trio.BrokenResourceError(closed.text)

    async def _wait_open(self) -> None:
        while not self._is_open:
            closed = self._connection.closed
            if closed is not None:
                raise _failure(closed)
            await self._changed.park()

    def _wake(self) -> bool:
        """Let everybody see what is new; true when somebody waited for messages, and there are."""
        while (event := self._connection.poll_event()) is not None:
            self._is_open |= isinstance(event, Opened)
        while (ticket := self._connection.port.poll_settled()) is not None:
            self._receipts.pop(ticket)._announce()  # noqa: SLF001 - receipts are made here only
        self._desk.tell_progress()
        if self._changed:
            self._changed.unpark_all()
        return self._readers.tell()

    def _decode(self, payloads: Sequence[bytes]) -> list[Any]:
        self._courtesy.note(trio.current_time(), payloads)
        port = self._connection.port
        if port.has_news:
            self._touched()
        values = self._encoding.decode_many_untrusted(payloads)
        if len(values) != len(payloads):
            port.count_undecodable(len(payloads) - len(values))
        return values

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


def _follow(now: float, lane: int, deadline: float | None, copies: int) -> Ticket:
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
