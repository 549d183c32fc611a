"""How a source sends: numbers, bundles as full as they get, the window told, the data rate."""

import random
import sys

import pytest
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
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceState, SourceTransport
from sphtp.core.stream.transmission import MOST_WAITING, MessageNumberer, PendingBodies
from sphtp.core.stream.wire import DATA_OVERHEAD, MOST_TAILS, StreamData, Window
from sphtp.core.token_bucket import BURST
from sphtp.errors import LocalError, MessageTooLargeError, SettingsError, StateError
from tests.core.stream.sources import NEAR_WRAP, Listening
from tests.profiles import brisk


def records(data: list[StreamData]) -> list[Record]:
    return [record for one in data for record in decode_records_untrusted(bytes(one.records))]


def test_small_messages_cost_by_the_datagram() -> None:
    room = Listening()
    for number in range(0, 1000, 10):
        first = room.source.send_many(room.now, 0, [bytes(64)] * 10)
        assert first == number
    room.listen()
    per_datagram = (1400 - DATA_OVERHEAD - 16) // 64
    assert len(room.data) == -(-1000 // per_datagram)
    assert all(len(decode_records_untrusted(bytes(data.records))) == 1 for data in room.data)
    assert (
        sum(len(run.payloads) for run in records(room.data) if isinstance(run, RunRecord)) == 1000
    )


def test_messages_sent_before_one_look_share_a_datagram_across_topics() -> None:
    room = Listening(topics=3)
    room.source.send_many(room.now, 0, [b"a", b"b"])
    room.source.send_many(room.now, 2, [b"c"])
    room.source.send_many(room.now, 0, [b"d", b"longer"])
    room.listen()
    assert records(room.data) == [
        RunRecord(0, 0, [b"a", b"b"]),
        RunRecord(2, 0, [b"c"]),
        RunRecord(0, 2, [b"d", b"longer"]),
    ]
    assert len(room.data) == 1
    assert room.source.tails == ((0, 4), (1, 0), (2, 1))


def test_what_is_sent_is_due_at_once() -> None:
    room = Listening()
    room.listen()
    idle = room.source.poll_timeout()
    assert idle is None or idle > room.now
    room.source.send_many(room.now, 0, [b"a"])
    assert room.source.poll_timeout() == pytest.approx(room.now)


def test_a_large_message_has_one_number_as_any_other() -> None:
    room = Listening()
    payload = random.Random(5).randbytes(10_000)
    assert room.send(b"before", payload, b"after") == 0
    before, *fragments, after = records(room.data)
    assert before == RunRecord(0, 0, [b"before"])
    assert [type(fragment) for fragment in fragments] == [FragmentRecord] * len(fragments)
    assert (
        b"".join(part.payload for part in fragments if isinstance(part, FragmentRecord)) == payload
    )
    assert [fragment.first for fragment in fragments] == [1] * len(fragments)
    assert after == RunRecord(0, 2, [b"after"])
    assert room.send(b"next") == 3


def test_each_datagram_tells_itself_as_the_lead_and_what_is_left_as_the_trail() -> None:
    room = Listening(StreamSettings.lan(window=65_536))
    sqns = room.send_datagrams(100)
    assert [data.sqn for data in room.data] == sqns == list(range(NEAR_WRAP, NEAR_WRAP + 100))
    for data in room.data:
        assert data.window.lead == data.sqn
        assert data.window.trail <= data.sqn
    trails = [data.window.trail for data in room.data]
    assert trails == sorted(trails)
    kept = trails[-1], sqns[-1]
    assert room.source.window == Window(kept[1], kept[0])
    # 1000 bytes and a record's front each.
    assert kept[1] - kept[0] + 1 == 65_536 // 1016


def test_the_window_forgets_by_age_in_silence_too_but_never_the_last() -> None:
    room = Listening(StreamSettings.lan(window_age=1.0))
    sqns = room.send_datagrams(5)
    room.advance(0.9)
    assert room.source.window.trail == sqns[0]
    room.advance(6.0)
    assert room.source.window == Window(sqns[-1], sqns[-1])
    room.forget()
    room.nak(*sqns)
    assert room.repairs == [sqns[-1]]
    assert room.source.statistics().naks_out_of_window == 4


def test_what_is_too_old_is_not_repaired_even_if_it_is_still_there() -> None:
    room = Listening(StreamSettings.lan(window_age=1.0))
    sqns = room.send_datagrams(5)
    room.advance(1.1)
    room.nak(*sqns)
    assert room.repairs == [sqns[-1]]


def test_history_forgets_in_silence_too() -> None:
    room = Listening(StreamSettings.lan(retention_age=1.0))
    room.send(b"old")
    assert room.source.history.find(room.now, 0, 0, 0).kept == [(0, 1, [b"old"])]
    room.advance(7.0)
    assert room.source.history.bounds(room.now, 0) == (1, 0)


def test_a_data_rate_holds_back_and_loses_nothing() -> None:
    room = Listening(StreamSettings.lan(data_rate=100_000.0, repair_rate=10_000.0))
    start = room.now
    room.send(*[bytes(1000)] * 200)
    assert len(room.data) == BURST + 3, "as many bytes as ten of the largest datagrams have"
    assert room.source.statistics().waiting_bytes == (200 - BURST - 3) * 1002
    room.advance(10.0)
    assert len(room.data) == 200
    sent = [(said.at - start, said.size) for said in room.said if isinstance(said.body, StreamData)]
    total = 0
    for at, size in sent:
        total += size
        assert total <= BURST * 1400 + 100_000.0 * at + 1
    assert sent[-1][0] == pytest.approx((200 * 1030 - 14_000) / 100_000, rel=0.05)


def test_there_is_room_for_so_much_and_once_for_more() -> None:
    room = Listening(StreamSettings.lan(data_rate=10_000.0, repair_rate=1000.0))
    assert room.source.room == MOST_WAITING
    room.send(*[bytes(1000)] * 2000)
    assert room.source.room == 0
    with pytest.raises(LocalError, match="wait until there is room"):
        room.source.send_many(room.now, 0, [b"one more"])
    room.advance(200.0)
    assert 0 < room.source.room < MOST_WAITING
    assert room.send(b"one more") == 2000


def test_empty_messages_use_up_room_and_arrive() -> None:
    room = Listening()
    room.send(*[b""] * 5000)
    runs = [run for run in records(room.data) if isinstance(run, RunRecord)]
    assert sum(len(run.payloads) for run in runs) == 5000
    slow = Listening(StreamSettings.lan(data_rate=1000.0, repair_rate=1000.0))
    slow.send(*[b""] * 50_000)
    assert slow.source.room < MOST_WAITING - 50_000


def test_sending_nothing_sends_nothing() -> None:
    room = Listening()
    assert room.send() == 0
    assert not room.data


def test_what_cannot_be_sent_is_refused_and_nothing_of_it_sent() -> None:
    room = Listening(StreamSettings.lan(max_message=5000))
    with pytest.raises(MessageTooLargeError, match="5001 bytes; allowed is 5000"):
        room.send(b"first", bytes(5001))
    with pytest.raises(LocalError, match="no topic 1; there are 1"):
        room.send(b"", topic=1)
    assert room.source.state is SourceState.IDLE
    assert room.send(b"first") == 0
    room.source.close(room.now)
    with pytest.raises(StateError, match="CLOSING refuses SEND"):
        room.send(b"late")
    assert len(room.data) == 1


def test_a_message_smaller_than_a_datagram_may_be_too_large() -> None:
    room = Listening(StreamSettings.lan(max_message=100))
    with pytest.raises(MessageTooLargeError):
        room.send(bytes(101))


@pytest.mark.parametrize("topics", [0, MOST_TAILS + 1])
def test_so_many_topics_are_refused(topics: int) -> None:
    with pytest.raises(SettingsError, match=f"{topics} topics"):
        SourceTransport(random.Random(1), StreamSettings.lan(), now=0.0, topics=topics)


def test_a_datagram_has_room_for_its_envelope() -> None:
    settings = StreamSettings.lan()
    source = SourceTransport(random.Random(1), settings, now=0.0, envelope=36)
    source.send_many(0.0, 0, [bytes(10)] * 500 + [bytes(5000)])
    outgoing = source.poll_transmit(0.0)
    assert outgoing is not None
    assert max(map(len, outgoing.bodies)) == 1400 - 36


def test_a_session_is_told_from_others() -> None:
    entropy, settings = random.Random(7), StreamSettings.lan()
    sessions = {SourceTransport(entropy, settings, now=0.0).session for _ in range(100)}
    assert len(sessions) == 100
    assert all(0 < session < 2**32 for session in sessions)


def test_statistics_count_what_left_and_what_is_there() -> None:
    room = Listening()
    room.send(*[bytes(64)] * 100)
    statistics = room.source.statistics()
    assert statistics.messages_sent == 100
    assert statistics.datagrams_sent == statistics.window_datagrams == len(room.data) == 5
    sizes = [said.size for said in room.said if isinstance(said.body, StreamData)]
    assert statistics.bytes_sent == sum(sizes)
    assert statistics.window_bytes == sum(sizes) - 5 * DATA_OVERHEAD
    assert statistics.receivers == 2
    assert statistics.waiting_bytes == statistics.waiting_repairs == 0


TOPICS = 3

sizes = st.one_of(st.integers(0, 40), st.integers(0, 700), st.just(64))
sends = st.tuples(st.integers(0, TOPICS - 1), st.lists(sizes, max_size=40))
# A number is how many datagrams are taken in between.
scripts = st.lists(st.one_of(sends, st.integers(1, 5)), max_size=30)


@brisk
@given(st.sampled_from([100, 211, 1400]), scripts)
def test_all_comes_out_in_order(capacity: int, script: list[tuple[int, list[int]] | int]) -> None:
    numberer = MessageNumberer(TOPICS, capacity, 100_000)
    pending_bodies = PendingBodies(TOPICS, capacity, numberer.part)
    entropy, sent = random.Random(1), list[tuple[int, bytes]]()
    datagrams = list[bytes]()
    for step in script:
        if isinstance(step, int):
            datagrams += pending_bodies.pop_many(step)
            continue
        topic, lengths = step
        payloads = [entropy.randbytes(length) for length in lengths]
        sent += [(topic, payload) for payload in payloads]
        for numbered in numberer.number(topic, payloads, numberer.measure(payloads)):
            pending_bodies.add(topic, numbered)
        left = len(sent) - len(messages(datagrams))
        assert pending_bodies.waiting >= 2 * (left - 1)
    datagrams += pending_bodies.pop_many(10_000)
    assert pending_bodies.waiting == 0
    assert pending_bodies.pop_many(1) == []
    assert max(map(len, datagrams), default=0) <= capacity
    assert messages(datagrams) == sent
    assert pending_bodies.tails == dict(enumerate(numberer.next))
    check_numbers(datagrams)


def records_of(datagrams: list[bytes]) -> list[Record]:
    return [record for data in datagrams for record in decode_records_untrusted(data)]


def messages(datagrams: list[bytes]) -> list[tuple[int, bytes]]:
    found = list[tuple[int, bytes]]()
    for record in records_of(datagrams):
        if isinstance(record, RunRecord):
            found += [(record.topic, payload) for payload in record.payloads]
        elif record.part:
            found[-1] = record.topic, found[-1][1] + record.payload
        else:
            found.append((record.topic, record.payload))
    return found


def check_numbers(datagrams: list[bytes]) -> None:
    following = dict.fromkeys(range(TOPICS), 0)
    for record in records_of(datagrams):
        assert record.first == following[record.topic]
        is_whole = isinstance(record, RunRecord) or record.part + 1 == record.parts
        following[record.topic] = record.last + is_whole


def bundled(capacity: int, *sends: list[bytes]) -> list[list[Record]]:
    numberer = MessageNumberer(1, capacity, 100_000)
    pending_bodies = PendingBodies(1, capacity, numberer.part)
    for payloads in sends:
        for numbered in numberer.number(0, payloads, numberer.measure(payloads)):
            pending_bodies.add(0, numbered)
    return [decode_records_untrusted(data) for data in pending_bodies.pop_many(1000)]


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
    numberer = MessageNumberer(1, 1400, 100_000)
    pending_bodies = PendingBodies(1, 1400, numberer.part)
    payloads = [bytes(64) for _ in range(300 * 22)]
    unheld = sys.getrefcount(payloads[0])
    for start in range(0, len(payloads), 22):
        for payload in payloads[start : start + 22]:
            for numbered in numberer.number(0, [payload], [64]):
                pending_bodies.add(0, numbered)
        pending_bodies.pop_many(1)
    del payload, numbered
    held = sum(sys.getrefcount(it) - 1 > unheld for it in payloads)
    assert held <= 2 * (pending_bodies.waiting // 66) + 44


def test_many_empty_messages_are_believed() -> None:
    run = RunRecord(0, 0, [b""] * 600)
    assert decode_records_untrusted(encode_run(run)) == [run]
