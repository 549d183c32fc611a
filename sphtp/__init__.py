"""Peer-to-peer messaging for distributed simulations."""

from sphtp.core.channel.settings import ChannelSettings as ChannelSettings
from sphtp.core.channel.statistics import ChannelStatistics as ChannelStatistics
from sphtp.core.control.timers import ControlTimers as ControlTimers
from sphtp.errors import LocalError as LocalError
from sphtp.errors import MessageTooLargeError as MessageTooLargeError
from sphtp.errors import RefusedError as RefusedError
from sphtp.errors import RemoteError as RemoteError
from sphtp.errors import SettingsError as SettingsError
from sphtp.errors import SphtpError as SphtpError
from sphtp.errors import UnreachableError as UnreachableError
from sphtp.shell.channel import Channel as Channel
from sphtp.shell.client import Client as Client
from sphtp.shell.client import open_client as open_client
from sphtp.shell.direct import open_channel as open_channel
from sphtp.shell.node import Node as Node
from sphtp.shell.node import open_node as open_node
from sphtp.shell.peer import Peer as Peer
from sphtp.shell.server import Server as Server
from sphtp.shell.server import ServerOptions as ServerOptions
from sphtp.shell.server import open_server as open_server
