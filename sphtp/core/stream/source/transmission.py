"""New data on its way out: bundled, held back by the data rate, kept in the transmission window."""

from sys import maxsize
from typing import Final

from sphtp.core.stream.grants import OVERHEAD
from sphtp.core.stream.settings import MEBIBYTE
from sphtp.core.stream.source.bundling import Bundler
from sphtp.core.stream.source.counters import SourceCounters
from sphtp.core.stream.source.flow import Flow
from sphtp.core.stream.source.numbering import Numbered
from sphtp.core.stream.source.pulse import Pulse
from sphtp.core.stream.source.window import TransmissionWindow
from sphtp.core.stream.wire import encode_new
from sphtp.core.token_bucket import Pacer

MOST_WAITING: Final = MEBIBYTE
"""Bytes of messages that may wait to leave; whoever finds room may go over it once."""

WORTH_WAKING: Final = MOST_WAITING // 4
"""How much of that has to be free until whoever waits is woken: that costs as much as a message."""


class Transmission:
    """Datagrams of at most ``size`` bytes, as fast as ``pulse`` has it and ``flow`` lets them."""

    def __init__(
        self,
        size: int,
        pulse: Pulse,
        bundler: Bundler,
        window: TransmissionWindow,
        flow: Flow,
        counters: SourceCounters,
    ) -> None:
        self.ready: float | None = None
        """When the next datagram may leave; None when there is none."""
        self._bundler = bundler
        self._window = window
        self._counters = counters
        self._size = size
        self._pulse = pulse
        self._pacer = Pacer.for_datagrams(size, pulse.data_rate(0.0))
        self._flow = flow

    @property
    def waiting(self) -> int:
        """How much waits: bytes, and two for each message."""
        return self._bundler.waiting

    @property
    def room(self) -> int:
        """How much more may wait."""
        return max(MOST_WAITING - self._bundler.waiting, 0)

    def add(self, now: float, topic: int, numbered: Numbered) -> None:
        """Let messages leave as soon as it is their turn."""
        self._bundler.add(topic, numbered)
        if self.ready is None:
            self.look(now)

    def poll(self, now: float, most: int) -> list[bytes]:
        """Take datagrams that may leave now, ``most`` at most."""
        # As for the pacer: nobody waits for a fraction of a byte.
        paid = (self._pacer.budget(now, self._pulse.data_rate(now)) + 1) // self._size
        bodies = self._send(now, min(most, paid, self._allowed()))
        self.look(now)
        return bodies

    def look(self, now: float) -> None:
        """See when the next one may leave: that changes as receivers go on."""
        if not self._bundler.waiting:
            self.ready = None
        elif self._allowed() > 0:
            self.ready = self._pacer.ready_at(now, self._size, self._pulse.data_rate(now))
        else:
            self._flow.hold(now)
            self._pulse.handle_data(now, 0, waits=True)
            self.ready = None

    def _allowed(self) -> int:
        """How many datagrams the receivers can take, however large they will be."""
        limit = self._flow.limit
        if limit is None:
            return maxsize
        return max(limit - self._window.position, 0) // (self._size + OVERHEAD)

    def _send(self, now: float, most: int) -> list[bytes]:
        datagrams = self._bundler.pop_many(most)
        if not datagrams:
            return []
        first = self._window.add(now, datagrams)
        bodies = encode_new(first, self._window.trail, datagrams)
        size = sum(map(len, bodies))
        self._pacer.sent(now, size, self._pulse.data_rate(now))
        self._pulse.handle_data(now, size, waits=self._bundler.waiting > 0)
        self._flow.go_on(now)
        self._counters.datagrams_sent += len(bodies)
        self._counters.bytes_sent += size
        return bodies
