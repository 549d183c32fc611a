"""One trial: a source, some receivers, a network with losses, and the time of each repair."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sphtp.config import StreamSettings
from sphtp.core.stream.events import Batch, Item, Loss
from sphtp.testing import Broadcast, Faults, Observer
from sphtp.testing.stream import SubscriberTerms
from sphtp_benchmarks.meters import percentile

RATE: Final = 1000
"""Datagrams per second, each with one message."""
DATAGRAMS: Final = 5000
ROUND_TRIP: Final = 0.0005
SIZE: Final = 64
LONGEST: Final = 60.0
"""Seconds for which a trial goes on after its last datagram, until all repairs have arrived."""

PROFILES: Final = {
    # The timers of Ultra Messaging. With its data rate, small messages would wait for each other.
    "um": StreamSettings.um(data_rate=None, max_datagram=1400),
    "lan": StreamSettings.lan(),
}


@dataclass(frozen=True)
class RecoveryTrial:
    """A profile, the share of lost datagrams, and the number of receivers that share the losses."""

    profile: str
    loss: float
    receivers: int

    @property
    def name(self) -> str:
        """The name of the trial."""
        return f"{self.profile}, {100 * self.loss:.0f} % lost, {self.receivers} receivers"


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The finding of a trial. A time is the delay that a loss causes, in milliseconds."""

    profile: str
    loss: float
    receivers: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    recovered: int
    loss_events: int
    naks_per_loss: float

    def document(self) -> dict[str, Any]:
        """Return the figures as a document for JSON."""
        return asdict(self)


class Delays(Observer):
    """An observer that records the delays of messages beyond the time on the path."""

    def __init__(self) -> None:
        self.sent: list[float] = []
        self.late: list[float] = []
        self.losses = 0

    def items_delivered(self, now: float, _: Any, items: Sequence[Item]) -> None:
        """Record the delays of the messages that a receiver reads, and count the losses."""
        for item in items:
            if isinstance(item, Batch):
                for number in range(item.first, item.first + len(item.payloads)):
                    self._note(now - self.sent[number] - ROUND_TRIP / 2)
            elif isinstance(item, Loss):
                self.losses += item.last - item.first + 1

    def _note(self, late: float) -> None:
        if late > 1e-9:
            self.late.append(late)


TRIALS: Final = tuple(
    RecoveryTrial(profile, loss, receivers)
    for receivers in (1, 20)
    for loss in (0.01, 0.1, 0.3)
    for profile in PROFILES
)


def make(trial: RecoveryTrial, seed: int, datagrams: int = DATAGRAMS) -> Recovery:
    """Make a trial: send steadily, with the same loss on every path, and time the repairs."""
    delays = Delays()
    way = Faults(delay=ROUND_TRIP / 2)
    broadcast = Broadcast(
        seed,
        0,
        way,
        PROFILES[trial.profile],
        shared=trial.receivers > 1,
        observers=[delays],
    )
    for _ in range(trial.receivers):
        broadcast.join(terms=SubscriberTerms(ordered=False, recover=False))
    broadcast.network.set_default(Faults(delay=ROUND_TRIP / 2, loss=trial.loss))
    for _ in range(datagrams):
        delays.sent.append(broadcast.now)
        broadcast.send([bytes(SIZE)])
        broadcast.run(1 / RATE)
    broadcast.run(LONGEST)
    return _found(trial, broadcast, delays)


def _found(trial: RecoveryTrial, broadcast: Broadcast, delays: Delays) -> Recovery:
    late = sorted(delays.late)
    counts = [subscriber.transport.statistics() for subscriber in broadcast.subscribers]
    lost, naks = sum(one.lost for one in counts), sum(one.naks_sent for one in counts)
    return Recovery(
        profile=trial.profile,
        loss=trial.loss,
        receivers=trial.receivers,
        p50_ms=percentile(late, 0.5) * 1e3,
        p99_ms=percentile(late, 0.99) * 1e3,
        longest_ms=late[-1] * 1e3,
        recovered=len(late),
        loss_events=delays.losses,
        naks_per_loss=naks / lost,
    )
