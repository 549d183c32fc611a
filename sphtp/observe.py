"""Statistics, status, the cluster's clock, progress, and instruments with their events."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphtp.core.channel.handshake import Refusal as Refusal
    from sphtp.core.channel.instrument import CongestionInfo as CongestionInfo
    from sphtp.core.channel.instrument import Drop as Drop
    from sphtp.core.channel.instrument import FrameInfo as FrameInfo
    from sphtp.core.channel.instrument import Instrument as Instrument
    from sphtp.core.channel.instrument import LostBy as LostBy
    from sphtp.core.channel.instrument import Obstacle as Obstacle
    from sphtp.core.channel.instrument import PacketInfo as PacketInfo
    from sphtp.core.channel.instrument import RoundTripInfo as RoundTripInfo
    from sphtp.core.channel.instrument import SettledInfo as SettledInfo
    from sphtp.core.channel.instrument import WatchedChannel as WatchedChannel
    from sphtp.core.channel.lifecycle import Closed as Closed
    from sphtp.core.channel.lifecycle import CloseReason as CloseReason
    from sphtp.core.channel.reassembly import MessageProgress as MessageProgress
    from sphtp.core.channel.statistics import ChannelStatistics as ChannelStatistics
    from sphtp.core.clock import Reading as Reading
    from sphtp.core.requests.table import RequestStatistics as RequestStatistics
    from sphtp.core.stream.statistics import SourceStatistics as SourceStatistics
    from sphtp.core.stream.subscription import SubscriptionStatistics as SubscriptionStatistics
    from sphtp.shell.client import ClientStatistics as ClientStatistics
    from sphtp.shell.clock import Clock as Clock
    from sphtp.shell.node import NodeStatistics as NodeStatistics
    from sphtp.shell.qlog import QlogWriter as QlogWriter
    from sphtp.shell.receipt import Progress as Progress
    from sphtp.shell.server import ServerStatistics as ServerStatistics
    from sphtp.shell.status import fetch_status as fetch_status
    from sphtp.shell.status import serve_status as serve_status
else:
    from sphtp._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
