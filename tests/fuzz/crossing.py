"""Two nodes, and between them a network that loses, holds back, doubles and repeats at will.

What it carries it does not alter, so that every message arrives once, and in its lane's order; and
when the network is well again, all of them arrive. Where nodes are sealed it may alter as well.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import Delivery
from sphtp.core.datagrams import Address, Datagrams
from tests.fuzz.choices import Choices
from tests.fuzz.mutations import mutate
from tests.fuzz.nodes import SETTINGS, SUBJECTS, Application, Subject, Wish, make_node

LEFT: Final[Address] = ("10.0.0.1", 1000)
RIGHT: Final[Address] = ("10.0.0.2", 2000)

STEPS: Final = (0.0, 0.001, 0.01, 0.01, 0.05, 0.2, 1.0, 4.0)
SIZES: Final = (8, 8, 8, 20, 100, 1200, 5000, 40_000)
MOST_FLYING: Final = 512
RECOVERY: Final = 30.0
"""Seconds within which what was sent arrives, once the network is well."""

MOST_EVENTS: Final = 20_000
ONCE: Final = (Delivery.UNRELIABLE, Delivery.SEQUENCED)


class Flying(NamedTuple):
    """Datagrams on their way."""

    source: Address
    destination: Address
    data: bytes
    size: int


class Crossing:
    """Left dials right, and perhaps right left at the same time; ``step`` does one thing."""

    def __init__(self, choices: Choices, subject: Subject = SUBJECTS["clear"]) -> None:
        self.now = 0.0
        self._choices = choices
        self._subject = subject
        self._flying: list[Flying] = []
        self._past: list[Flying] = []
        self._sides = {
            LEFT: Application(make_node(subject, "left", 1), self._clients_of(LEFT)),
            RIGHT: Application(make_node(subject, "right", 3), self._clients_of(RIGHT)),
        }
        # By sender: reliable messages of each lane in order, and all that are sent once.
        self._sent: dict[Address, dict[int, list[bytes]]] = {
            side: defaultdict(list) for side in self._sides
        }
        self._read: dict[Address, dict[int, int]] = {side: defaultdict(int) for side in self._sides}
        self._once: dict[Address, set[bytes]] = {side: set() for side in self._sides}
        self._unordered: dict[Address, set[bytes]] = {side: set() for side in self._sides}
        self._number = 0
        self._is_closing = False
        self._sides[LEFT].open(self.now, [RIGHT])
        if choices.below(2):
            self._sides[RIGHT].open(self.now, [LEFT])
        self._flush()

    def step(self) -> None:
        """Let one thing happen."""
        self._choices.pick(HAPPENINGS)(self)
        self._flush()

    def finish(self) -> None:
        """Let the network be well: what was sent arrives, unless a side closed."""
        end, events = self.now + RECOVERY, 0
        while self.now < end and not self._is_at_rest():
            flying, self._flying = self._flying, []
            for it in flying:
                self._arrive(it)
            self._flush()
            if not self._flying:
                self._go_on_to_next(end)
            events += 1
            assert events < MOST_EVENTS, f"busy at {self.now}"
        if not self._is_closing and all(map(_is_open, self._channels())):
            self._check_all_arrived()

    # What may happen

    def deliver(self) -> None:
        """Some datagrams arrive, the oldest first."""
        number = 1 + self._choices.below(8)
        due, self._flying = self._flying[:number], self._flying[number:]
        for it in due:
            self._arrive(it)

    def overtake(self) -> None:
        """One arrives before others."""
        if self._flying:
            self._arrive(self._flying.pop(self._choices.below(len(self._flying))))

    def lose(self) -> None:
        """One is lost."""
        if self._flying:
            del self._flying[self._choices.below(len(self._flying))]

    def lose_all(self) -> None:
        """All are lost."""
        self._flying.clear()

    def repeat(self) -> None:
        """One that arrived arrives once more."""
        if self._past:
            self._arrive(self._choices.pick(self._past))

    def alter(self) -> None:
        """One is changed on its way, where nodes can tell."""
        if self._flying and self._subject.is_sealed:
            it = self._flying.pop(self._choices.below(len(self._flying)))
            data = mutate(self._choices, it.data, [other.data for other in self._past[-8:]])
            self._arrive(it._replace(data=data))

    def wait(self) -> None:
        """Time passes."""
        self._pass_time(self.now + self._choices.pick(STEPS))

    def wait_for_timer(self) -> None:
        """Time passes until somebody has something to do."""
        self._go_on_to_next(self.now + 1.0)

    def send(self) -> None:
        """One side sends some messages in a lane."""
        side, lane = self._choices.pick((LEFT, RIGHT)), self._choices.below(len(SETTINGS.lanes))
        size, copies = self._choices.pick(SIZES), self._choices.below(2)
        for _ in range(1 + self._choices.below(16)):
            payload = self._payload(b"r", lane, size)
            if self._send(side, payload, Wish(lane=lane, copies=copies)):
                self._sent[side][lane].append(payload)

    def send_once(self) -> None:
        """One side sends a message that need not arrive."""
        side, lane = self._choices.pick((LEFT, RIGHT)), self._choices.below(len(SETTINGS.lanes))
        payload = self._payload(b"u", lane, self._choices.pick(SIZES))
        if self._send(side, payload, Wish(self._choices.pick(ONCE), lane)):
            self._once[side].add(payload)

    def close(self) -> None:
        """One side closes, or gives up."""
        side = self._sides[self._choices.pick((LEFT, RIGHT))]
        if self._choices.below(4):
            # Rarely, for not much happens then.
            return
        self._is_closing = True
        for channel in side.channels:
            channel.close(self.now) if self._choices.below(2) else channel.abort(self.now)
            side.node.touch(channel)

    # How it happens

    def _arrive(self, it: Flying) -> None:
        self._past = [*self._past[-MOST_FLYING:], it]
        row = Datagrams(it.source, it.data, it.size)
        self._sides[it.destination].node.handle_datagrams_untrusted(self.now, row)
        self._flush()

    def _flush(self) -> None:
        for address, side in self._sides.items():
            side.look(self.now)
            for row in side.transmissions(self.now):
                if len(self._flying) < MOST_FLYING:
                    self._flying.append(Flying(address, row.address, row.data, row.size))
            side.look(self.now)

    def _go_on_to_next(self, latest: float) -> None:
        dues = [side.node.poll_timeout() for side in self._sides.values()]
        due = min([it for it in dues if it is not None], default=latest)
        self._pass_time(max(self.now, min(due, latest)))

    def _pass_time(self, when: float) -> None:
        self.now = when
        for side in self._sides.values():
            side.node.handle_timeout(self.now)
        self._flush()

    def _payload(self, kind: bytes, lane: int, size: int) -> bytes:
        self._number += 1
        return b"%s %d %d " % (kind, lane, self._number) + bytes(size)

    def _send(self, side: Address, payload: bytes, wish: Wish) -> bool:
        application = self._sides[side]
        channel = next(filter(_is_open, application.channels), None)
        return channel is not None and application.send(self.now, channel, payload, wish)

    # What is true

    def _clients_of(self, side: Address) -> Callable[[Connection, bytes], None]:
        return lambda _, payload: self._hear(RIGHT if side == LEFT else LEFT, payload)

    def _hear(self, sender: Address, payload: bytes) -> None:
        kind, number, _ = payload.split(b" ", 2)
        lane = int(number)
        if kind == b"u":
            # Once at most.
            self._once[sender].remove(payload)
            return
        sent, place = self._sent[sender][lane], self._read[sender][lane]
        assert place < len(sent), f"more than the {len(sent)} messages that were sent"
        self._read[sender][lane] += 1
        if SETTINGS.lanes[lane].ordered:
            assert sent[place] == payload, f"not message {place} of lane {lane}"
        else:
            assert payload in sent, "never sent"
            assert payload not in self._unordered[sender], "a second time"
            self._unordered[sender].add(payload)

    def _channels(self) -> list[Connection]:
        return [channel for side in self._sides.values() for channel in side.channels]

    def _is_at_rest(self) -> bool:
        return self._is_closing or self._has_all()

    def _has_all(self) -> bool:
        return all(
            len(sent) == self._read[sender][lane]
            for sender, lanes in self._sent.items()
            for lane, sent in lanes.items()
        )

    def _check_all_arrived(self) -> None:
        assert self._has_all(), f"after {RECOVERY} s without loss: {self._read}"


def _is_open(channel: Connection) -> bool:
    return channel.state is State.OPEN


_SHARES: Final[Mapping[Callable[[Crossing], None], int]] = {
    Crossing.deliver: 6,
    Crossing.overtake: 3,
    Crossing.lose: 2,
    Crossing.lose_all: 1,
    Crossing.repeat: 2,
    Crossing.alter: 3,
    Crossing.wait: 3,
    Crossing.wait_for_timer: 3,
    Crossing.send: 5,
    Crossing.send_once: 2,
    Crossing.close: 1,
}

HAPPENINGS: Final = tuple(it for it, share in _SHARES.items() for _ in range(share))
