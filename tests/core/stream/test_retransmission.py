"""What a source does about NAKs: each row of its transport's table."""

from functools import partial

import pytest

from sphtp.core.stream.events import Crybaby
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import Nak, Ncf, NcfReason, SessionMessage, StreamData, encode_nak
from tests.core.stream.sources import Listening, only


def lan(**changes: object) -> StreamSettings:
    """Repairs without a limit, unless there is one."""
    return StreamSettings.lan(**({"repair_rate": 1e9} | changes))


def slow(**changes: object) -> StreamSettings:
    """Ten datagrams of repairs at once, then about one in 0.1 s."""
    return lan(repair_rate=10_000.0, data_rate=None, **changes)


def test_a_repair_leaves_at_once_for_all() -> None:
    room = Listening()
    first, second, third = room.send_datagrams(3)
    room.send_datagrams(2)
    room.nak(second)
    assert room.repairs == [second]
    repair = only(room.said[-1:], StreamData)
    assert repair.window == room.source.window == (first + 4, first)
    assert bytes(repair.records) == bytes(room.data[1].records)
    assert not room.ncfs
    room.nak(first, third)
    assert room.repairs == [second, first, third]
    statistics = room.source.statistics()
    assert (statistics.repairs_sent, statistics.naks_received) == (3, 3)
    assert statistics.nak_packets_received == 2
    assert statistics.repair_bytes_sent == sum(said.size for said in room.said[-3:])


def test_what_was_never_sent_is_invalid() -> None:
    room = Listening()
    sqns = room.send_datagrams(3)
    assert not room.nak(sqns[-1] + 1)
    assert not room.nak(Span(sqns[0], sqns[-1] + 1)), "none of it is believed"
    assert not room.nak_raw(b"")
    assert not room.nak_raw(b"\x04\x00\x00\x00")
    assert not room.nak_raw(b"\x04\x00\xff\xff" + bytes(20))
    statistics = room.source.statistics()
    assert statistics.feedback_invalid == 5
    assert statistics.naks_received == 0


def test_nobody_is_heard_who_did_not_join_or_has_left() -> None:
    room = Listening()
    sqns = room.send_datagrams(3)
    assert not room.nak(sqns[0], receiver=3)
    room.source.handle_left(room.now, 2)
    assert not room.nak(sqns[0], receiver=2)
    assert room.source.statistics().feedback_foreign == 2


def test_what_is_gone_is_answered_by_one_session_message_in_an_ignore_interval() -> None:
    room = Listening(lan(window=65_536))
    sqns = room.send_datagrams(100)
    trail = room.source.window.trail
    assert sqns[0] < trail
    room.forget()
    told = only(room.nak(Span(sqns[0], trail - 1)), SessionMessage)
    assert told.window.trail == trail
    assert not room.nak(sqns[0], receiver=2)
    room.advance(0.6 * room.settings.ignore)
    assert not room.nak(sqns[0])
    room.advance(0.6 * room.settings.ignore)
    told = only(room.nak(sqns[1]), SessionMessage)
    assert not room.repairs
    assert not room.ncfs
    assert room.source.statistics().naks_out_of_window == trail - sqns[0] + 3


def test_of_a_span_across_the_trail_the_rest_is_repaired() -> None:
    room = Listening(lan(window=65_536))
    sqns = room.send_datagrams(100)
    trail = room.source.window.trail
    room.forget()
    room.nak(Span(sqns[0], trail + 1))
    assert room.repairs == [trail, trail + 1]
    assert room.sessions


def test_within_the_ignore_interval_it_is_ignored_and_said_once() -> None:
    room = Listening()
    (sqn,) = room.send_datagrams(1)
    room.nak(sqn)
    room.advance(0.01)
    told = only(room.nak(sqn, receiver=2), Ncf)
    assert told.reason is NcfReason.IGNORED
    assert told.spans == [Span(sqn, sqn)]
    assert told.retry_after == pytest.approx(0.03, abs=0.0011)
    assert told.retry_after >= 0.03 - 1e-9, "who comes too early is ignored in silence"
    assert not room.nak(sqn, receiver=1)
    assert room.source.statistics().naks_ignored == 2
    room.advance(told.retry_after)
    room.nak(sqn)
    assert room.repairs == [sqn, sqn]


def test_what_has_to_wait_is_told_so_once_and_comes() -> None:
    room = Listening(slow())
    sqns = room.send_datagrams(40)
    room.nak(Span(sqns[0], sqns[-1]))
    ncfs = sorted(room.ncfs, key=lambda ncf: ncf.spans[0])
    assert {ncf.reason for ncf in ncfs} == {NcfReason.RX_DELAY}
    at_once = len(room.repairs)
    assert 0 < at_once < 40
    told = [span for ncf in ncfs for span in ncf.spans]
    assert (told[0].first, told[-1].last) == (sqns[at_once], sqns[-1])
    assert sum(span.size for span in told) == 40 - at_once, "each once"
    waits = [ncf.retry_after for ncf in ncfs]
    assert waits == sorted(waits), "who comes first waits less"
    assert waits[-1] == pytest.approx((40 - at_once) * 0.1, rel=0.2)
    assert not room.nak(sqns[-1], receiver=2), "it is told already"
    statistics = room.source.statistics()
    assert statistics.naks_rx_delay == 40 - at_once + 1
    assert statistics.waiting_repairs == 40 - at_once
    room.advance(room.settings.ignore)
    again = only(room.nak(sqns[-1], receiver=2), Ncf)
    assert again.reason is NcfReason.RX_DELAY
    room.advance(waits[-1])
    assert room.repairs == sqns, "each once, whoever asked how often"


def test_the_oldest_is_first() -> None:
    room = Listening(slow())
    sqns = room.send_datagrams(40)
    room.nak(Span(sqns[20], sqns[39]))
    at_once = len(room.repairs)
    room.nak(Span(sqns[0], sqns[4]), receiver=2)
    room.advance(10.0)
    assert room.repairs[at_once:] == sqns[:5] + sqns[20 + at_once :]


def test_when_too_much_waits_more_is_shed() -> None:
    room = Listening(slow(repair_queue=5))
    sqns = room.send_datagrams(40)
    room.nak(Span(sqns[0], sqns[-1]))
    by_reason = {ncf.reason: ncf.spans for ncf in room.ncfs}
    # The queue takes five, of which all may leave at once; those after them have to ask again.
    assert by_reason == {NcfReason.SHED: [Span(sqns[5], sqns[-1])]}
    assert room.repairs == sqns[:5]
    assert not room.nak(Span(sqns[6], sqns[6])) or room.repairs[5:] == [sqns[6]]
    assert room.source.statistics().naks_shed == 35
    room.advance(room.settings.ignore)
    room.nak(Span(sqns[10], sqns[-1]), receiver=2)
    assert room.ncfs[-1].reason in {NcfReason.SHED, NcfReason.RX_DELAY}


def test_what_is_evicted_before_its_turn_is_dropped() -> None:
    room = Listening(slow(window=65_536))
    sqns = room.send_datagrams(60)
    room.nak(Span(sqns[0], sqns[-1]))
    waiting = room.source.statistics().waiting_repairs
    assert waiting > 10
    repaired = set(room.repairs)
    room.send_datagrams(30)
    trail = room.source.window.trail
    evicted = [sqn for sqn in sqns if sqn < trail and sqn not in repaired]
    assert evicted
    room.advance(10.0)
    assert room.repairs == [sqn for sqn in sqns if sqn not in evicted]
    assert room.source.statistics().repairs_evicted == len(evicted)


def test_a_crybaby_gets_its_budget_and_the_others_theirs() -> None:
    room = Listening(lan(nak_budget=10.0))
    sqns = room.send_datagrams(40)
    room.nak(Span(sqns[0], sqns[19]))
    assert room.repairs == sqns[:10], "the oldest"
    assert room.events() == [Crybaby(1)]
    assert room.source.statistics().naks_over_budget == 10
    room.nak(Span(sqns[20], sqns[24]), receiver=2)
    assert room.repairs[10:] == sqns[20:25]
    room.advance(0.5)
    room.nak(Span(sqns[10], sqns[39]))
    assert room.repairs[15:] == sqns[10:15]
    assert not room.events(), "once in a generation interval"
    room.advance(room.settings.generation)
    room.nak(Span(sqns[0], sqns[39]))
    assert room.events() == [Crybaby(1)]
    assert room.source.statistics().crybabies == 2


def test_a_nak_for_everything_costs_little() -> None:
    room = Listening(lan(nak_budget=50.0), first=2**33)
    sqns = room.send_datagrams(100)
    spans = [Span(sqns[0] - n * 65_536, sqns[0] - n * 65_536 + 65_535) for n in range(100, 1, -1)]
    room.nak(*spans, Span(sqns[0], sqns[-1]))
    assert len(room.repairs) == 50
    assert room.source.statistics().naks_out_of_window == 99 * 65_536


def test_an_ncf_speaks_of_many_and_many_ncfs_of_all() -> None:
    room = Listening(lan(nak_budget=10_000.0))
    sqns = room.send_datagrams(600, size=100)
    room.nak(*sqns[0:256:2])
    room.nak(*sqns[256:512:2])
    room.forget()
    for some in (sqns[0:256:2], sqns[256:512:2]):
        nak = encode_nak(Nak([Span(sqn, sqn) for sqn in some]))
        room.source.handle_feedback_untrusted(room.now, 2, nak)
    room.listen()
    assert [len(ncf.spans) for ncf in room.ncfs] == [128, 128]
    told = [span.first for ncf in room.ncfs for span in ncf.spans]
    assert told == sqns[0:512:2]


def test_repairs_and_data_alternate_when_both_could_take_all() -> None:
    room = Listening(lan(nak_budget=10_000.0, repair_queue=1000, repair_rate=1e12))
    sqns = room.send_datagrams(200)
    room.forget()
    room.source.send_many(room.now, 0, [bytes(1000)] * 200)
    room.source.handle_feedback_untrusted(room.now, 1, encode_nak(Nak([Span(sqns[0], sqns[-1])])))
    turns = [
        [body[1] for body in outgoing.bodies]
        for outgoing in iter(partial(room.source.poll_transmit, room.now), None)
    ]
    most = len(turns[0])
    assert turns[:6] == [[0] * most, [1] * most] * 3
    assert [sum(turn.count(kind) for turn in turns) for kind in (0, 1)] == [200, 200]


def test_datagrams_as_large_as_a_batch_take_turns_too() -> None:
    room = Listening(lan(max_datagram=60_000, window=2**26, repair_rate=1e12))
    sqns = room.send_datagrams(6, size=59_000)
    room.source.send_many(room.now, 0, [bytes(59_000)] * 6)
    room.source.handle_feedback_untrusted(room.now, 1, encode_nak(Nak([Span(sqns[0], sqns[-1])])))
    outgoing = iter(partial(room.source.poll_transmit, room.now), None)
    kinds = [body[1] for one in outgoing for body in one.bodies]
    assert kinds in ([0, 1] * 6, [1, 0] * 6)
