"""Whatever the network does: each datagram once or given up once, and nothing is stuck.

What has to hold after every input stands in ``DrivenReceiver``.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.receiver import Receiver, ReceiverState
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.wire import (
    DATA_OVERHEAD,
    BodyFlag,
    NcfReason,
    SessionMessage,
    Window,
    decode_body_untrusted,
    encode_data,
    encode_session,
)
from sphtp.errors import RemoteError
from tests.core.stream.receivers import DrivenReceiver, payload

Step = Callable[[DrivenReceiver], None]

# Offsets into what was sent, from the latest backwards.
back = st.integers(0, 40)
hints = st.sampled_from([0.0, 0.001, 0.02, 0.3])


def sent(driven: DrivenReceiver, back: int) -> int:
    return max(driven.window.lead - back, driven.start)


def at(back: int, *, repair: bool) -> Step:
    """A datagram comes, once more or at last, unless the window has moved on."""

    def deliver(driven: DrivenReceiver) -> None:
        sqn = sent(driven, back)
        if driven.window.trail <= sqn <= driven.window.lead:
            driven.data(sqn, repair=repair)

    return deliver


def confirm(reason: NcfReason, a: int, b: int, after: float) -> Step:
    def hear(driven: DrivenReceiver) -> None:
        first, last = sorted((sent(driven, a), sent(driven, b)))
        driven.ncf(reason, (first, last), after=after)

    return hear


steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda count: lambda driven: driven.send(count), st.integers(1, 5)),
    st.builds(lambda count: lambda driven: driven.lose(count), st.integers(1, 20)),
    st.builds(at, back, repair=st.booleans()),
    st.builds(confirm, st.sampled_from(NcfReason), back, back, hints),
    st.builds(lambda back: lambda driven: driven.drop(sent(driven, back)), back),
    st.just(lambda driven: driven.session()),
    st.builds(lambda seconds: lambda driven: driven.wait(seconds), st.floats(0, 0.3)),
)
# Short intervals, so that everything runs out.
hasty: dict[str, Any] = {"generation": 1.0, "activity_timeout": 3.0, "session_max": 1.0}
spacings = st.sampled_from([0.0, 0.005, 0.05])
scripts = st.lists(steps, max_size=40)


@given(
    scripts,
    st.integers(0, 2**32),
    spacings,
    st.sampled_from([0.0, 0.005, 0.1]),
    st.integers(1, 100),
    st.randoms(use_true_random=False),
)
def test_each_is_handed_on_or_given_up_once_and_what_is_repaired_is_not_lost(
    script: list[Step], seed: int, spacing: float, initial: float, count: int, random: Random
) -> None:
    driven = DrivenReceiver(seed=seed, nak_spacing=spacing, initial_backoff=initial, **hasty)
    for step in script:
        step(driven)
    # Replays change nothing.
    before = list(driven.arrived), list(driven.given_up)
    for body in random.choices(driven.said, k=10) if driven.said else []:
        driven.hear(body)
    assert (driven.arrived, driven.given_up) == before
    # What is repaired whenever it is asked for is not lost.
    lead = driven.window.lead
    driven.lose(count)
    driven.session()
    while driven.pending:
        for first, last in driven.wait_for_nak():
            driven.repair(*range(first, last + 1))
    assert [sqn for sqn in driven.heard if sqn > lead] == list(range(lead + 1, lead + 1 + count))
    # In the end each is here, or given up, and never both.
    driven.session(BodyFlag.CLOSED)
    driven.wait(5)
    assert driven.receiver.state is ReceiverState.ENDED
    given_up = {sqn for span, _ in driven.given_up for sqn in range(span.first, span.last + 1)}
    assert given_up.isdisjoint(driven.heard)
    assert given_up | set(driven.heard) == set(range(driven.window.lead + 1))


def shifted(span: Span, by: int) -> Span:
    return Span(span.first + by, span.last + by)


SESSION_SIZE = len(encode_session(SessionMessage(BodyFlag.CLOSED, Window(0, 0), 1, [])))


def is_unreadable(body: bytes) -> bool:
    try:
        decode_body_untrusted(body, 0)
    except RemoteError:
        return True
    return False


far = st.integers(10_000, 20_000)
nonsense = st.one_of(
    st.binary(max_size=60).filter(is_unreadable),
    st.builds(
        lambda sqn, end: encode_data(sqn, Window(sqn, 0), payload(sqn))[:end],
        far,
        st.integers(0, DATA_OVERHEAD + len(payload(0)) - 1).filter(
            lambda end: end != DATA_OVERHEAD
        ),
    ),
    st.builds(
        lambda lead, end: encode_session(SessionMessage(BodyFlag.CLOSED, Window(lead, 0), 1, []))[
            :end
        ],
        far,
        st.integers(0, SESSION_SIZE - 1),
    ),
)


@given(
    st.lists(st.one_of(steps, nonsense), max_size=40),
    st.integers(0, 2**32),
    st.sampled_from([1, 2**31 - 7, 2**32 - 7, 2**40]),
)
def test_neither_the_first_number_nor_nonsense_makes_a_difference(
    script: list[Step | bytes], seed: int, start: int
) -> None:
    clean, moved = DrivenReceiver(seed=seed, **hasty), DrivenReceiver(start, seed=seed, **hasty)
    for step in script:
        if isinstance(step, bytes):
            moved.hear(step)
        else:
            step(clean)
            step(moved)
    assert [sqn + start for sqn in clean.heard] == moved.heard
    assert [(shifted(span, start), why) for span, why in clean.given_up] == moved.given_up
    assert moved.naks == [
        (when, [shifted(span, start) for span in spans]) for when, spans in clean.naks
    ]
    assert clean.receiver.poll_timeout() == moved.receiver.poll_timeout()
    odd = [step for step in script if isinstance(step, bytes)]
    right, counts = clean.receiver.statistics(), moved.receiver.statistics()
    # Far from the first number it is implausible before it is malformed.
    assert counts.malformed + counts.implausible == right.implausible + len(odd)
    assert right == replace(
        counts,
        malformed=0,
        implausible=right.implausible,
        datagrams=counts.datagrams - len(odd),
        bytes=counts.bytes - sum(map(len, odd)),
    )


words = st.integers(0, 2**32 - 1)
near = st.integers(-50, 50)


@st.composite
def forged(draw: st.DrawFn) -> bytes:
    """A datagram with a head that can be read, near what is known or anywhere."""
    kind, flags = draw(st.integers(0, 5)), draw(st.integers(0, 255))
    numbers = [draw(st.one_of(near, words)) % 2**32 for _ in range(3)]
    head = bytes([kind, flags]) + b"".join(number.to_bytes(4, "little") for number in numbers)
    return head + draw(st.binary(max_size=20))


@given(
    st.lists(st.one_of(forged(), st.floats(0, 0.5)), max_size=30),
    st.integers(0, 2**32),
    st.one_of(st.none(), near.map(lambda lead: Window(lead, lead + 1))),
)
def test_whatever_is_forged_it_stays_whole(
    script: list[bytes | float], seed: int, window: Window | None
) -> None:
    settings = StreamSettings(**hasty)
    receiver, now = Receiver(Random(seed), settings, 0.0, window), 0.0
    arrived, given_up = set[int](), list[Span]()
    for step in script:
        if isinstance(step, float):
            now += step
            receiver.handle_timeout(now)
        else:
            receiver.handle_body_untrusted(now, step)
        while (one := receiver.poll_arrived()) is not None:
            assert one.sqn not in arrived
            arrived.add(one.sqn)
        while (lost := receiver.poll_given_up()) is not None:
            given_up.append(lost.span)
        receiver.poll_transmit(now)
        statistics = receiver.statistics()
        unrecovered = sum(span.size for span in given_up)
        assert statistics.lost == (
            statistics.recovered + statistics.out_of_order + statistics.pending + unrecovered
        )
        due = receiver.poll_timeout()
        assert (due is None) == (receiver.state is ReceiverState.ENDED)
        assert not any(span.first <= sqn <= span.last for span in given_up for sqn in arrived)
    receiver.handle_gone(now)
    assert receiver.statistics().pending == 0
