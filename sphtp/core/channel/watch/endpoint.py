"""An endpoint whose connections tell an instrument of what happens."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.handshake import Refusal
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.connection import WatchedConnection
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.channel.watch.records import Drop
from sphtp.core.channel.watch.tally import Tally
from sphtp.core.datagrams import Datagrams
from sphtp.core.entropy import Secrets
from sphtp.core.schema import Schema

DROPS: Final[Mapping[str, Drop]] = {"malformed": Drop.MALFORMED, "unknown": Drop.UNKNOWN}

REFUSALS: Final[Mapping[str, Refusal]] = {
    "refused_full": Refusal.FULL,
    "refused_wrong_peer": Refusal.WRONG_PEER,
    "refused_closed": Refusal.GONE,
    "refused_schema": Refusal.SCHEMA,
    "refused_sealed": Refusal.CLEAR,
}


def make_endpoint(
    secrets: Secrets,
    settings: ChannelSettings,
    peer_id: int = 0,
    schema: Schema | None = None,
    instrument: Instrument | None = None,
) -> Endpoint:
    """Make an endpoint, watched if there is an instrument."""
    if instrument is None:
        return Endpoint(secrets, settings, peer_id, schema)
    return WatchedEndpoint(secrets, settings, peer_id, schema, instrument)


class WatchedEndpoint(Endpoint):
    """Tells of datagrams that reach no connection, and of channels refused."""

    def __init__(
        self,
        secrets: Secrets,
        settings: ChannelSettings,
        peer_id: int,
        schema: Schema | None,
        instrument: Instrument,
    ) -> None:
        super().__init__(secrets, settings, peer_id, schema)
        self._make = partial(WatchedConnection, instrument=instrument)
        self._instrument = instrument
        self._drops = Tally(self.counters, DROPS)
        self._refusal_counts = Tally(self.counters, REFUSALS)

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        """Take datagrams, and tell of each that is dropped or its channel refused."""
        super().handle_datagrams_untrusted(now, datagrams)
        address, size = datagrams.address, min(datagrams.size, len(datagrams.data))
        for why in self._drops.news():
            self._instrument.datagram_dropped(now, None, address, size, why)
        for refusal in self._refusal_counts.news():
            self._instrument.channel_refused(now, address, refusal)
