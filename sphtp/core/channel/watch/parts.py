"""The watched parts of a connection."""

from sphtp.core.channel.frames import Close, Credit
from sphtp.core.channel.handshake import TransportParameters
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.observer import ChannelObserver
from sphtp.core.channel.packet import Packet
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.send_side import SendSide
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.channel.watch.records import describe


class WatchedTransport(ReceiveSide):
    """Tells of packets that are received."""

    def __init__(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        counters: Counters,
        watch: ChannelObserver,
        node: NodeMemory | None = None,
    ) -> None:
        self._watch = watch
        super().__init__(settings, peer, counters, node)

    def _make_sending(
        self,
        settings: ChannelSettings,
        peer: TransportParameters,
        observer: ChannelObserver | None = None,
    ) -> SendSide:
        return super()._make_sending(settings, peer, observer or self._watch)

    def _accept(self, now: float, sequence: int, packet: Packet) -> Close | None:
        tell, channel = self._watch.instrument, self._watch.channel
        tell.packet_received(now, channel, describe(sequence, packet.size, packet.frames))
        for frame in packet.frames:
            if isinstance(frame, Credit):
                tell.credit_received(now, channel, frame.messages, frame.size)
        return super()._accept(now, sequence, packet)
