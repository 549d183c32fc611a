"""The send queue of a channel: its lanes, and what may leave next.

Lanes order everything that is in them. Of lanes that have something to send, those of the highest
priority go first; those of equal priority share by weight, by start-time fair queueing (Goyal, Vin
and Cheng 1996): each lane has a tag, the bytes that it was served by its weight, the lowest goes
first, and the tag of who goes first is the virtual time of its priority. A lane that joins in has
the virtual time as its tag at least, so that who was silent, or held up, has saved nothing up. Each
priority has a time of its own, which stands still while a higher one has the line to itself.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sphtp.core.channel.copies import Copies
from sphtp.core.channel.delivery import FLAG, Delivery
from sphtp.core.channel.flow_control import SendCredit
from sphtp.core.channel.frames import Frame
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.limit_counters import LimitCounters
from sphtp.core.channel.pieces import Piece
from sphtp.core.channel.runs import FragmentRun
from sphtp.core.channel.send_lane import SendLane
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.ticket import Ticket
from sphtp.core.channel.unreliable import OVERHEAD
from sphtp.errors import LocalError, MessageTooLargeError, StateError


class Load(NamedTuple):
    """What a packet takes: frames, and what to keep of them until it is acked."""

    frames: Sequence[Frame]
    pieces: Sequence[Piece] = ()
    once: Sequence[Ticket] = ()
    is_full: bool = False


class SendQueue:
    """Messages by lane, reliable ones and those that are sent once.

    A packet takes the pieces to be resent first, oldest first, then those never sent. It never
    takes a message that the receiver has no room for: its packet would not be acked. ``room`` is
    what a packet has for frames.
    """

    def __init__(
        self,
        settings: ChannelSettings,
        room: int,
        peer: TransportParameters,
        bounds: LimitCounters | None = None,
    ) -> None:
        self.room = room
        self.credit = SendCredit(peer.receive_buffer, peer.receive_buffer_bytes)
        self._bounds = LimitCounters() if bounds is None else bounds
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
        self._copies = Copies()

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
        return sum([lane.once.dropped for lane in self._lanes])

    @property
    def wants_to_send(self) -> bool:
        """Whether ``fill`` may have something to give."""
        for lane in self._lanes:
            if lane.wants_to_send:
                return True
        return bool(self._copies)

    @property
    def sends_again(self) -> bool:
        """Whether something waits that has left before."""
        return bool([lane for lane in self._lanes if lane.sends_again])

    @property
    def spread(self) -> int:
        """Pieces from the oldest unacked one of each lane to the newest that left."""
        return sum([lane.spread for lane in self._lanes])

    @property
    def wanting(self) -> tuple[int, ...]:
        """The numbers of the lanes in which something waits to be sent."""
        return tuple(number for number, lane in enumerate(self._lanes) if lane.wants_to_send)

    # Queueing

    def room_for(self, sizes: Sequence[int], lane: int = 0) -> int:
        """How many of these messages, given by their sizes, can be queued in a lane by now.

        Each lane has a buffer of its own, so that one that is full holds up no other. Raises
        ``MessageTooLargeError`` when one of them never can.
        """
        self._check(max(sizes, default=0))
        settings = self._settings
        return self._lane(lane).room_for(sizes, settings.send_buffer, settings.send_buffer_bytes)

    def has_room(self, size: int, lane: int = 0) -> bool:
        """Whether one message of a size can be queued in a lane by now; raises as ``room_for``."""
        self._check(size)
        settings = self._settings
        return self._lane(lane).has_room(size, settings.send_buffer, settings.send_buffer_bytes)

    def push_many(self, payloads: Sequence[bytes], lane: int = 0) -> None:
        """Queue reliable messages; raises ``StateError`` when there is no room for all by now."""
        sizes = list(map(len, payloads))
        if self.room_for(sizes, lane) < len(sizes):
            raise StateError(f"no room for {len(sizes)} messages: {self._lane(lane).waiting} wait")
        if payloads:
            self.push_fitting(payloads, sizes, lane)

    def push_fitting(self, payloads: Sequence[bytes], sizes: Sequence[int], lane: int) -> None:
        """Queue reliable messages, one at least, for which ``room_for`` has found room."""
        self._lanes[lane].push_many(payloads, self.room, sizes)

    def push(self, payload: bytes, ticket: Ticket) -> None:
        """Queue a reliable message that is followed; raises as ``push_many``."""
        if not self.has_room(len(payload), ticket.lane):
            raise StateError(f"no room for a message: {self._lane(ticket.lane).waiting} wait")
        self._lanes[ticket.lane].push(payload, self.room, ticket)

    def push_once(self, payload: bytes, ticket: Ticket, delivery: Delivery) -> Ticket | None:
        """Queue a message that is sent once, as soon as it is its lane's turn.

        When too many of its lane wait, the oldest is dropped, and its ticket returned.
        """
        self._check(len(payload))
        lane = self._lane(ticket.lane)
        if len(payload) > self.room - OVERHEAD:
            raise MessageTooLargeError(
                f"an unreliable message of {len(payload)} bytes; "
                f"one packet takes {self.room - OVERHEAD}"
            )
        flag = FLAG if delivery is Delivery.SEQUENCED else 0
        gone = lane.once.push(ticket.lane | flag, payload, ticket)
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
            gone += lane.once.drop_over(room - OVERHEAD)
        return gone

    # Packets

    def fill(self, taken: int = 0) -> Load:
        """Take what goes into the next packet, of whose room ``taken`` bytes are used already."""
        room = self.room - taken
        frames: list[Frame] = []
        pieces: list[Piece] = []
        once: list[Ticket] = []
        if self._copies:
            left = self._copies.fill(pieces, room)
            if pieces:
                return self._load(frames, pieces, once, left)
        for lane in self._in_turn():
            room = lane.fill(room, self.credit, frames, once, pieces)
        if pieces or frames:
            room = self._copies.accompany(pieces, room)
        return self._load(frames, pieces, once, room)

    def take_lone(self) -> Piece | None:
        """Take a message that goes into a packet by itself; None where ``fill`` must be asked."""
        if len(self._lanes) > 1 or self._copies.are_coming:
            return None
        return self._lanes[0].take_lone(self.room, self.credit)

    def note_shortage(self) -> None:
        """Count it, once, if what waits may not leave before the peer has read."""
        if self.wants_to_send and (setting := self.credit.new_shortage()) is not None:
            self._bounds.count(f"held_by_{setting}")

    def bulk_lane(self) -> SendLane | None:
        """The lane of a large message, when that is all there is to send."""
        if len(self._lanes) == 1 and not self._lanes[0].is_bulk:
            return None
        if self._copies.are_coming:
            return None
        # In turn, so that who is silent meanwhile saves nothing up.
        wanting = self._in_turn()
        return wanting[0] if len(wanting) == 1 and wanting[0].is_bulk else None

    def take_run(self, lane: SendLane, most: int) -> FragmentRun | None:
        """Take fragments of one message for ``most`` packets; None where ``fill`` must be asked."""
        run = lane.take_run(self.room, most, self.credit)
        if run is not None:
            lane.served += run.size / lane.options.weight
        return run

    def take_loads(self, lane: SendLane, most: int) -> list[list[Piece]]:
        """Take what fills up to ``most`` packets, as long as no room is left in them.

        Ends with the lane's large messages, and where packets have copies to carry.
        """
        loads: list[list[Piece]] = []
        left = 0
        while not left and len(loads) < most and lane.is_bulk:
            pieces, left = lane.take_load(self.room, self.credit)
            if pieces:
                left = self._copies.accompany(pieces, left)
                loads.append(pieces)
                lane.served += (self.room - left) / lane.options.weight
            if self._copies.are_coming:
                break
        return loads

    def acked(self, pieces: Sequence[Piece]) -> None:
        """Forget the pieces of an acked packet."""
        for piece in pieces:
            if not piece.acked:
                self._lanes[piece.frame.lane & ~FLAG].acked(piece)

    def run_acked(self, run: FragmentRun, bits: int) -> int:
        """Forget the fragments of acked packets; return their bytes."""
        return self._lanes[run.lane].run_acked(run, bits)

    def lost(self, pieces: Sequence[Piece]) -> int:
        """Put the pieces of a lost packet in line again; return how many messages they hold.

        A piece that is on its way in another packet as well waits for the verdict on that.
        """
        for piece in pieces:
            piece.flights -= 1
        return self.again([piece for piece in pieces if piece.flights <= 0])

    def again(self, pieces: Sequence[Piece]) -> int:
        """Put pieces in line again whatever becomes of their packets; return as ``lost``."""
        wanted = [piece for piece in pieces if not piece.acked and not piece.queued]
        for piece in wanted:
            self._lanes[piece.frame.lane & ~FLAG].again(piece)
        return sum([max(1, piece.count) for piece in wanted])

    def _load(
        self, frames: list[Frame], pieces: list[Piece], once: Sequence[Ticket], room: int
    ) -> Load:
        for piece in pieces:
            piece.flights += 1
        frames.extend([piece.frame for piece in pieces])
        return Load(frames, pieces, once, room < self.room // 4)

    def _in_turn(self) -> Sequence[SendLane]:
        if len(self._lanes) == 1:
            return self._lanes
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
