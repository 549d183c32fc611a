"""A connection that tells an instrument of its life."""

from collections.abc import Mapping
from typing import Final

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.events import Closed
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.observer import ChannelObserver
from sphtp.core.channel.opening import Opening
from sphtp.core.channel.port import MessagePort
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.channel.watch.parts import WatchedTransport
from sphtp.core.channel.watch.records import Drop, WatchedChannel
from sphtp.core.channel.watch.tally import Tally
from sphtp.core.datagrams import Address

# A forged ack counts as malformed as well, and comes first for that.
DROPS: Final[Mapping[str, Drop]] = {
    "forged_acks": Drop.FORGED_ACK,
    "malformed": Drop.MALFORMED,
    "foreign_address": Drop.FOREIGN_ADDRESS,
    "duplicates": Drop.DUPLICATE,
    "too_old": Drop.TOO_OLD,
    "too_early": Drop.TOO_EARLY,
}


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
        self._watch = ChannelObserver(instrument, WatchedChannel(self))
        self._drops = Tally(self._counters, DROPS)
        self.port = MessagePort(self._counters, self._sending, self._watch)
        instrument.channel_opening(now, self._watch.channel)

    def handle_data_untrusted(
        self, now: float, address: Address, data: bytes, size: int = 0
    ) -> None:
        """Take a datagram, and tell if it is dropped; a watched endpoint gives them singly."""
        super().handle_data_untrusted(now, address, data, size)
        why = self._drops.news()
        if why is not None:
            watch = self._watch
            watch.instrument.datagram_dropped(now, watch.channel, address, len(data), why)

    def _open(self, now: float, closed: Closed) -> None:
        super()._open(now, closed)
        self._watch.instrument.channel_opened(now, self._watch.channel)

    def _report(self, now: float, closed: Closed) -> None:
        is_news = self.closed is None
        super()._report(now, closed)
        if is_news:
            self._watch.instrument.channel_closed(now, self._watch.channel, closed)

    def _make_transport(self, offer: TransportParameters) -> ReceiveSide:
        return WatchedTransport(self._settings, offer, self._counters, self._watch, self._node)
