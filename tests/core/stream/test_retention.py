"""What is kept for those who come late, against a list of all that was sent."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.retention import BLOCK, GRAIN, History, KeptMessages
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.transmission import MessageNumberer
from tests.profiles import brisk

CAPACITY = 200


class Keeping:
    """A history of two topics, and the numbers that their messages have."""

    def __init__(self, **changes: object) -> None:
        self.history = History(StreamSettings.lan(**changes), 2)
        self._numberer = MessageNumberer(2, CAPACITY, 1_000_000)

    def add(self, now: float, payloads: Sequence[bytes], topic: int = 0) -> list[int]:
        """Keep messages; return the first number of each, and the one after the last."""
        numbers = list[int]()
        lengths = self._numberer.measure(payloads)
        for numbered in self._numberer.number(topic, payloads, lengths):
            self.history.add(now, topic, numbered)
            numbers += range(numbered.first, numbered.end)
        return [*numbers, self._numberer.next[topic]]

    def messages(self, now: float, first: int, last: int, topic: int = 0) -> dict[int, bytes]:
        """What is found, by first number."""
        return flat(self.history.find(now, topic, first, last).kept)


def flat(kept: list[KeptMessages]) -> dict[int, bytes]:
    return {some.first + at: payload for some in kept for at, payload in enumerate(some.payloads)}


class Old(NamedTuple):
    at: float
    first: int
    end: int
    payload: bytes


sends = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.01, 1.0, 40.0]),
        st.lists(st.integers(0, 500), max_size=20)
        | st.integers(1, 2 * BLOCK).map(lambda n: [3] * n),
    ),
    min_size=1,
    max_size=12,
)


@brisk
@given(st.sampled_from([300, 3000]), st.sampled_from([1, 7, 600]), sends, st.data())
def test_it_keeps_the_newest_within_all_limits(
    size: int, count: int, script: list[tuple[float, list[int]]], data: st.DataObject
) -> None:
    keeping = Keeping(retention=size, retention_count=count, retention_age=100.0)
    everything, now, serial = list[Old](), 0.0, 0
    for wait, lengths in script:
        now += wait
        payloads = [bytes([(serial + n) % 256]) * length for n, length in enumerate(lengths)]
        serial += len(payloads)
        numbers = keeping.add(now, payloads)
        for payload, first, end in zip(payloads, numbers[:-1], numbers[1:], strict=True):
            everything.append(Old(now, first, end, payload))
        low, high = keeping.history.bounds(now, 0)
        assert high == (everything[-1].end - 1 if everything else -1)
        check_limits([old for old in everything if old.first >= low], everything, now, size, count)
        first, last = sorted(data.draw(st.tuples(*[st.integers(-2, high + 3)] * 2)))
        found = keeping.history.find(now, 0, first, last)
        assert flat(found.kept) == {
            old.first: old.payload
            for old in everything
            if old.first >= low and old.end > first and old.first <= last
        }
        gone = Span(first, min(last, low - 1))
        assert found.gone == (gone if gone.size > 0 else None)


def check_limits(kept: list[Old], everything: list[Old], now: float, size: int, count: int) -> None:
    """All limits hold, and of what is gone nothing could have stayed, but for a grain of age."""
    total = sum(len(old.payload) for old in kept)
    assert total <= size
    assert len(kept) <= count
    assert all(old.at >= now - 100.0 for old in kept)
    gone = everything[: len(everything) - len(kept)]
    if gone:
        is_old = gone[-1].at < now - 100.0 * (1 - GRAIN)
        assert is_old or len(kept) == count or total + len(gone[-1].payload) > size


def test_a_large_message_is_found_whole_by_its_number() -> None:
    keeping = Keeping()
    large = bytes(range(250)) * 4
    first, at, after, _ = keeping.add(0.0, [b"first", large, b"after"])
    assert after == at + 1
    (found,) = keeping.history.find(0.0, 0, at, at).kept
    assert found.first == at
    assert found.parts > 1
    assert found.payloads == [large]
    assert keeping.messages(0.0, first, at) == {first: b"first", at: large}


def test_one_topic_takes_nothing_from_another() -> None:
    keeping = Keeping(retention=1000)
    keeping.add(0.0, [b"rare"], topic=1)
    keeping.add(0.0, [bytes(100)] * 100, topic=0)
    assert keeping.messages(0.0, 0, 10, topic=1) == {0: b"rare"}
    assert keeping.history.bounds(0.0, 0) == (90, 99)


def test_the_last_state_alone_may_be_kept() -> None:
    keeping = Keeping(retention_count=1)
    keeping.add(0.0, [b"a", b"b", b"c"])
    assert keeping.history.bounds(0.0, 0) == (2, 2)
    assert keeping.messages(0.0, 0, 10) == {2: b"c"}


def test_no_more_is_dropped_than_necessary_where_messages_have_no_bytes() -> None:
    keeping = Keeping(retention=3, retention_count=BLOCK + 1)
    keeping.add(0.0, [b""] * BLOCK)
    keeping.add(0.0, [b"abc", b""])
    assert keeping.history.bounds(0.0, 0) == (1, BLOCK + 1)


@pytest.mark.parametrize("changes", [{"retention": 0}, {"retention_count": 0}])
def test_nothing_may_be_kept(changes: dict[str, int]) -> None:
    keeping = Keeping(**changes)
    keeping.add(0.0, [b"a", b"", b"c"])
    assert keeping.history.bounds(0.0, 0) == (3, 2)
    assert keeping.history.find(0.0, 0, 0, 5) == ([], Span(0, 2))


def test_nothing_is_there_before_anything_was_sent() -> None:
    keeping = Keeping()
    assert keeping.history.bounds(0.0, 0) == (0, -1)
    assert keeping.history.find(0.0, 0, 0, 5) == ([], None)


def test_it_forgets_by_age_when_it_is_asked() -> None:
    keeping = Keeping(retention_age=10.0)
    keeping.add(0.0, [b"old"])
    keeping.add(5.0, [b"young"])
    assert keeping.messages(10.0, 0, 9) == {0: b"old", 1: b"young"}
    assert keeping.history.find(10.1, 0, 0, 9) == ([KeptMessages(1, 1, [b"young"])], Span(0, 0))


def test_messages_sent_one_by_one_are_kept_together() -> None:
    keeping = Keeping()
    for number in range(1000):
        keeping.add(number / 1000, [b"x"])
    kept = keeping.history.find(1.0, 0, 0, 999).kept
    assert len(kept) == -(-1000 // BLOCK)


def test_what_is_over_is_freed_and_not_only_hidden() -> None:
    keeping = Keeping(retention=10_000)
    payloads = [bytes(100) for _ in range(5_000)]
    unheld = sys.getrefcount(payloads[0])
    for payload in payloads:
        keeping.add(0.0, [payload])
    # One reference less is held by this loop's own variable.
    held = sum(sys.getrefcount(it) - 1 > unheld for it in payloads)
    assert held == 100
