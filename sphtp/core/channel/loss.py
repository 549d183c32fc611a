"""Which packets are lost, how many are in flight, and what share of them gets lost.

The seed resends what was not acked within a fixed time. Here that verdict falls on a packet, not on
each of its messages: packets leave in order and wait equally long, so the oldest one is always at
the front, and nothing has to be kept per message.
"""

from collections import deque
from collections.abc import Iterator

from sphtp.core.channel.acks import SentPacket

SMOOTHING = 1 / 64


class Loss:
    """Watches ack-eliciting packets until they are acked or lost."""

    __slots__ = ("_flying", "in_flight", "ratio")

    def __init__(self) -> None:
        self._flying: deque[SentPacket] = deque()
        self.in_flight = 0
        self.ratio = 0.0

    def sent(self, packet: SentPacket) -> None:
        """Start to watch a packet."""
        self._flying.append(packet)
        self.in_flight += 1

    def acked(self, packet: SentPacket) -> None:
        """Stop to watch a packet; one that was given up already was lost only in appearance."""
        if not packet.lost:
            self.in_flight -= 1
        self._judge(0.0)

    def overdue(self, now: float, patience: float) -> Iterator[SentPacket]:
        """Give up, and yield, each packet that has waited ``patience`` seconds for its ack."""
        while (packet := self._oldest()) is not None and packet.sent_at + patience <= now:
            self._flying.popleft()
            packet.lost = True
            self.in_flight -= 1
            self._judge(1.0)
            yield packet

    def deadline(self, patience: float) -> float | None:
        """When the oldest packet in flight will be overdue."""
        packet = self._oldest()
        return None if packet is None else packet.sent_at + patience

    def _oldest(self) -> SentPacket | None:
        while self._flying and self._flying[0].acked:
            self._flying.popleft()
        return self._flying[0] if self._flying else None

    def _judge(self, verdict: float) -> None:
        self.ratio += (verdict - self.ratio) * SMOOTHING
