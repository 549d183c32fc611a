"""One side of a conversation: it sends by its moods, reads by its habit, and keeps the books."""

from collections.abc import Callable
from math import inf
from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.settings import Delivery
from tests.soak.ledger import Ledger
from tests.soak.payloads import Kind, Stream
from tests.soak.traffic import LANES, PROMPT, Mood, Reading, Traffic, draw_size

# What is sent once has to fit a packet of the smallest size that a path is tried with.
MOST_ONCE = 150


class Speaker:
    """Speaks and listens over a connection.

    ``says`` is the ledger of what leaves here, ``hears`` of what arrives.
    """

    def __init__(
        self,
        random: Random,
        connection: Connection,
        limit: int,
        traffic: Traffic,
        reading: Reading,
        says: Ledger,
        hears: Ledger,
    ) -> None:
        self.connection = connection
        self.says = says
        self.hears = hears
        # Messages that there was no room for.
        self.held_back = 0
        self._random = random
        self._limit = limit
        self._traffic = traffic
        self._habit = self._reading = reading
        self._mood = traffic.mood(random)
        self._mood_ends = 0.0
        self._speaks_at = 0.0
        self._reads_at = 0.0
        self._wishes: dict[str, Callable[[float, int, int], None]] = {
            "many": self._send_many,
            "followed": self._send_followed,
            "perishable": self._send_perishable,
            "copied": self._send_copied,
            "empty": self._send_empty,
            "unreliable": self._send_unreliable,
            "sequenced": self._send_sequenced,
        }

    @property
    def next_time(self) -> float:
        """When ``act`` is due."""
        reads_at = self._reads_at if self.connection.port.readable else inf
        return min(self._speaks_at, reads_at)

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way from here, and nothing waits to be read."""
        send_side = self.connection.port.send_side
        assert send_side is not None
        idle = send_side.send_queue.idle and not self.connection.port.readable
        return idle and not self.says.has_open_tickets

    def act(self, now: float) -> None:
        """Say and read what is due."""
        self.listen(now)
        if now < self._speaks_at:
            return
        if now >= self._mood_ends:
            self._mood = self._traffic.mood(self._random)
            self._mood_ends = now + self._random.uniform(*self._mood.lasting)
        self._speak(now, self._mood)
        self._speaks_at = now + self._random.uniform(*self._mood.gap)

    def listen(self, now: float) -> None:
        """Read what is due, and take the receipts."""
        port = self.connection.port
        while (ticket := port.poll_settled()) is not None:
            self.says.settle(ticket)
        if now >= self._reads_at and port.readable:
            for payload in port.receive_many(self._reading.limit):
                self.hears.hear(payload)
            self._reads_at = now + self._reading.pause(self._random)
        if not port.readable:
            self.hears.fade(now)

    def hush(self) -> None:
        """Say nothing more, and read at once."""
        self._speaks_at, self._reads_at, self._reading = inf, 0.0, PROMPT

    def wake(self, now: float) -> None:
        """Talk again, and read as ever."""
        self._speaks_at, self._reads_at, self._reading = now, now, self._habit

    def _speak(self, now: float, mood: Mood) -> None:
        for _ in range(self._random.randint(*mood.count)):
            lane = self._random.choice(self._traffic.lanes)
            size = draw_size(mood.sizes, self._limit, self._random)
            self._wishes[self._traffic.wish(self._random)](now, lane, size)

    # Ways to send

    def _send_many(self, _now: float, lane: int, size: int) -> None:
        count = self._random.randint(1, 3)
        room = self._room([size] * count, lane)
        payloads = [self.says.compose(_reliable(lane), size) for _ in range(room)]
        self.connection.port.send_many(payloads, lane)

    def _send_empty(self, _now: float, lane: int, _size: int) -> None:
        if self._room([0], lane):
            self.connection.port.send_many([self.says.compose_empty()], lane)

    def _send_followed(self, now: float, lane: int, size: int) -> None:
        self._send(Ticket(now, lane), size)

    def _send_perishable(self, now: float, lane: int, size: int) -> None:
        self._send(Ticket(now, lane, now + self._random.uniform(0.0, 0.5)), size)

    def _send_copied(self, now: float, lane: int, size: int) -> None:
        self._send(Ticket(now, lane, None, self._random.randint(1, 3)), size)

    def _send_unreliable(self, now: float, lane: int, size: int) -> None:
        self._send_once(Ticket(now, lane), Kind.UNRELIABLE, Delivery.UNRELIABLE, size)

    def _send_sequenced(self, now: float, lane: int, size: int) -> None:
        self._send_once(Ticket(now, lane), Kind.SEQUENCED, Delivery.SEQUENCED, size)

    def _send(self, ticket: Ticket, size: int) -> None:
        if self._room([size], ticket.lane):
            payload = self.says.compose(_reliable(ticket.lane), size, ticket)
            self.connection.port.send(payload, ticket, Delivery.RELIABLE)

    def _send_once(self, ticket: Ticket, kind: Kind, delivery: Delivery, size: int) -> None:
        payload = self.says.compose(Stream(kind, ticket.lane), min(size, MOST_ONCE), ticket)
        self.connection.port.send(payload, ticket, delivery)

    def _room(self, sizes: list[int], lane: int) -> int:
        room = self.connection.port.room_for(sizes, lane)
        self.held_back += len(sizes) - room
        return room


def _reliable(lane: int) -> Stream:
    return Stream(Kind.ORDERED if LANES[lane].ordered else Kind.UNORDERED, lane)
