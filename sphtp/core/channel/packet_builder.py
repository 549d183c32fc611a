"""The send side of an open connection: what leaves next, in which packets.

On send this is the seed's algorithm, step by step: include what waits, oldest first; remember what
the packet held; put the header with the acks in front.
"""

from collections import deque
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from sphtp.core.channel.allowance import FARTHEST
from sphtp.core.channel.flow_control import ReceiveCredit
from sphtp.core.channel.frames import (
    CREDIT_OVERHEAD,
    Close,
    Credit,
    Frame,
    Header,
    Messages,
    Padding,
    encode_data,
)
from sphtp.core.channel.framing import encode_frames
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.packet import encode_loads, encode_lone, encode_run
from sphtp.core.channel.received_packets import AckTimer, ReceivedPackets
from sphtp.core.channel.send_lane import SendLane
from sphtp.core.channel.send_queue import Load
from sphtp.core.channel.send_side import SendSide
from sphtp.core.channel.sent_packets import SentBatch, SentPackets
from sphtp.core.datagrams import MOST_BYTES, MOST_DATAGRAMS, MOST_PLAIN
from sphtp.core.serial import wrap
from sphtp.core.timers import earliest

NOTHING: Final = (b"", 0)
NO_LOAD: Final = Load(())

LARGE: Final = MOST_PLAIN // 2
"""Bytes of a packet of which one call does not send two."""

LONGEST_TRAIN: Final = 1024 * 1024
"""Bytes of such packets that are made at once, at most."""


class PacketBuilder:
    """Makes packets of what waits in a flight, and of what this side has to say."""

    def __init__(
        self,
        peer: TransportParameters,
        send_side: SendSide,
        sent: SentPackets,
        received: ReceivedPackets,
        ack_timer: AckTimer,
        credit: ReceiveCredit,
    ) -> None:
        self._peer_id = peer.connection_id
        self._send_side = send_side
        self._send_queue = send_side.send_queue
        self._path = send_side.path
        self._sent_packets = sent
        self._received = received
        self._ack_timer = ack_timer
        self._credit = credit
        self._is_sending = True
        self._resume_at: float | None = None
        # What leaves before anything else is said: packets made at once, the next one at the end,
        # and then acks and probes.
        self._made: list[bytes] = []
        self._early: deque[tuple[bytes, int]] = deque()

    def stop(self) -> None:
        """From now on only acks, and what the connection itself has to say."""
        self._is_sending = False
        self._send_side.recovery.stop()
        self.forget_made()

    def forget_made(self) -> None:
        """Let packets that are made not leave: they count as lost on their way."""
        self._made.clear()

    def poll_timeout(self) -> float | None:
        """When an ack or the next packet may leave."""
        return earliest(self._ack_timer.due, self._resume_at)

    def ack_early(self, now: float) -> None:
        """Make a packet with all that can be acked by now, to leave before the next ones."""
        self._queue_ack(self._packet(now, ()))

    def ack_late(self, now: float, sequence: int) -> None:
        """Make a packet that acks one that the others do not reach back to."""
        ack = encode_data(self._peer_id, self._header(self._received.late_ack(sequence)))
        # The acks that are owed otherwise are not in it.
        self._sent(SentBatch(self._sent_packets.next_sequence, now, len(ack)))
        self._queue_ack(ack)

    def _queue_ack(self, ack: bytes) -> None:
        last, size = self._early[-1] if self._early else NOTHING
        if size == len(ack) and len(last) < MOST_DATAGRAMS * size:
            self._early[-1] = (last + ack, size)
        else:
            self._early.append((ack, len(ack)))

    def poll_made(self) -> tuple[bytes, int]:
        """The next of the packets that were made before, as ``poll`` gives them."""
        if self._made:
            return _alone(self._made.pop())
        return self._early.popleft() if self._early else NOTHING

    def poll(
        self, now: float, control: Sequence[Frame] = (), most: int = MOST_BYTES
    ) -> tuple[bytes, int]:
        """The next packets, one behind the other, and their size; nothing when all is said.

        ``control`` are the frames that the connection itself has to send; they go by themselves.
        Up to ``most`` bytes leave before anything else can come up. Asked when ``poll_made`` has
        nothing: out of their order, packets would look lost.
        """
        if control:
            closing = any(isinstance(frame, Close) for frame in control)
            return _alone(self._packet(now, control, closing=closing))
        if self._may_send(now):
            return self._lone(now) or self._train(now, most) or self._load(now)
        if self._may_send_again(now):
            return self._load(now)
        if self._owes_credit:
            return _alone(self._credit_packet(now, NO_LOAD))
        return _alone(self._packet(now, ())) if self._ack_timer.is_due(now) else NOTHING

    def _may_send(self, now: float) -> bool:
        self._resume_at = None
        if not self._is_sending or self._sent_packets.ambiguous:
            return False
        ahead = self._send_side.ahead
        if not self._send_queue.wants_to_send or not self._path.has_window(ahead):
            return False
        ready = self._path.ready_at(now, ahead)
        if ready > now:
            self._resume_at = ready
        return ready <= now

    def _may_send_again(self, now: float) -> bool:
        """Whether a packet may leave that window or pacer hold back, for its messages are late."""
        is_repeat = self._send_queue.sends_again
        if (
            not self._is_sending
            or self._sent_packets.ambiguous
            or not self._send_side.is_up_to_date
        ):
            return False
        is_new = self._send_queue.wants_to_send and self._send_queue.spread < FARTHEST
        if not is_repeat and not is_new:
            return False
        ready = self._path.resend_at(now, is_repeat=is_repeat)
        if ready is not None and ready > now:
            self._resume_at = earliest(self._resume_at, ready)
        return ready is not None and ready <= now

    @property
    def _owes_credit(self) -> bool:
        return self._is_sending and self._credit.is_due

    def _lone(self, now: float) -> tuple[bytes, int] | None:
        """One small message, where that is all there is to send: somebody may wait for it."""
        if self._owes_credit or self._ack_timer.is_late(now):
            return None
        self._send_side.resize(now)
        piece = self._send_queue.take_lone()
        if piece is None:
            return None
        assert isinstance(piece.frame, Messages)
        datagram = encode_lone(self._peer_id, self._header(self._received.ack()), piece.frame)
        self._keep(SentBatch(self._sent_packets.next_sequence, now, len(datagram), ((piece,),)))
        if 4 * piece.cost > 3 * self._send_queue.room:
            self._probe_size(now)
        return datagram, len(datagram)

    def _train(self, now: float, most: int) -> tuple[bytes, int] | None:
        """Packets full of large messages, where those are all there is to send."""
        if (lane := self._send_queue.bulk_lane()) is None:
            return None
        if self._owes_credit or self._ack_timer.is_late(now):
            return None
        self._send_side.resize(now)
        if self._send_queue.room > LARGE:
            return self._load_train(now, lane, min(most, LONGEST_TRAIN))
        return self._run_train(now, lane)

    def _load_train(self, now: float, lane: SendLane, most: int) -> tuple[bytes, int] | None:
        """Packets that go one by one, for each fills a call."""
        number = self._path.budget(now, MOST_DATAGRAMS, most, self._send_side.ahead)
        loads = self._send_queue.take_loads(lane, number) if number > 1 else []
        if not loads:
            return None
        packets = encode_loads(self._peer_id, self._header(self._received.ack()), loads)
        start = 0
        for size, alike in groupby(map(len, packets)):
            end = start + len(list(alike))
            self._keep(SentBatch(self._sent_packets.next_sequence, now, size, loads[start:end]))
            start = end
        self._made = packets[::-1]
        self._probe_size(now)
        return self.poll_made()

    def _run_train(self, now: float, lane: SendLane) -> tuple[bytes, int] | None:
        """Fragments of one message, which one call sends."""
        ahead = self._send_side.ahead
        most = self._path.budget(now, MOST_DATAGRAMS, MOST_PLAIN, ahead)
        run = self._send_queue.take_run(lane, most)
        if run is None:
            return None
        data = encode_run(self._peer_id, self._header(self._received.ack()), run)
        size = len(data) // run.number
        self._keep(SentBatch(self._sent_packets.next_sequence, now, size, run=run))
        self._probe_size(now)
        return data, size

    def _load(self, now: float) -> tuple[bytes, int]:
        """Messages of all kinds, as many as a packet takes."""
        self._send_side.resize(now)
        owes_credit = self._owes_credit
        load = self._send_queue.fill(CREDIT_OVERHEAD if owes_credit else 0)
        if owes_credit or load.frames:
            make = self._credit_packet if owes_credit else self._load_packet
            packet = make(now, load)
            if load.is_full:
                self._probe_size(now)
            return packet, len(packet)
        self._send_queue.note_shortage()
        self._path.starved()
        return _alone(self._packet(now, ())) if self._ack_timer.is_due(now) else NOTHING

    def _load_packet(self, now: float, load: Load) -> bytes:
        return self._packet(now, load.frames, load)

    def _credit_packet(self, now: float, load: Load) -> bytes:
        frames = [Credit(*self._credit.tell()), *load.frames]
        return self._packet(now, frames, load, credit=True)

    def _probe_size(self, now: float) -> None:
        if (size := self._path.poll_probe(now)) is not None:
            self._early.append(_alone(self._packet(now, [Padding(1)], size=size)))

    def _packet(
        self,
        now: float,
        frames: Sequence[Frame],
        load: Load = NO_LOAD,
        *,
        closing: bool = False,
        credit: bool = False,
        size: int = 0,
    ) -> bytes:
        """Put a packet together, and remember it; with ``size`` it is a probe of just that size."""
        front = encode_data(self._peer_id, self._header(self._received.ack()))
        late = self._ack_timer.lateness(now)
        datagram = encode_frames([*late, *frames] if late else frames, front)
        if size:
            # The padding goes to the end, whatever its length says.
            datagram = datagram.ljust(size, b"\0")
        train = SentBatch(self._sent_packets.next_sequence, now, len(datagram), (load.pieces,))
        train.eliciting = bool(frames)
        train.once = load.once
        train.closing, train.credit, train.probe = closing, credit, size > 0
        self._keep(train)
        return datagram

    def _header(self, ack: tuple[int, int]) -> Header:
        return Header(wrap(self._sent_packets.next_sequence), *ack)

    def _keep(self, train: SentBatch) -> None:
        self._sent(train)
        self._ack_timer.sent(train.sent_at)

    def _sent(self, train: SentBatch) -> None:
        self._send_side.sent(train)


def _alone(datagram: bytes) -> tuple[bytes, int]:
    return datagram, len(datagram)
