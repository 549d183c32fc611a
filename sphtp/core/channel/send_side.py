"""The send side of an open connection: what leaves next, and what became of what left.

On send this is the seed's algorithm, step by step (Fiedler, "Reliable Ordered Messages"): include
what waits, what is to be sent again first and the oldest before all; remember what each packet
held; put the header with the acks in front. One packet is a batch of one: ``poll`` asks once how
many packets window, pace and the caller allow, takes what fills them, encodes them together, and
notes them in one record, after which nothing is left to do before they leave.

An ack is processed when it comes: the packets that it names are taken out of the record, the round
trip is measured, what was overtaken is lost and waits in line again, congestion control hears of
both, and whoever follows a message is told. The same goes for what time brings about, in
``handle_timeout``: packets lost, probes due, messages expired.

Two things leave without being asked for here. Acks that the receive side cannot wait with, and
control frames of the connection, are put together at once, and kept in order until the next
``poll``: packets that leave out of their order would look lost.
"""

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import (
    CREDIT_OVERHEAD,
    OVERHEAD,
    Close,
    Credit,
    Frame,
    Header,
    Padding,
    encode_data,
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
    SentPackets,
)
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.datagrams import MOST_BYTES, MOST_DATAGRAMS, MOST_PLAIN
from sphtp.core.serial import MASK
from sphtp.core.timers import INFINITY, earliest

if TYPE_CHECKING:
    from sphtp.core.channel.observer import ChannelObserver
from sphtp.core.channel.frames import (
    DATA,
    DATA_FIRST,
    FRAGMENT_FRONT,
    MESSAGES_FRONT,
    RUN,
    Buffer,
    FrameKind,
    Messages,
    encode_frames,
)
from sphtp.core.channel.sent_packets import SentFrame

NOTHING: Final = (b"", 0)

PINGS: Final = 32
"""The pings that fit into the idle timeout, where none is answered: by default one each 0.3 s. Of
those that follow a keepalive one of 24 has to come through, each way."""


class SendSide:
    """Messages and packets from when they are queued until they are acked.

    ``received`` and ``ack_timer`` say what acks each packet carries, and when one has to leave for
    their sake; ``credit`` is what this side allows the peer, which packets tell.
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
        # Whether packets were acked that held messages, since that was last looked at.
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
        # When window, pace or the allowance of the seed's pace lets the next packet leave.
        self.resume_at: float | None = None
        # Packets put together that wait to leave, and their size: equal ones as one.
        self._ready: deque[tuple[bytes, int]] = deque()
        # Whether packets left so full that it is worth knowing if larger ones would pass.
        self._is_filling_packets = False
        # What acks and losses meant for the life of the connection, until ``poll_events``.
        self.events: list[Event] = []

    @property
    def is_ambiguous(self) -> bool:
        """True if more packets are on their way than 16 bits tell apart with any ease."""
        return self.sent_packets.ambiguous

    # Outputs

    def poll(
        self, now: float, control: Sequence[Frame] = (), most: int = MOST_BYTES
    ) -> tuple[bytes, int]:
        """The next packets, one behind the other, and their size; nothing when all is said.

        ``control`` are the frames that the connection itself has to send; they go by themselves.
        Up to ``most`` bytes leave before anything else can come up, but one packet always may.
        """
        if self._observer is not None:
            self._observer.tell_queued(now)
        if control:
            self._add_ready(self.encode_control(now, control))
        if self._ready:
            return self._ready.popleft()
        if self._is_filling_packets:
            # A packet that tries out a size goes right behind those that it may make larger.
            self._is_filling_packets = False
            if (probe := self.path.poll_probe(now)) is not None:
                return self._transmit(now, NO_CONTENTS, (Padding(1),), probe=probe)
        extra: Sequence[Frame] = ()
        self.resume_at = None
        if self.is_sending:
            if self._credit.is_due:
                extra = (Credit(*self._credit.tell()),)
            if self.send_queue.wants_to_send and (packets := self._packets_allowed(now, most)):
                if packets > 1 and (extra or self._ack_timer.is_late(now)):
                    # What a packet has to say beside its messages is said in one.
                    packets = 1
                contents = self.send_queue.take(CREDIT_OVERHEAD if extra else 0, packets)
                if contents:
                    return self._transmit(now, contents, extra)
                self.send_queue.note_shortage()
                self.path.set_app_limited()
        # An ack goes by itself only where nothing else leaves.
        ack_due = self._ack_timer.due
        if extra or (ack_due is not None and ack_due <= now):
            return self._transmit(now, NO_CONTENTS, extra)
        if self._observer is not None:
            self._observer.sending_blocked(now, self)
        return NOTHING

    def has_more(self, now: float) -> bool:
        """True if anything may leave by now beside what just did."""
        if self.events or self._ready or self._is_filling_packets:
            return True
        if self._ack_timer.due is not None:
            return True
        if self.is_sending and (self.send_queue.wants_to_send or self._credit.is_due):
            return True
        if self._observer is not None:
            self._observer.sending_blocked(now, self)
        return False

    def poll_timeout(self) -> float | None:
        """The earliest time at which an ack or a packet may leave, a packet counts as lost, a probe
        is due, or a message expires."""
        # As ``earliest``, which one call less makes: this runs for each packet, or nearly so.
        due = self._ack_timer.due
        for other in (self.resume_at, self.recovery.deadline(), self.receipts.deadline):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def poll_events(self) -> list[Event]:
        """The events of the lifecycle that acks and losses caused since the last time."""
        events, self.events = self.events, []
        return events

    def poll_progress(self) -> bool:
        """True if packets were acked that held messages, since the last time."""
        has_progress, self._has_progress = self._has_progress, False
        return has_progress

    # Inputs

    def handle_ack(self, now: float, newest: int, bits: int, delay: float) -> None:
        """Take the acks of a received header, from the packet ``newest`` back.

        ``delay`` is how long the peer had that one.
        """
        acked = self.sent_packets.acknowledge(newest, bits)
        if not acked:
            return
        last, bits = acked[-1]
        # Only the packet that the header names has been at the peer for just so long.
        is_timed = last.eliciting and newest <= last.last and bool(bits >> last.last - newest & 1)
        lost = self.recovery.acked(now, acked, delay if is_timed else None)
        self.path.acked(now, acked, self.recovery.round_trip.latest if is_timed else None)
        for subset in acked:
            batch = subset.batch
            if self._observer is not None:
                self._observer.packets_acked(now, subset)
            if batch.lost:
                self._counters.lost_in_appearance += (subset.bits & batch.lost).bit_count()
            if batch.has_messages:
                self._settle(now, subset)
                self._has_progress = True
            elif batch.closing:
                self.events.append(Event.CLOSE_ACKED)
        if lost:
            self._retransmit_lost(now, lost)
        if self.path.mtu.state is MtuSearchState.TOO_SMALL:
            self.events.append(Event.PATH_TOO_SMALL)
        if self._observer is not None:
            self._observer.estimates_changed(now, self.recovery, self.path)

    def handle_credit(self, now: float, credit: Credit) -> None:
        """Take in how much the peer allows to be sent."""
        self.send_queue.credit.raise_to(credit.messages, credit.size)
        if self._observer is not None:
            self._observer.credit_received(now, credit)

    def handle_timeout(self, now: float) -> bool:
        """Give up what is lost or has expired; true when an ack has to be asked for by a PING."""
        for ticket in self.receipts.expire(now):
            self.send_queue.give_up(ticket)
        lost, probes = self.recovery.handle_timeout(now, self.path.allowance(now))
        if lost:
            self._retransmit_lost(now, lost)
        asks = self._retransmit_as_probe(now, probes) if probes else False
        if self._observer is not None:
            if probes:
                self._observer.probe_sent(now, self.recovery.probes)
            self._observer.estimates_changed(now, self.recovery, self.path)
        return asks

    def _retransmit_as_probe(self, now: float, probes: Sequence[PacketSubset]) -> bool:
        self.path.mtu.unanswered(self.recovery.probes, max([it.batch.size for it in probes]))
        # What the oldest packets held goes again, so that probes are of use if they were lost.
        is_repeated = False
        for probe in probes:
            self._note_missing(probe.batch)
            frames = probe.frames()
            self._counters.resent += self.send_queue.retransmit(frames)
            is_repeated |= any(frame.is_reliable and not frame.acked for frame in frames)
        self.path.probe(now)
        # A small packet may pass where large ones vanish.
        is_needed = not is_repeated or self.path.suspects_size
        return is_needed and not self.sent_packets.ambiguous

    def handle_too_large(self, now: float, size: int) -> None:
        """Take it that a datagram of that size was too large to be sent."""
        self.path.mtu.refused(now, size)
        if self._observer is not None:
            self._observer.estimates_changed(now, self.recovery, self.path)

    def handle_new_path(self, now: float) -> None:
        """Take it that packets take another path from now on."""
        self.path.path_changed(now)

    # Commands

    def stop(self) -> None:
        """From now on only acks, and what the connection itself has to say."""
        self.is_sending = self._is_filling_packets = False
        self.recovery.stop()

    def close(self, now: float, outcome: Outcome) -> None:
        """The connection has ended: of what is not acked by now this is the outcome."""
        self.receipts.close(now, outcome)
        self.stop()

    def ack_early(self, now: float) -> None:
        """Make a packet with all that can be acked by now, to leave before the next ones."""
        data, _ = self._transmit(now)
        self._add_ready(data)

    def ack_late(self, now: float, sequence: int) -> None:
        """Make a packet that acks one that the others do not reach back to."""
        own = self.sent_packets.next_sequence
        header = Header(own & MASK, *self._received.late_ack(sequence))
        ack = encode_data(self._peer_id, header)
        # The acks that are owed otherwise are not in it.
        batch = SentBatch(own, now, len(ack))
        self.sent_packets.sent(batch)
        self._counters.sent += 1
        self._counters.bytes_sent += len(ack)
        if self._observer is not None:
            newest, bits = sequence, self._received.late_ack(sequence)[1]
            self._observer.packets_sent(batch, (), newest, bits)
        self._add_ready(ack)

    def encode_control(self, now: float, frames: Sequence[Frame]) -> bytes:
        """Make a packet of frames that the connection itself has to send."""
        closing = any(isinstance(frame, Close) for frame in frames)
        data, _ = self._transmit(now, NO_CONTENTS, frames, closing=closing)
        return data

    # What leaves

    def _packets_allowed(self, now: float, most: int) -> int:
        """The packets that may leave now, where messages wait; else note when the next may."""
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
        # Window or pacer hold packets back, but not what is late: the seed's pace is always kept.
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
        """Put packets together, and note them; with ``probe`` it is one of just that size.

        ``extra`` frames go before the contents of a packet that is alone.
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
            # The padding goes to the end, whatever its length says.
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
            # A packet with as many messages of one size as fit is over half full, be it only one.
            self._is_filling_packets = True
        return data, size

    def _add_ready(self, packet: bytes) -> None:
        last, size = self._ready[-1] if self._ready else NOTHING
        if size == len(packet) and len(last) < MOST_DATAGRAMS * size:
            self._ready[-1] = (last + packet, size)
        else:
            self._ready.append((packet, len(packet)))

    # What became of it

    def _settle(self, now: float, subset: PacketSubset) -> None:
        """Forget what acked packets held; a frame may have been acked in another packet."""
        queue, receipts = self.send_queue, self.receipts
        batch, bits = subset
        run = batch.contents
        if isinstance(run, FragmentRun) and not run.is_broken_up:
            size = queue.run_acked(run, bits)
            tell = receipts.acked if run.acked else receipts.acked_partly
            tell(now, run.tickets, size)
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

    def _retransmit_lost(self, now: float, lost: Sequence[PacketSubset]) -> None:
        """Put what lost packets held in line again."""
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
        """Tell again the frames beside its messages of a packet that is lost, or long in coming."""
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
    """Put packets together that have consecutive sequences; return them, and the size of each.

    ``header`` is the first one's. They stand one behind the other, each as if it were alone;
    ``extra`` frames go before the contents of one packet. More than one are alike, each with one
    frame: fragments of one message, or as many messages of one size.
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
            # One message, which somebody may wait for: all in one packing.
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
