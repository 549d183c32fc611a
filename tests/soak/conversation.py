"""Two speakers on a bad network, in virtual time: one seed, one trace."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from struct import pack

from sphtp.core.channel.lifecycle import CloseReason
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Pair
from sphtp.testing.network import Address
from tests.soak.figures import Figures
from tests.soak.ledger import Ledger
from tests.soak.memory import Residue, check_residue
from tests.soak.speaker import Speaker
from tests.soak.traffic import Reading, Traffic
from tests.soak.weather import PATHS, Climate, Weather


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side says, how it listens, and the settings of its channel."""

    traffic: Traffic
    reading: Reading
    settings: ChannelSettings


class Conversation(Pair):
    """Two sides that talk, with the books that hold the channel to its promises.

    ``patience`` is how many seconds the last message may take. Raises ``AssertionError`` as soon
    as a promise is broken.
    """

    def __init__(
        self, seed: int, climate: Climate, left: Side, right: Side, patience: float
    ) -> None:
        super().__init__(seed, None, left.settings, right.settings)
        self.datagrams = 0
        self._digest = blake2b(digest_size=16)
        self._patience = patience
        self._trace()
        connections = self.open()
        ledgers = [Ledger(_travel(climate)), Ledger(_travel(climate))]
        self.speakers = [
            Speaker(
                Random(f"{seed} {name}"),
                connection,
                min(left.settings.max_message, right.settings.max_message),
                side.traffic,
                side.reading,
                *hears,
            )
            for name, connection, side, hears in zip(
                ("left", "right"), connections, (left, right), (ledgers, ledgers[::-1]), strict=True
            )
        ]
        self.weather = Weather(self.network, climate, Random(f"{seed} weather"))
        self._travel = _travel(climate)

    @property
    def digest(self) -> str:
        """Stands for every datagram that left, and when."""
        return self._digest.hexdigest()

    @property
    def progress(self) -> str:
        """How far it is, in a few words."""
        sent = sum(speaker.says.sent.total() for speaker in self.speakers)
        return f"{self.now / 3600:.2f} h, {sent:,} messages, {self.datagrams:,} datagrams"

    def talk(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let both sides talk for a while, or until something is reached."""
        end = self.now + seconds
        while self.now < end and not until():
            when = min(end, self.weather.next_time, *(it.next_time for it in self.speakers))
            self.run(max(0.0, when - self.now))
            self.weather.act(self.now)
            for speaker in self.speakers:
                speaker.act(self.now)
                self.touch(speaker.connection)

    def step(self) -> bool:
        """Jump to the next event; who reads at once does so, and the room is told of."""
        went_on = super().step()
        for speaker in self.speakers if hasattr(self, "speakers") else ():
            speaker.listen(self.now)
            if speaker.connection.port.is_credit_due:
                self.touch(speaker.connection)
        return went_on

    def settle(self) -> Residue:
        """Say nothing more, wait until all has come, and see that nothing of it is kept."""
        self.weather.hush()
        for speaker in self.speakers:
            speaker.hush()
        for speaker in self.speakers:
            speaker.listen(self.now)
            self.touch(speaker.connection)
        self.drive(lambda: all(it.is_done for it in self.speakers), self._patience)
        self.run(2 * self._travel)
        for speaker in self.speakers:
            speaker.says.check_complete(self.now)
            self._check_counters(speaker)
        return check_residue(self)

    def wake(self) -> None:
        """Go on as before, after ``settle``."""
        self.weather.wake(self.now)
        for speaker in self.speakers:
            speaker.wake(self.now)

    def part(self) -> None:
        """Close from the left in fair weather; both end well, and the endpoints forget them."""
        self.weather.clear_up()
        left, right = (speaker.connection for speaker in self.speakers)
        left.close(self.now)
        self.touch(left)
        self.drive(lambda: not (self.left.connections or self.right.connections), self._patience)
        ends = [connection.closed for connection in (left, right)]
        assert [end.reason for end in ends if end] == [CloseReason.DONE] * 2, f"seed {self.seed}"

    def figures(self) -> Figures:
        """What has happened so far."""
        ledgers = [speaker.says for speaker in self.speakers]
        counted = [speaker.connection.port.statistics() for speaker in self.speakers]
        links = [self.network.statistics(self.now, *path) for path in PATHS]
        return Figures(
            seed=self.seed,
            seconds=self.now,
            sent=_sum(ledger.sent for ledger in ledgers),
            came=_sum(ledger.came for ledger in ledgers),
            outcomes=_sum(ledger.outcomes for ledger in ledgers),
            packets=sum(it.sent for it in counted),
            resent=sum(it.resent for it in counted),
            lost=sum(it.lost + it.blocked + it.too_large for it in links),
            duplicated=sum(it.duplicated for it in links),
            cuts=self.weather.cuts,
            held_back=sum(speaker.held_back for speaker in self.speakers),
            digest=self.digest,
        )

    def _check_counters(self, speaker: Speaker) -> None:
        """An honest peer is never taken for a liar, and what nobody heard was dropped here."""
        figures = speaker.connection.port.statistics()
        assert figures.malformed == figures.forged_acks == figures.foreign_address == 0
        assert figures.too_early == 0, "an honest peer keeps to its credit"
        receive_side = speaker.connection.port.receive_side
        assert receive_side is not None
        unreliable = receive_side.receive_queue.unreliable
        assert speaker.hears.unheard <= unreliable.dropped + unreliable.overtaken

    def _trace(self) -> None:
        send = self.network.send

        def traced(now: float, source: Address, destination: Address, datagram: bytes) -> None:
            self.datagrams += 1
            self._digest.update(pack("<dH", now, source[1]))
            self._digest.update(datagram)
            send(now, source, destination, datagram)

        self.network.send = traced  # type: ignore[method-assign]


def _sum(counters: Iterable[Counter[str]]) -> Counter[str]:
    return sum(counters, start=Counter())


def _travel(climate: Climate) -> float:
    """The longest that a datagram may be on its way, in seconds, with one to spare."""
    faults = climate.there, climate.back
    return max(it.delay + it.jitter + it.reorder_delay for it in faults) + 1.0
