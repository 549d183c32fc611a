"""Peer-to-peer messaging for distributed simulations.

What is named here, in `sphtp.events`, `sphtp.messages`, `sphtp.watch` and `sphtp.testing` is the
public interface. Modules inside `sphtp.core` and `sphtp.shell` are not: they may change in any
version.

The module that defines a name is loaded when the name is first asked for (PEP 562). So a program
that opens a channel loads neither the message bus nor the control plane.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The names for those who read the code without running it: type checkers and editors.
    from sphtp import events as events
    from sphtp import watch as watch
    from sphtp.core.channel.instrument import Instrument as Instrument
    from sphtp.core.channel.reassembly import MessageProgress as MessageProgress
    from sphtp.core.channel.receipts import Outcome as Outcome
    from sphtp.core.channel.security import HandshakeLimits as HandshakeLimits
    from sphtp.core.channel.security import Security as Security
    from sphtp.core.channel.settings import ChannelSettings as ChannelSettings
    from sphtp.core.channel.settings import Delivery as Delivery
    from sphtp.core.channel.settings import Lane as Lane
    from sphtp.core.channel.statistics import ChannelStatistics as ChannelStatistics
    from sphtp.core.control.client_table import ClientState as ClientState
    from sphtp.core.control.codec import Parameter as Parameter
    from sphtp.core.control.records import ClusterView as ClusterView
    from sphtp.core.control.records import Member as Member
    from sphtp.core.control.records import Peer as Peer
    from sphtp.core.control.records import ServerAddress as ServerAddress
    from sphtp.core.control.server_table import ServerState as ServerState
    from sphtp.core.control.settings import ClientLimits as ClientLimits
    from sphtp.core.control.settings import ControlTimers as ControlTimers
    from sphtp.core.control.settings import ServerLimits as ServerLimits
    from sphtp.core.control.vocabulary import MemberState as MemberState
    from sphtp.core.control.vocabulary import Reason as Reason
    from sphtp.core.requests.table import RequestStatistics as RequestStatistics
    from sphtp.core.secure.identity import Identity as Identity
    from sphtp.core.secure.identity import format_key as format_key
    from sphtp.core.secure.identity import parse_key as parse_key
    from sphtp.core.secure.signing import ClusterKey as ClusterKey
    from sphtp.core.secure.signing import ServerKey as ServerKey
    from sphtp.core.stream.events import EndReason as EndReason
    from sphtp.core.stream.events import Loss as Loss
    from sphtp.core.stream.events import LossReason as LossReason
    from sphtp.core.stream.events import StreamEnd as StreamEnd
    from sphtp.core.stream.settings import StreamSettings as StreamSettings
    from sphtp.errors import HandlerCrashedError as HandlerCrashedError
    from sphtp.errors import LocalError as LocalError
    from sphtp.errors import MessageTooLargeError as MessageTooLargeError
    from sphtp.errors import RefusedError as RefusedError
    from sphtp.errors import RemoteError as RemoteError
    from sphtp.errors import RequestError as RequestError
    from sphtp.errors import SettingsError as SettingsError
    from sphtp.errors import SphtpError as SphtpError
    from sphtp.errors import StateError as StateError
    from sphtp.errors import UnreachableError as UnreachableError
    from sphtp.errors import WireError as WireError
    from sphtp.shell.bus import BusAddressInUseError as BusAddressInUseError
    from sphtp.shell.bus import BusError as BusError
    from sphtp.shell.channel import Channel as Channel
    from sphtp.shell.client import Client as Client
    from sphtp.shell.client import ClientStatistics as ClientStatistics
    from sphtp.shell.client import open_client as open_client
    from sphtp.shell.hosted_source import StreamReceiver as StreamReceiver
    from sphtp.shell.impairment import Impairment as Impairment
    from sphtp.shell.keys import allow_only as allow_only
    from sphtp.shell.keys import load_identity as load_identity
    from sphtp.shell.keys import load_public_keys as load_public_keys
    from sphtp.shell.keys import load_secret as load_secret
    from sphtp.shell.keys import load_server_key as load_server_key
    from sphtp.shell.multicast import Group as Group
    from sphtp.shell.node import Node as Node
    from sphtp.shell.node import NodeStatistics as NodeStatistics
    from sphtp.shell.node import open_channel as open_channel
    from sphtp.shell.node import open_node as open_node
    from sphtp.shell.receipt import Progress as Progress
    from sphtp.shell.receipt import Receipt as Receipt
    from sphtp.shell.requests import Request as Request
    from sphtp.shell.server import Server as Server
    from sphtp.shell.server import ServerOptions as ServerOptions
    from sphtp.shell.server import ServerStatistics as ServerStatistics
    from sphtp.shell.server import open_server as open_server
    from sphtp.shell.source import Source as Source
    from sphtp.shell.status import fetch_status as fetch_status
    from sphtp.shell.subscription import Stream as Stream
    from sphtp.shell.subscription import StreamMessage as StreamMessage
    from sphtp.shell.subscription import Terms as Terms
    from sphtp.shell.tls import Tls as Tls
    from sphtp.shell.topics import TopicLoss as TopicLoss
    from sphtp.shell.topics import TopicMessage as TopicMessage
    from sphtp.shell.topics import TopicSource as TopicSource
    from sphtp.shell.topics import TopicSubscription as TopicSubscription
    from sphtp.shell.udp import UdpAddressError as UdpAddressError
else:
    from importlib import import_module

    # The same names by module, for Python itself. A test compares the two lists.
    _NAMES = {
        "sphtp.core.channel.instrument": "Instrument",
        "sphtp.core.channel.reassembly": "MessageProgress",
        "sphtp.core.channel.receipts": "Outcome",
        "sphtp.core.channel.security": "HandshakeLimits Security",
        "sphtp.core.channel.settings": "ChannelSettings Delivery Lane",
        "sphtp.core.channel.statistics": "ChannelStatistics",
        "sphtp.core.control.client_table": "ClientState",
        "sphtp.core.control.codec": "Parameter",
        "sphtp.core.control.records": "ClusterView Member Peer ServerAddress",
        "sphtp.core.control.server_table": "ServerState",
        "sphtp.core.control.settings": "ClientLimits ControlTimers ServerLimits",
        "sphtp.core.control.vocabulary": "MemberState Reason",
        "sphtp.core.secure.identity": "Identity format_key parse_key",
        "sphtp.core.secure.signing": "ClusterKey ServerKey",
        "sphtp.core.stream.events": "EndReason Loss LossReason StreamEnd",
        "sphtp.core.stream.settings": "StreamSettings",
        "sphtp.errors": (
            "HandlerCrashedError LocalError MessageTooLargeError RefusedError RemoteError "
            "RequestError SettingsError SphtpError StateError UnreachableError WireError"
        ),
        "sphtp.core.requests.table": "RequestStatistics",
        "sphtp.shell.bus": "BusAddressInUseError BusError",
        "sphtp.shell.channel": "Channel",
        "sphtp.shell.client": "Client ClientStatistics open_client",
        "sphtp.shell.impairment": "Impairment",
        "sphtp.shell.keys": "allow_only load_identity load_public_keys load_secret load_server_key",
        "sphtp.shell.node": "Node NodeStatistics open_channel open_node",
        "sphtp.shell.receipt": "Progress Receipt",
        "sphtp.shell.requests": "Request",
        "sphtp.shell.server": "Server ServerOptions ServerStatistics open_server",
        "sphtp.shell.status": "fetch_status",
        "sphtp.shell.hosted_source": "StreamReceiver",
        "sphtp.shell.multicast": "Group",
        "sphtp.shell.source": "Source",
        "sphtp.shell.subscription": "Stream StreamMessage Terms",
        "sphtp.shell.tls": "Tls",
        "sphtp.shell.topics": "TopicLoss TopicMessage TopicSource TopicSubscription",
        "sphtp.shell.udp": "UdpAddressError",
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
    _SUBMODULES = ("events", "watch")

    __all__ = [*_MODULES, *_SUBMODULES]  # noqa: PLE0604 (computed, of strings)

    def __getattr__(name: str) -> object:
        if name in _SUBMODULES:
            return import_module(f"sphtp.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module 'sphtp' has no attribute {name!r}")
        value = getattr(import_module(_MODULES[name]), name)
        # From now on it is found without this function.
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
