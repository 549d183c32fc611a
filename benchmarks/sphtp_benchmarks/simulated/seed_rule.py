"""The rule of Fiedler's "Reliable Ordered Messages", with which loss recovery is compared.

Messages that are not acked leave again every 0.1 s. Each packet that arrives is answered with the
article's header, which acks the newest packet and those of the 31 before it that have arrived.
There is no other rule: no window, no pace, no estimate.
"""

from typing import Final

from sphtp.core.timers import earliest
from sphtp.testing import Faults
from sphtp.testing.network import Address, Simulation

RESEND_TIME: Final = 0.1
ACK_BITS: Final = 32
NUMBER: Final = 4
"""Bytes of a packet's sequence, and of its message's number."""

SENDER: Final[Address] = ("10.0.0.1", 1000)
RECEIVER: Final[Address] = ("10.0.0.2", 2000)


class SeedRule(Simulation):
    """``count`` messages of ``size`` bytes, one to a packet, under way from the start."""

    def __init__(self, seed: int, faults: Faults, count: int, size: int) -> None:
        super().__init__(seed, faults)
        self._size = size
        self._unacked = dict.fromkeys(range(count))
        self._sent: list[int] = []
        self._missing = set(range(count))
        self._arrived: set[int] = set()
        self._newest = 0
        self._resend_at = 0.0

    @property
    def is_delivered(self) -> bool:
        """True if every message has arrived."""
        return not self._missing

    def _next_time(self) -> float | None:
        return earliest(self.network.next_time(), self._resend_at if self._unacked else None)

    def _happen(self) -> None:
        for delivery in self.network.take_due(self.now):
            if delivery.destination == RECEIVER:
                self._take(delivery.datagram)
            else:
                self._take_ack(delivery.datagram)

    def _flush(self) -> None:
        if self.now < self._resend_at:
            return
        self._resend_at += RESEND_TIME
        for message in self._unacked:
            packet = len(self._sent).to_bytes(NUMBER) + message.to_bytes(NUMBER)
            self._sent.append(message)
            self.network.send(self.now, SENDER, RECEIVER, packet.ljust(NUMBER + self._size, b"\0"))

    def _take(self, packet: bytes) -> None:
        sequence = int.from_bytes(packet[:NUMBER])
        self._arrived.add(sequence)
        self._missing.discard(int.from_bytes(packet[NUMBER : 2 * NUMBER]))
        newest = self._newest = max(self._newest, sequence)
        bits = sum(1 << bit for bit in range(ACK_BITS) if newest - bit in self._arrived)
        self.network.send(
            self.now, RECEIVER, SENDER, newest.to_bytes(NUMBER) + bits.to_bytes(NUMBER)
        )

    def _take_ack(self, ack: bytes) -> None:
        newest, bits = int.from_bytes(ack[:NUMBER]), int.from_bytes(ack[NUMBER:])
        for bit in range(ACK_BITS):
            if bits >> bit & 1:
                self._unacked.pop(self._sent[newest - bit], None)
