"""Says in the log which setting held something back, so that nobody has to guess."""

import logging
from collections.abc import Mapping
from typing import Final

from sphtp.core.channel.gate.counters import GateCounters
from sphtp.core.channel.statistics import EndpointCounters

SETTINGS: Final[Mapping[str, str]] = {
    "handshakes_over_rate": "handshakes_per_second",
    "handshakes_over_limit": "half_open",
    "resets_over_rate": "resets_per_second",
    "refused_full": "backlog or max_channels",
}

QUIET: Final = 10.0
"""Seconds between two lines about the same setting: a flood must not fill a disk."""

log: Final = logging.getLogger("sphtp.limits")


class LimitLog:
    """Watches the counters of a node."""

    def __init__(self, *counters: GateCounters | EndpointCounters) -> None:
        self._watched = [
            (source, name) for source in counters for name in SETTINGS if hasattr(source, name)
        ]
        self._seen = self._read()
        self._quiet_until = dict.fromkeys(SETTINGS, float("-inf"))

    def look(self, now: float) -> None:
        """Write a line for each limit that was reached since the last look, if it is time."""
        seen = self._read()
        if seen == self._seen:
            return
        for (_, name), before, after in zip(self._watched, self._seen, seen, strict=True):
            if before != after and now >= self._quiet_until[name]:
                self._quiet_until[name] = now + QUIET
                log.warning("%s reached: %s is now %d", SETTINGS[name], name, after)
        self._seen = seen

    def _read(self) -> list[int]:
        return [getattr(source, name) for source, name in self._watched]
