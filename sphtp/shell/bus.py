"""The message bus: PUB and SUB sockets on Trio. Only the modules ``bus_*`` know pynng.

Sockets that dial are NNG's: they reconnect by themselves when a connection ends. Sockets that
listen are our own, because strangers reach them (see ``bus_listening``).

Sending never blocks: a publisher copies each message to every subscriber, and where a subscriber's
queue is full its oldest message is discarded. Receiving waits for a descriptor and then drains a
bounded batch, which is several times faster than one wait per message. A process that has dialled
must never fork: spawn a fresh interpreter instead.
"""

from sphtp.shell.bus_dialing import (
    MAX_MESSAGE_SIZE,
    RECEIVE_SIZE,
    BusArrival,
    PubSocket,
    SubSocket,
)
from sphtp.shell.bus_handshakes import (
    AcceptCounters,
    AcceptLimits,
    Handshakes,
)
from sphtp.shell.bus_listening import (
    ListeningPubSocket,
    ListeningSubSocket,
)

__all__ = [
    "MAX_MESSAGE_SIZE",
    "RECEIVE_SIZE",
    "AcceptCounters",
    "AcceptLimits",
    "BusArrival",
    "Handshakes",
    "ListeningPubSocket",
    "ListeningSubSocket",
    "PubSocket",
    "SubSocket",
]
