"""The send side of an open connection: it builds the next packets, and handles acks and losses.

``poll`` is the send step of Fiedler's "Reliable Ordered Messages". It works on batches; one packet
is a batch of one. It determines the number of packets that the window, the pacer and the caller
allow, and takes content from the send queue to fill them. It encodes the packets together, each
behind a header with acks, and records the content of each.

``handle_ack`` processes the acks of an arrived packet (``receive_side`` has the whole chain).
``handle_timeout`` handles the effects of time: lost packets, probes, and expired messages.
``send_lane`` lists the steps of a retransmission.

Two kinds of packets may be encoded before they can leave: acks that the receive side cannot delay,
and control frames of the connection. They wait in the order of their sequences. ``poll`` returns
them before any other packet, because packets that leave out of order would look lost.
"""

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import (
    CREDIT_OVERHEAD,
    DATA,
    DATA_FIRST,
    FRAGMENT_FRONT,
    LONGEST_DELAY,
    MESSAGES_FRONT,
    OVERHEAD,
    RUN,
    Buffer,
    Close,
    Credit,
    Frame,
    FrameKind,
    Header,
    Messages,
    Padding,
    encode_data,
    encode_frames,
)
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.lifecycle import Event
from sphtp.core.channel.loss_detection import LossDetector
from sphtp.core.channel.path import MOST_SPREAD, Path
from sphtp.core.channel.path_mtu import MtuSearchState
from sphtp.core.channel.receipts import Outcome, Receipts
from sphtp.core.channel.received_packets import AckTimer, ReceivedPackets
from sphtp.core.channel.send_queue import SendQueue
from sphtp.core.channel.sent_packets import (
    NO_CONTENTS,
    Contents,
    FragmentRun,
    PacketSubset,
    SentBatch,
    SentFrame,
    SentPackets,
)
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.datagrams import MOST_BYTES, MOST_DATAGRAMS, MOST_PLAIN
from sphtp.core.serial import MASK
from sphtp.core.timers import INFINITY, earliest

if TYPE_CHECKING:
    from sphtp.core.channel.observer import ChannelObserver

NOTHING: Final = (b"", 0)

PINGS: Final = 48
"""The number of PINGs in one idle timeout while none is acked: by default one about every 0.2 s.
The keepalive leaves after half of the idle timeout. Of the 24 PINGs in the rest of it, one has to
arrive, and so has an ack."""


class SendSide:
    """The sender of a connection's messages, from the queue until their acks.

    ``peer`` has the transport parameters of the peer. ``received`` and ``ack_timer`` belong to the
    receive side: ``received`` has the acks for each header, and ``ack_timer`` the time at which an
    ack has to leave. Packets also carry ``credit``, which the receive side grants to the peer.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        received: ReceivedPackets,
        ack_timer: AckTimer,
        credit: ReceiveCredit,
        counters: Counters,
        observer: "ChannelObserver | None" = None,
    ) -> None:
        self.recovery = LossDetector(
            settings.ack_delay, settings.resend_time, settings.timeout / PINGS
        )
        largest = min(settings.max_datagram, peer.max_datagram)
        self.path = Path(settings, self.recovery, largest)
        self.send_queue = SendQueue(settings, self.path.mtu.size - OVERHEAD, peer, counters.bounds)
        self.receipts = Receipts(observer)
        # True if a packet with messages was acked since the last ``poll_progress``.
        self._has_progress = False
        self._peer_id = peer.connection_id
        self.sent_packets = SentPackets(settings.first_sequence)
        self._received = received
        self._ack_timer = ack_timer
        self._credit = credit
        self._counters = counters
        self._observer = observer
        if observer is not None:
            observer.path_mtu = self.path.mtu.size
        self.is_sending = True
        # The time at which the pacer or the resend allowance admits the next packet; None if
        # neither delays it.
        self.resume_at: float | None = None
        # Encoded packets that wait to leave, and their size. Packets of one size are joined.
        self._ready: deque[tuple[bytes, int]] = deque()
        # True if a packet left so full that larger packets would help: an MTU probe may leave.
        self._is_filling_packets = False
        # Lifecycle events that acks and losses have caused since the last ``poll_events``.
        self.events: list[Event] = []

    @property
    def is_ambiguous(self) -> bool:
        """True if so many packets left since the newest acked one that no message may leave.

        The 16 bits of their sequences would otherwise become ambiguous.
        """
        return self.sent_packets.ambiguous

    # Outputs

    def poll(
        self, now: float, control: Sequence[Frame] = (), most: int = MOST_BYTES
    ) -> tuple[bytes, int]:
        """Return the next packets, one behind the other, and the size of each in bytes.

        ``control`` are frames of the connection itself, which get a packet of their own. Packets
        with messages have at most ``most`` bytes in all, unless it is a single one. If no packet
        may leave, return ``NOTHING``.
        """
        if self._observer is not None:
            self._observer.report_queued(now)
        if control:
            self._add_ready(self.encode_control(now, control))
        if self._ready:
            return self._ready.popleft()
        if self._is_filling_packets:
            # An MTU probe leaves right behind full packets.
            self._is_filling_packets = False
            if (probe := self.path.poll_probe(now)) is not None:
                return self._transmit(now, NO_CONTENTS, (Padding(1),), probe=probe)
        extra: Sequence[Frame] = ()
        self.resume_at = None
        if self.is_sending:
            if self._credit.is_due:
                extra = (Credit(*self._credit.poll_credit()),)
            if self.send_queue.wants_to_send and (packets := self._packets_allowed(now, most)):
                if packets > 1 and (extra or self._ack_timer.is_late(now)):
                    # Only a single packet carries other frames beside its messages.
                    packets = 1
                contents = self.send_queue.take(CREDIT_OVERHEAD if extra else 0, packets)
                if contents:
                    transmit = self._transmit(now, contents, extra)
                    if not self.send_queue.wants_to_send:
                        self.path.set_app_limited()
                    return transmit
                self.send_queue.note_shortage()
                self.path.set_app_limited()
        # An ack gets a packet of its own only if no other packet leaves.
        ack_due = self._ack_timer.due
        if extra or (ack_due is not None and ack_due <= now):
            return self._transmit(now, NO_CONTENTS, extra)
        if self._observer is not None:
            self._observer.sending_blocked(now, self)
        return NOTHING

    def has_more(self, now: float) -> bool:
        """Return True if ``poll`` may return packets now, or ``poll_events`` has events."""
        if self.events or self._ready or self._is_filling_packets:
            return True
        for due in (self._ack_timer.due, self.resume_at):
            if due is not None and due <= now:
                return True
        queue = self.send_queue
        # ``SendQueue.wants_to_send``, inlined.
        if self.is_sending and (queue.backlog or queue.redundancy.due or self._credit.is_due):
            return True
        if self._observer is not None:
            self._observer.sending_blocked(now, self)
        return False

    def poll_timeout(self) -> float | None:
        """Return the time at which ``poll`` or ``handle_timeout`` is next due; None if never."""
        recovery, due = self.recovery, self._ack_timer.due
        deadline = recovery.deadline() if recovery.bytes_in_flight else None
        # ``earliest`` inlined, to save a call for nearly each packet.
        for other in (self.resume_at, deadline, self.receipts.deadline):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def poll_events(self) -> list[Event]:
        """Return the lifecycle events that acks and losses caused since the last call."""
        events, self.events = self.events, []
        return events

    def poll_progress(self) -> bool:
        """Return True if a packet with messages was acked since the last call."""
        has_progress, self._has_progress = self._has_progress, False
        return has_progress

    # Inputs

    def handle_ack(self, now: float, newest: int, bits: int, delay: float) -> None:
        """Process the acks of a received header: bit n of ``bits`` acks packet ``newest - n``.

        ``delay`` is the time, in seconds, for which the peer held back the ack of ``newest``. A
        delay of ``LONGEST_DELAY`` stands for any longer one, too, so that the ack gives no sample
        of the round trip.
        """
        acked = self.sent_packets.acknowledge(newest, bits)
        if not acked:
            return
        last, bits = acked[-1]
        # The delay holds only for the packet that the header names.
        is_named = newest <= last.last and bool(bits >> last.last - newest & 1)
        is_timed = last.eliciting and is_named and delay < LONGEST_DELAY
        lost = self.recovery.acked(now, acked, delay if is_timed else None)
        self.path.acked(now, acked, self.recovery.round_trip.latest if is_timed else None)
        for subset in acked:
            batch, bits = subset
            if self._observer is not None:
                self._observer.packets_acked(now, subset)
            if batch.lost:
                self._counters.lost_in_appearance += (bits & batch.lost).bit_count()
            if batch.has_messages:
                self._settle(now, batch, bits)
                self._has_progress = True
            elif batch.closing:
                self.events.append(Event.CLOSE_ACKED)
        if lost:
            self._handle_lost(now, lost)
        if self.path.mtu.state is MtuSearchState.TOO_SMALL:
            self.events.append(Event.PATH_TOO_SMALL)
        if self._observer is not None:
            self._observer.estimates_changed(now, self.recovery, self.path)

    def handle_credit(self, now: float, credit: Credit) -> None:
        """Adopt the limits that the peer grants."""
        self.send_queue.credit.raise_to(credit.messages, credit.size)
        if self._observer is not None:
            self._observer.credit_received(now, credit)

    def handle_timeout(self, now: float) -> bool:
        """Handle losses, probes and expired messages; return True if a PING has to leave."""
        for ticket in self.receipts.expire(now):
            self.send_queue.give_up(ticket)
        lost, probes = self.recovery.handle_timeout(now, self.path.allowance(now))
        if lost:
            self._handle_lost(now, lost)
        asks = self._retransmit_as_probe(now, probes) if probes else False
        if self._observer is not None:
            if probes:
                self._observer.probe_sent(now, self.recovery.probes)
            self._observer.estimates_changed(now, self.recovery, self.path)
        return asks

    def _retransmit_as_probe(self, now: float, probes: Sequence[PacketSubset]) -> bool:
        self.path.mtu.unanswered(self.recovery.probes, max([it.batch.size for it in probes]))
        # A probe repeats the content of the oldest packets. If they were lost, this repairs it.
        is_repeated = False
        for probe in probes:
            self._note_missing(probe.batch)
            frames = probe.frames()
            self._counters.resent += self.send_queue.retransmit(frames)
            is_repeated |= any(frame.is_reliable and not frame.acked for frame in frames)
        self.path.probe(now)
        # A PING is a small packet, which may pass where large ones vanish.
        is_needed = not is_repeated or self.path.suspects_size
        return is_needed and not self.sent_packets.ambiguous

    def handle_too_large(self, now: float, size: int) -> None:
        """Handle a datagram of ``size`` bytes that the socket refused as too large."""
        self.path.mtu.refused(now, size)
        if self._observer is not None:
            self._observer.estimates_changed(now, self.recovery, self.path)

    def handle_new_path(self, now: float) -> None:
        """Reset path MTU, congestion control and round trip: packets take another path now."""
        self.path.path_changed(now)

    # Commands

    def stop(self) -> None:
        """Stop sending messages; acks and frames of the connection itself still leave."""
        self.is_sending = self._is_filling_packets = False
        self.recovery.stop()

    def close(self, now: float, outcome: Outcome) -> None:
        """Settle every open ticket with ``outcome``, and stop sending messages."""
        self.receipts.close(now, outcome)
        self.stop()

    def ack_early(self, now: float) -> None:
        """Encode a packet with the current acks, which leaves before any further message."""
        data, _ = self._transmit(now)
        self._add_ready(data)

    def ack_late(self, now: float, sequence: int) -> None:
        """Encode a packet that acks packet ``sequence``, too old for the next header's ack bits."""
        own = self.sent_packets.next_sequence
        header = Header(own & MASK, *self._received.late_ack(sequence))
        ack = encode_data(self._peer_id, header)
        # This header does not have the acks that are due, so the ack timer keeps its state.
        batch = SentBatch(own, now, len(ack))
        self.sent_packets.sent(batch)
        self._counters.sent += 1
        self._counters.bytes_sent += len(ack)
        if self._observer is not None:
            newest, bits = sequence, self._received.late_ack(sequence)[1]
            self._observer.packets_sent(batch, (), newest, bits)
        self._add_ready(ack)

    def encode_control(self, now: float, frames: Sequence[Frame]) -> bytes:
        """Return an encoded packet with frames of the connection itself, such as PING or CLOSE."""
        closing = any(isinstance(frame, Close) for frame in frames)
        data, _ = self._transmit(now, NO_CONTENTS, frames, closing=closing)
        return data

    # Packets

    def _packets_allowed(self, now: float, most: int) -> int:
        """Return the number of packets with messages that may leave now.

        If it is 0, set ``resume_at``, unless only an ack, a loss or a probe can change it.
        """
        queue, path = self.send_queue, self.path
        if self.sent_packets.ambiguous:
            return 0
        if path.mtu.size != path.datagram_size:
            gone = queue.resize(path.resize() - OVERHEAD)
            self.receipts.settle(now, gone, Outcome.LOST)
        ready = path.ready_at(now)
        if ready <= now:
            if 2 * path.datagram_size <= MOST_PLAIN:
                most = min(most, MOST_PLAIN)
            if most < 2 * path.datagram_size or not queue.fills_packets:
                return 1
            return max(path.budget(now, MOST_DATAGRAMS, most), 1)
        if ready < INFINITY:
            self.resume_at = ready
        # The window or the pacer holds packets back, but the resend allowance admits a few (see
        # ``path``).
        is_retransmission = queue.has_retransmissions
        if is_retransmission or queue.spread < MOST_SPREAD:
            resend_at = path.resend_at(now, is_retransmission=is_retransmission)
            if resend_at is not None and resend_at <= now:
                return 1
            self.resume_at = earliest(self.resume_at, resend_at)
        return 0

    def _transmit(
        self,
        now: float,
        contents: Contents = NO_CONTENTS,
        extra: Sequence[Frame] = (),
        *,
        closing: bool = False,
        probe: int = 0,
    ) -> tuple[bytes, int]:
        """Encode packets and record them; return them, and the size of each in bytes.

        ``extra`` frames go before the content of a single packet. A ``probe`` above 0 is the size
        to which a single packet is padded.
        """
        sequence = self.sent_packets.next_sequence
        ack, ack_bits = self._received.ack()
        header = (sequence, ack, ack_bits)
        eliciting = bool(extra)
        frames = extra
        if self._ack_timer.newest_at < now:
            frames = (*self._ack_timer.lateness(now), *extra)
        data, size = encode_packets(self._peer_id, header, contents, frames)
        if probe:
            # A PADDING frame extends to the end of its packet.
            data, size = data.ljust(probe, b"\0"), probe
        batch = SentBatch(
            sequence,
            now,
            size,
            contents,
            eliciting=eliciting,
            closing=closing,
            credit=eliciting and type(extra[0]) is Credit,
            probe=probe > 0,
        )
        self.sent_packets.sent(batch)
        self._ack_timer.sent(now)
        counters = self._counters
        counters.sent += batch.number
        counters.bytes_sent += len(data)
        if batch.eliciting:
            self.path.sent(now, batch)
            self.recovery.sent(batch)
        if self._observer is not None:
            newest = self._received.highest
            self._observer.packets_sent(batch, extra, newest, ack_bits)
            if batch.credit:
                self._observer.credit_sent(now, *self._credit.allowed)
        if 2 * size > self.path.mtu.size and not probe and self.is_sending:
            # A packet is over half full if no further message of the same size fits.
            self._is_filling_packets = True
        return data, size

    def _add_ready(self, packet: bytes) -> None:
        last, size = self._ready[-1] if self._ready else NOTHING
        if size == len(packet) and len(last) < MOST_DATAGRAMS * size:
            self._ready[-1] = (last + packet, size)
        else:
            self._ready.append((packet, len(packet)))

    # Acks and losses

    def _settle(self, now: float, batch: SentBatch, bits: int) -> None:
        """Settle the content of acked packets, except frames that were acked in other packets."""
        queue, receipts = self.send_queue, self.receipts
        run = batch.contents
        if isinstance(run, FragmentRun) and not run.is_broken_up:
            size = queue.run_acked(run, bits)
            settle = receipts.acked if run.acked else receipts.acked_partly
            settle(now, run.tickets, size)
            if run.acked:
                run.tickets = ()
            return
        frames = batch.frames(bits)
        for frame in frames:
            if frame.tickets and not frame.acked:
                if frame.is_reliable:
                    receipts.acked(now, frame.tickets, frame.size)
                else:
                    receipts.settle(now, frame.tickets, Outcome.ARRIVED)
        queue.acked(frames)

    def _handle_lost(self, now: float, lost: Sequence[PacketSubset]) -> None:
        """Queue the content of lost packets for retransmission."""
        self.path.lost(now, lost)
        for subset in lost:
            self._counters.lost += subset.number
            if self._observer is not None:
                self._observer.packets_lost(now, subset, self.recovery)
            frames = subset.frames()
            for frame in frames:
                if not frame.is_reliable:
                    self.receipts.settle(now, frame.tickets, Outcome.LOST)
            self._counters.resent += self.send_queue.retransmit_lost(frames)
            self._note_missing(subset.batch)

    def _note_missing(self, batch: SentBatch) -> None:
        """Have the CLOSE or CREDIT repeated of a packet that is lost, or unacked for long."""
        if batch.closing:
            self.events.append(Event.CLOSE_LOST)
        if batch.credit:
            self._credit.forget()


Numbers = tuple[int, int, int]
"""Sequence, ack and ack bits of a header."""

_frame_of: Final = attrgetter("frame")


def encode_packets(
    connection_id: int, header: Numbers, contents: Contents, extra: Sequence[Frame] = ()
) -> tuple[bytes, int]:
    """Encode packets with consecutive sequences; return them joined, and the size of each.

    ``header`` is that of the first packet. A packet has the same bytes, alone or with others.
    ``extra`` frames go before the content of a single packet. Several packets are alike, each with
    one frame: fragments of one message, or equal numbers of messages of one size.
    """
    if isinstance(contents, FragmentRun):
        data = _encode_fragments(connection_id, header, contents)
    elif len(contents) > 1:
        data = _encode_message_runs(connection_id, header, contents)
    else:
        data = _encode_one(connection_id, header, contents[0], extra)
    return data, len(data) // len(contents)


def _encode_one(
    connection_id: int, header: Numbers, content: Sequence[SentFrame], extra: Sequence[Frame]
) -> bytes:
    sequence, ack, bits = header
    if len(content) == 1 and not extra:
        frame = content[0].frame
        if type(frame) is Messages and len(frame.payloads) == 1:
            # A single message is packed in one call: in this case latency matters most.
            payload = frame.payloads[0]
            return MESSAGES_FRONT.pack(
                DATA_FIRST, connection_id, sequence & MASK, ack, bits,
                RUN, frame.lane, frame.first_id, 1, len(payload),
            ) + payload  # fmt: skip
    frames = [*extra, *map(_frame_of, content)]
    return encode_frames(frames, DATA.pack(DATA_FIRST, connection_id, sequence & MASK, ack, bits))


def _encode_message_runs(
    connection_id: int, header: Numbers, contents: Sequence[Sequence[SentFrame]]
) -> bytes:
    sequence, ack, bits = header
    parts: list[Buffer] = []
    for at, (sent,) in enumerate(contents, sequence):
        frame = sent.frame
        assert isinstance(frame, Messages)
        payloads = frame.payloads
        parts.append(
            MESSAGES_FRONT.pack(
                DATA_FIRST, connection_id, at & MASK, ack, bits,
                RUN, frame.lane, frame.first_id, len(payloads), len(payloads[0]),
            )
        )  # fmt: skip
        parts += payloads
    return b"".join(parts)


def _encode_fragments(connection_id: int, header: Numbers, run: FragmentRun) -> bytes:
    sequence, ack, bits = header
    kind, lane, message_id = int(FrameKind.FRAGMENT), run.lane_byte, run.first_id & MASK
    view, length, total = memoryview(run.payload), run.length, len(run.payload)
    parts: list[Buffer] = []
    for start in range(run.index, run.end, length):
        parts += (
            FRAGMENT_FRONT.pack(
                DATA_FIRST, connection_id, sequence & MASK, ack, bits,
                kind, lane, message_id, start, total, length,
            ),
            view[start : start + length],
        )  # fmt: skip
        sequence += 1
    return b"".join(parts)
