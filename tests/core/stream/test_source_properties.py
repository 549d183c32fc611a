"""What holds for a source whatever is sent, asked and waited for (invariants 3, 5, 7, 8 and 10)."""

from collections.abc import Iterable
from typing import NamedTuple, TypeGuard

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.events import ALL_RECEIVERS, SourceClosed
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import FragmentRecord, decode_records_untrusted
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceState
from sphtp.core.stream.wire import Body, BodyFlag, Ncf, StreamData, Window
from sphtp.core.token_bucket import BURST, HOLD
from tests.core.stream.sources import Listening, Said
from tests.profiles import brisk

TOPICS = 3
ROUNDING = 1e-9


class Send(NamedTuple):
    topic: int
    sizes: list[int]


class Ask(NamedTuple):
    """A NAK: each pair is how far below the lead a span starts, and how long it is at most."""

    receiver: int
    spans: list[tuple[int, int]]


class Babble(NamedTuple):
    body: bytes


class Wait(NamedTuple):
    seconds: float


class Come(NamedTuple):
    receiver: int


class Go(NamedTuple):
    receiver: int


Step = Send | Ask | Babble | Wait | Come | Go

receivers = st.sampled_from([1, 2, 3])
topics = st.integers(0, TOPICS - 1)
asks = st.builds(
    Ask,
    receivers,
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 60)), min_size=1, max_size=3),
)
scripts = st.lists(
    st.one_of(
        st.builds(Send, topics, st.lists(st.integers(0, 3000), max_size=25)),
        st.builds(Send, topics, st.sampled_from([[1300], [1300] * 30])),
        asks,
        asks,
        st.builds(Wait, st.sampled_from([0.001, 0.005, 0.02, 0.03, 0.1, 0.2])),
        st.builds(
            Babble, st.sampled_from([b"", b"\x01\x00" + bytes(6), b"\x01\x00" + b"\xff" * 6])
        ),
        st.builds(Come, receivers),
        st.builds(Go, receivers),
    ),
    min_size=10,
    max_size=40,
)
profiles = st.builds(
    StreamSettings.lan,
    window=st.just(65_536),
    window_age=st.sampled_from([0.1, 60.0]),
    ignore=st.sampled_from([0.0, 0.01, 0.04]),
    data_rate=st.sampled_from([None, 1e6]),
    repair_rate=st.sampled_from([20_000.0, 1e6]),
    repair_queue=st.sampled_from([1, 5, 4096]),
    nak_budget=st.sampled_from([3.0, 2000.0]),
    session_min=st.sampled_from([0.05, 2.0]),
)
starts = st.sampled_from([1, 2**32 - 20, 2**40])


@brisk
@given(profiles, starts, scripts, st.booleans())
def test_it_holds(settings: StreamSettings, first: int, script: list[Step], shared: bool) -> None:
    room = Listening(settings, first=first, topics=TOPICS, shared=shared)
    sent: dict[int, list[bytes]] = {topic: [] for topic in range(TOPICS)}
    names = {1: 1, 2: 2, 3: 3}
    for step in (Send(0, [1300] * 20), *script):
        perform(room, step, sent, names)
        check_window(room)
        check_timer(room)
    room.source.close(room.now)
    room.advance(30.0)
    check_end(room)
    check_datagrams(room.said, first)
    check_content(room.said, sent)
    for heard in heard_by_each(room.said):
        check_repairs(heard, settings.ignore)
        check_ncfs(heard, settings.ignore)
        check_rate(repairs_of(heard), settings.repair_rate, settings.max_datagram)
    check_receivers(room.said, shared=shared)
    check_rate(originals_of(room.said), settings.data_rate, settings.max_datagram)
    check_count(room)


def perform(
    room: Listening, step: Step, sent: dict[int, list[bytes]], names: dict[int, int]
) -> None:
    source = room.source
    match step:
        case Send(topic, sizes):
            payloads = [bytes([len(sent[topic]) % 256]) * size for size in sizes]
            sent[topic] += payloads
            source.send_many(room.now, topic, payloads)
            room.listen()
        case Ask(receiver, pairs):
            room.nak(*spans_below(source.window, pairs), receiver=names[receiver])
        case Babble(body):
            room.nak_raw(b"\x04\x00" + body)
        case Wait(seconds):
            room.advance(seconds)
        case Come(receiver):
            source.handle_joined(room.now, names[receiver])
            room.listen()
        case Go(receiver):
            source.handle_left(room.now, names[receiver])
            # Nobody ever has the number of another one.
            names[receiver] += len(names)


def spans_below(window: Window, pairs: list[tuple[int, int]]) -> list[Span]:
    spans = list[Span]()
    for below, length in sorted(pairs, reverse=True):
        start = window.lead - below
        if not spans or start > spans[-1].last:
            spans.append(Span(start, min(start + length - 1, window.lead)))
    return spans


def check_window(room: Listening) -> None:
    statistics, window = room.source.statistics(), room.source.window
    assert statistics.window_datagrams == window.lead - window.trail + 1
    assert statistics.window_bytes <= room.settings.window


def check_timer(room: Listening) -> None:
    due = room.source.poll_timeout()
    assert due is not None
    assert due >= room.now, "all that may leave has left"
    statistics = room.source.statistics()
    if statistics.waiting_bytes or statistics.waiting_repairs:
        assert due <= room.now + 0.2, "a datagram takes 0.07 s at the slowest rate"


def check_end(room: Listening) -> None:
    assert room.source.state is SourceState.CLOSED
    assert room.source.poll_timeout() is None
    assert [type(event) for event in room.events()].count(SourceClosed) == 1
    statistics = room.source.statistics()
    assert statistics.waiting_bytes == statistics.waiting_repairs == 0


def check_datagrams(said: list[Said], first: int) -> None:
    """Numbers are consecutive, the window only moves on, and all that is said is in it."""
    lead, trail = first - 1, first
    for _, body, size, _ in said:
        assert size <= 1400
        assert body.window.trail >= trail
        lead, trail = max(lead, body.window.lead), body.window.trail
        if isinstance(body, StreamData):
            assert body.window.trail <= body.sqn <= body.window.lead
            if not body.flags & BodyFlag.REPAIR:
                assert body.sqn == body.window.lead == lead
        if isinstance(body, Ncf):
            assert body.window.trail <= body.spans[0].first
            assert body.spans[-1].last <= body.window.lead
    assert [body.sqn for body in of(said, repairs=False)] == list(range(first, lead + 1))


def check_content(said: list[Said], sent: dict[int, list[bytes]]) -> None:
    """Each message is there once and in order; a repair is what it repairs."""
    originals = {body.sqn: bytes(body.records) for body in of(said, repairs=False)}
    assert all(bytes(body.records) == originals[body.sqn] for body in of(said, repairs=True))
    heard: dict[int, list[bytes]] = {topic: [] for topic in sent}
    following = dict.fromkeys(sent, 0)
    for records in originals.values():
        for record in decode_records_untrusted(records):
            assert record.first == following[record.topic]
            is_whole = not isinstance(record, FragmentRecord) or record.part + 1 == record.parts
            following[record.topic] = record.last + is_whole
            messages = heard[record.topic]
            if not isinstance(record, FragmentRecord):
                messages += record.payloads
            elif record.part:
                messages[-1] += record.payload
            else:
                messages.append(record.payload)
    assert heard == sent


def heard_by_each(said: list[Said]) -> list[list[Said]]:
    """What is said to each receiver by itself, and to all."""
    return [
        [one for one in said if one.receiver == receiver]
        for receiver in {one.receiver for one in said}
    ]


def check_receivers(said: list[Said], *, shared: bool) -> None:
    """What is for one receiver goes to it alone, and all else to all."""
    for one in said:
        is_reply = isinstance(one.body, Ncf) or is_data(one.body, True)
        assert (one.receiver == ALL_RECEIVERS) == (shared or not is_reply)


def check_repairs(said: list[Said], ignore: float) -> None:
    last = dict[int, float]()
    for at, body, *_ in repairs_of(said):
        assert isinstance(body, StreamData)
        assert at - last.get(body.sqn, -1e9) >= ignore - ROUNDING
        last[body.sqn] = at


def check_ncfs(said: list[Said], ignore: float) -> None:
    last = dict[int, float]()
    for at, body, *_ in said:
        if isinstance(body, Ncf):
            for sqn in numbers_in(body.spans):
                assert at - last.get(sqn, -1e9) >= ignore - ROUNDING
                last[sqn] = at


def check_rate(said: list[Said], rate: float | None, datagram: int) -> None:
    """In no interval more than the rate gives and a bucket holds: so a leaking one never spills."""
    if rate is None:
        return
    level, before = 0.0, 0.0
    for at, _, size, _ in said:
        level = max(level - (at - before) * rate, 0.0) + size
        before = at
        assert level <= max(BURST * datagram, rate * HOLD) + 1


def check_count(room: Listening) -> None:
    """The statistics say what was heard."""
    statistics, repairs = room.source.statistics(), repairs_of(room.said)
    assert statistics.repairs_sent == len(repairs)
    assert statistics.repair_bytes_sent == sum(said.size for said in repairs)
    assert statistics.datagrams_sent == len(originals_of(room.said))
    assert statistics.ncfs_sent == len(room.ncfs)
    assert statistics.sessions_sent == len(room.sessions)


def of(said: Iterable[Said], *, repairs: bool) -> list[StreamData]:
    return [one.body for one in said if is_data(one.body, repairs)]


def repairs_of(said: list[Said]) -> list[Said]:
    return [one for one in said if is_data(one.body, True)]


def originals_of(said: list[Said]) -> list[Said]:
    return [one for one in said if is_data(one.body, False)]


def is_data(body: Body, repair: bool) -> TypeGuard[StreamData]:
    return isinstance(body, StreamData) and bool(body.flags & BodyFlag.REPAIR) == repair


def numbers_in(spans: Iterable[Span]) -> list[int]:
    return [number for span in spans for number in range(span.first, span.last + 1)]
