"""One topic of one source, as its reader has it: transport, delivery and history tied together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Any, Final

from sphtp.core.alarms import earliest
from sphtp.core.stream.delivery.delivery import Delivery
from sphtp.core.stream.delivery.items import Item
from sphtp.core.stream.delivery.statistics import DeliveryStatistics
from sphtp.core.stream.delivery.table import Delivering
from sphtp.core.stream.events import LossReason
from sphtp.core.stream.fetch.fetcher import Came, Fetcher, FetchStatistics, Known, Missed
from sphtp.core.stream.fetch.table import Fetching
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver.receiver import Receiver
from sphtp.core.stream.receiver.statistics import ReceiverStatistics
from sphtp.core.stream.receiver.status import StatusReports
from sphtp.core.stream.receiver.table import ReceiverState
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import encode_status

ALL: Final = 1 << 63
"""Of a late join: everything that the source keeps."""

_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """What transport, delivery and history have counted."""

    transport: ReceiverStatistics
    delivery: DeliveryStatistics
    fetch: FetchStatistics


class Subscription:
    """Brings what a session's transport hands on to its reader. Times in seconds.

    ``transport`` is the session's, ``first`` the number that the topic's next message had when this
    side joined. ``late_join`` is how many messages before that are wanted, at most; ``recover``
    says whether what the transport gives up is fetched from the source's history. ``reach`` is how
    many datagrams of ``size`` bytes the source may be ahead of this side, 0 if it does not care;
    ``burst`` how many this side can take at once.
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
        recover: bool = True,
        reach: int = 0,
        size: int = 1,
        burst: int = maxsize,
    ) -> None:
        lead = transport.lead
        self._transport = transport
        self._delivery = Delivery(
            settings,
            topic,
            first,
            _NOWHERE if lead is None else lead,
            transport.is_missing_between,
            ordered=ordered,
            fetches=recover,
            late_join=late_join > 0,
        )
        self._late_join = late_join
        self._fetcher = Fetcher(
            settings, session, topic, self._delivery.wanted, late_join=late_join > 0
        )
        self._reports = StatusReports(reach, size, burst, lead)
        self._heed: Mapping[type, Callable[[Any], None]] = {
            Known: self._begin,
            Came: self._take,
            Missed: self._miss,
        }
        self._fetcher.update(now)

    @property
    def state(self) -> Delivering:
        """Where the topic's delivery is."""
        return self._delivery.state

    @property
    def wants_connection(self) -> bool:
        """Whether a connection to the source's history should be made, or kept."""
        return self._fetcher.wants_connection

    def statistics(self) -> SubscriptionStatistics:
        """Return the counts so far."""
        return SubscriptionStatistics(
            self._transport.statistics(), self._delivery.statistics(), self._fetcher.statistics()
        )

    # Inputs

    def handle_body_untrusted(self, now: float, body: bytes) -> None:
        """Take a datagram's body; what makes no sense is counted."""
        self._transport.handle_body_untrusted(now, body)
        self._pass_on(now)

    def handle_bodies_untrusted(self, now: float, bodies: Iterable[bytes]) -> None:
        """Take the bodies of datagrams that came together."""
        handle = self._transport.handle_body_untrusted
        for body in bodies:
            handle(now, body)
        self._pass_on(now)

    def handle_connected(self, now: float) -> None:
        """The connection to the history is made."""
        self._fetcher.handle_connected(now)
        self._follow(now)

    def handle_disconnected(self, now: float) -> None:
        """The connection to the history was refused, lost or closed."""
        self._fetcher.handle_disconnected(now)
        self._follow(now)

    def handle_frame_untrusted(self, now: float, frame: bytes) -> None:
        """Take a frame of that connection, without its length; what makes no sense is counted."""
        self._fetcher.handle_frame_untrusted(now, frame)
        self._follow(now)

    def handle_frames_untrusted(self, now: float, frames: Iterable[bytes]) -> None:
        """Take frames that came together."""
        for frame in frames:
            self._fetcher.handle_frame_untrusted(now, frame)
        self._follow(now)

    def handle_alive(self, now: float) -> None:
        """The source's node is there, silent or not."""
        self._transport.handle_alive(now)

    def handle_gone(self, now: float) -> None:
        """The source's node vanished."""
        self._transport.handle_gone(now)
        self._pass_on(now)

    def handle_timeout(self, now: float) -> None:
        """Do what is due. The transport comes first: it knows why something is lost."""
        self._transport.handle_timeout(now)
        self._pass_on(now)
        self._delivery.handle_timeout(now)
        self._fetcher.handle_timeout(now)
        self._follow(now)

    def handle_read(self, now: float) -> bool:
        """The reader took something; return whether that is news for the source."""
        if self._fetcher.state is not Fetching.RESTING:
            self._follow(now)
            return True
        settled, lead = self._transport.settled, self._transport.lead
        if settled is None or lead is None:
            return False
        return self._reports.is_due(settled, lead, self._delivery.room)

    # Outputs

    def poll_transmit(self, now: float) -> bytes | None:
        """Return the body of a NAK or STATUS to send to the source; None when there is none."""
        return self._transport.poll_transmit(now) or self._poll_status()

    def poll_request(self) -> bytes | None:
        """Return a frame to send over the connection to the history; None when there is none."""
        return self._fetcher.poll_transmit()

    def poll_item(self) -> Item | None:
        """Return what the reader is told next; None when there is nothing now."""
        return self._delivery.poll_item()

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` has something to do."""
        due = earliest(self._transport.poll_timeout(), self._delivery.poll_timeout())
        return earliest(due, self._fetcher.poll_timeout())

    def _poll_status(self) -> bytes | None:
        settled, lead = self._transport.settled, self._transport.lead
        if settled is None or lead is None or self._transport.state is ReceiverState.ENDED:
            return None
        is_fetching = self._fetcher.state is not Fetching.RESTING
        status = self._reports.poll(settled, lead, self._delivery.room, is_fetching=is_fetching)
        return None if status is None else encode_status(status)

    # From the one to the other

    def _pass_on(self, now: float) -> None:
        transport, delivery = self._transport, self._delivery
        # First what will not come: then a gap that comes to light is known to be for good.
        while (given_up := transport.poll_given_up()) is not None:
            delivery.handle_given_up(given_up)
        while (arrived := transport.poll_arrived()) is not None:
            delivery.handle_arrived(now, arrived)
        if (tails := transport.poll_tails()) is not None:
            self._see_tails(now, tails)
        delivery.hand_over()
        if transport.state is ReceiverState.ENDED and not delivery.is_over:
            self._end(now)
        if delivery.wanted or self._fetcher.state is not Fetching.RESTING:
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
        self._delivery.handle_end(fetching=self._fetcher.state is Fetching.LAST)

    def _follow(self, now: float) -> None:
        self._settle()
        self._fetcher.update(now, is_hungry=self._delivery.is_hungry)

    def _settle(self) -> None:
        while (outcome := self._fetcher.poll_outcome()) is not None:
            self._heed[type(outcome)](outcome)

    def _begin(self, known: Known) -> None:
        live = self._delivery.live
        wanted = max(live - self._late_join, 0)
        self._delivery.begin(max(wanted, known.first or 0))
        if known.first is None:
            self._delivery.handle_missed(Span(wanted, live - 1), LossReason.SESSION_END)

    def _take(self, came: Came) -> None:
        self._delivery.handle_fetched(came.record)

    def _miss(self, missed: Missed) -> None:
        self._delivery.handle_missed(*missed)
