"""A source, a bad network, a history and a reader: all that was sent is told."""

from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from sphtp.core.stream.events import Batch, Item, Loss, LossReason, Origin, StreamEnd
from sphtp.core.stream.late_join_wire import Framing, prefixed
from sphtp.core.stream.receiver import Receiver
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceTransport
from sphtp.core.stream.subscription import ALL_HISTORY, SubscriptionMachine
from sphtp.core.timers import earliest

# So short a generation interval that at such loss the transport gives up more than now and then.
SETTINGS = StreamSettings(generation=0.5, nak_backoff=0.1, fetch_window=20)
TOPIC = 1


class World:
    """One source and one subscription; ``loss`` goes for all datagrams, either way."""

    def __init__(
        self,
        seed: int,
        loss: float,
        settings: StreamSettings = SETTINGS,
        *,
        before: int = 0,
        ordered: bool = True,
        recover: bool = True,
    ) -> None:
        self.random = Random(seed)
        self.loss = loss
        self.now = 0.0
        self.sent = dict[int, bytes]()
        self.source = SourceTransport(self.random, settings, now=0.0, topics=2, first=(1 << 32) - 5)
        for _ in range(before):
            self.send()
        list(iter(partial(self.source.poll_transmit, 0.0), None))
        window, tails = self.source.window, dict(self.source.tails)
        self.source.handle_joined(0.0, 1)
        receiver = Receiver(Random(seed), settings, 0.0, window)
        self.subscription = SubscriptionMachine(
            settings,
            0.0,
            receiver,
            self.source.session,
            TOPIC,
            tails[TOPIC],
            ordered=ordered,
            late_join=ALL_HISTORY if before else 0,
            recover=recover,
        )
        self.server: FetchServer | None = None
        self.items: list[Item] = []

    def send(self) -> None:
        """Send some messages, small and large, and some of another topic."""
        large = [self.random.randbytes(self.random.randint(2000, 9000))]
        small = [self.random.randbytes(self.random.randint(0, 90)) for _ in range(10)]
        payloads = large if self.random.random() < 0.3 else small
        number = self.source.send_many(self.now, TOPIC, payloads)
        self.sent.update(zip(range(number, number + len(payloads)), payloads, strict=True))
        self.source.send_many(self.now, 0, [b"other"] * self.random.randint(0, 3))

    def run(self, until: float) -> None:
        """Let everything go its way until then."""
        while self.now < until:
            self._exchange()
            due = earliest(self.source.poll_timeout(), self.subscription.poll_timeout())
            self.now = min(max(due or until, self.now + 0.001), until)
            self.source.handle_timeout(self.now)
            self.subscription.handle_timeout(self.now)
        self._exchange()

    def _exchange(self) -> None:
        for outgoing in iter(partial(self.source.poll_transmit, self.now), None):
            survivors = self._survivors(outgoing.bodies)
            self.subscription.handle_bodies_untrusted(self.now, survivors)
        for nak in iter(partial(self.subscription.poll_transmit, self.now), None):
            for survivor in self._survivors([nak]):
                self.source.handle_feedback_untrusted(self.now, 1, survivor)
        self._fetch()
        self.items.extend(iter(self.subscription.poll_item, None))

    def _fetch(self) -> None:
        if self.server is None and self.subscription.wants_connection:
            self.server = FetchServer(self.source.history, self.source.session, 2, self.source.part)
            self.subscription.handle_connected(self.now)
        framing = Framing()
        for request in iter(self.subscription.poll_request, None):
            assert self.server is not None
            self.server.handle_frame_untrusted(request)
            for frame in iter(partial(self.server.poll_transmit, self.now), None):
                frames = framing.feed_untrusted(prefixed(frame))
                self.subscription.handle_frames_untrusted(self.now, frames)

    def _survivors(self, bodies: list[bytes]) -> Iterator[bytes]:
        return (body for body in bodies if self.random.random() >= self.loss)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "arrival"])
@pytest.mark.parametrize("before", [0, 20], ids=["live", "late"])
@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 200), marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_at_any_loss_all_is_told_once_and_as_it_was_sent(
    seed: int, seeds: range, before: int, ordered: bool
) -> None:
    origins = set[Origin]()
    for this in seeds:
        world = World(seed + this, 0.5, before=before, ordered=ordered)
        for step in range(40):
            world.send()
            world.run(0.05 * step)
        world.run(world.now + 3.0)
        world.source.close(world.now)
        world.run(world.now + SETTINGS.activity_timeout + SETTINGS.linger + 1.0)
        assert isinstance(world.items.pop(), StreamEnd), f"seed {seed + this}"
        numbers, told = list[int](), list[bytes]()
        for item in world.items:
            assert isinstance(item, Batch), f"seed {seed + this}: {item}"
            numbers.append(item.first)
            told += item.payloads
            origins.add(item.origin)
        assert sorted(told) == sorted(world.sent.values()), f"seed {seed + this}"
        if ordered:
            assert told == list(world.sent.values()), f"seed {seed + this}"
        assert len(set(numbers)) == len(numbers)
    assert origins == {Origin.LIVE, Origin.OTR} | ({Origin.RETRANSMIT} if before else set())


def test_without_history_what_the_transport_loses_is_told_and_why(seed: int) -> None:
    world = World(seed, 0.5, recover=False)
    for step in range(40):
        world.send()
        world.run(0.05 * step)
    world.run(world.now + 3.0)
    losses = [item for item in world.items if isinstance(item, Loss)]
    assert {loss.reason for loss in losses} == {LossReason.TIMEOUT}
    statistics = world.subscription.statistics()
    assert statistics.transport.unrecovered_tmo >= len(losses)


def test_what_the_transport_recovers_is_neither_lost_nor_fetched(seed: int) -> None:
    """Repairs come many at a time: one that is underway inside is not missing."""
    world = World(seed, 0.3, StreamSettings())
    for step in range(80):
        for _ in range(5):
            world.send()
        world.run(0.05 * step)
    world.run(world.now + 5.0)
    statistics = world.subscription.statistics()
    assert statistics.transport.lost > 100
    assert statistics.transport.unrecovered_tmo == 0
    assert statistics.fetch.requests == statistics.delivery.lost == 0
    assert statistics.delivery.delivered == len(world.sent)
