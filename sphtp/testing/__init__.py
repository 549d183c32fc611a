"""The public test kit: simulations in virtual time, without sockets, tasks or real clocks."""

from sphtp.testing.broadcast import Broadcast as Broadcast
from sphtp.testing.broadcast import Observer as Observer
from sphtp.testing.cluster import SimulatedClient as SimulatedClient
from sphtp.testing.cluster import SimulatedCluster as SimulatedCluster
from sphtp.testing.cluster import SimulatedServer as SimulatedServer
from sphtp.testing.network import DeliveredDatagram as DeliveredDatagram
from sphtp.testing.network import Faults as Faults
from sphtp.testing.network import Flight as Flight
from sphtp.testing.network import Link as Link
from sphtp.testing.network import LinkStatistics as LinkStatistics
from sphtp.testing.network import NeverIdleError as NeverIdleError
from sphtp.testing.network import SimulatedNetwork as SimulatedNetwork
from sphtp.testing.network import VirtualClock as VirtualClock
from sphtp.testing.pair import Crowd as Crowd
from sphtp.testing.pair import Pair as Pair
from sphtp.testing.pair import Stage as Stage
