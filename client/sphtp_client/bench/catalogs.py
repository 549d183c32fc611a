"""The catalogs that there are, by name."""

from typing import Final

from sphtp_client.bench.catalog import CHANNELS
from sphtp_client.bench.lockstep.catalog import LOCKSTEP
from sphtp_client.bench.ordinary.catalog import ORDINARY
from sphtp_client.bench.stream.catalog import STREAMS

CATALOGS: Final = {catalog.name: catalog for catalog in (CHANNELS, ORDINARY, STREAMS, LOCKSTEP)}
