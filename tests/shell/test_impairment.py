"""A bad network on purpose: nothing goes wrong but what was asked for, and nothing is kept."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import trio

from sphtp import Config, open_node
from sphtp.config import ChannelSettings, Impairment
from sphtp.core.datagrams import Datagrams
from sphtp.errors import SettingsError
from sphtp.shell.impairment import MOST_CALLS, ImpairedSocket, open_socket
from sphtp.shell.udp import UdpCounters, UdpSocket
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

HOST = "127.0.0.1"
MANY = 4000
BAD = Impairment(loss=0.1, duplicate=0.05, reorder=0.1)
HALF = Impairment(reorder=0.5)
YES, NO = 0.0, 0.99


class Fates:
    """A generator whose chances and numbers were written down before."""

    def __init__(self, chances: Iterable[float], numbers: Iterable[int] = ()) -> None:
        self._chances, self._numbers = iter(chances), iter(numbers)

    def random(self) -> float:
        return next(self._chances)

    def randint(self, low: int, high: int) -> int:
        number = next(self._numbers)
        assert low <= number <= high
        return number


def scripted(impairment: Impairment, chances: Iterable[float], numbers: Iterable[int] = ()):
    fates: Any = Fates(chances, numbers)
    return ImpairedSocket(HOST, 0, impairment, fates)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(first, first + count)]


def send(udp: UdpSocket, to: UdpSocket, datagrams: Sequence[bytes]) -> None:
    assert udp.send(deque(Datagrams.of(to.address, datagram) for datagram in datagrams))


def take(udp: UdpSocket) -> list[bytes]:
    """What one receive call gives; loopback has delivered by the time that sending returns."""
    return [datagram for row in udp.receive_batch(1000) for datagram in row.datagrams]


def carry(impairment: Impairment, seed: int) -> tuple[list[bytes], UdpCounters]:
    """Take many datagrams through an impaired socket; what arrives, and its counters."""
    with (
        UdpSocket(HOST, 0) as left,
        ImpairedSocket(HOST, 0, impairment, Random(seed)) as right,
    ):
        arrived = list[bytes]()
        for first in range(0, MANY, 100):
            send(left, right, numbered(100, first))
            arrived += take(right)
        for _ in range(MOST_CALLS):
            arrived += take(right)
        return arrived, right.counters


@pytest.mark.parametrize("name", [field.name for field in fields(Impairment)])
@pytest.mark.parametrize("share", [-0.1, 1, 2, float("nan")])
async def test_a_share_that_is_none_is_refused_by_name(name, share):
    with pytest.raises(SettingsError, match=f"{name} is {share}; allowed is 0 to less than 1"):
        Impairment(**{name: share})


async def test_a_socket_that_nothing_is_asked_of_is_one_like_any_other():
    with open_socket(HOST, 0, None, 1) as plain, open_socket(HOST, 0, BAD, 1) as bad:
        assert (type(plain), type(bad)) == (UdpSocket, ImpairedSocket)


async def test_loss_takes_its_share_and_nothing_else(seed):
    arrived, counters = carry(Impairment(loss=0.2), seed)
    assert arrived == sorted(set(arrived)), seed
    assert len(arrived) == MANY - counters.dropped_on_purpose
    assert counters.dropped_on_purpose == pytest.approx(0.2 * MANY, rel=0.2), seed
    assert counters.received == MANY


async def test_duplicates_come_twice_and_the_others_once(seed):
    arrived, counters = carry(Impairment(duplicate=0.2), seed)
    times = Counter(Counter(arrived).values())
    assert times == {1: MANY - times[2], 2: counters.duplicated_on_purpose}, seed
    assert times[2] == pytest.approx(0.2 * MANY, rel=0.2), seed


async def test_what_is_held_back_is_overtaken_and_comes_at_last(seed):
    arrived, counters = carry(Impairment(reorder=0.2), seed)
    assert sorted(arrived) == numbered(MANY), seed
    late = sum(after < before for before, after in pairwise(arrived))
    assert 0 < late <= counters.held_back_on_purpose, seed
    assert counters.held_back_on_purpose == pytest.approx(0.2 * MANY, rel=0.2), seed


async def test_nothing_is_lost_beyond_the_share(seed):
    """With all at once, what arrives and what is counted make up what was sent."""
    arrived, counters = carry(BAD, seed)
    assert len(arrived) == MANY + counters.duplicated_on_purpose - counters.dropped_on_purpose
    assert len(arrived) > 0.9 * MANY, seed
    assert set(arrived) <= set(numbered(MANY))
    assert arrived != sorted(arrived), seed


async def test_a_seed_decides(seed):
    assert carry(BAD, seed) == carry(BAD, seed), seed
    assert carry(BAD, seed)[0] != carry(BAD, seed + 1)[0], seed


async def test_later_ones_pass_as_many_as_were_drawn():
    chances = [YES, NO, YES, NO, NO, NO]
    with UdpSocket(HOST, 0) as left, scripted(HALF, chances, (3, 1)) as right:
        send(left, right, numbered(6))
        assert take(right) == [b"00001", b"00003", b"00002", b"00004", b"00000", b"00005"]


async def test_a_copy_has_a_fate_of_its_own():
    both = Impairment(duplicate=0.5, reorder=0.5)
    chances = [YES, YES, NO, NO, NO]
    with UdpSocket(HOST, 0) as left, scripted(both, chances, (2,)) as right:
        send(left, right, numbered(2))
        assert take(right) == [b"00000", b"00001", b"00000"]


async def test_datagrams_of_somebody_else_overtake_nothing():
    chances = [YES, NO, NO, NO]
    with (
        UdpSocket(HOST, 0) as one,
        UdpSocket(HOST, 0) as other,
        scripted(HALF, chances, (1,)) as right,
    ):
        send(one, right, numbered(1))
        send(other, right, numbered(2, 10))
        assert take(right) == [b"00010", b"00011"]
        send(one, right, numbered(1, 1))
        assert take(right) == [b"00001", b"00000"]


async def test_the_last_one_comes_after_a_few_calls():
    with UdpSocket(HOST, 0) as left, scripted(HALF, [YES], (3,)) as right:
        send(left, right, numbered(1))
        calls = [take(right) for _ in range(MOST_CALLS)]
        assert calls == [[]] * (MOST_CALLS - 1) + [numbered(1)]
        assert take(right) == []


async def test_the_last_one_wakes_whoever_waits(autojump_clock):
    """Though nothing comes any more, waiting goes on until nothing is held back."""
    with UdpSocket(HOST, 0) as left, scripted(HALF, [YES], (3,)) as right:
        send(left, right, numbered(1))
        arrived = list[bytes]()
        with trio.fail_after(5):
            while not arrived:
                await right.wait_readable()
                arrived += take(right)
        with trio.move_on_after(10) as scope:
            await right.wait_readable()
        assert scope.cancelled_caught, "there is nothing to wake for"


async def test_single_datagrams_are_taken_out_of_a_row():
    sent = [bytes([number]) * 1000 for number in range(30)]
    chances = [YES if number % 3 == 0 else NO for number in range(30)]
    with UdpSocket(HOST, 0) as left, scripted(Impairment(loss=0.5), chances) as right:
        send(left, right, sent)
        assert take(right) == [datagram for number, datagram in enumerate(sent) if number % 3]
        assert (right.counters.received, right.counters.dropped_on_purpose) == (30, 10)


async def test_a_channel_mends_all_of_it(seed):
    settings = ChannelSettings(resend_time=0.03, max_datagram=1200, linger=0.1)
    sent = [bytes([number]) * 5000 for number in range(200)]
    async with (
        open_node(config=Config(channel=settings, impairment=BAD, seed=seed)) as left,
        open_node(config=Config(channel=settings, impairment=BAD, seed=seed + 1)) as right,
        left.open_channel(*right.address) as here,
        await right.accept() as there,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(here.send_many, sent)
        assert [await there.receive() for _ in sent] == sent, seed
        figures = right.statistics()
    assert figures.dropped_on_purpose > 0
    assert figures.duplicated_on_purpose > 0
    assert figures.held_back_on_purpose > 0
