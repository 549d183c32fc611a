"""The transmission window, against a list that remembers everything."""

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.transmission_window import TransmissionWindow
from tests.profiles import brisk

LIMIT, AGE = 100, 5.0

batches = st.lists(
    st.tuples(
        st.floats(0.0, 3.0),
        st.lists(st.binary(min_size=1, max_size=120), max_size=6),
    ),
    max_size=30,
)


@brisk
@given(st.sampled_from([0, 2**32 - 3]), batches)
def test_it_holds_the_newest_that_are_few_and_young_enough(
    first: int, script: list[tuple[float, list[bytes]]]
) -> None:
    window = TransmissionWindow(first, LIMIT, AGE)
    everything, now, trail = list[tuple[float, bytes]](), 0.0, first
    for wait, records in script:
        now += wait
        if records:
            assert window.add(now, records) == first + len(everything)
        everything += [(now, record) for record in records]
        window.expire(now)
        kept = expected(everything, now, trail - first)
        trail = first + len(everything) - len(kept)
        assert (window.trail, window.lead) == (trail, first + len(everything) - 1)
        assert [window.find(sqn) for sqn in range(window.trail, window.lead + 1)] == kept
        assert len(window) == len(kept)
        assert window.size == sum(map(len, kept))
        assert trail - 1 not in window
        assert window.lead + 1 not in window


def expected(everything: list[tuple[float, bytes]], now: float, gone: int) -> list[bytes]:
    """The longest tail that fits, all of it young; the last one in any case."""
    kept, size = list[bytes](), 0
    for at, record in reversed(everything[gone:]):
        if kept and (size + len(record) > LIMIT or at < now - AGE):
            break
        kept.insert(0, record)
        size += len(record)
    return kept


def test_an_empty_one_starts_where_it_is_told() -> None:
    window = TransmissionWindow(7, LIMIT, AGE)
    window.expire(1000.0)
    assert window.span == (6, 7)
    assert len(window) == 0
