"""NCFs put together, and numbers that are remembered for a while."""

import pytest

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.retransmission import NcfQueue
from sphtp.core.stream.wire import Ncf, NcfReason, Window, decode_body_untrusted

WINDOW = Window(lead=1000, trail=100)


def popped(queue: NcfQueue, window: Window = WINDOW) -> list[Ncf]:
    ncfs = list[Ncf]()
    while (body := queue.pop(window)) is not None:
        ncf = decode_body_untrusted(body, window.lead)
        assert isinstance(ncf, Ncf)
        assert ncf.window == window
        ncfs.append(ncf)
    assert not len(queue)
    return ncfs


def test_what_has_a_reason_in_common_shares_an_ncf_with_the_latest_time() -> None:
    queue = NcfQueue(0.04)
    queue.add(0.0, 200, NcfReason.IGNORED, 0.0301)
    queue.add(0.0, 201, NcfReason.IGNORED, 0.0101)
    queue.add(0.0, 300, NcfReason.SHED, 0.5)
    queue.add(0.0, 203, NcfReason.IGNORED, 0.0001)
    by_reason = {ncf.reason: ncf for ncf in popped(queue)}
    assert by_reason[NcfReason.IGNORED].spans == [Span(200, 201), Span(203, 203)]
    assert by_reason[NcfReason.IGNORED].retry_after == 0.031, "never too early"
    assert by_reason[NcfReason.SHED] == Ncf(WINDOW, NcfReason.SHED, 0.5, [Span(300, 300)])


def test_a_moment_is_not_told_as_unknown() -> None:
    queue = NcfQueue(0.04)
    queue.add(0.0, 200, NcfReason.IGNORED, 1e-9)
    (ncf,) = popped(queue)
    assert ncf.retry_after == 0.001


def test_once_per_interval_whatever_the_reason() -> None:
    queue = NcfQueue(0.04)
    queue.add(0.0, 200, NcfReason.RX_DELAY, 0.1)
    queue.add(0.039, 200, NcfReason.IGNORED, 0.1)
    assert [ncf.reason for ncf in popped(queue)] == [NcfReason.RX_DELAY]
    queue.add(0.04, 200, NcfReason.IGNORED, 0.1)
    assert [ncf.reason for ncf in popped(queue)] == [NcfReason.IGNORED]


def test_what_was_evicted_meanwhile_is_not_spoken_of() -> None:
    queue = NcfQueue(0.04)
    for sqn in (150, 200, 250):
        queue.add(0.0, sqn, NcfReason.SHED, 0.1)
    (ncf,) = popped(queue, Window(1000, 200))
    assert ncf.spans == [Span(200, 200), Span(250, 250)]
    queue.add(1.0, 150, NcfReason.SHED, 0.1)
    assert popped(queue, Window(1000, 200)) == []


@pytest.mark.parametrize("count", [127, 128, 129, 300])
def test_many_take_several_ncfs(count: int) -> None:
    queue = NcfQueue(0.04)
    sqns = [100 + 2 * n for n in range(count)]
    for sqn in sqns:
        queue.add(0.0, sqn, NcfReason.SHED, 0.1)
    ncfs = popped(queue)
    assert [span.first for ncf in ncfs for span in ncf.spans] == sqns
    assert len(ncfs) == -(-count // 128)
