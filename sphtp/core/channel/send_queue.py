"""The send queue of a channel: its lanes, what may leave next, and what goes redundantly.

It is the packet scheduler: what a packet carries is decided when it may leave, in ``take``. Lanes
order everything that is in them. Of lanes that have something to send, those of the highest
priority go first; those of equal priority share by weight, by start-time fair queueing (Goyal, Vin
and Cheng 1996): each lane has a tag, the bytes that it was served by its weight, the lowest goes
first, and the tag of who goes first is the virtual time of its priority. A lane that joins in has
the virtual time as its tag at least, so that who was silent, or held up, has saved nothing up. Each
priority has a time of its own, which stands still while a higher one has the line to itself.
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
    """Frames that go again before anybody knows whether they are lost.

    Each that asked for copies gets one with every packet that carries something new: in that packet
    if there is room, else in one right behind it.
    """

    __slots__ = ("due", "resting")

    def __init__(self) -> None:
        self.due: deque[SentFrame] = deque()
        # Those that have had their copy with the latest packet.
        self.resting: deque[SentFrame] = deque()

    @property
    def is_under_way(self) -> bool:
        """True if the packets to come have copies to carry."""
        return bool(self.due or self.resting)

    def add_copies(self, frames: list[SentFrame], room: int) -> int:
        """Add copies to a packet that carries something new; return the room that is left.

        The packet's own ``frames`` get theirs with the packets after it.
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
        """Add the copies that are due, as far as they fit; return the room that is left."""
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
    """Messages by lane, reliable ones and those that are sent once.

    A packet takes the frames to be resent first, oldest first, then those never sent. It never
    takes a message that the receiver has no room for: its packet would not be acked. ``room`` is
    what a packet has for frames.
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
        # By priority: the lowest tag of the lanes that could send.
        self._virtual_times: dict[int, float] = {}
        self._redundancy = Redundancy()

    @property
    def waiting(self) -> int:
        """Reliable messages not yet acked; those behind a message still unacked count too.

        Those that were given up do not.
        """
        lanes = self._lanes
        return lanes[0].waiting if len(lanes) == 1 else sum([lane.waiting for lane in lanes])

    @property
    def held(self) -> int:
        """Bytes of the reliable messages that are not acked."""
        return sum([lane.held for lane in self._lanes])

    @property
    def idle(self) -> bool:
        """Nothing waits to be sent or acked."""
        return all(lane.is_idle for lane in self._lanes)

    @property
    def unreliable_dropped(self) -> int:
        """Messages sent once that had to go before they left."""
        return sum([lane.unreliable.dropped for lane in self._lanes])

    @property
    def wants_to_send(self) -> bool:
        """True if ``take`` may have something to give."""
        for lane in self._lanes:
            # As ``SendLane.wants_to_send``, which one call less makes: each poll asks.
            if lane.unsent or lane.to_retransmit or lane.unreliable.waiting:
                return True
        return bool(self._redundancy.due)

    @property
    def fills_packets(self) -> bool:
        """True if there may be enough of one kind to fill more than one packet."""
        lanes, room = self._lanes, self.room
        if len(lanes) == 1:
            return lanes[0].held > room and lanes[0].fills_packets(room)
        return any(lane.fills_packets(room) for lane in lanes)

    @property
    def has_retransmissions(self) -> bool:
        """True if something waits that has left before."""
        return any(lane.to_retransmit for lane in self._lanes)

    @property
    def spread(self) -> int:
        """Frames from the oldest unacked one of each lane to the newest that left."""
        return sum([lane.spread for lane in self._lanes])

    @property
    def wanting(self) -> tuple[int, ...]:
        """The numbers of the lanes in which something waits to be sent."""
        return tuple(number for number, lane in enumerate(self._lanes) if lane.wants_to_send)

    # Queueing

    def room_for(self, sizes: Sequence[int], lane: int = 0) -> int:
        """The number of these messages, given by their sizes, that can be queued in a lane by now.

        Each lane has a buffer of its own, so that one that is full holds up no other. Raises
        ``MessageTooLargeError`` when one of them never can.
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
        """Queue reliable messages as far as there is room; return how many that were.

        ``ticket`` follows the one that there then is. Raises as ``room_for``.
        """
        if len(sizes) > 1:
            number = self.room_for(sizes, lane)
            if number:
                self._lanes[lane].push_many(payloads[:number], sizes[:number], self.room)
            return number
        if not sizes:
            return 0
        size = sizes[0]
        if size > self._limit or not 0 <= lane < len(self._lanes):
            # One that never can be queued.
            return self.room_for(sizes, lane)
        settings = self._settings
        return self._lanes[lane].push(
            payloads[0], size, self.room, settings.send_buffer, settings.send_buffer_bytes, ticket
        )

    def push_unreliable(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> Ticket | None:
        """Queue a message that is sent once, as soon as it is its lane's turn.

        When too many of its lane wait, the oldest is dropped, and its ticket returned.
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
        if gone is not None:
            self._bounds.count("over_unreliable_buffer")
        return gone

    def give_up(self, ticket: Ticket) -> None:
        """Send no more of the message that a ticket with a deadline follows."""
        self._lanes[ticket.lane].give_up(ticket)

    def resize(self, room: int) -> Sequence[Ticket]:
        """Packets have another room for frames from now on.

        Return the tickets of those sent once that no packet takes any more.
        """
        shrinks, self.room = room < self.room, room
        if not shrinks:
            return ()
        gone: list[Ticket] = []
        for lane in self._lanes:
            lane.cut_anew(room)
            gone += lane.unreliable.drop_over(room - ONCE_OVERHEAD)
        return gone

    # Packets

    def take(self, reserved: int, packets: int) -> Contents:
        """Take what goes into the next packets, up to so many; nothing where nothing may leave.

        ``reserved`` bytes of each are spoken for. More than one packet are filled alike, so that
        they are of one size: what cannot be is taken for one packet, which is a batch of one.
        """
        room = self.room - reserved
        # In turn, so that who is silent meanwhile saves nothing up.
        lanes = self._lanes if len(self._lanes) == 1 else self._schedule()
        if packets > 1 and not self._redundancy.is_under_way:
            batch = lanes[0].take_batch(room, packets, self.credit) if len(lanes) == 1 else None
            if batch is not None:
                return batch
        frames: list[SentFrame] = []
        if self._redundancy.due:
            self._redundancy.fill(frames, room)
        if not frames:
            for lane in lanes:
                room = lane.fill(room, self.credit, frames)
            if not frames:
                return ()
            redundant = bool(self._redundancy.due or self._redundancy.resting)
            for frame in frames:
                redundant |= frame.copies > 0
            if redundant:
                self._redundancy.add_copies(frames, room)
        for frame in frames:
            frame.packets += 1
        return (frames,)

    def note_shortage(self) -> None:
        """Count it, once, if what waits may not leave before the peer has read."""
        if self.wants_to_send and (setting := self.credit.new_shortage()) is not None:
            self._bounds.count(f"held_by_{setting}")

    # What became of them

    def acked(self, frames: Sequence[SentFrame]) -> None:
        """Forget the frames of an acked packet."""
        for frame in frames:
            if not frame.is_reliable:
                frame.settle()
            elif not frame.acked:
                self._lanes[frame.frame.lane & ~FLAG].acked(frame)

    def run_acked(self, run: FragmentRun, bits: int) -> int:
        """Forget the fragments of acked packets; return their bytes."""
        return self._lanes[run.lane].run_acked(run, bits)

    def retransmit_lost(self, frames: Sequence[SentFrame]) -> int:
        """Put the frames of a lost packet in line again; return how many messages they hold.

        A frame that is on its way in another packet as well waits for the verdict on that. One that
        is sent once only is let go of.
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

        Return how many messages they hold.
        """
        number = 0
        for frame in frames:
            if frame.is_reliable and not frame.acked and not frame.queued:
                self._lanes[frame.frame.lane & ~FLAG].retransmit(frame)
                number += max(1, frame.count)
        return number

    def _schedule(self) -> Sequence[SendLane]:
        ready = [lane for lane in self._lanes if lane.may_send(self.credit)]
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
