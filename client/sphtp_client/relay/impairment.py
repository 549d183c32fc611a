"""The faults of a relay: links of the testing kit, driven by real time, without sockets.

``Traffic`` hands every datagram to the link of its direction. ``Link.offer`` in
``sphtp/testing/network.py`` decides: it returns the arrival times of all copies, none for a lost
datagram.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from sphtp.core.timers import earliest
from sphtp.errors import SettingsError
from sphtp.testing import Faults, Flight, Link, LinkStatistics
from sphtp.testing.network import Address

MOST_HELD: Final = 64 * 1024 * 1024
"""Bytes on their way in one direction; more are dropped, so that no flood fills the memory."""


class Direction(Enum):
    """The direction of a datagram."""

    UP = "up"
    """From a client to the target."""

    DOWN = "down"
    """From the target to a client."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A datagram to send now."""

    direction: Direction
    client: Address
    datagram: bytes


@dataclass(frozen=True, slots=True)
class TrafficStatistics:
    """The figures of both directions; ``refused`` and ``overflowed`` count datagrams."""

    clients: int
    refused: int
    overflowed: int
    up: LinkStatistics
    down: LinkStatistics


class Traffic:
    """Two links, one each way, and the clients that are on them.

    A client is one source address. At most ``clients`` are served at a time; a client that is
    silent both ways for ``idle`` seconds makes room. Inputs are ``handle_*``; after any of them
    poll ``poll_forward`` and ``poll_left`` until None, then ``poll_timeout``.

    Raises ``SettingsError`` when ``clients`` or ``idle`` is not positive.
    """

    def __init__(
        self, seed: int, up: Faults, down: Faults, *, clients: int = 256, idle: float = 60.0
    ) -> None:
        if clients < 1 or not idle > 0:
            raise SettingsError(f"clients ({clients}) and idle ({idle} s) must be positive")
        self._most = clients
        self._idle = idle
        self._links = {
            Direction.UP: Link(up, Random(f"{seed} up")),
            Direction.DOWN: Link(down, Random(f"{seed} down")),
        }
        self._held = dict.fromkeys(Direction, 0)
        self._flight = Flight[Forward]()
        self._due: deque[Forward] = deque()
        # When each last sent or got a datagram, the most silent one first.
        self._last_seen: dict[Address, float] = {}
        self._left: deque[Address] = deque()
        self._refused = 0
        self._overflowed = 0

    # Inputs

    def handle_from_client(self, now: float, client: Address, datagram: bytes) -> None:
        """Take a datagram that goes to the target."""
        self._make_room(now)
        if client not in self._last_seen and len(self._last_seen) >= self._most:
            self._refused += 1
            return
        self._carry(now, Forward(Direction.UP, client, datagram))

    def handle_from_target(self, now: float, client: Address, datagram: bytes) -> None:
        """Take a datagram that goes to a client."""
        if client in self._last_seen:
            self._carry(now, Forward(Direction.DOWN, client, datagram))

    def handle_timeout(self, now: float) -> None:
        """Deliver the datagrams that are due, and give up clients that have been silent."""
        for forward in self._flight.take_due(now):
            self._held[forward.direction] -= len(forward.datagram)
            if forward.client in self._last_seen:
                self._due.append(forward)
        self._make_room(now)

    # Outputs

    def poll_forward(self) -> Forward | None:
        """Return the next datagram to send; None if there is none."""
        return self._due.popleft() if self._due else None

    def poll_left(self) -> Address | None:
        """Return the next client that was given up; None if there is none."""
        return self._left.popleft() if self._left else None

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due."""
        silent = next(iter(self._last_seen.values()), None)
        return earliest(self._flight.next_time(), None if silent is None else silent + self._idle)

    # Getters

    def statistics(self, now: float) -> TrafficStatistics:
        """Return the figures so far."""
        return TrafficStatistics(
            clients=len(self._last_seen),
            refused=self._refused,
            overflowed=self._overflowed,
            up=self._links[Direction.UP].statistics(now),
            down=self._links[Direction.DOWN].statistics(now),
        )

    def _carry(self, now: float, forward: Forward) -> None:
        direction, client = forward.direction, forward.client
        self._last_seen.pop(client, None)
        self._last_seen[client] = now
        if self._held[direction] + len(forward.datagram) > MOST_HELD:
            self._overflowed += 1
            return
        for when, datagram in self._links[direction].offer(now, forward.datagram):
            self._held[direction] += len(datagram)
            self._flight.add(when, Forward(direction, client, datagram))

    def _make_room(self, now: float) -> None:
        while self._last_seen:
            client, last_seen = next(iter(self._last_seen.items()))
            if now < last_seen + self._idle:
                break
            del self._last_seen[client]
            self._left.append(client)
