"""The faults of a relay: links of the testing kit in real time, without sockets.

``Traffic`` passes each datagram to the link of its direction. ``Link.offer`` in
``sphtp/testing/network.py`` returns the arrival time of each copy, and no time for a lost datagram.

A datagram that the relay has received gets lost for one of these reasons. Each has a counter:

* The link: ``Link._is_lost`` decides by ``mtu``, ``burst`` and ``loss`` (``too_large``, ``lost``),
  and the link's queue by ``rate`` and ``queue`` (``queue_dropped``).
* ``Traffic.handle_from_client``: there are too many clients (``refused``).
* ``Traffic._put_on_link``: too many bytes are in flight (``overflowed``).
* ``Traffic.handle_from_target`` and ``handle_timeout``: the client of the datagram was removed
  (``abandoned``).
* ``Relay._send`` in ``relay``: the socket refuses it (``socket_errors``, which also counts errors
  of receiving).

Not counted are datagrams that the kernel drops because a receive buffer is full, and those in
flight when the relay ends.
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
"""The most bytes in flight in one direction; further datagrams are dropped."""


class Direction(Enum):
    """The direction of a datagram."""

    UP = "up"
    """From a client to the target."""

    DOWN = "down"
    """From the target to a client."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A datagram to forward. ``client`` is its sender or its receiver."""

    direction: Direction
    client: Address
    datagram: bytes


@dataclass(frozen=True, slots=True)
class TrafficStatistics:
    """The figures of both directions, and the number of ``clients`` now.

    ``refused`` counts datagrams of clients beyond the limit, and ``overflowed`` datagrams dropped
    because too many bytes were in flight. ``abandoned`` counts datagrams dropped because their
    client had been removed: those in flight to or from it, and later ones of the target.
    """

    clients: int
    refused: int
    overflowed: int
    abandoned: int
    up: LinkStatistics
    down: LinkStatistics


class Traffic:
    """Two links, one for each direction, and the clients that use them.

    A client is one source address. The relay serves at most ``clients`` at a time, and removes a
    client that neither sends nor receives for ``idle`` seconds. Inputs are ``handle_*``; after any
    of them, call ``poll_forward`` and ``poll_left`` until they return None, then ``poll_timeout``.

    Raises ``SettingsError`` if ``clients`` or ``idle`` is not positive.
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
        # The time of the last datagram from or to each client, the longest silent client first.
        self._last_seen: dict[Address, float] = {}
        self._left: deque[Address] = deque()
        self._refused = 0
        self._overflowed = 0
        self._abandoned = 0

    # Inputs

    def handle_from_client(self, now: float, client: Address, datagram: bytes) -> None:
        """Put a datagram of a client on the link to the target."""
        self._make_room(now)
        if client not in self._last_seen and len(self._last_seen) >= self._most:
            self._refused += 1
            return
        self._put_on_link(now, Forward(Direction.UP, client, datagram))

    def handle_from_target(self, now: float, client: Address, datagram: bytes) -> None:
        """Put a datagram of the target on the link to a client."""
        if client in self._last_seen:
            self._put_on_link(now, Forward(Direction.DOWN, client, datagram))
        else:
            self._abandoned += 1

    def handle_timeout(self, now: float) -> None:
        """Release the datagrams that are due, and remove clients that have been silent too long."""
        for forward in self._flight.take_due(now):
            self._held[forward.direction] -= len(forward.datagram)
            if forward.client in self._last_seen:
                self._due.append(forward)
            else:
                self._abandoned += 1
        self._make_room(now)

    # Outputs

    def poll_forward(self) -> Forward | None:
        """Return the next datagram to send; None if there is none."""
        return self._due.popleft() if self._due else None

    def poll_left(self) -> Address | None:
        """Return the next client that was removed; None if there is none."""
        return self._left.popleft() if self._left else None

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if there is none."""
        silent = next(iter(self._last_seen.values()), None)
        return earliest(self._flight.next_time(), None if silent is None else silent + self._idle)

    # Getters

    def statistics(self, now: float) -> TrafficStatistics:
        """Return the figures so far."""
        return TrafficStatistics(
            clients=len(self._last_seen),
            refused=self._refused,
            overflowed=self._overflowed,
            abandoned=self._abandoned,
            up=self._links[Direction.UP].statistics(now),
            down=self._links[Direction.DOWN].statistics(now),
        )

    def _put_on_link(self, now: float, forward: Forward) -> None:
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
