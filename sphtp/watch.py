"""The events of an ``Instrument``, and an instrument that writes them to a file."""

from sphtp.core.channel.handshake import Refusal as Refusal
from sphtp.core.channel.instrument import CongestionInfo as CongestionInfo
from sphtp.core.channel.instrument import Drop as Drop
from sphtp.core.channel.instrument import FrameInfo as FrameInfo
from sphtp.core.channel.instrument import LostBy as LostBy
from sphtp.core.channel.instrument import Obstacle as Obstacle
from sphtp.core.channel.instrument import PacketInfo as PacketInfo
from sphtp.core.channel.instrument import RoundTripInfo as RoundTripInfo
from sphtp.core.channel.instrument import SettledInfo as SettledInfo
from sphtp.core.channel.instrument import WatchedChannel as WatchedChannel
from sphtp.core.channel.lifecycle import Closed as Closed
from sphtp.core.channel.lifecycle import CloseReason as CloseReason
from sphtp.core.channel.receipts import Outcome as Outcome
from sphtp.core.channel.settings import Delivery as Delivery
from sphtp.shell.qlog import QlogWriter as QlogWriter
