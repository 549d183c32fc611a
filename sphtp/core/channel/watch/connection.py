"""A connection that tells an instrument of its life."""

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.events import Closed
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.opening import Opening
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.channel.watch.parts import Watch, WatchedPort, WatchedTransport
from sphtp.core.channel.watch.records import Drop, WatchedChannel
from sphtp.core.datagrams import Datagrams


class WatchedConnection(Connection):
    """A connection made of watched parts."""

    def __init__(
        self,
        now: float,
        settings: ChannelSettings,
        opening: Opening,
        state: State,
        node: NodeMemory | None = None,
        *,
        instrument: Instrument,
    ) -> None:
        super().__init__(now, settings, opening, state, node)
        self._watch = Watch(instrument, WatchedChannel(self))
        self.port = WatchedPort(self._counters, self._sending, self._watch)
        instrument.channel_opening(now, self._watch.channel)

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        """Take datagrams, and tell of those that its receive side does not get to see."""
        is_early, is_foreign = self._transport is None, datagrams.address != self.address
        super().handle_datagrams_untrusted(now, datagrams)
        if is_early or is_foreign:
            watch, why = self._watch, Drop.TOO_EARLY if is_early else Drop.FOREIGN_ADDRESS
            for it in datagrams.datagrams:
                size = len(it)
                watch.instrument.datagram_dropped(now, watch.channel, datagrams.address, size, why)

    def _open(self, now: float, closed: Closed) -> None:
        super()._open(now, closed)
        self._watch.instrument.channel_opened(now, self._watch.channel)

    def _report(self, now: float, closed: Closed) -> None:
        is_news = self.closed is None
        super()._report(now, closed)
        if is_news:
            self._watch.instrument.channel_closed(now, self._watch.channel, closed)

    def _make_transport(self, offer: TransportParameters) -> ReceiveSide:
        return WatchedTransport(self._settings, offer, self._counters, self._node, self._watch)
