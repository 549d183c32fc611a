"""Two endpoints on a bad network against lists: whatever is done to them in whatever order."""

from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.events import Closed, CloseReason, Opened
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT

STARTS = (0, 32767, 65535, 2**32 - 1)
# Nobody vanishes here but by a partition that is longer than this, and there is none.
TIMEOUT = 400.0
MAX_MESSAGE = 40_000

sides = st.sampled_from((0, 1))
paths = st.sampled_from(((LEFT, RIGHT), (RIGHT, LEFT)))
weather = st.builds(
    Faults,
    loss=st.sampled_from((0.0, 0.0, 0.1, 0.5, 0.9)),
    duplicate=st.sampled_from((0.0, 0.0, 0.3, 1.0)),
    delay=st.sampled_from((0.0, 0.001, 0.02, 0.3)),
    jitter=st.sampled_from((0.0, 0.01, 0.2)),
)
settings = st.fixed_dictionaries(
    {
        "first_sequence": st.sampled_from([max(start - 5, 0) for start in STARTS]),
        "send_buffer": st.sampled_from((2, 64)),
        "receive_buffer": st.sampled_from((1, 3, 64)),
        "receive_buffer_bytes": st.sampled_from((100, 5_000, 100_000)),
        "unreliable_buffer": st.sampled_from((1, 16)),
        "packets_in_flight": st.sampled_from((1, 64)),
        "max_datagram": st.sampled_from((256, 1200)),
        "ack_delay": st.sampled_from((0.0, 0.01, 0.2)),
        "ack_every": st.sampled_from((1, 16)),
        "linger": st.sampled_from((0.0, 1.0)),
    }
)


class WatchfulPair(Pair):
    """Sees that timers are honest: what is due is done, so that nobody is woken for nothing."""

    def step(self) -> bool:
        went_on = super().step()
        for endpoint in (self.left, self.right):
            endpoint.handle_timeout(self.now)
            self._flush()
            when = endpoint.poll_timeout()
            assert when is None or when > self.now, f"busy at {self.now}; seed {self.seed}"
            assert endpoint.poll_transmit(self.now) is None
        return went_on


class Channels(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), left=settings, right=settings)
    def open(self, seed: int, left: dict[str, Any], right: dict[str, Any]) -> None:
        common: dict[str, Any] = {
            "timeout": TIMEOUT,
            "close_timeout": 3600,
            "max_message": MAX_MESSAGE,
        }
        self.limits = [ChannelSettings(**side, **common) for side in (left, right)]
        self.pair = WatchfulPair(seed, None, *self.limits)
        self.sides: list[Connection] = [*self.pair.open()]
        self.sent: list[list[bytes]] = [[], []]
        self.received: list[list[bytes]] = [[], []]
        self.unreliable: list[set[bytes]] = [set(), set()]
        self.events: list[list[object]] = [[], []]
        self.left_first: list[int] = []
        self.count = 0

    def is_open(self, side: int) -> bool:
        return self.sides[side].state is State.OPEN

    def push(self, side: int, size: int) -> None:
        connection = self.sides[side]
        payload = (b"r%d " % self.count).ljust(size, b".")
        self.count += 1
        if self.is_open(side) and connection.has_room(len(payload)):
            connection.send(payload)
            self.sent[side].append(payload)
        self.pair.touch(connection)

    @rule(side=sides, number=st.integers(1, 40))
    def send_small(self, side: int, number: int) -> None:
        for _ in range(number):
            self.push(side, 0)

    @rule(side=sides, size=st.integers(100, MAX_MESSAGE))
    def send_large(self, side: int, size: int) -> None:
        self.push(side, size)

    @rule(side=sides, size=st.integers(0, 200))
    def send_unreliable(self, side: int, size: int) -> None:
        payload = (b"u%d " % self.count).ljust(size, b".")
        self.count += 1
        if self.is_open(side):
            self.sides[side].send_unreliable(payload)
            self.unreliable[side].add(payload)
        self.pair.touch(self.sides[side])

    @rule(side=sides)
    def receive(self, side: int) -> None:
        for payload in self.pair.receive(self.sides[side]):
            if payload.startswith(b"u"):
                # Once at most, and only what was sent.
                self.unreliable[1 - side].remove(payload)
                continue
            self.received[side].append(payload)
        length = len(self.received[side])
        assert self.received[side] == self.sent[1 - side][:length]

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.pair.run(seconds)

    @rule(faults=weather, path=paths)
    def change_weather(self, faults: Faults, path: tuple[Address, Address]) -> None:
        self.pair.network.set_faults(faults, *path)

    @rule(path=paths, seconds=st.floats(0, 5))
    def part_them(self, path: tuple[Address, Address], seconds: float) -> None:
        self.pair.network.set_faults(Faults(blocked=True), *path)
        self.pair.run(seconds)
        self.pair.network.set_faults(Faults(), *path)
        self.pair.run(0.2)

    @precondition(lambda self: self.count > 20)
    @rule(side=sides)
    def close(self, side: int) -> None:
        if self.is_open(side):
            self.left_first.append(side)
        self.sides[side].close(self.pair.now)
        self.pair.touch(self.sides[side])

    @precondition(lambda self: self.count > 40)
    @rule(side=sides)
    def abort(self, side: int) -> None:
        if self.sides[side].closed is None:
            self.left_first.append(-1)
        self.sides[side].abort(self.pair.now)
        self.pair.touch(self.sides[side])

    @invariant()
    def buffers_are_bounded(self) -> None:
        for side, connection in enumerate(self.sides):
            limits, figures = self.limits[side], connection.statistics()
            assert figures.waiting <= limits.send_buffer
            assert figures.unread <= limits.receive_buffer + limits.unreliable_buffer
            assert figures.malformed == figures.foreign_address == 0
            assert connection._transport is not None
            reserve = 2 * MAX_MESSAGE + limits.receive_buffer * limits.max_datagram
            reserve += limits.unreliable_buffer * limits.max_datagram
            assert connection._transport.inbox.held <= limits.receive_buffer_bytes + reserve
        for endpoint in (self.pair.left, self.pair.right):
            assert len(endpoint.connections) <= 1
            assert len(endpoint._agenda._heap) < 100

    @invariant()
    def ends_are_reported_once_and_last(self) -> None:
        for events, connection in zip(self.events, self.sides, strict=True):
            while (event := connection.poll_event()) is not None:
                events.append(event)
            assert events[:1] == [Opened()]
            assert len(events) <= 2
            assert [event for event in events[1:] if isinstance(event, Closed)] == events[1:]
            assert (len(events) == 2) == (connection.closed is not None)

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        for path in ((LEFT, RIGHT), (RIGHT, LEFT)):
            self.pair.network.set_faults(Faults(loss=0.1), *path)
        if not self.left_first:
            self.read_until(lambda: all(self.has_all(side) for side in (0, 1)))
            self.close(0)
        # Whoever closed first, and was not itself closed upon, has got everything across.
        self.read_until(lambda: all(connection.closed for connection in self.sides))
        if len(self.left_first) == 1 and self.left_first[0] >= 0:
            assert self.has_all(1 - self.left_first[0]), f"seed {self.pair.seed}"
            assert {connection.closed.reason for connection in self.sides if connection.closed} == {
                CloseReason.DONE
            }
        self.pair.run(TIMEOUT + 20)
        self.ends_are_reported_once_and_last()
        assert not self.pair.left.connections
        assert not self.pair.right.connections

    def has_all(self, side: int) -> bool:
        return self.received[side] == self.sent[1 - side]

    def read_until(self, condition: Any) -> None:
        def is_over() -> bool:
            self.receive(0)
            self.receive(1)
            return bool(condition())

        self.pair.drive(is_over, seconds=2 * TIMEOUT)


TestChannels = Channels.TestCase
TestChannels.settings = hypothesis_settings(
    max_examples=max(hypothesis_settings().max_examples // 2, 1), stateful_step_count=40
)
