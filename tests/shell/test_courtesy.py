"""Turns are short as long as somebody may wait for something small."""

from collections.abc import Sequence

import pytest

from sphtp.shell.courtesy import FEW, LONG, MEMORY, SHORT, SMALL, Courtesy

BULK = [
    pytest.param([bytes(SMALL + 1)], id="one large message"),
    pytest.param([bytes(SMALL // FEW)] * (FEW + 1), id="many small ones"),
    pytest.param([bytes(SMALL // 2)] * 3, id="some that are much together"),
]


@pytest.mark.parametrize("bulk", BULK)
def test_bulk_alone_has_long_turns(bulk: Sequence[bytes]) -> None:
    courtesy = Courtesy()
    assert courtesy.turn(0.0) == LONG
    courtesy.note(0.0, bulk)
    assert courtesy.turn(0.0) == LONG


@pytest.mark.parametrize("bulk", BULK)
@pytest.mark.parametrize("small", [[b""], [bytes(SMALL)], [bytes(SMALL // FEW)] * FEW])
def test_small_messages_make_turns_short_for_a_while(
    small: Sequence[bytes], bulk: Sequence[bytes]
) -> None:
    courtesy = Courtesy()
    courtesy.note(5.0, small)
    courtesy.note(5.0, bulk)
    assert courtesy.turn(5.0) == courtesy.turn(5.0 + 0.9 * MEMORY) == SHORT
    assert courtesy.turn(5.0 + 1.1 * MEMORY) == LONG
