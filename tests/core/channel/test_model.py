"""Two endpoints on a bad network against lists: whatever is done to them in whatever order."""

from collections import defaultdict
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
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.flow_control import COST
from sphtp.core.channel.lifecycle import Closed, CloseReason, Opened, State
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT
from tests.profiles import CHOSEN, brisk

Lanes = dict[int, list[bytes]]

STARTS = (0, 32767, 65535, 2**32 - 1)
# Nobody vanishes here but by a partition that is longer than this, and there is none.
TIMEOUT = 400.0
MAX_MESSAGE = 40_000

sides = st.sampled_from((0, 1))
lanes = st.integers(0, 3)
paths = st.sampled_from(((LEFT, RIGHT), (RIGHT, LEFT)))
weather = st.builds(
    Faults,
    mtu=st.sampled_from((65_507, 65_507, 1452, 1200)),
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
        "receive_buffer_bytes": st.sampled_from((2 * MAX_MESSAGE, 500_000)),
        "unreliable_buffer": st.sampled_from((1, 16)),
        "congestion": st.sampled_from(("cubic", "newreno", "tolerant", "fixed:1e6")),
        "max_datagram": st.sampled_from((256, 1200, 65_507)),
        "base_datagram": st.sampled_from((256, 1200)),
        "lanes": st.sampled_from(
            (
                (Lane(),),
                (Lane(), Lane(priority=1)),
                (Lane(weight=3), Lane(), Lane(ordered=False), Lane(ordered=False, priority=2)),
            )
        ),
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
        # What each side sent and received, by lane; and what is allowed to be missing.
        self.sent: list[Lanes] = [defaultdict(list), defaultdict(list)]
        self.received: list[Lanes] = [defaultdict(list), defaultdict(list)]
        self.perishable: list[dict[bytes, Ticket]] = [{}, {}]
        self.tickets: list[dict[bytes, Ticket]] = [{}, {}]
        self.unreliable: list[set[bytes]] = [set(), set()]
        self.latest: list[dict[int, int]] = [defaultdict(int), defaultdict(int)]
        self.events: list[list[object]] = [[], []]
        self.left_first: list[int] = []
        self.count = 0

    def is_open(self, side: int) -> bool:
        return self.sides[side].state is State.OPEN

    def push(self, side: int, lane: int, size: int, **wishes: Any) -> None:
        connection, port = self.sides[side], self.sides[side].port
        lane %= len(self.limits[side].lanes)
        payload = (b"r %d %d " % (lane, self.count)).ljust(size, b".")
        self.count += 1
        if self.is_open(side) and port.room_for([len(payload)], lane):
            if wishes:
                ticket = Ticket(self.pair.now, lane, **wishes)
                port.send(payload, ticket, Delivery.RELIABLE)
                self.tickets[side][payload] = ticket
                if ticket.deadline is not None:
                    self.perishable[side][payload] = ticket
            else:
                port.send_many([payload], lane)
            self.sent[side][lane].append(payload)
        self.pair.touch(connection)

    @rule(side=sides, lane=lanes, number=st.integers(1, 40))
    def send_small(self, side: int, lane: int, number: int) -> None:
        for _ in range(number):
            self.push(side, lane, 0)

    @rule(side=sides, lane=lanes, size=st.integers(100, MAX_MESSAGE))
    def send_large(self, side: int, lane: int, size: int) -> None:
        self.push(side, lane, size)

    @rule(
        side=sides,
        lane=lanes,
        size=st.integers(0, MAX_MESSAGE),
        seconds=st.none() | st.floats(0, 2),
        copies=st.integers(0, 3),
    )
    def send_followed(
        self, side: int, lane: int, size: int, seconds: float | None, copies: int
    ) -> None:
        deadline = None if seconds is None else self.pair.now + seconds
        self.push(side, lane, size, deadline=deadline, copies=copies)

    @rule(side=sides, lane=lanes, size=st.integers(0, 200), is_sequenced=st.booleans())
    def send_once(self, side: int, lane: int, size: int, is_sequenced: bool) -> None:
        lane %= len(self.limits[side].lanes)
        payload = (b"%s %d %d " % (b"s" if is_sequenced else b"u", lane, self.count)).ljust(size)
        self.count += 1
        if self.is_open(side):
            delivery = Delivery.SEQUENCED if is_sequenced else Delivery.UNRELIABLE
            ticket = self.tickets[side][payload] = Ticket(self.pair.now, lane)
            self.sides[side].port.send(payload, ticket, delivery)
            self.unreliable[side].add(payload)
        self.pair.touch(self.sides[side])

    @rule(side=sides)
    def receive(self, side: int) -> None:
        for payload in self.pair.receive(self.sides[side]):
            kind, lane, number = payload.split()[0], *map(int, payload.split(b".")[0].split()[1:3])
            if kind == b"r":
                self.received[side][lane].append(payload)
                continue
            # Once at most, and only what was sent.
            self.unreliable[1 - side].remove(payload)
            if kind == b"s":
                assert self.latest[side][lane] <= number
                self.latest[side][lane] = number
        # What only reading makes room for has to be told.
        self.pair.touch(self.sides[side])
        for lane, received in self.received[side].items():
            self.check_lane(1 - side, lane, received)

    def check_lane(self, sender: int, lane: int, received: list[bytes]) -> None:
        assert len(set(received)) == len(received)
        sent, perishable = self.sent[sender][lane], self.perishable[sender]
        if not self.limits[sender].lanes[lane].ordered:
            assert set(received) <= set(sent)
            return
        rest = iter(sent)
        for payload in received:
            while (expected := next(rest)) != payload:
                assert perishable[expected].outcome is Outcome.EXPIRED

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
            limits, figures = self.limits[side], connection.port.statistics()
            assert figures.waiting <= limits.send_buffer * len(limits.lanes)
            lanes = len(self.limits[1 - side].lanes)
            assert figures.unread <= limits.receive_buffer + lanes * limits.unreliable_buffer
            assert figures.malformed == figures.foreign_address == 0
            receiving = connection.port.receive_side
            assert receiving is not None
            reserve = (1 + lanes * limits.unreliable_buffer) * (limits.max_datagram + COST)
            overdrawn = max(limits.max_message, limits.max_datagram)
            assert receiving.receive_queue.held <= limits.receive_buffer_bytes + overdrawn + reserve
            assert figures.too_early == 0, "an honest peer keeps to its credit"
        for endpoint in (self.pair.left, self.pair.right):
            assert isinstance(endpoint, Endpoint)
            assert len(endpoint.connections) <= 1

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
        for side in (0, 1):
            self.receive(side)
        self.check_tickets()
        self.pair.run(TIMEOUT + 20)
        self.ends_are_reported_once_and_last()
        assert not self.pair.left.connections
        assert not self.pair.right.connections

    def check_tickets(self) -> None:
        for side in (0, 1):
            arrived = {it for lane in self.received[1 - side].values() for it in lane}
            for payload, ticket in self.tickets[side].items():
                assert ticket.outcome is not None
                # A peer that closes may have it behind one that is missing, and reads no more.
                is_read = self.left_first == [side] and payload.startswith(b"r")
                if is_read and ticket.outcome is Outcome.DELIVERED:
                    assert payload in arrived

    def has_all(self, side: int) -> bool:
        """Or as much as will come: what expired may be missing."""
        sent = {it for lane in self.sent[1 - side].values() for it in lane}
        received = {it for lane in self.received[side].values() for it in lane}
        return all(
            payload in self.perishable[1 - side]
            and self.perishable[1 - side][payload].outcome is Outcome.EXPIRED
            for payload in sent - received
        )

    def read_until(self, condition: Any) -> None:
        def is_over() -> bool:
            self.receive(0)
            self.receive(1)
            return bool(condition())

        self.pair.drive(is_over, seconds=2 * TIMEOUT)


# Faults show within a few steps or after very many, which are the nightly's and the soak's.
STEPS = 40 if CHOSEN == "nightly" else 10

TestChannels = Channels.TestCase
# An example is a conversation of its own, and takes as long as a hundred of other properties.
TestChannels.settings = hypothesis_settings(brisk, stateful_step_count=STEPS)
