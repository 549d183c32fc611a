"""What is on its way to the peer: what packets held, and what became of them.

The queues, the watch over packets, and the control of pace and size tell one another here of acks,
losses and silence; none of them knows another.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import OVERHEAD
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.loss_detection import LossDetector
from sphtp.core.channel.path import Path
from sphtp.core.channel.send_queue import SendQueue
from sphtp.core.channel.sent_packets import Hit, SentBatch, SentPackets
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.channel.ticket import Outcome, Tickets
from sphtp.core.timers import earliest

MOST_AHEAD: Final = 4096
"""Bytes that may have left without being noted when another packet leaves."""

MOST_DEFERRED: Final = 32
"""Packets, of both ways, that are put off when another one comes."""


class AckReport(NamedTuple):
    """What a header acked, when it came, and how long the peer had had the newest of that."""

    now: float
    newest: int
    bits: int
    delay: float


class SendSide:
    """Messages and packets between leaving and being acked.

    ``credit`` is what this side allows, which packets tell.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        sent: SentPackets,
        credit: ReceiveCredit,
        counters: Counters,
    ) -> None:
        self.recovery = LossDetector(
            settings.ack_delay, settings.resend_time, settings.keepalive / 4
        )
        largest = min(settings.max_datagram, peer.max_datagram)
        self.path = Path(settings, self.recovery, largest)
        self.send_queue = SendQueue(settings, self.path.mtu.size - OVERHEAD, peer, counters.bounds)
        self.tickets = Tickets()
        self._sent_packets = sent
        self._credit = credit
        self._counters = counters
        self._close_lost = False
        # What is to be noted yet, in the order in which it came about, and how much of it left.
        self._deferred: list[SentBatch | AckReport] = []
        self._acked: list[Hit] = []
        self.ahead = 0

    def poll_timeout(self) -> float | None:
        """When a packet is lost, a probe is due, or a message expires."""
        return earliest(self.recovery.deadline(), self.tickets.next_deadline())

    def sent(self, train: SentBatch) -> None:
        """Packets leave, from the next sequence on; what else there is to note has time."""
        self._sent_packets.sent(train)
        self._counters.sent += train.number
        self._counters.bytes_sent += train.number * train.size
        if train.eliciting:
            self._deferred.append(train)
            self.ahead += train.number * train.size

    def heard(self, now: float, newest: int, bits: int, delay: float) -> None:
        """A header acked packets from ``newest`` on; what that means has time.

        ``delay`` is how long the peer had the newest.
        """
        # Its 16 bits were restored before more left, and may mean another packet afterwards.
        self._deferred.append(AckReport(now, newest, bits, delay))
        if len(self._deferred) > MOST_DEFERRED:
            self.catch_up()

    @property
    def is_ahead(self) -> bool:
        """Whether so much was put off that it has to be noted before more leaves."""
        return self.ahead > MOST_AHEAD

    @property
    def is_up_to_date(self) -> bool:
        """Whether nothing was put off."""
        return not self._deferred

    def catch_up(self) -> None:
        """Note what was put off, as it came about; headers count together, where the last came."""
        late, self._deferred, self.ahead = self._deferred, [], 0
        reports = [entry for entry in late if isinstance(entry, AckReport)]
        for entry in late:
            if isinstance(entry, SentBatch):
                self.path.sent(entry.sent_at, entry)
                self.recovery.sent(entry)
            elif entry is reports[-1]:
                self._note_heard(reports)

    def poll_acked(self) -> Sequence[Hit]:
        """The packets acked since the last time."""
        acked, self._acked = self._acked, []
        return acked

    def _note_heard(self, reports: Sequence[AckReport]) -> None:
        acked = [
            hit
            for report in reports
            for hit in self._sent_packets.acknowledge(report.newest, report.bits)
        ]
        if not acked:
            return
        if len(reports) > 1:
            acked.sort(key=_newest)
        newest = acked[-1]
        # Only the packet that a header names has been at the peer for just so long.
        named = newest.newest if newest.train.eliciting else None
        timed = [report for report in reports if report.newest == named]
        now, _, _, delay = timed[0] if timed else reports[-1]
        lost = self.recovery.acked(now, acked, delay if timed else None)
        self.path.acked(now, acked, self.recovery.round_trip.latest if timed else None)
        for hit in acked:
            if hit.train.lost:
                self._counters.lost_in_appearance += (hit.bits & hit.train.lost).bit_count()
            self._settle(now, hit)
        self._give_up(now, lost)
        self._acked += acked

    def handle_timeout(self, now: float) -> bool:
        """Give up what is lost or has expired; true when an ack has to be asked for by a PING."""
        self.catch_up()
        for ticket in self.tickets.expire(now):
            self.send_queue.give_up(ticket)
        lost, probes = self.recovery.handle_timeout(now, self.path.allowance(now))
        self._give_up(now, lost)
        if not probes:
            return False
        self.path.mtu.unanswered(self.recovery.probes, max([probe.train.size for probe in probes]))
        # What the oldest packets held goes again, so that probes are of use if they were lost.
        is_repeated = False
        for probe in probes:
            self._close_lost |= probe.train.closing
            if probe.train.credit:
                self._credit.forget()
            pieces = probe.pieces()
            self._counters.resent += self.send_queue.again(pieces)
            is_repeated |= any(not piece.acked for piece in pieces)
        self.path.probe(now)
        # A small packet may pass where large ones vanish.
        is_needed = not is_repeated or self.path.suspects_size
        return is_needed and not self._sent_packets.ambiguous

    def handle_too_large(self, now: float, size: int) -> None:
        """Take it that a datagram of that size was too large to be sent."""
        self.catch_up()
        self.path.mtu.refused(now, size)

    def poll_close_lost(self) -> bool:
        """Whether a packet with CLOSE was lost, or is long in coming, since the last time."""
        is_lost, self._close_lost = self._close_lost, False
        return is_lost

    def close(self, now: float, outcome: Outcome) -> None:
        """The connection has ended: of what is not acked by now this is the outcome."""
        self.catch_up()
        self.tickets.close(now, outcome)

    def resize(self, now: float) -> None:
        """Cut anew what waits, where packets have another size from now on."""
        if (size := self.path.poll_resize()) is not None:
            self.tickets.settle(now, self.send_queue.resize(size - OVERHEAD), Outcome.LOST)

    def _settle(self, now: float, hit: Hit) -> None:
        """Tell queue and tickets of an ack; a piece may have been acked in another packet."""
        run = hit.train.run
        if run is not None and not run.is_broken:
            size = self.send_queue.run_acked(run, hit.bits)
            tell = self.tickets.acked if run.acked else self.tickets.acked_partly
            tell(now, run.tickets, size)
            if run.acked:
                run.tickets = ()
            return
        pieces = hit.pieces()
        for piece in pieces:
            if piece.tickets and not piece.acked:
                self.tickets.acked(now, piece.tickets, piece.size)
        self.send_queue.acked(pieces)
        if hit.train.once:
            self.tickets.settle(now, hit.train.once, Outcome.ARRIVED)

    def _give_up(self, now: float, lost: Sequence[Hit]) -> None:
        """Put what lost packets held in line again."""
        if not lost:
            return
        self.path.lost(now, lost)
        for hit in lost:
            self._counters.lost += hit.number
            self._counters.resent += self.send_queue.lost(hit.pieces())
            self.tickets.settle(now, hit.train.once, Outcome.LOST)
            self._close_lost |= hit.train.closing
            if hit.train.credit:
                self._credit.forget()


def _newest(hit: Hit) -> int:
    return hit.newest
