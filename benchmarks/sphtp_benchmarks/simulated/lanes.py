"""The delay of small messages by a large transfer on another lane of their channel."""

from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from sphtp import Delivery
from sphtp.config import ChannelSettings, Lane
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.receipts import Ticket
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from sphtp_benchmarks.simulated.bottleneck import CONTROLLERS
from sphtp_benchmarks.simulated.delivery import Recipient
from sphtp_benchmarks.simulated.experiment import Experiment, Finding, SimulatedTrial, ms
from sphtp_benchmarks.simulated.path import ETHERNET, ROUND_TRIP, bottleneck

BULK, URGENT = range(2)
LANES: Final = (Lane(), Lane(priority=1))
TRANSFER: Final = 64_000_000
PART: Final = 16_000_000
"""Bytes of one message of the transfer: about as large as they may be."""

SIZE: Final = 64
INTERVAL: Final = 0.020
SECONDS: Final = 8.0
"""Seconds for which small messages are sent; the transfer takes longer than that."""


@dataclass(frozen=True, kw_only=True)
class Times:
    """Medians of small messages, in seconds.

    These are the times until the peer has a message, and until the sender's receipt has its
    outcome, and the wait in the queue of the path.
    """

    delivered: float
    receipt: float
    queue: float


@dataclass(frozen=True, kw_only=True)
class Noticed(Finding):
    """Times without the transfer and with it."""

    controller: str
    alone: Times
    beside: Times

    def cells(self) -> tuple[str, ...]:
        """Return a line of the table."""
        alone, beside = self.alone, self.beside
        return (
            f"`{self.controller}`",
            f"{ms(alone.delivered)} → {ms(beside.delivered)}",
            f"{ms(alone.receipt)} → {ms(beside.receipt)}",
            f"{beside.receipt / alone.receipt:.1f}",
            f"{ms(beside.queue)}",
        )


class Transfer:
    """A large transfer in large messages."""

    def __init__(self, pair: Pair, sender: Connection, size: int) -> None:
        self._pair = pair
        self._sender = sender
        self._left = size

    def go_on(self) -> None:
        """Queue as many messages as there is room for."""
        while self._left and self._sender.port.room_for([PART], BULK):
            self._sender.port.send_many([bytes(PART)], BULK)
            self._pair.touch(self._sender)
            self._left -= PART


def measure(controller: str, seed: int) -> Noticed:
    """Send small messages alone, and then beside the transfer, each on a new channel."""
    return Noticed(
        controller=controller,
        alone=_times(controller, 0, seed),
        beside=_times(controller, TRANSFER, seed),
    )


def _times(controller: str, size: int, seed: int) -> Times:
    settings = ChannelSettings(congestion=controller, lanes=LANES)
    pair = Pair(seed, Faults(delay=ROUND_TRIP / 2, mtu=ETHERNET), settings)
    sender, receiver = pair.open()
    pair.network.set_faults(bottleneck(), LEFT, RIGHT)
    recipient = Recipient(pair, receiver, SIZE)
    transfer = Transfer(pair, sender, size)
    queues: list[float] = []
    tickets: list[Ticket] = []
    for _ in range(round(SECONDS / INTERVAL)):
        transfer.go_on()
        queues.append(pair.network.statistics(pair.now, LEFT, RIGHT).queue_delay)
        ticket = Ticket(pair.now, URGENT)
        sender.port.send(recipient.next_message(), ticket, Delivery.RELIABLE)
        tickets.append(ticket)
        pair.touch(sender)
        pair.run(INTERVAL, recipient.read)
    receipts = [ticket.settled_at - ticket.sent_at for ticket in tickets if ticket.settled_at]
    return Times(delivered=median(recipient.times), receipt=median(receipts), queue=median(queues))


LANES_TABLE: Final = Experiment(
    name="lanes",
    title="Small messages beside a large transfer",
    before=f"""\
A channel sends {TRANSFER / 1e6:.0f} MB in messages of {PART / 1e6:.0f} MB on one lane, through the
same bottleneck, and meanwhile a message of {SIZE} bytes every {INTERVAL * 1e3:.0f} ms on another
lane of higher priority. The times are medians, without the transfer and with it: until the peer has
the message, and until the sender's receipt has its outcome.
""",
    after="""\
A small message leaves with the next packet. It then waits in the queue of the path, which
loss-based controllers keep full and which no lane can pass. The last column is the median of that
wait; `times as long` compares the receipts.
""",
    headings=("controller", "delivered", "receipt", "times as long", "queue"),
    trials=[SimulatedTrial(name, partial(measure, name)) for name in CONTROLLERS],
)
