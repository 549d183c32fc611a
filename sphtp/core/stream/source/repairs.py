"""Repairs: what a source does about each number that a receiver, or a group of them, is missing.

A repair leaves at once if the repair rate allows, else it waits for its turn, the oldest datagram
first. For an ignore interval after it NAKs for the same datagram are ignored: they were on their
way already. Why a repair does not come now is said in an NCF, with when to ask again.
"""

from sphtp.core.stream.bodies import NcfReason, Window
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source.confirmations import Confirmations
from sphtp.core.stream.source.counters import SourceCounters
from sphtp.core.stream.source.pulse import Pulse
from sphtp.core.stream.source.repair_queue import RepairQueue
from sphtp.core.stream.source.window import TransmissionWindow
from sphtp.core.stream.wire import DATA_OVERHEAD, encode_data
from sphtp.core.timers import ExpiringDict
from sphtp.core.token_bucket import Pacer


class Repairs:
    """Repairs from a window, as fast as ``pulse`` has it; datagrams have at most ``size`` bytes."""

    def __init__(
        self,
        settings: StreamSettings,
        size: int,
        pulse: Pulse,
        window: TransmissionWindow,
        counters: SourceCounters,
    ) -> None:
        self.ready: float | None = None
        """When the next repair or NCF may leave; None when there is none."""
        self._window = window
        self._counters = counters
        self._queue = RepairQueue(settings.repair_queue)
        self._ignore = settings.ignore
        # What was repaired within that interval.
        self._repaired = ExpiringDict[int, None]()
        self._confirmations = Confirmations(settings.ignore)
        self._pulse = pulse
        self._pacer = Pacer.for_datagrams(size, settings.repair_rate)

    @property
    def waiting(self) -> int:
        """How many datagrams wait for their turn."""
        return len(self._queue)

    def ask(self, now: float, span: Span) -> None:
        """Take it that a receiver misses these, all of which are in the window."""
        self._drop_evicted()
        self._repaired.take_expired(now)
        for sqn in range(span.first, span.last + 1):
            self._ask(now, sqn)
        if self._queue or self._confirmations.has_any:
            self.ready = now

    def poll(self, now: float, most: int) -> list[bytes]:
        """Take NCFs, and repairs that may leave now: ``most`` at most."""
        self._drop_evicted()
        bodies, span, rate = self._confirm(most), self._window.span, self._pulse.repair_rate(now)
        while self._queue and len(bodies) < most and self._ready_at(now, rate) <= now:
            bodies.append(self._repair(now, self._queue.pop(), span, rate))
        self.ready = self._ready_at(now, rate) if self._queue else None
        if self._confirmations.has_any:
            self.ready = now
        self._pulse.handle_repairs(now, self._queue.size)
        return bodies

    def _ask(self, now: float, sqn: int) -> None:
        counters = self._counters
        ignored_until = self._repaired.due(sqn)
        if ignored_until is not None:
            counters.naks_ignored += 1
            self._confirmations.add(now, sqn, NcfReason.IGNORED, ignored_until - now)
        elif sqn in self._queue:
            counters.naks_rx_delay += 1
            self._confirmations.add(now, sqn, NcfReason.RX_DELAY, self._delay(now, sqn))
        elif self._queue.is_full:
            counters.naks_shed += 1
            self._confirmations.add(now, sqn, NcfReason.SHED, self._delay(now, sqn))
        else:
            self._queue.add(sqn, DATA_OVERHEAD + len(self._window.find(sqn)))
            if (delay := self._delay(now, sqn)) > 0:
                counters.naks_rx_delay += 1
                self._confirmations.add(now, sqn, NcfReason.RX_DELAY, delay)

    def _confirm(self, most: int) -> list[bytes]:
        ncfs, span = list[bytes](), self._window.span
        while len(ncfs) < most and (ncf := self._confirmations.pop(span)) is not None:
            ncfs.append(ncf)
        self._counters.ncfs_sent += len(ncfs)
        return ncfs

    def _repair(self, now: float, sqn: int, window: Window, rate: float) -> bytes:
        body = encode_data(sqn, window, self._window.find(sqn), repair=True)
        self._pacer.sent(now, len(body), rate)
        self._repaired.take_expired(now)
        self._repaired.put(sqn, None, now + self._ignore)
        self._counters.repairs_sent += 1
        self._counters.repair_bytes_sent += len(body)
        return body

    def _drop_evicted(self) -> None:
        self._counters.repairs_evicted += self._queue.drop_below(self._window.trail)

    def _ready_at(self, now: float, rate: float) -> float:
        """When the first that waits may leave."""
        size = DATA_OVERHEAD + len(self._window.find(self._queue.first))
        return self._pacer.ready_at(now, size, rate)

    def _delay(self, now: float, sqn: int) -> float:
        """How long it takes until all that waits, and is as old or older, has left, in seconds."""
        rate = self._pulse.repair_rate(now)
        return max(self._queue.size_up_to(sqn) - self._pacer.budget(now, rate), 0) / rate
