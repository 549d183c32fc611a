"""The message bus: PUB and SUB sockets on Trio. The only package that knows pynng.

What dials is NNG's, which comes back by itself when a connection ends; what listens is our own,
which strangers reach (see `listening`). Sending never blocks: a publisher copies each message to
every subscriber, and where a subscriber's queue is full its oldest message is discarded. Receiving
waits for a descriptor and then drains a bounded batch, which is several times faster than one wait
per message. A process that has dialled must never fork: spawn a fresh interpreter instead.
"""

from sphtp.shell.bus.dialing import MAX_MESSAGE_SIZE as MAX_MESSAGE_SIZE
from sphtp.shell.bus.dialing import RECEIVE_SIZE as RECEIVE_SIZE
from sphtp.shell.bus.dialing import BusAddressInUseError as BusAddressInUseError
from sphtp.shell.bus.dialing import BusArrival as BusArrival
from sphtp.shell.bus.dialing import BusError as BusError
from sphtp.shell.bus.dialing import PubSocket as PubSocket
from sphtp.shell.bus.dialing import SubSocket as SubSocket
from sphtp.shell.bus.handshakes import AcceptCounters as AcceptCounters
from sphtp.shell.bus.handshakes import AcceptLimits as AcceptLimits
from sphtp.shell.bus.handshakes import Handshakes as Handshakes
from sphtp.shell.bus.listening import ListeningPubSocket as ListeningPubSocket
from sphtp.shell.bus.listening import ListeningSubSocket as ListeningSubSocket
