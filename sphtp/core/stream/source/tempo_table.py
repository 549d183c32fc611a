"""How a source takes care that recovery does not outgrow what it is to recover, as a table."""

from typing import Final

from sphtp.core.fsm import Machine, Name, Row


class Tempo(Name):
    """How fast new data may leave, beside what the settings allow."""

    FREE = "as fast as it comes"
    BRAKING = "no faster than of late: repairs wait too long for their turn"
    EASING = "a little faster than of late: what has piled up would else come all at once"


class TempoEvent(Name):
    """What happens to it."""

    STRAINED = "repairs wait for so long that they are asked for again meanwhile"
    CALM = "for a while they did not"
    CAUGHT_UP = "no new data waits"


class TempoAction(Name):
    """What is then done."""

    WAIT = "start the clock of calm anew"


T, E, A = Tempo, TempoEvent, TempoAction

TEMPO: Final = Machine(
    "Tempo of a source",
    T.FREE,
    (
        Row(T.FREE, E.STRAINED, T.BRAKING, (A.WAIT,), "a path that is full takes no more"),
        Row(T.BRAKING, E.STRAINED, T.BRAKING, (A.WAIT,), "it still is"),
        Row(T.BRAKING, E.CALM, T.EASING, (), "there seems to be room"),
        Row(T.EASING, E.STRAINED, T.BRAKING, (A.WAIT,), "that was too much"),
        Row(T.EASING, E.CAUGHT_UP, T.FREE, (), "what comes now comes as its sender has it"),
    ),
    events=TempoEvent,
    refused={
        T.FREE: frozenset({E.CALM, E.CAUGHT_UP}),
        T.BRAKING: frozenset({E.CAUGHT_UP}),
        T.EASING: frozenset({E.CALM}),
    },
)
