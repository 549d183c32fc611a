"""What may be watched of channels: one method per event."""

from sphtp.core.channel.delivery import Delivery
from sphtp.core.channel.handshake import Refusal
from sphtp.core.channel.lifecycle import Closed
from sphtp.core.channel.watch.records import (
    CongestionInfo,
    Drop,
    LostBy,
    Obstacle,
    PacketInfo,
    RoundTripInfo,
    SettledInfo,
    WatchedChannel,
)
from sphtp.core.datagrams import Address


class Instrument:
    """Told what happens in a node and its channels, in the manner of ``trio.abc.Instrument``.

    Derive from it and write the methods that you want; those here do nothing. They run in the
    middle of what they tell of: they must be quick, cannot wait, and must not use the node or its
    channels. ``now`` is in seconds, ``trio.current_time()`` in a program; it never goes back. Sizes
    are in bytes.
    """

    # The node

    def node_opened(self, now: float, address: Address) -> None:
        """A node listens at an address, a host and a port."""

    def node_closed(self, now: float) -> None:
        """It has closed, and nothing more will be told."""

    def datagram_dropped(
        self, now: float, channel: WatchedChannel | None, address: Address, size: int, why: Drop
    ) -> None:
        """A datagram from ``address`` was thrown away; ``channel`` is None if it met none."""

    def channel_refused(self, now: float, address: Address, why: Refusal) -> None:
        """Somebody wanted to open a channel, and may not."""

    # Channels

    def channel_opening(self, now: float, channel: WatchedChannel) -> None:
        """A channel is being opened, by this side or by the other."""

    def channel_opened(self, now: float, channel: WatchedChannel) -> None:
        """Both sides know each other; messages flow."""

    def channel_closed(self, now: float, channel: WatchedChannel, closed: Closed) -> None:
        """A channel has ended, or was never opened; ``closed`` says why. Told once.

        Some packets may still be sent and received after it, in answer to a peer that closed.
        """

    # Packets

    def packet_sent(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """A packet leaves."""

    def packet_received(self, now: float, channel: WatchedChannel, packet: PacketInfo) -> None:
        """A packet came and was accepted; what it acks was told before."""

    def packet_acked(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """The peer has a packet."""

    def packet_lost(self, now: float, channel: WatchedChannel, sequence: int, by: LostBy) -> None:
        """A packet is taken for lost, and what was in it is sent again."""

    def loss_was_spurious(self, now: float, channel: WatchedChannel, sequence: int) -> None:
        """A packet taken for lost came all the same; told before its ``packet_acked``."""

    def probe_sent(self, now: float, channel: WatchedChannel, unanswered: int) -> None:
        """Nothing was acked for too long: the next packet asks why.

        ``unanswered`` is how many have asked since, this one included.
        """

    # Estimates

    def round_trip_changed(self, now: float, channel: WatchedChannel, trip: RoundTripInfo) -> None:
        """An ack told how long the way is, and it changed what is known of it."""

    def congestion_changed(
        self, now: float, channel: WatchedChannel, congestion: CongestionInfo
    ) -> None:
        """Congestion control allows another window, or is in another state."""

    def path_mtu_changed(self, now: float, channel: WatchedChannel, size: int) -> None:
        """Datagrams are of at most ``size`` bytes from now on."""

    # Messages

    def messages_queued(
        self,
        now: float,
        channel: WatchedChannel,
        lane: int,
        delivery: Delivery,
        messages: int,
        size: int,
    ) -> None:
        """So many messages, of ``size`` bytes together, wait to be sent in a lane.

        Told once for all that were queued since packets were last asked for.
        """

    def message_settled(self, now: float, channel: WatchedChannel, message: SettledInfo) -> None:
        """It is known what became of a message with a receipt; those of ``send_many`` have none."""

    def credit_sent(self, now: float, channel: WatchedChannel, messages: int, size: int) -> None:
        """The peer is told how many messages and bytes it may have sent since the opening."""

    def credit_received(
        self, now: float, channel: WatchedChannel, messages: int, size: int
    ) -> None:
        """The peer tells how many messages, modulo 2^32, and bytes it wants to have been sent."""

    def send_blocked(
        self, now: float, channel: WatchedChannel, why: Obstacle, lanes: tuple[int, ...]
    ) -> None:
        """Messages wait in ``lanes``, and none may leave; told again when the reason changes."""

    def send_unblocked(self, now: float, channel: WatchedChannel) -> None:
        """All that waited has left."""
