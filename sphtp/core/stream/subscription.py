"""Subscription: one topic of one source at a receiver, with its transport, delivery and history."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Final

from sphtp.core.stream.delivery import DeliveryController, DeliveryState
from sphtp.core.stream.events import Item, LossReason
from sphtp.core.stream.flow_control import StatusReports
from sphtp.core.stream.late_join import (
    FetchedRecord,
    Fetcher,
    FetchFailure,
    FetchState,
    FetchStatistics,
    HistoryStart,
    NoHistory,
)
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver import Receiver, ReceiverState
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.statistics import DeliveryStatistics, ReceiverStatistics
from sphtp.core.stream.wire import Window, encode_status
from sphtp.core.timers import earliest

ALL_HISTORY: Final = 1 << 63
"""The value of ``late_join`` that requests all messages that the source retains."""

_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """A snapshot of transport, delivery and late join."""

    transport: ReceiverStatistics
    delivery: DeliveryStatistics
    fetch: FetchStatistics


class SubscriptionMachine:
    """The receiving side of one topic of a session. Times are in seconds.

    ``transport`` is the receiver of the session, ``first`` the number of the topic's first message
    that was sent after this side joined. ``late_join`` is the most earlier messages to fetch from
    the source's history. With ``after``, every message after that number is delivered or reported
    lost, and ``late_join`` has no effect. With ``recover``, messages that the transport gives up
    are fetched from the history, if the source ``has_history``. ``reach`` is the most bytes by
    which the source may be ahead of this side, 0 for no limit; ``burst`` is the most bytes that
    this side can take at once.
    """

    def __init__(
        self,
        settings: StreamSettings,
        now: float,
        transport: Receiver,
        session: int,
        topic: int,
        first: int,
        *,
        ordered: bool = True,
        late_join: int = 0,
        after: int | None = None,
        recover: bool = True,
        has_history: bool = True,
        reach: int = 0,
        burst: int = maxsize,
    ) -> None:
        lead = transport.lead
        begin = first if after is None else min(after + 1, first)
        is_late = has_history and (late_join > 0 or begin < first)
        self._transport = transport
        self._delivery = DeliveryController(
            settings,
            topic,
            first,
            _NOWHERE if lead is None else lead,
            transport.missing,
            ordered=ordered,
            fetches=recover and has_history,
            late_join=is_late or begin < first,
        )
        self.unread = 0
        """Bytes of messages that the owner has polled and its reader has not read."""
        self._late_join = late_join
        self._after = after
        self._fetcher = Fetcher(settings, session, topic, self._delivery.wanted, late_join=is_late)
        # The source may never send more than the reader's buffer holds.
        burst = min(burst + settings.bandwidth_delay, settings.receive_buffer)
        self._reports = StatusReports(reach, burst, knows_lead=lead is not None)
        if begin < first and not has_history:
            self._begin(None)
        self._fetcher.update(now)

    @property
    def state(self) -> DeliveryState:
        """The state of the topic's delivery."""
        return self._delivery.state

    @property
    def is_over(self) -> bool:
        """True if the transport session has ended."""
        return self._transport.state is ReceiverState.ENDED

    @property
    def is_hungry(self) -> bool:
        """True if less than half of the receive buffer waits for the reader, so that the owner may
        read the connection to the history.
        """
        return self._delivery.is_hungry

    @property
    def live(self) -> int:
        """The number of the first message to deliver; before a late join has started, that of the
        first live message.
        """
        return self._delivery.live

    @property
    def settled(self) -> int:
        """The sequence number up to which all datagrams have arrived or were given up; -1 before
        the first datagram, if the transport began without a window.
        """
        settled = self._transport.settled
        return -1 if settled is None else settled

    @property
    def wants_connection(self) -> bool:
        """True if the owner should open or keep a connection to the source's history."""
        return self._fetcher.wants_connection

    def statistics(self) -> SubscriptionStatistics:
        """Return the counts since the receiver joined, and the present levels."""
        return SubscriptionStatistics(
            self._transport.statistics(), self._delivery.statistics(), self._fetcher.statistics()
        )

    # Inputs

    def handle_body_untrusted(self, now: float, body: bytes) -> None:
        """Take a datagram's body. A malformed one is dropped and counted."""
        self._transport.handle_body_untrusted(now, body)
        self._pass_on(now)

    def handle_bodies_untrusted(self, now: float, bodies: Iterable[bytes]) -> None:
        """Take the bodies of datagrams that arrived together."""
        handle = self._transport.handle_body_untrusted
        for body in bodies:
            handle(now, body)
        self._pass_on(now)

    def handle_connected(self, now: float) -> None:
        """Note that the connection to the history is open."""
        self._fetcher.handle_connected(now)
        self._follow(now)

    def handle_disconnected(self, now: float) -> None:
        """Note that the connection to the history was refused, lost or closed."""
        self._fetcher.handle_disconnected(now)
        self._follow(now)

    def handle_frame_untrusted(self, now: float, frame: bytes) -> None:
        """Take a frame of the connection to the history, without its length.

        A malformed one is dropped and counted.
        """
        self._fetcher.handle_frame_untrusted(now, frame)
        self._follow(now)

    def handle_frames_untrusted(self, now: float, frames: Iterable[bytes]) -> None:
        """Take frames that arrived together."""
        for frame in frames:
            self._fetcher.handle_frame_untrusted(now, frame)
        self._follow(now)

    def handle_alive(self, now: float) -> None:
        """Note that the source's node is alive, even if the source is silent."""
        self._transport.handle_alive(now)

    def handle_gone(self, now: float, *, anew: bool = False) -> None:
        """End the session: the source's node vanished or closed the channel, or the source was
        started ``anew``.
        """
        self._transport.handle_gone(now, anew=anew)
        self._pass_on(now)

    def handle_rejoined(self, now: float, window: Window, number: int) -> None:
        """Take the window, and the number of the topic's next message, of a source that this side
        has rejoined.
        """
        self._transport.handle_window(now, window)
        self._take_word(now, number)

    def handle_closing(self, now: float, window: Window, number: int) -> None:
        """Note that the source closes: it sends no message from ``number`` on."""
        self._transport.handle_closing(now, window)
        self._take_word(now, number)

    def _take_word(self, now: float, number: int) -> None:
        """Take the number of the next message that the source's node sent over the channel."""
        if (lead := self._transport.lead) is not None:
            self._delivery.handle_tail(now, number, lead)
        self._reports.ask()
        self._pass_on(now)

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due, first the transport's, which has the reason of a loss."""
        self._transport.handle_timeout(now)
        self._pass_on(now)
        self._delivery.handle_timeout(now)
        self._fetcher.handle_timeout(now)
        self._follow(now)

    def handle_read(self, now: float) -> bool:
        """Note that the reader took items. Return True if outputs may be due for the source."""
        if self._fetcher.state is not FetchState.RESTING:
            self._follow(now)
            return True
        if self._transport.lead is None:
            return False
        return self._reports.is_due(*self._transport.taken, self._room)

    # Outputs

    def poll_transmit(self, now: float) -> bytes | None:
        """Return the body of a NAK or STATUS to send to the source; None if none is due."""
        return self._transport.poll_transmit(now) or self._poll_status()

    def poll_request(self) -> bytes | None:
        """Return a frame to send over the connection to the history; None if none waits."""
        return self._fetcher.poll_transmit()

    def poll_item(self) -> Item | None:
        """Return the reader's next item; None if there is none now."""
        return self._delivery.poll_item()

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if no timer is set."""
        return earliest(
            self._transport.poll_timeout(),
            self._delivery.poll_timeout(),
            self._fetcher.poll_timeout(),
        )

    def _poll_status(self) -> bytes | None:
        settled = self._transport.settled
        if settled is None or self._transport.state is ReceiverState.ENDED:
            return None
        is_fetching = self._fetcher.state is not FetchState.RESTING
        status = self._reports.poll(
            settled,
            *self._transport.taken,
            self._room,
            is_fetching=is_fetching,
            knows_end=self._transport.knows_end,
        )
        return None if status is None else encode_status(status)

    @property
    def _room(self) -> int:
        return max(self._delivery.room - self.unread, 0)

    # From transport and history to delivery

    def _pass_on(self, now: float) -> None:
        transport, delivery = self._transport, self._delivery
        # Given-up datagrams first, so that gaps detected by arrivals get the reason of their loss.
        while (given_up := transport.poll_given_up()) is not None:
            delivery.handle_given_up(given_up)
        while (arrived := transport.poll_arrived()) is not None:
            delivery.handle_arrived(now, arrived)
        if (tails := transport.poll_tails()) is not None:
            self._see_tails(now, tails)
        delivery.give_up_unrecoverable()
        if transport.state is ReceiverState.ENDED and not delivery.is_over:
            self._end(now)
        if delivery.wanted or self._fetcher.state is not FetchState.RESTING:
            self._follow(now)

    def _see_tails(self, now: float, tails: Sequence[tuple[int, int]]) -> None:
        lead = self._transport.lead
        self._reports.ask()
        for topic, number in tails:
            if topic == self._delivery.topic and lead is not None:
                self._delivery.handle_tail(now, number, lead)

    def _end(self, now: float) -> None:
        self._fetcher.end(now)
        self._settle()
        is_fetching = self._fetcher.state is FetchState.LAST
        self._delivery.handle_end(self._transport.end_reason, fetching=is_fetching)

    def _follow(self, now: float) -> None:
        self._settle()
        self._fetcher.update(now, is_hungry=self._delivery.is_hungry)

    def _settle(self) -> None:
        while (outcome := self._fetcher.poll_outcome()) is not None:
            match outcome:
                case HistoryStart():
                    self._begin(outcome.first)
                case NoHistory():
                    self._begin(None, outcome.reason)
                case FetchedRecord():
                    self._delivery.handle_fetched(outcome.record)
                case FetchFailure():
                    self._delivery.handle_not_fetched(outcome.span, outcome.reason)

    def _begin(self, kept: int | None, reason: LossReason = LossReason.GONE) -> None:
        """Begin delivery, with the history that the source keeps from number ``kept`` on.

        None means that no history can be fetched, for this reason.
        """
        live = self._delivery.live
        if self._after is not None:
            # For messages that it no longer keeps, the source sends GONE when they are requested.
            wanted = begin = min(self._after + 1, live)
        else:
            wanted = max(live - self._late_join, 0)
            begin = max(wanted, kept or 0)
        self._delivery.begin(begin)
        if kept is None:
            self._delivery.handle_not_fetched(Span(wanted, live - 1), reason)
