"""The side that is dialled: those who knock, until they are known, answered and settled."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from sphtp.core.channel.gate.bond import Bond
from sphtp.core.channel.gate.tables import VISIT, Knock, Respond, Visit
from sphtp.core.channel.opening import Origin
from sphtp.core.datagrams import Datagrams
from sphtp.core.secure.noise.handshake import Handshake


class Visitor:
    """Somebody whose address is proven. ``greet`` is the noise of its GREET, to know it again."""

    __slots__ = ("answer", "bond", "came", "confirm", "connect", "due", "greet", "handshake",
                 "is_stranger", "origin", "proof", "state", "token")  # fmt: skip

    def __init__(
        self,
        origin: Origin,
        token: int,
        greet: bytes,
        handshake: Handshake,
        came: float,
        due: float,
    ) -> None:
        self.origin = origin
        self.token = token
        self.greet = greet
        # Whether it has shown nothing of what only those know who were introduced.
        self.is_stranger = False
        self.handshake = handshake
        self.came = came
        self.due = due
        self.state = VISIT.initial
        # What it wants, the CONFIRM by which it said so, what its RESETs will show, what it was
        # last told in the handshake, and the keys once there are any.
        self.connect = b""
        self.confirm = b""
        self.proof = b""
        self.answer: Datagrams | None = None
        self.bond: Bond | None = None

    def find(self, event: Knock) -> tuple[Respond, ...]:
        """Go where the event leads; return what to do, nothing if the state refuses it."""
        row = VISIT.find(self.state, event)
        if row is None:
            return ()
        self.state = row.to
        return row.do


MOST_KEPT: Final = 4
"""How many times ``patience`` a visitor stays at most, however often it comes again."""


class Visitors:
    """At most ``limit`` of them at a time, each until it was silent for ``patience`` seconds."""

    def __init__(self, limit: int, patience: float) -> None:
        self._limit = limit
        self._patience = patience
        self._visitors: dict[Origin, Visitor] = {}

    def __len__(self) -> int:
        return len(self._visitors)

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return len(self._visitors) >= self._limit

    def find(self, origin: Origin) -> Visitor | None:
        """The one who knocks from there."""
        return self._visitors.get(origin)

    def make_room(self, host: str, is_stranger: bool) -> bool:
        """Whether one more, from this host, is not too many; a stranger may have to go for it.

        That is the newest one of the host that has most. For another stranger one goes only where
        that host has two more than its own: an address is proven, so nobody has many.
        """
        if not self.is_full:
            return True
        asked = [it for it in self._visitors.values() if it.is_stranger and it.state is Visit.ASKED]
        counts = Counter(it.origin[0][0] for it in asked)
        if not counts:
            return False
        most, number = counts.most_common(1)[0]
        if is_stranger and number < counts[host] + 2:
            return False
        of_host = [it for it in reversed(asked) if it.origin[0][0] == most]
        newest = max(of_host, key=lambda it: it.came)
        self.forget(newest.origin)
        return True

    def receive(
        self, now: float, origin: Origin, token: int, greet: bytes, handshake: Handshake
    ) -> Visitor:
        """Take somebody in."""
        visitor = Visitor(origin, token, greet, handshake, now, now + self._patience)
        self._visitors.pop(origin, None)
        self._visitors[origin] = visitor
        return visitor

    def keep(self, now: float, visitor: Visitor) -> bool:
        """Give somebody who goes on as much time again; false if it has had enough."""
        if now > visitor.came + (MOST_KEPT - 1) * self._patience:
            return False
        visitor.due = now + self._patience
        if self._visitors.pop(visitor.origin, None) is not None:
            self._visitors[visitor.origin] = visitor
        return True

    def forget(self, origin: Origin) -> None:
        """Keep nothing of somebody."""
        self._visitors.pop(origin, None)

    def take_late(self, now: float) -> Iterator[Visitor]:
        """Yield those whose time is over, and keep nothing of them."""
        while self._visitors:
            # Who is given time goes to the end, so they are in the order of their time.
            origin, visitor = next(iter(self._visitors.items()))
            if visitor.due > now:
                return
            del self._visitors[origin]
            if visitor.state is not Visit.SETTLED:
                visitor.find(Knock.LATE)
                yield visitor

    def next_due(self) -> float | None:
        """When the next one's time is over."""
        return next(iter(self._visitors.values())).due if self._visitors else None
