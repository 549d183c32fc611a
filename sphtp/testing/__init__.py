"""The public test kit: a simulated network in virtual time, without sockets, tasks or clocks."""

from sphtp.testing.network import Faults as Faults
from sphtp.testing.network import SimulatedNetwork as SimulatedNetwork
from sphtp.testing.pair import NeverIdleError as NeverIdleError
from sphtp.testing.pair import Pair as Pair
