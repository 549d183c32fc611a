"""The data path of an open connection: packets in, packets out, and what they carry.

On send and on receive this is the seed's ack algorithm and message algorithm, step by step.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sphtp.core.channel.acking import AckTimer
from sphtp.core.channel.acks import Acks, Arrival, SentPacket
from sphtp.core.channel.frames import (
    ACK_DELAY_OVERHEAD,
    CREDIT_OVERHEAD,
    AckDelay,
    Close,
    Credit,
    Fragment,
    Frame,
    Messages,
    Padding,
    Skip,
    Unreliable,
    asks_for_ack,
)
from sphtp.core.channel.framing import decode_frames_untrusted, encode_frames
from sphtp.core.channel.governor import Governor
from sphtp.core.channel.handshake import Offer
from sphtp.core.channel.header import DATA, Header, decode_data_untrusted, encode_data
from sphtp.core.channel.inbox import Inbox
from sphtp.core.channel.outbox import Load, Outbox
from sphtp.core.channel.recovery import Recovery
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters, Estimates
from sphtp.core.channel.ticket import Outcome, Tickets
from sphtp.errors import RemoteError


@dataclass(frozen=True, slots=True)
class Heard:
    """What a packet means for the life of its connection: our CLOSE acked or lost, or theirs.

    There is ``progress`` when it acks a packet that held reliable messages.
    """

    close: Close | None = None
    close_acked: bool = False
    close_lost: bool = False
    progress: bool = False


@dataclass(frozen=True, slots=True)
class Missed:
    """What silence means for it: our CLOSE is to be sent again, or an ack to be asked for."""

    close_lost: bool
    ask: bool


NOTHING_HEARD = Heard()
PROGRESS = Heard(progress=True)

OVERHEAD: Final = DATA.size + ACK_DELAY_OVERHEAD


class Transport:
    """Acks, queues and estimates of one connection."""

    def __init__(self, settings: ChannelSettings, peer: Offer, counters: Counters) -> None:
        self._settings = settings
        self._peer = peer
        self._counters = counters
        self._acks = Acks(settings.first_sequence, peer.first_sequence)
        self._recovery = Recovery(settings.ack_delay, settings.resend_time, settings.keepalive / 4)
        self._is_sending = True
        self._is_probing = False
        self._acking = AckTimer(settings.ack_every, settings.ack_delay)
        self._early: deque[bytes] = deque()
        largest = min(settings.max_datagram, peer.max_datagram)
        self._governor = Governor(settings, self._recovery, largest)
        self._resume_at: float | None = None
        self.outbox = Outbox(settings, self._governor.mtu.size - OVERHEAD, peer)
        self.inbox = Inbox(settings, peer.first_sequence)
        self.tickets = Tickets()

    def estimates(self) -> Estimates:
        """What is measured by now."""
        trip = self._recovery.round_trip
        return Estimates(
            unreliable_dropped=self.outbox.unreliable.dropped + self.inbox.unreliable.dropped,
            waiting=self.outbox.waiting,
            unread=len(self.inbox),
            rtt=trip.smoothed,
            rtt_deviation=trip.deviation,
            loss=self._recovery.ratio,
        )

    @property
    def owes_ack(self) -> bool:
        """Whether an ack leaves before long, whatever else there is to say."""
        return self._acking.due is not None

    # Packets in

    def handle_packet(self, now: float, datagram: bytes) -> Heard | None:
        """Take a DATA datagram in; None when it is a repeat, which is no sign of life.

        Raises ``RemoteError``, before anything has changed, when it is malformed or forges acks.
        """
        if len(datagram) > self._settings.max_datagram:
            raise RemoteError(f"a datagram of {len(datagram)} bytes is over the limit")
        header = decode_data_untrusted(datagram)
        frames = decode_frames_untrusted(datagram, DATA.size)
        sequence = self._acks.restore(header.sequence)
        arrival = self._acks.arrival(sequence)
        if arrival is not Arrival.FRESH:
            # The acks of a packet that old may mean packets of another round of the 16 bits.
            self._handle_repeat(now, arrival, frames)
            return None
        is_admitted = self.inbox.admits(frames)
        heard = self._handle_acks(now, header, frames)
        if not is_admitted:
            self._counters.too_early += 1
            return heard
        close = self._accept(now, sequence, frames)
        return replace(heard, close=close) if close else heard

    def _handle_acks(self, now: float, header: Header, frames: Sequence[Frame]) -> Heard:
        try:
            acked = self._acks.acknowledge(header)
        except RemoteError:
            self._counters.forged_acks += 1
            raise
        if not acked:
            return NOTHING_HEARD
        is_newest = acked[-1].eliciting and acked[-1].sequence & 0xFFFF == header.ack
        lost = self._recovery.acked(now, acked, _delay(frames) if is_newest else None)
        self._governor.acked(now, acked, self._recovery.round_trip.latest if is_newest else None)
        close_acked = progress = False
        for packet in acked:
            self._counters.lost_in_appearance += packet.lost
            close_acked |= packet.closing
            progress |= bool(packet.pieces)
            self._settle(now, packet)
        close_lost = self._give_up(now, lost)
        if close_acked or close_lost:
            return Heard(None, close_acked, close_lost, progress)
        return PROGRESS if progress else NOTHING_HEARD

    def _handle_repeat(self, now: float, arrival: Arrival, frames: Sequence[Frame]) -> None:
        if arrival is Arrival.TOO_OLD:
            self._counters.too_old += 1
            return
        self._counters.duplicates += 1
        # Our ack may have been what got lost. An ack is never acked, or two sides would never stop.
        if asks_for_ack(frames):
            self._acking.owe_again(now)

    def _accept(self, now: float, sequence: int, frames: Sequence[Frame]) -> Close | None:
        if self._acking.is_overdue(sequence):
            self._early.append(self._packet(now, Load([])))
        if sequence > self._acks.highest:
            self._acking.heard(now)
        fills_gap = self._acks.received(sequence)
        if not asks_for_ack(frames):
            return None
        close = None
        for frame in frames:
            if isinstance(frame, Messages | Fragment | Skip | Unreliable):
                self.inbox.insert(frame)
            elif isinstance(frame, Credit):
                self.outbox.credit.raise_to(frame.messages, frame.size)
            elif isinstance(frame, Close):
                close = frame
        self._acking.owe(now, sequence, at_once=fills_gap or close is not None)
        return close

    # Time

    def handle_timeout(self, now: float) -> Missed:
        """Give up what is lost, and see to a probe when nothing was acked for too long."""
        if expired := set(self.tickets.expire(now)):
            self.outbox.give_up(expired)
        lost, probe = self._recovery.handle_timeout(now)
        close_lost = self._give_up(now, lost)
        if probe is None:
            return Missed(close_lost, ask=False)
        self._governor.unanswered(now, self._recovery.probes)
        # What the oldest packet held goes again, so that the probe is of use if it was lost.
        self._counters.resent += self.outbox.again(probe.pieces)
        self._is_probing = any(not piece.acked for piece in probe.pieces)
        ask = not self._is_probing or self._governor.suspects_size
        return Missed(close_lost or probe.closing, ask=ask and not self._acks.ambiguous)

    def stop_sending(self) -> None:
        """From now on only acks, and what the connection itself has to say."""
        self._is_sending = False
        self._recovery.stop()

    def poll_timeout(self) -> float | None:
        """When an ack or the next packet may leave, one is lost, or a message expires."""
        times = (
            self._acking.due,
            self._resume_at,
            self._recovery.deadline(),
            self.tickets.next_deadline(),
        )
        return min((time for time in times if time is not None), default=None)

    def _settle(self, now: float, packet: SentPacket) -> None:
        """Tell queue and tickets of an ack; a piece may have been acked in another packet."""
        for piece in packet.pieces:
            if piece.tickets and not piece.acked:
                self.tickets.acked(now, piece.tickets)
        self.outbox.acked(packet.pieces)
        self.tickets.acked(now, packet.once)

    def _give_up(self, now: float, lost: Sequence[SentPacket]) -> bool:
        """Put what lost packets held in line again; true when CLOSE was among it."""
        if not lost:
            return False
        self._governor.lost(now, lost)
        for packet in lost:
            self._counters.resent += self.outbox.lost(packet.pieces)
            self.tickets.settle(now, packet.once, Outcome.LOST)
            if packet.credit:
                self.inbox.credit.forget()
        self._counters.lost += len(lost)
        return any(packet.closing for packet in lost)

    # Packets out

    def poll_packet(self, now: float, control: Sequence[Frame] = ()) -> bytes | None:
        """The next packet, or None when there is nothing to say.

        ``control`` are the frames that the connection itself has to send; they go by themselves.
        """
        if self._early and not control:
            return self._early.popleft()
        load = Load(list(control)) if control else self._fill(now)
        due = self._acking.due
        if not load.frames and (due is None or due > now):
            return None
        return self._packet(now, load)

    def _fill(self, now: float) -> Load:
        credit: list[Frame] = []
        if self._is_sending and self.inbox.credit.is_due:
            credit.append(Credit(*self.inbox.credit.tell()))
        if not self._may_send(now):
            return Load(credit)
        self._is_probing = False
        if (size := self._governor.poll_resize()) is not None:
            self.tickets.settle(now, self.outbox.resize(size - OVERHEAD), Outcome.LOST)
        load = self.outbox.fill(CREDIT_OVERHEAD if credit else 0)
        if not load.frames:
            self._governor.starved()
        elif load.is_full and (size := self._governor.mtu.poll_probe(now)) is not None:
            self._early.append(self._packet(now, Load([Padding(1)]), size))
        return load._replace(frames=credit + load.frames) if credit else load

    def _may_send(self, now: float) -> bool:
        self._resume_at = None
        if not self._is_sending or self._acks.ambiguous:
            return False
        if self._is_probing:
            return True
        if not self.outbox.wants_to_send or not self._governor.has_window():
            return False
        ready = self._governor.ready_at(now)
        if ready > now:
            self._resume_at = ready
        return ready <= now

    def _packet(self, now: float, load: Load, size: int = 0) -> bytes:
        frames = load.frames
        header = encode_data(self._peer.connection_id, self._acks.header())
        datagram = encode_frames([*self._acking.lateness(now), *frames], header)
        # A probe's padding goes to the end, whatever its length says.
        datagram = datagram.ljust(size, b"\0")
        packet = SentPacket(self._acks.next_sequence, now, len(datagram), load.pieces)
        if frames:
            packet.once = load.once
            packet.eliciting = True
            packet.closing = any(isinstance(frame, Close) for frame in frames)
            packet.credit = isinstance(frames[0], Credit)
            packet.probe = isinstance(frames[0], Padding)
            self._governor.sent(now, packet)
            self._recovery.sent(packet)
        self._acks.sent(packet)
        self._acking.sent()
        self._counters.sent += 1
        self._counters.bytes_sent += len(datagram)
        return datagram


def _delay(frames: Sequence[Frame]) -> float:
    return next((frame.delay for frame in frames if isinstance(frame, AckDelay)), 0.0)
