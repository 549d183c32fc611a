"""Latency of messages that are sent steadily over a path that loses packets."""

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from sphtp import Delivery
from sphtp.config import ChannelSettings
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.receipts import Ticket
from sphtp.testing import Faults, Pair
from sphtp_benchmarks.meters import percentile
from sphtp_benchmarks.simulated.experiment import Experiment, Finding, SimulatedTrial, ms, percent

RATE: Final = 60
SIZE: Final = 200
MESSAGES: Final = 6000
ROUND_TRIP: Final = 0.050
LOSSES: Final = (0.01, 0.05, 0.20)
COPIES: Final = (0, 3)
LONGEST: Final = 30.0
"""Seconds after which the last message has to be there."""


@dataclass(frozen=True, kw_only=True)
class Delivered(Finding):
    """Times in seconds from ``send`` until the peer has the message and all before it."""

    loss: float
    copies: int
    median: float
    p99: float
    bytes_per_message: float

    def cells(self) -> tuple[str, ...]:
        """Return a line of the table."""
        return (
            percent(self.loss),
            str(self.copies),
            ms(self.median),
            ms(self.p99),
            f"{self.bytes_per_message:.0f}",
        )


class Recipient:
    """A reader that times messages of ``size`` bytes, which have their number in the first four."""

    def __init__(self, pair: Pair, connection: Connection, size: int) -> None:
        self.times: list[float] = []
        self._pair = pair
        self._connection = connection
        self._size = size
        self._sent: list[float] = []

    def next_message(self) -> bytes:
        """Make a message that is sent now."""
        self._sent.append(self._pair.now)
        return (len(self._sent) - 1).to_bytes(4, "little").ljust(self._size, b"\0")

    def read(self) -> None:
        """Record the latency of each message of ``size`` bytes that has arrived."""
        for message in self._pair.receive(self._connection):
            if len(message) == self._size:
                number = int.from_bytes(message[:4], "little")
                self.times.append(self._pair.now - self._sent[number])


def measure(loss: float, copies: int, seed: int, messages: int = MESSAGES) -> Delivered:
    """Send messages at ``RATE`` with redundancy ``copies``; both directions lose ``loss``."""
    pair = Pair(seed, Faults(delay=ROUND_TRIP / 2), ChannelSettings())
    sender, receiver = pair.open()
    pair.network.set_default(Faults(delay=ROUND_TRIP / 2, loss=loss))
    recipient = Recipient(pair, receiver, SIZE)
    before = sender.port.statistics().bytes_sent
    for _ in range(messages):
        message = recipient.next_message()
        sender.port.send(message, Ticket(pair.now, copies=copies), Delivery.RELIABLE)
        pair.touch(sender)
        pair.run(1 / RATE, recipient.read)
        while sender.port.poll_settled() is not None:
            pass
    sent = sender.port.statistics().bytes_sent - before
    pair.run(LONGEST, recipient.read)
    times = sorted(recipient.times)
    if len(times) != messages:
        raise AssertionError(f"{len(times)} of {messages} messages arrived; seed {seed}")
    return Delivered(
        loss=loss,
        copies=copies,
        median=median(times),
        p99=percentile(times, 0.99),
        bytes_per_message=sent / messages,
    )


DELIVERY: Final = Experiment(
    name="delivery",
    title="Small messages over a path that loses packets",
    before=f"""\
{RATE} reliable messages of {SIZE} bytes per second, in order, over a round trip of
{ROUND_TRIP * 1e3:.0f} ms; both directions lose the same share, at random. The times are from
`send` until the peer can receive the message, which waits for all messages before it. Each row is
from {MESSAGES:,} messages.
""",
    after="""\
The time on the path is half a round trip. Without copies, a lost message arrives at least a round
trip later, and each message behind it waits for it. With three copies, a copy follows in each of
the next three packets, 17 ms apart. So a lost message arrives 17 ms later for each packet lost in a
row, without an answer of the peer. Copies are traffic, too: when every fifth packet is lost,
congestion control holds some of them back.
""",
    headings=("loss each way", "copies", "median", "99 % within", "bytes sent per message"),
    trials=[
        SimulatedTrial(f"{percent(loss)} lost, {copies} copies", partial(measure, loss, copies))
        for loss in LOSSES
        for copies in COPIES
    ],
)
