"""The instruments of a node, called as one, and the log of limits."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from sphtp.core.channel.instrument import Instrument
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.datagrams import Address

if TYPE_CHECKING:
    from sphtp.core.channel.security import HandshakeCounters
    from sphtp.core.channel.statistics import BoundCounters, EndpointCounters
    from sphtp.core.stream.statistics import SourceCounters

    Watched = (
        HandshakeCounters | EndpointCounters | BoundCounters | SourceCounters | ControlCounters
    )


EVENTS: Final = tuple(name for name in vars(Instrument) if not name.startswith("_"))

log: Final = logging.getLogger("sphtp.instrument")


@contextmanager
def watching(instruments: Sequence[Instrument], address: Address) -> Iterator[Instrument | None]:
    """Call the instruments at a node's start and end; yield one that calls all, or None."""
    if not instruments:
        yield None
        return
    everybody = Instruments(instruments)
    everybody.node_opened(trio.current_time(), address)
    try:
        yield everybody
    finally:
        everybody.node_closed(trio.current_time())


class Instruments(Instrument):
    """An instrument that passes every event to the instruments that override its method.

    An instrument that raises an error gets no further events, and the error is logged under
    ``sphtp.instrument``. The other instruments are not affected.
    """

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._players = {
            name: [player for player in instruments if _has_own(player, name)] for name in EVENTS
        }
        for name, players in self._players.items():
            if players:
                setattr(self, name, partial(self._pass_on, name, players))

    def _pass_on(self, name: str, players: list[Instrument], *event: Any) -> None:
        for player in tuple(players):
            try:
                getattr(player, name)(*event)
            except Exception:
                log.exception("instrument %r raised in %s, and was removed", player, name)
                self._remove(player)

    def _remove(self, player: Instrument) -> None:
        for players in self._players.values():
            if player in players:
                players.remove(player)


def _has_own(player: Instrument, name: str) -> bool:
    method = getattr(player, name)
    return getattr(method, "__func__", method) is not getattr(Instrument, name)


# The log of limits: it names each setting that took effect.


SETTINGS: Final[Mapping[str, str]] = {
    "handshakes_over_rate": "handshakes_per_second",
    "handshakes_over_limit": "half_open",
    "resets_over_rate": "resets_per_second",
    "over_backlog": "backlog",
    "over_max_channels": "max_channels",
    "over_receive_buffer": "receive_buffer",
    "over_receive_buffer_bytes": "receive_buffer_bytes",
    "over_max_message": "max_message",
    "over_unreliable_buffer": "unreliable_buffer",
    "over_node_buffer_bytes": "node_buffer_bytes",
    "held_by_receive_buffer": "receive_buffer",
    "held_by_receive_buffer_bytes": "receive_buffer_bytes",
    "naks_over_budget": "nak_budget",
    "naks_shed": "repair_queue",
    "receivers_refused": "max_receivers",
    Count.OVER_MAX_PEERS: "max_peers",
}
"""The setting behind each counter of a limit."""

ORDINARY: Final = frozenset(("held_by_receive_buffer", "held_by_receive_buffer_bytes"))
"""Counters that rise whenever a reader is slower than a writer: logged, but not as a warning."""

QUIET: Final = 10.0
"""The least seconds between two lines about one counter, so that a flood does not fill a disk."""

limit_log: Final = logging.getLogger("sphtp.limits")


class LimitLog:
    """The log of the limits that counters of a node, a client or a source show."""

    def __init__(self, *counters: "Watched") -> None:
        self._sources: dict[int, list[tuple[str, Callable[[], int]]]] = {}
        self._seen: dict[int, list[int]] = {}
        self._quiet_until = dict.fromkeys(SETTINGS, float("-inf"))
        for one in counters:
            self.watch(one)

    def watch(self, counters: "Watched") -> None:
        """Log limits of these counters from now on, too."""
        self._sources[id(counters)] = list(_readers(counters))
        self._seen[id(counters)] = self._read(id(counters))

    def forget(self, now: float, counters: "Watched") -> None:
        """Check all counters once more, and stop logging limits of these."""
        self.look(now)
        del self._sources[id(counters)], self._seen[id(counters)]

    def look(self, now: float) -> None:
        """Log each limit that took effect since the last call.

        A counter that was logged less than ``QUIET`` seconds ago is left out.
        """
        for key in self._sources:
            seen = self._read(key)
            if seen != self._seen[key]:
                self._report(now, key, seen)

    def _read(self, key: int) -> list[int]:
        return [read() for _, read in self._sources[key]]

    def _report(self, now: float, key: int, seen: list[int]) -> None:
        for (name, _), before, after in zip(self._sources[key], self._seen[key], seen, strict=True):
            if before != after and now >= self._quiet_until[name]:
                self._quiet_until[name] = now + QUIET
                level = logging.INFO if name in ORDINARY else logging.WARNING
                limit_log.log(level, "%s reached: %s is now %d", SETTINGS[name], name, after)
        self._seen[key] = seen


def _readers(counters: "Watched") -> Iterator[tuple[str, Callable[[], int]]]:
    for name in SETTINGS:
        if isinstance(counters, ControlCounters):
            if isinstance(name, Count):
                yield name, partial(counters.__getitem__, name)
        elif hasattr(counters, name):
            yield name, partial(getattr, counters, name)
