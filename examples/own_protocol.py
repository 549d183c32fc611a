"""A protocol of your own, tested on a simulated network: no sockets, no waiting, one seed.

Stop and wait: the sender repeats a message until its number comes back. An hour of bad network
takes moments, and a failure can be repeated by its seed.
"""

from sphtp.testing import Faults, SimulatedNetwork

HERE, THERE = ("10.0.0.1", 1), ("10.0.0.2", 1)
TIMEOUT = 0.25


class Sender:
    """Sends numbered messages, one at a time."""

    def __init__(self, messages: list[bytes]) -> None:
        self.messages = messages
        self.number = 0
        self.due = 0.0

    def poll(self, now: float) -> bytes | None:
        """Return the datagram to send now; None if it is not time, or all messages have arrived."""
        if self.number == len(self.messages) or now < self.due:
            return None
        self.due = now + TIMEOUT
        return bytes([self.number % 256]) + self.messages[self.number]

    def handle(self, datagram: bytes) -> None:
        """Handle an acknowledgement: if it is of the present message, go on to the next one."""
        if datagram[0] == self.number % 256:
            self.number, self.due = self.number + 1, 0.0


def transfer(messages: list[bytes], faults: Faults, seed: int) -> tuple[list[bytes], float, int]:
    """Return the received messages, the seconds that it took, and the number of lost datagrams."""
    network, sender = SimulatedNetwork(seed, faults), Sender(messages)
    received: list[bytes] = []
    now = 0.0
    while sender.number < len(messages):
        if (datagram := sender.poll(now)) is not None:
            network.send(now, HERE, THERE, datagram)
        now = min(sender.due, network.next_time() or sender.due)
        for it in network.take_due(now):
            if it.destination == HERE:
                sender.handle(it.datagram)
                continue
            if it.datagram[0] == len(received) % 256:
                received.append(it.datagram[1:])
            network.send(now, THERE, HERE, it.datagram[:1])
    return received, now, network.dropped


if __name__ == "__main__":
    messages = [f"message {number}".encode() for number in range(1000)]
    for loss in (0.0, 0.1, 0.5):
        faults = Faults(loss=loss, duplicate=0.05, delay=0.02, jitter=0.01)
        received, seconds, lost = transfer(messages, faults, seed=7)
        print(f"loss {loss:.0%}: {seconds:.1f} s, {lost} lost, complete: {received == messages}")
