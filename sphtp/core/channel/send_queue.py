"""The send queue of a channel: its lanes, the scheduler over them, and redundant copies.

The packet scheduler decides late: ``take`` chooses the content of a packet when the packet may
leave. Each lane keeps its own order. Among the backlogged lanes, which have something to send,
those of the highest priority go first. Lanes of equal priority share the bandwidth by weight, with
start-time fair queueing (Goyal, Vin and Cheng 1996). Each lane has a tag, its bytes served divided
by its weight, and the lane with the lowest tag goes first. This lowest tag is the virtual time of
its priority. A lane that becomes active starts with at least the virtual time as its tag, so that
it gains no advantage while it is idle or blocked. Each priority has a virtual time of its own,
which stands still while higher priorities use all of the bandwidth.
"""

from collections import deque
from collections.abc import Sequence

from sphtp.core.channel.flow_control import SendCredit
from sphtp.core.channel.frames import FLAG
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.queued_messages import ONCE_OVERHEAD
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.send_lane import SendLane
from sphtp.core.channel.sent_packets import Contents, FragmentRun, SentFrame
from sphtp.core.channel.settings import ChannelSettings, Delivery
from sphtp.core.channel.statistics import BoundCounters
from sphtp.errors import LocalError, MessageTooLargeError


class Redundancy:
    """The frames that are repeated without waiting for the detection of a loss.

    A frame with n copies is repeated with the next n packets that carry new content: in such a
    packet if there is room, else in another one right behind it.
    """

    __slots__ = ("due", "resting")

    def __init__(self) -> None:
        self.due: deque[SentFrame] = deque()
        # Frames that left with the latest packet, and have copies left.
        self.resting: deque[SentFrame] = deque()

    @property
    def is_under_way(self) -> bool:
        """True if copies remain to be sent."""
        return bool(self.due or self.resting)

    def add_copies(self, frames: list[SentFrame], room: int) -> int:
        """Add copies to a packet that carries new content; return the room that is left.

        The packet's own ``frames`` are repeated with the packets after it.
        """
        new = [frame for frame in frames if frame.copies and not frame.awaits_copy]
        if self.resting:
            self.due.extend(self.resting)
            self.resting.clear()
        if self.due:
            room = self.fill(frames, room)
        for frame in new:
            frame.awaits_copy = True
        self.resting.extend(new)
        return room

    def fill(self, frames: list[SentFrame], room: int) -> int:
        """Add the copies that are due and fit; return the room in bytes that is left."""
        due = self.due
        while due and (due[0].acked or due[0].cost <= room):
            frame = due.popleft()
            if not frame.acked and frame not in frames:
                room -= frame.cost
                frame.copies -= 1
                frames.append(frame)
            frame.awaits_copy = frame.copies > 0 and not frame.acked
            if frame.awaits_copy:
                self.resting.append(frame)
        return room


class SendQueue:
    """The messages of all lanes, reliable and unreliable.

    From each lane, a packet takes the frames to retransmit, oldest first, and then unsent reliable
    messages; unreliable ones share the packet with both. It never takes a reliable message for
    which the receiver has no room, because the receiver would not ack the packet. ``room`` is the
    room for frames in a packet, in bytes.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        room: int,
        peer: TransportParameters,
        bounds: BoundCounters | None = None,
    ) -> None:
        self.room = room
        self.credit = SendCredit(peer.receive_buffer, peer.receive_buffer_bytes)
        self._bounds = BoundCounters() if bounds is None else bounds
        self._settings = settings
        self._limit = min(settings.max_message, peer.max_message)
        self._lanes = [
            SendLane(
                number,
                options,
                settings.first_sequence,
                peer.receive_buffer,
                settings.unreliable_buffer,
            )
            for number, options in enumerate(settings.lanes)
        ]
        self.redundancy = Redundancy()
        # The lanes with something to send.
        self.backlog: dict[SendLane, None] = {}
        # By priority: the lowest tag of the lanes that could send.
        self._virtual_times: dict[int, float] = {}

    @property
    def waiting(self) -> int:
        """The number of reliable messages from the oldest unacked one of each lane to the newest.

        Acked messages behind an unacked one count. Messages that were given up do not.
        """
        lanes = self._lanes
        return lanes[0].waiting if len(lanes) == 1 else sum([lane.waiting for lane in lanes])

    @property
    def held(self) -> int:
        """Bytes of the reliable messages that are not acked."""
        return sum([lane.held for lane in self._lanes])

    def levels(self) -> list[tuple[int, int]]:
        """Return the ``waiting`` and the ``held`` of each lane, in the order of lane numbers."""
        return [(lane.waiting, lane.held) for lane in self._lanes]

    @property
    def idle(self) -> bool:
        """True if no message waits to be sent, and no reliable one or SKIP to be acked."""
        return all(lane.is_idle for lane in self._lanes)

    @property
    def unreliable_dropped(self) -> int:
        """The number of unreliable messages that this side dropped before they left.

        It dropped them because too many waited, or because packets became too small for them.
        Expired ones do not count.
        """
        return sum([lane.unreliable.dropped for lane in self._lanes])

    @property
    def wants_to_send(self) -> bool:
        """True if ``take`` may return something."""
        return bool(self.backlog or self.redundancy.due)

    @property
    def fills_packets(self) -> bool:
        """True if the first unsent content of a lane may fill more than one packet."""
        room = self.room
        return any(lane.held > room and lane.fills_packets(room) for lane in self.backlog)

    @property
    def has_retransmissions(self) -> bool:
        """True if frames wait for retransmission."""
        return any(lane.to_retransmit for lane in self.backlog)

    @property
    def spread(self) -> int:
        """The sum of the ``spread`` of all lanes."""
        return sum([lane.spread for lane in self._lanes])

    @property
    def wanting(self) -> tuple[int, ...]:
        """The numbers of the lanes with something to send."""
        return tuple(number for number, lane in enumerate(self._lanes) if lane in self.backlog)

    # Queueing

    def room_for(self, sizes: Sequence[int], lane: int = 0) -> int:
        """Return the number of messages of these sizes, in bytes, that a lane can queue now.

        Each lane has a buffer of its own, so that a full one does not block the others. Raises
        ``MessageTooLargeError`` if one of the messages can never be queued, and ``LocalError`` if
        there is no such lane.
        """
        self._check(max(sizes, default=0))
        settings = self._settings
        return self._lane(lane).room_for(sizes, settings.send_buffer, settings.send_buffer_bytes)

    def push(
        self,
        payloads: Sequence[bytes],
        sizes: Sequence[int],
        lane: int = 0,
        ticket: Ticket | None = None,
    ) -> int:
        """Queue as many reliable messages as there is room for; return their number.

        With ``ticket``, which tracks a message, there is only one. Raises as ``room_for``, but
        nothing without messages.
        """
        if len(sizes) > 1:
            number = self.room_for(sizes, lane)
            if number:
                chosen = self._lanes[lane]
                chosen.push_many(payloads[:number], sizes[:number], self.room)
                self.backlog[chosen] = None
            return number
        if not sizes:
            return 0
        size = sizes[0]
        if size > self._limit or not 0 <= lane < len(self._lanes):
            # ``room_for`` raises the error.
            return self.room_for(sizes, lane)
        settings, chosen = self._settings, self._lanes[lane]
        number = chosen.push(
            payloads[0], size, self.room, settings.send_buffer, settings.send_buffer_bytes, ticket
        )
        if number:
            self.backlog[chosen] = None
        return number

    def may_pass(self, lane: int, size: int) -> bool:
        """Return True if a reliable message of ``size`` bytes may leave by shared memory alone.

        Raises ``LocalError`` if there is no such lane.
        """
        return self._lane(lane).may_pass(self.credit) and size <= self._limit

    def pass_message(self, lane: int, size: int) -> tuple[int, int]:
        """Count a reliable message that leaves by shared memory, for ``size`` bytes of credit.

        Return the lane and the id of the message, as in a frame.
        """
        self.credit.spend(1, size)
        return self._lanes[lane].pass_message()

    def push_unreliable(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> Ticket | None:
        """Queue an unreliable message in the lane of its ticket.

        If too many wait in the lane, drop the oldest and return its ticket; otherwise return None.
        Raises ``MessageTooLargeError`` if the message does not fit one packet or is over the limit
        of the channel, and ``LocalError`` if there is no such lane.
        """
        self._check(len(payload))
        lane = self._lane(ticket.lane)
        if len(payload) > self.room - ONCE_OVERHEAD:
            raise MessageTooLargeError(
                f"an unreliable message of {len(payload)} bytes; "
                f"one packet takes {self.room - ONCE_OVERHEAD}"
            )
        flag = FLAG if delivery is Delivery.SEQUENCED else 0
        gone = lane.unreliable.push(ticket.lane | flag, payload, ticket)
        self.backlog[lane] = None
        if gone is not None:
            self._bounds.count("over_unreliable_buffer")
        return gone

    def give_up(self, ticket: Ticket) -> None:
        """Drop the message of a ticket whose deadline has passed."""
        lane = self._lanes[ticket.lane]
        lane.give_up(ticket)
        # Its SKIP may be new in the lane, or the message the last one.
        self._update_backlog((lane,))

    def resize(self, room: int) -> Sequence[Ticket]:
        """Change the room for frames in a packet, in bytes.

        Drop the unreliable messages that no longer fit one packet, and return their tickets.
        """
        shrinks, self.room = room < self.room, room
        if not shrinks:
            return ()
        gone: list[Ticket] = []
        for lane in self._lanes:
            lane.cut_anew(room)
            gone += lane.unreliable.drop_over(room - ONCE_OVERHEAD)
        self._update_backlog(self._lanes)
        return gone

    # Packets

    def take(self, reserved: int, packets: int) -> Contents:
        """Take the content of up to ``packets`` packets; an empty sequence if none may leave.

        ``reserved`` bytes of each packet are used for other frames. Several packets have the same
        amount and kind of content, so that they have one size. Content that does not fill several
        packets is taken for one.
        """
        room = self.room - reserved
        # With several lanes the scheduler runs each time, so that an idle lane gains no advantage.
        lanes = self._lanes if len(self._lanes) == 1 else self._schedule()
        redundancy = self.redundancy
        if packets > 1 and not redundancy.is_under_way:
            batch = lanes[0].take_batch(room, packets, self.credit) if len(lanes) == 1 else None
            if batch is not None:
                self._update_backlog(lanes)
                return batch
        frames: list[SentFrame] = []
        if redundancy.due:
            redundancy.fill(frames, room)
        if not frames:
            for lane in lanes:
                room = lane.fill(room, self.credit, frames)
            self._update_backlog(lanes)
            if not frames:
                return ()
            redundant = bool(redundancy.due or redundancy.resting)
            for frame in frames:
                redundant |= frame.copies > 0
            if redundant:
                redundancy.add_copies(frames, room)
        for frame in frames:
            frame.packets += 1
        return (frames,)

    def note_shortage(self) -> None:
        """Count a shortage of credit that blocks messages, once until the peer raises a limit."""
        if self.wants_to_send and (setting := self.credit.new_shortage()) is not None:
            self._bounds.count(f"held_by_{setting}")

    # Acks and losses

    def acked(self, frames: Sequence[SentFrame]) -> None:
        """Settle the frames of acked packets."""
        for frame in frames:
            if not frame.is_reliable:
                frame.settle()
            elif not frame.acked:
                self._lanes[frame.frame.lane & ~FLAG].acked(frame)

    def run_acked(self, run: FragmentRun, bits: int) -> int:
        """Settle the fragments of acked packets; return the bytes acked for the first time."""
        return self._lanes[run.lane].run_acked(run, bits)

    def retransmit_lost(self, frames: Sequence[SentFrame]) -> int:
        """Queue the frames of lost packets for retransmission.

        A frame that is still in flight in another packet is not queued. An unreliable frame is
        dropped. Return the number of messages queued, of which a fragment counts as one.
        """
        wanted = []
        for frame in frames:
            frame.packets -= 1
            if not frame.is_reliable:
                frame.settle()
            elif frame.packets <= 0:
                wanted.append(frame)
        return self.retransmit(wanted)

    def retransmit(self, frames: Sequence[SentFrame]) -> int:
        """Queue frames for retransmission, whether or not their packets are lost.

        Return the number of messages in the frames that were not queued before.
        """
        number = 0
        for frame in frames:
            if frame.is_reliable and not frame.acked and not frame.queued:
                lane = self._lanes[frame.frame.lane & ~FLAG]
                lane.retransmit(frame)
                self.backlog[lane] = None
                number += max(1, frame.count)
        return number

    def _update_backlog(self, lanes: Sequence[SendLane]) -> None:
        for lane in lanes:
            # ``SendLane.wants_to_send`` inlined, to save a call for each packet.
            if lane.unsent or lane.to_retransmit or lane.unreliable.waiting:
                self.backlog[lane] = None
            else:
                self.backlog.pop(lane, None)

    def _schedule(self) -> Sequence[SendLane]:
        ready = [lane for lane in self.backlog if lane.may_send(self.credit)]
        times = self._virtual_times
        for lane in ready:
            lane.served = max(lane.served, times.get(lane.options.priority, 0.0))
        ready.sort(key=lambda lane: (-lane.options.priority, lane.served))
        for lane in reversed(ready):
            times[lane.options.priority] = lane.served
        return ready

    def _lane(self, number: int) -> SendLane:
        if not 0 <= number < len(self._lanes):
            raise LocalError(f"lane {number}; this channel has lanes 0 to {len(self._lanes) - 1}")
        return self._lanes[number]

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise MessageTooLargeError(
                f"a message of {size} bytes; this channel takes {self._limit}"
            )
