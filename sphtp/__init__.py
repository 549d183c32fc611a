"""Peer-to-peer messaging for distributed simulations.

What is named here, in `sphtp.events`, `sphtp.messages`, `sphtp.watch` and `sphtp.testing` is the
public interface. Modules inside `sphtp.core` and `sphtp.shell` are not: they may change in any
version.
"""

from sphtp import events as events
from sphtp import watch as watch
from sphtp.core.channel.delivery import Delivery as Delivery
from sphtp.core.channel.delivery import Lane as Lane
from sphtp.core.channel.fragments import Arriving as Arriving
from sphtp.core.channel.gate.security import Security as Security
from sphtp.core.channel.gate.settings import GateSettings as GateSettings
from sphtp.core.channel.gate.trust import Trust as Trust
from sphtp.core.channel.gate.trust import Verdict as Verdict
from sphtp.core.channel.settings import ChannelSettings as ChannelSettings
from sphtp.core.channel.statistics import ChannelStatistics as ChannelStatistics
from sphtp.core.channel.ticket import Outcome as Outcome
from sphtp.core.channel.watch.instrument import Instrument as Instrument
from sphtp.core.control.client_table import ClientState as ClientState
from sphtp.core.control.codec import Parameter as Parameter
from sphtp.core.control.limits import ClientLimits as ClientLimits
from sphtp.core.control.limits import ServerLimits as ServerLimits
from sphtp.core.control.records import ClusterView as ClusterView
from sphtp.core.control.records import Member as Member
from sphtp.core.control.records import ServerAddress as ServerAddress
from sphtp.core.control.server_table import ServerState as ServerState
from sphtp.core.control.timers import ControlTimers as ControlTimers
from sphtp.core.control.vocabulary import MemberState as MemberState
from sphtp.core.control.vocabulary import Reason as Reason
from sphtp.core.secure.identity import Identity as Identity
from sphtp.core.secure.identity import format_key as format_key
from sphtp.core.secure.identity import parse_key as parse_key
from sphtp.core.secure.signing import ClusterKey as ClusterKey
from sphtp.core.secure.signing import ServerKey as ServerKey
from sphtp.core.stream.events import Loss as Loss
from sphtp.core.stream.events import LossReason as LossReason
from sphtp.core.stream.settings import StreamSettings as StreamSettings
from sphtp.errors import LocalError as LocalError
from sphtp.errors import MessageTooLargeError as MessageTooLargeError
from sphtp.errors import RefusedError as RefusedError
from sphtp.errors import RemoteError as RemoteError
from sphtp.errors import SettingsError as SettingsError
from sphtp.errors import SphtpError as SphtpError
from sphtp.errors import StateError as StateError
from sphtp.errors import UnreachableError as UnreachableError
from sphtp.errors import WireError as WireError
from sphtp.shell.binding import UdpAddressError as UdpAddressError
from sphtp.shell.bus import BusAddressInUseError as BusAddressInUseError
from sphtp.shell.bus import BusError as BusError
from sphtp.shell.channel import Channel as Channel
from sphtp.shell.client import Client as Client
from sphtp.shell.client_opening import open_client as open_client
from sphtp.shell.client_statistics import ClientStatistics as ClientStatistics
from sphtp.shell.direct import open_channel as open_channel
from sphtp.shell.impairment import Impairment as Impairment
from sphtp.shell.keys import allow_only as allow_only
from sphtp.shell.keys import load_identity as load_identity
from sphtp.shell.keys import load_public_keys as load_public_keys
from sphtp.shell.keys import load_secret as load_secret
from sphtp.shell.keys import load_server_key as load_server_key
from sphtp.shell.node import Node as Node
from sphtp.shell.node_statistics import NodeStatistics as NodeStatistics
from sphtp.shell.opening import open_node as open_node
from sphtp.shell.peer import Peer as Peer
from sphtp.shell.receipt import Progress as Progress
from sphtp.shell.receipt import Receipt as Receipt
from sphtp.shell.server import Server as Server
from sphtp.shell.server import ServerStatistics as ServerStatistics
from sphtp.shell.server import open_server as open_server
from sphtp.shell.server_options import ServerOptions as ServerOptions
from sphtp.shell.status import fetch_status as fetch_status
from sphtp.shell.streams.group import Group as Group
from sphtp.shell.streams.source import Source as Source
from sphtp.shell.streams.stream import Stream as Stream
from sphtp.shell.streams.terms import Terms as Terms
from sphtp.shell.tls import Tls as Tls
