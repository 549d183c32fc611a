"""The data path of an open connection: packets in, packets out, and what they carry.

On send and on receive this is the seed's ack algorithm and message algorithm, step by step.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sphtp.core.channel.acks import Acks, Arrival, SentPacket
from sphtp.core.channel.frames import (
    Close,
    Fragment,
    Frame,
    Messages,
    Unreliable,
    decode_frames_untrusted,
    encode_frames,
)
from sphtp.core.channel.handshake import Offer
from sphtp.core.channel.header import DATA, Header, decode_data_untrusted, encode_data
from sphtp.core.channel.inbox import Inbox
from sphtp.core.channel.loss import Loss
from sphtp.core.channel.outbox import Outbox
from sphtp.core.channel.packing import Packing
from sphtp.core.channel.rtt import RoundTrip
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters, Estimates
from sphtp.errors import RemoteError


@dataclass(frozen=True, slots=True)
class Heard:
    """What a packet means for the life of its connection.

    There is ``progress`` when it acks a packet that held reliable messages.
    """

    close: Close | None
    close_acked: bool
    progress: bool


@dataclass(frozen=True, slots=True)
class Missed:
    """What lost packets mean for the life of their connection.

    One that held no reliable message is not made up for, so that an ack has to be asked for.
    """

    close: bool
    ask: bool


class Transport:
    """Acks, queues and estimates of one connection."""

    def __init__(self, settings: ChannelSettings, peer: Offer, counters: Counters) -> None:
        self._settings = settings
        self._peer = peer
        self._counters = counters
        self._acks = Acks(settings.first_sequence, peer.first_sequence)
        self._loss = Loss()
        self._window = settings.packets_in_flight
        self._unacked_packets = 0
        self._first_unacked: int | None = None
        self._ack_due: float | None = None
        self._early_acks: deque[bytes] = deque()
        room = min(settings.max_datagram, peer.max_datagram) - DATA.size
        self.outbox = Outbox(settings, room, peer.receive_buffer, peer.max_message)
        self.inbox = Inbox(settings, peer.first_sequence)
        self._round_trip = RoundTrip()

    def estimates(self) -> Estimates:
        """What is measured by now."""
        return Estimates(
            unreliable_dropped=self.outbox.unreliable_dropped + self.inbox.unreliable_dropped,
            waiting=self.outbox.waiting,
            unread=len(self.inbox),
            rtt=self._round_trip.smoothed,
            rtt_deviation=self._round_trip.deviation,
            loss=self._loss.ratio,
        )

    def handle_packet(self, now: float, datagram: bytes) -> Heard | None:
        """Take a DATA datagram in; None when it is a repeat, which is no sign of life.

        Raises ``RemoteError``, before anything has changed, when it is malformed or forges acks.
        """
        if len(datagram) > self._settings.max_datagram:
            raise RemoteError(f"a datagram of {len(datagram)} bytes is over the limit")
        header, body = decode_data_untrusted(datagram)
        frames = decode_frames_untrusted(body)
        sequence = self._acks.restore(header.sequence)
        arrival = self._acks.arrival(sequence)
        if arrival is not Arrival.FRESH:
            # The acks of a packet that old may mean packets of another round of the 16 bits.
            self._handle_repeat(now, arrival, frames)
            return None
        is_admitted = self.inbox.admits(frames)
        acked = self._handle_acks(now, header)
        close_acked = any(packet.closing for packet in acked)
        progress = any(packet.pieces for packet in acked)
        if not is_admitted:
            self._counters.too_early += 1
            return Heard(None, close_acked, progress)
        return Heard(self._accept(now, sequence, frames), close_acked, progress)

    def handle_timeout(self, now: float) -> Missed:
        """Give up overdue packets; their messages are in line again."""
        lost = list(self._loss.overdue(now, self._patience()))
        for packet in lost:
            self._counters.resent += self.outbox.lost(packet.pieces)
        self._counters.lost += len(lost)
        is_alone = any(not packet.pieces and not packet.closing for packet in lost)
        return Missed(any(packet.closing for packet in lost), is_alone and not self._acks.ambiguous)

    def stop_sending(self) -> None:
        """From now on only acks, and what the connection itself has to say."""
        self._window = 0
        self._loss = Loss()

    def poll_timeout(self) -> float | None:
        """When an ack must leave or a packet will be overdue."""
        times = (self._ack_due, self._loss.deadline(self._patience()))
        return min((time for time in times if time is not None), default=None)

    def poll_packet(self, now: float, control: Sequence[Frame] = ()) -> bytes | None:
        """The next packet, or None when there is nothing to say.

        ``control`` are the frames that the connection itself has to send; they go by themselves.
        """
        if self._early_acks and not control:
            return self._early_acks.popleft()
        packing = self._pack() if not control else Packing(0)
        frames = [*control, *packing.frames]
        if not frames and (self._ack_due is None or self._ack_due > now):
            return None
        return self._packet(now, packing, frames)

    def _packet(self, now: float, packing: Packing, frames: Sequence[Frame]) -> bytes:
        datagram = encode_data(self._peer.connection_id, self._acks.header())
        datagram += encode_frames(frames)
        self._remember(now, packing, frames, len(datagram))
        return datagram

    def _pack(self) -> Packing:
        # Packets sent before ``stop_sending`` may still be acked after it, and take it below zero.
        if not 0 <= self._loss.in_flight < self._window or self._acks.ambiguous:
            return Packing(0)
        return self.outbox.fill()

    def _remember(self, now: float, packing: Packing, frames: Sequence[Frame], size: int) -> None:
        closing = any(isinstance(frame, Close) for frame in frames)
        packet = SentPacket(
            self._acks.next_sequence, now, size, bool(frames), closing, packing.pieces
        )
        self._acks.sent(packet)
        if packet.eliciting:
            self._loss.sent(packet)
        self._ack_due, self._first_unacked, self._unacked_packets = None, None, 0
        self._counters.sent += 1
        self._counters.bytes_sent += size

    def _handle_acks(self, now: float, header: Header) -> list[SentPacket]:
        try:
            acked = self._acks.acknowledge(header)
        except RemoteError:
            self._counters.forged_acks += 1
            raise
        for packet in acked:
            if packet.eliciting:
                self._loss.acked(packet)
            self._counters.lost_in_appearance += packet.lost
            self.outbox.acked(packet.pieces)
        # Only the newest packet says how long the way is now; the others' acks may be repeats.
        if acked and acked[-1].eliciting and acked[-1].sequence & 0xFFFF == header.ack:
            self._round_trip.sample(now - acked[-1].sent_at)
        return acked

    def _handle_repeat(self, now: float, arrival: Arrival, frames: Sequence[Frame]) -> None:
        if arrival is Arrival.TOO_OLD:
            self._counters.too_old += 1
            return
        self._counters.duplicates += 1
        # Our ack may have been what got lost. An ack is never acked, or two sides would never stop.
        if frames:
            self._owe_ack(now)

    def _accept(self, now: float, sequence: int, frames: Sequence[Frame]) -> Close | None:
        first = self._first_unacked
        if first is not None and sequence - first >= self._settings.ack_every:
            # Of packets that come many at a time, the first would fall off the header's 32 bits.
            self._early_acks.append(self._packet(now, Packing(0), ()))
        fills_gap = self._acks.received(sequence)
        close = next((frame for frame in frames if isinstance(frame, Close)), None)
        for frame in frames:
            if isinstance(frame, Messages | Fragment | Unreliable):
                self.inbox.insert(frame)
        if frames:
            first = self._first_unacked
            self._first_unacked = sequence if first is None else min(first, sequence)
            self._unacked_packets += 1
            is_full = self._unacked_packets >= self._settings.ack_every
            at_once = fills_gap or is_full or close is not None
            self._owe_ack(now if at_once else now + self._settings.ack_delay)
        return close

    def _owe_ack(self, when: float) -> None:
        self._ack_due = when if self._ack_due is None else min(when, self._ack_due)

    def _patience(self) -> float:
        return self._round_trip.patience(self._settings.ack_delay, self._settings.resend_time)
