"""Fragments of one message that fill a train of packets: one record for all that goes well."""

from collections.abc import Sequence

from sphtp.core.channel.delivery import FLAG
from sphtp.core.channel.pieces import Piece, make_fragment
from sphtp.core.channel.ticket import Ticket
from sphtp.core.serial import wrap


class FragmentRun:
    """``number`` fragments of ``length`` bytes each of the message ``first_id``, from ``index`` on.

    It stands in its lane like a piece. Bits are those of its train: bit n is the fragment n before
    the last. As soon as one has to be treated unlike the others, it is broken up.
    """

    __slots__ = ("_open", "_parts", "_payload", "charge", "first_id", "index", "lane_byte",
                 "length", "number", "short_id", "tickets")  # fmt: skip

    count = 0
    """Messages that end with it: none, for a message's last fragment is not in a run."""

    def __init__(
        self,
        lane: int,
        first_id: int,
        payload: bytes,
        start: int,
        length: int,
        number: int,
        tickets: Sequence[Ticket],
    ) -> None:
        self.first_id = first_id
        self.index = start
        self.number = number
        self.tickets = tickets
        self.charge = (0, 0) if start else (1, len(payload))
        self.lane_byte = lane
        self.short_id = wrap(first_id)
        self.length = length
        self._payload = payload
        # By bit, once it is broken up.
        self._parts: dict[int, Piece] = {}
        self._open = (1 << number) - 1

    @property
    def lane(self) -> int:
        """The number of its lane."""
        return self.lane_byte & ~FLAG

    @property
    def is_broken(self) -> bool:
        """Whether pieces have taken its place."""
        return bool(self._parts)

    @property
    def acked(self) -> bool:
        """Whether all of it has arrived, be it as pieces."""
        return not self._open and all(part.acked for part in self._parts.values())

    @property
    def size(self) -> int:
        """Bytes of the message in it."""
        return self.number * self.length

    @property
    def view(self) -> memoryview:
        """The message."""
        return memoryview(self._payload)

    @property
    def total(self) -> int:
        """Bytes of the message."""
        return len(self._payload)

    @property
    def end(self) -> int:
        """Where in its message it ends."""
        return self.index + self.size

    def settle(self, bits: int) -> int:
        """Take it that these fragments arrived; return how many bytes of the message that was."""
        fresh = bits & self._open
        self._open ^= fresh
        if not self._open:
            self._payload = b""
        return fresh.bit_count() * self.length

    def break_up(self) -> None:
        """Make a piece of each fragment that has not arrived, the oldest first; once is enough.

        Whoever follows the message is told when all of them are acked.
        """
        if not self._open:
            return
        for bit in reversed(range(self.number)):
            if self._open >> bit & 1:
                start = self.end - (bit + 1) * self.length
                end = start + self.length
                part = make_fragment(
                    self.lane_byte, self.first_id, self._payload, start, end, self.tickets
                )
                part.flights = 1
                self._parts[bit] = part
        for ticket in self.tickets:
            ticket.parts += len(self._parts) - 1
        self._open, self._payload, self.tickets = 0, b"", ()

    def parts(self, bits: int = -1) -> list[Piece]:
        """The pieces that took the place of these fragments."""
        return [part for bit, part in self._parts.items() if bits >> bit & 1]
