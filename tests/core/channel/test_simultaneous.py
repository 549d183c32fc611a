"""Both dial at once: one channel comes of it, whatever the network does to the handshake.

A duel plays two endpoints against a network that is steered by a list of choices: which datagram
is next, and whether it arrives, arrives and stays for a second time, or is lost. When the choices
are used up, all is delivered in order.
"""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import Opened, State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.testing.pair import LEFT, RIGHT
from tests.profiles import brisk
from tests.soaked import soaked

SETTINGS = ChannelSettings(connect_timeout=120, timeout=240, keepalive=60)
DELIVER, REPEAT, LOSE, FATES = 0, 1, 2, 3


class Duel:
    def __init__(self, seed: int, left_dials: int = 1, right_dials: int = 1) -> None:
        self.now = 0.0
        self.endpoints = {
            LEFT: Endpoint(Random(f"{seed} left"), SETTINGS, peer_id=1),
            RIGHT: Endpoint(Random(f"{seed} right"), SETTINGS, peer_id=3),
        }
        self.flying: list[tuple[tuple[str, int], tuple[str, int], bytes]] = []
        self.incoming: dict[tuple[str, int], list[Connection]] = {LEFT: [], RIGHT: []}
        dials = {LEFT: (RIGHT, left_dials), RIGHT: (LEFT, right_dials)}
        self.dialled = {
            here: [self.endpoints[here].dial(0.0, [there]) for _ in range(count)]
            for here, (there, count) in dials.items()
        }
        self.flush()

    def flush(self) -> None:
        for address, endpoint in self.endpoints.items():
            while (transmit := endpoint.poll_transmit(self.now)) is not None:
                for datagram in transmit.datagrams:
                    self.flying.append((address, transmit.address, datagram))
            while (incoming := endpoint.poll_incoming()) is not None:
                self.incoming[address].append(incoming)

    @property
    def branches(self) -> int:
        return FATES * len(self.flying) + 1

    def choose(self, choice: int) -> None:
        """The last choice is to let time pass until the next timer."""
        which, fate = divmod(choice % self.branches, FATES)
        if which == len(self.flying):
            self.tick()
            return
        source, destination, datagram = self.flying[which]
        if fate != REPEAT:
            del self.flying[which]
        if fate != LOSE:
            self.endpoints[destination].handle_datagrams_untrusted(
                self.now, Datagrams.of(source, datagram)
            )
        self.flush()

    def tick(self) -> None:
        times = [endpoint.poll_timeout() for endpoint in self.endpoints.values()]
        due = [time for time in times if time is not None]
        self.now = max(self.now, min(due, default=self.now))
        for endpoint in self.endpoints.values():
            endpoint.handle_timeout(self.now)
        self.flush()

    def settle(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            while self.flying:
                self.choose(DELIVER)
            self.tick()

    def sides(self) -> list[list[Connection]]:
        return [[*self.dialled[here], *self.incoming[here]] for here in (LEFT, RIGHT)]

    def check(self, played: object) -> None:
        """Every channel is open on both sides, and carries messages both ways."""
        self.settle(2)
        left, right = self.sides()
        for connection in (*left, *right):
            assert connection.state is State.OPEN, f"{connection.state} after {played}"
            assert connection.poll_event() == Opened()
            assert connection.poll_event() is None
        for endpoint, side in zip(self.endpoints.values(), (left, right), strict=True):
            # An old CONNECT may have been answered in vain; that is forgotten in time.
            leftovers = set(endpoint.connections) - set(side)
            assert all(
                it.state is State.ANSWERING and not it.handshake.is_dialled for it in leftovers
            )
        for side, other in ((left, right), (right, left)):
            for number, connection in enumerate(side):
                connection.port.send_many([b"%d" % number])
                for endpoint in self.endpoints.values():
                    endpoint.touch(connection)
            self.flush()
            self.settle(0.5)
            heard = sorted(message for it in other for message in it.port.receive_many(9))
            assert heard == sorted(b"%d" % number for number in range(len(side))), played


def explore(seed: int, depth: int) -> Iterator[tuple[list[int], Duel]]:
    """Every row of choices of this length, and the duel that it leads to."""
    row: list[int] = []
    while True:
        duel, widths = Duel(seed), []
        for position in range(depth):
            if position == len(row):
                row.append(0)
            widths.append(duel.branches)
            duel.choose(row[position])
        yield list(row), duel
        while row and row[-1] + 1 == widths[len(row) - 1]:
            row.pop()
        if not row:
            return
        row[-1] += 1


def lower_token_is_left(seed: int) -> bool:
    duel = Duel(seed)
    return duel.dialled[LEFT][0].handshake.token < duel.dialled[RIGHT][0].handshake.token


def test_either_side_has_the_lower_token() -> None:
    assert [lower_token_is_left(seed) for seed in SEEDS] == [True, False]


SEEDS = (0, 1)


def check_every_order(seed: int, depth: int) -> int:
    count = 0
    for count, (row, duel) in enumerate(explore(seed, depth), 1):  # noqa: B007
        duel.check((seed, row))
        assert [len(side) for side in duel.sides()] == [1, 1], (seed, row)
    return count


@pytest.mark.parametrize("depth", [2, *soaked([5])])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_order_of_the_first_datagrams_gives_one_channel(seed: int, depth: int) -> None:
    """Delivered, repeated or lost, in any order, with timers in between: all of it, so deep."""
    assert check_every_order(seed, depth) > {2: 40, 5: 30_000}[depth]


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_attempt_that_is_over_does_not_take_the_one_that_crossed_it_along(is_lost: bool) -> None:
    """Right answers left's attempt, which left has given up, and right's own goes on."""
    duel = Duel(SEEDS[0])
    left, right = duel.dialled[LEFT][0], duel.dialled[RIGHT][0]
    left.close(duel.now)
    duel.endpoints[LEFT].touch(left)
    duel.choose(DELIVER)
    assert (left.state, right.state) == (State.CLOSED, State.CONNECTING)
    assert len(duel.endpoints[RIGHT].connections) == 2
    while is_lost and duel.flying:
        duel.choose(LOSE)
    duel.settle(5)
    (incoming,) = duel.incoming[LEFT]
    assert (incoming.state, right.state) == (State.OPEN, State.OPEN)
    assert right.poll_event() == Opened()
    # What crossed right's own, and is answered in vain, is forgotten in time.
    duel.settle(SETTINGS.connect_timeout)
    assert duel.endpoints[RIGHT].connections == (right,)
    assert duel.endpoints[LEFT].connections == (incoming,)


@brisk
@given(st.integers(0, 2**32), st.lists(st.integers(0, 10_000), max_size=25))
def test_long_and_unlikely_orders_give_one_channel(seed: int, choices: list[int]) -> None:
    duel = Duel(seed)
    for choice in choices:
        duel.choose(choice)
    duel.check((seed, choices))
    assert [len(side) for side in duel.sides()] == [1, 1]


@brisk
@given(
    st.integers(0, 2**32),
    st.integers(0, 4),
    st.integers(1, 4),
    st.lists(st.integers(0, 10_000), max_size=40),
)
def test_several_dials_at_once_all_open(
    seed: int, left_dials: int, right_dials: int, choices: list[int]
) -> None:
    """Which dials meet is open; that each becomes a channel that both sides know is not."""
    duel = Duel(seed, left_dials, right_dials)
    for choice in choices:
        duel.choose(choice)
    duel.check((seed, left_dials, right_dials, choices))
    left, right = duel.sides()
    assert len(left) == len(right)
    assert max(left_dials, right_dials) <= len(left) <= left_dials + right_dials
