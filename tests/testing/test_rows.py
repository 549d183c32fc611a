"""How a stage hands datagrams over."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.datagrams import Datagrams
from sphtp.testing import Pair
from sphtp.testing.network import MOST_BYTES, MOST_DATAGRAMS, DeliveredDatagram, rows
from sphtp.testing.pair import RIGHT

HERE, THERE, ELSEWHERE = ("10.0.0.1", 1), ("10.0.0.2", 2), ("10.0.0.3", 3)

deliveries = st.lists(
    st.builds(
        DeliveredDatagram,
        st.sampled_from((HERE, HERE, HERE, ELSEWHERE)),
        st.just(THERE),
        st.integers(0, 3).map(bytes) | st.sampled_from((1200, 40_000)).map(bytes),
    ),
    max_size=200,
)


@given(deliveries)
def test_rows_are_all_that_arrives_in_its_order(arriving: list[DeliveredDatagram]) -> None:
    found = list(rows(arriving))
    assert [
        DeliveredDatagram(row.address, destination, datagram)
        for destination, row in found
        for datagram in row.datagrams
    ] == arriving
    for _, row in found:
        assert row.number <= MOST_DATAGRAMS
        assert len(row.data) <= MOST_BYTES


def test_what_is_alike_is_one_row_and_a_shorter_one_ends_it() -> None:
    sizes = [1200] * 70 + [7, 1200, 1200]
    found = [
        row for _, row in rows([DeliveredDatagram(HERE, THERE, bytes(size)) for size in sizes])
    ]
    assert [(row.size, row.number) for row in found] == [(1200, 54), (1200, 17), (1200, 2)]
    small = [row.number for _, row in rows([DeliveredDatagram(HERE, THERE, b"x")] * 100)]
    assert small == [64, 36]


class Watched:
    """An endpoint, and how many datagrams were in each row that it got."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.numbers: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def handle_rows_untrusted(self, now: float, rows: Sequence[Datagrams]) -> None:
        self.numbers += [row.number for row in rows]
        self._endpoint.handle_rows_untrusted(now, rows)


def test_a_stage_hands_over_rows() -> None:
    pair = Pair(1)
    left, right = pair.open()
    watched: Any = Watched(pair.right)
    pair.endpoints[RIGHT] = watched
    assert pair.transfer(left, right, [bytes(100_000)]) == [bytes(100_000)]
    assert max(watched.numbers) > 5
