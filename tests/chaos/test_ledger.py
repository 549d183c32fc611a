"""The books themselves: each kind of fault is found, and nothing else is."""

import pytest

from tests.cases import each
from tests.chaos.ledger import Stream

pytestmark = pytest.mark.chaos

ACKED = "DELIVERED"
WELL = {0: ACKED, 1: ACKED, 2: ACKED}


def faults(
    outcomes: dict[int, str], received: list[int], unread: int = 0, *, killed: bool = False
) -> str:
    stream = Stream([0, 1, 2], outcomes, received, speaker_was_killed=killed)
    return "\n".join(stream.faults(unread))


@each(
    ("outcomes", "received", "found"),
    [
        (WELL, [0, 1, 1, 2], "not each once, in order"),
        (WELL, [0, 2, 1], "not each once, in order"),
        (WELL, [0, 2], "not each once, in order"),
        (WELL, [0, 1, 2, 3], "nobody sent: {3}"),
        (WELL, [0], "acknowledged and not received: [1, 2]"),
        ({0: ACKED}, [0, 1, 2], "what became of {1}"),
    ],
)
def test_a_fault_is_found(outcomes: dict[int, str], received: list[int], found: str) -> None:
    assert found in faults(outcomes, received)


@pytest.mark.parametrize(
    ("outcomes", "received"),
    [
        (WELL, [0, 1, 2]),
        ({0: ACKED, 1: "LOST", 2: "LOST"}, [0, 1]),
        # The last one waits for one that never came.
        ({0: ACKED, 1: "LOST", 2: ACKED}, [0]),
        # What was announced last was not sent.
        ({0: ACKED, 1: ACKED}, [0, 1]),
    ],
)
def test_what_is_well_is_no_fault(outcomes: dict[int, str], received: list[int]) -> None:
    assert not faults(outcomes, received)


def test_who_was_killed_may_have_left_something_unread_and_unsaid() -> None:
    assert not faults(WELL, [0], unread=2)
    assert faults(WELL, [0], unread=1)
    assert not faults({0: ACKED}, [0, 1, 2], killed=True)
