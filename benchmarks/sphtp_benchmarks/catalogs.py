"""All catalogs, by name."""

from typing import Final

from sphtp_benchmarks.catalog import CHANNELS
from sphtp_benchmarks.lockstep.catalog import LOCKSTEP
from sphtp_benchmarks.ordinary.catalog import ORDINARY
from sphtp_benchmarks.stream.catalog import STREAMS

CATALOGS: Final = {catalog.name: catalog for catalog in (CHANNELS, ORDINARY, STREAMS, LOCKSTEP)}
