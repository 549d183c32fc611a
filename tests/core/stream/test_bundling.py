"""Bundling: whatever is sent comes out, in order, in datagrams that are as full as they get."""

import random
import sys

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.records import (
    FRAGMENT_OVERHEAD,
    RUN_OVERHEAD,
    FragmentRecord,
    Record,
    RunRecord,
    decode_records_untrusted,
    encode_run,
)
from sphtp.core.stream.transmission import Bundler, Numbering
from tests.profiles import brisk

TOPICS = 3

sizes = st.one_of(st.integers(0, 40), st.integers(0, 700), st.just(64))
sends = st.tuples(st.integers(0, TOPICS - 1), st.lists(sizes, max_size=40))
# A number is how many datagrams are taken in between.
scripts = st.lists(st.one_of(sends, st.integers(1, 5)), max_size=30)


@brisk
@given(st.sampled_from([100, 211, 1400]), scripts)
def test_all_comes_out_in_order(capacity: int, script: list[tuple[int, list[int]] | int]) -> None:
    numbering = Numbering(TOPICS, capacity, 100_000)
    bundler = Bundler(TOPICS, capacity, numbering.part)
    entropy, sent = random.Random(1), list[tuple[int, bytes]]()
    datagrams = list[bytes]()
    for step in script:
        if isinstance(step, int):
            datagrams += bundler.pop_many(step)
            continue
        topic, lengths = step
        payloads = [entropy.randbytes(length) for length in lengths]
        sent += [(topic, payload) for payload in payloads]
        for numbered in numbering.number(topic, payloads, numbering.measure(payloads)):
            bundler.add(topic, numbered)
        left = len(sent) - len(messages(datagrams))
        assert bundler.waiting >= 2 * (left - 1)
    datagrams += bundler.pop_many(10_000)
    assert bundler.waiting == 0
    assert bundler.pop_many(1) == []
    assert max(map(len, datagrams), default=0) <= capacity
    assert messages(datagrams) == sent
    assert bundler.tails == dict(enumerate(numbering.next))
    check_numbers(datagrams)


def records(datagrams: list[bytes]) -> list[Record]:
    return [record for data in datagrams for record in decode_records_untrusted(data)]


def messages(datagrams: list[bytes]) -> list[tuple[int, bytes]]:
    found = list[tuple[int, bytes]]()
    for record in records(datagrams):
        if isinstance(record, RunRecord):
            found += [(record.topic, payload) for payload in record.payloads]
        elif record.part:
            found[-1] = record.topic, found[-1][1] + record.payload
        else:
            found.append((record.topic, record.payload))
    return found


def check_numbers(datagrams: list[bytes]) -> None:
    following = dict.fromkeys(range(TOPICS), 0)
    for record in records(datagrams):
        assert record.first == following[record.topic]
        is_whole = isinstance(record, RunRecord) or record.part + 1 == record.parts
        following[record.topic] = record.last + is_whole


def bundled(capacity: int, *sends: list[bytes]) -> list[list[Record]]:
    numbering = Numbering(1, capacity, 100_000)
    bundler = Bundler(1, capacity, numbering.part)
    for payloads in sends:
        for numbered in numbering.number(0, payloads, numbering.measure(payloads)):
            bundler.add(0, numbered)
    return [decode_records_untrusted(data) for data in bundler.pop_many(1000)]


def test_messages_sent_one_by_one_become_one_record() -> None:
    assert bundled(1400, *[[bytes(64)]] * 20) == [[RunRecord(0, 0, [bytes(64)] * 20)]]


def test_lengths_that_differ_in_the_end_share_the_record() -> None:
    assert bundled(1400, [b"a", b"b"], [b"", b"cc"]) == [
        [RunRecord(0, 0, [b"a", b"b", b"", b"cc"])]
    ]


def test_the_largest_that_a_datagram_holds_is_not_cut() -> None:
    whole, over = bytes(100 - RUN_OVERHEAD), bytes(100 - RUN_OVERHEAD + 1)
    assert bundled(100, [whole]) == [[RunRecord(0, 0, [whole])]]
    assert bundled(100, [b"", whole]) == [[RunRecord(0, 0, [b""])], [RunRecord(0, 1, [whole])]]
    step = 100 - FRAGMENT_OVERHEAD
    first, second = FragmentRecord(0, 0, 0, 2, bytes(step)), FragmentRecord(0, 0, 1, 2, over[step:])
    assert bundled(100, [over]) == [[first], [second]]


def test_the_last_fragment_shares_its_datagram() -> None:
    *_, last = bundled(200, [bytes(400)], [b"next"])
    assert [type(record) for record in last] == [FragmentRecord, RunRecord]


def test_what_has_left_is_let_go_of_while_more_comes() -> None:
    numbering = Numbering(1, 1400, 100_000)
    bundler = Bundler(1, 1400, numbering.part)
    payloads = [bytes(64) for _ in range(300 * 22)]
    unheld = sys.getrefcount(payloads[0])
    for start in range(0, len(payloads), 22):
        for payload in payloads[start : start + 22]:
            for numbered in numbering.number(0, [payload], [64]):
                bundler.add(0, numbered)
        bundler.pop_many(1)
    del payload, numbered
    held = sum(sys.getrefcount(it) - 1 > unheld for it in payloads)
    assert held <= 2 * (bundler.waiting // 66) + 44


def test_many_empty_messages_are_believed() -> None:
    run = RunRecord(0, 0, [b""] * 600)
    assert decode_records_untrusted(encode_run(run)) == [run]
