"""What comes before its receiver is ready is kept, within bounds, for as long as one joins."""

import tracemalloc

import pytest

from sphtp.core.datagrams import Datagrams
from sphtp.shell import stream_dispatcher as module
from sphtp.shell.stream_dispatcher import OVERHEAD, EarlyDatagrams

HERE = ("192.0.2.1", 7)


def row(number: int, size: int = 10, address: tuple[str, int] = HERE) -> Datagrams:
    return Datagrams(address, bytes([number]) * size, 10)


def test_rows_are_kept_by_session_and_in_order_while_somebody_joins() -> None:
    early = EarlyDatagrams()
    assert not early.keep(1, row(0))
    with early.expecting(HERE):
        assert early.is_expecting
        assert all(early.keep(session, row(n)) for n, session in enumerate([1, 2, 1]))
        assert early.take(1) == [row(0), row(2)]
        assert early.take(1) == []
    assert not early.is_expecting
    with early.expecting(HERE):
        assert early.take(2) == [], "nobody joined that one"


def test_the_last_that_joins_lets_go_of_what_is_left() -> None:
    early = EarlyDatagrams()
    with early.expecting(HERE):
        with early.expecting(HERE):
            assert early.keep(1, row(0))
        assert early.is_expecting
        assert early.take(1) == [row(0)]


def test_what_others_send_is_not_kept() -> None:
    early = EarlyDatagrams()
    with early.expecting(HERE):
        assert not early.keep(1, row(0, address=("192.0.2.2", 7)))
        assert not early.keep(1, row(0, address=("192.0.2.1", 8)))


def test_no_more_is_kept_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2 * OVERHEAD + 100)
    early = EarlyDatagrams()
    with early.expecting(HERE):
        assert [early.keep(n, row(n, 40)) for n in range(3)] == [True, True, False]
        early.take(0)
        assert early.keep(4, row(4, 60))
        assert not early.keep(5, row(5, 0))
    with early.expecting(HERE):
        assert early.keep(6, row(6, 100))


def test_small_rows_take_no_more_memory_than_large_ones() -> None:
    early = EarlyDatagrams()
    with early.expecting(HERE):
        tracemalloc.start()
        while early.keep(1, row(1, 6, ("192.0.2.1", 7))):
            pass
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert taken <= module.MOST
