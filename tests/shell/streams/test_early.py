"""What comes before its receiver is ready is kept, within bounds, for as long as one joins."""

from sphtp.core.row import Row
from sphtp.shell.streams import early as module
from sphtp.shell.streams.early import EarlyRows


def row(number: int, size: int = 10) -> Row:
    return Row(("192.0.2.1", number), bytes(size), 10)


def test_rows_are_kept_by_session_and_in_order_while_somebody_joins() -> None:
    early = EarlyRows()
    assert not early.keep(1, row(0))
    with early.expecting():
        assert early.is_expecting
        assert all(early.keep(session, row(n)) for n, session in enumerate([1, 2, 1]))
        assert early.take(1) == [row(0), row(2)]
        assert early.take(1) == []
    assert not early.is_expecting
    with early.expecting():
        assert early.take(2) == [], "nobody joined that one"


def test_the_last_that_joins_lets_go_of_what_is_left() -> None:
    early = EarlyRows()
    with early.expecting():
        with early.expecting():
            assert early.keep(1, row(0))
        assert early.is_expecting
        assert early.take(1) == [row(0)]


def test_no_more_is_kept_than_is_allowed(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST", 100)
    early = EarlyRows()
    with early.expecting():
        assert [early.keep(n, row(n, 40)) for n in range(3)] == [True, True, False]
        early.take(0)
        assert early.keep(4, row(4, 60))
        assert not early.keep(5, row(5, 10))
    with early.expecting():
        assert early.keep(6, row(6, 100))
