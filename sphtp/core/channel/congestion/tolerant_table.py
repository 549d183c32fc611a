"""The phases of the loss-tolerant controller (after BBR, draft-ietf-ccwg-bbr).

Once the rate of the path is known, it cruises at that rate, tries now and then whether there is
more, and lets the queue that this made run empty. Every few seconds it keeps the queue empty on
purpose, to see how long the round trip really is.
"""

from sphtp.core.fsm import Machine, Name, Row


class Phase(Name):
    """What the controller is up to."""

    STARTUP = "doubling the rate each round trip"
    DRAIN = "emptying the queue that this made"
    CRUISE = "keeping the rate"
    UP = "trying whether there is more"
    DOWN = "emptying the queue that this made, or making room for others"
    GLANCE = "keeping the queue empty to see the shortest round trip"


class Sign(Name):
    """What tells that a phase is over."""

    FULL = "the rate stopped growing, or much was lost"
    DRAINED = "no more is in flight than the path holds, or that does not change"
    CRUISED = "some round trips passed"
    TRIED = "what can be learned is learned, or much was lost"
    STALE = "the shortest round trip was not seen again for long"
    SEEN = "the queue was empty for a round trip"
    PERSISTENT = "nothing gets through any more"


class Step(Name):
    """What the controller then does."""

    AGE_RATE = "forget the highest rate of the cycle before the last"
    BEGIN_ROUNDS = "count round trips from here"
    RAISE_BOUND = "let a bound that losses have set grow"
    BEGIN_GLANCE = "start the clock of looking"
    ADOPT = "take the round trip now seen as the shortest"
    FORGET = "start from the smallest window, knowing nothing"


P, S, D = Phase, Sign, Step

ROWS: tuple[Row[Phase, Sign, Step], ...] = (
    Row(P.STARTUP, S.FULL, P.DRAIN, (D.BEGIN_ROUNDS,), "the path is full, and so is its queue"),
    Row(P.STARTUP, S.PERSISTENT, P.STARTUP, (D.FORGET,), "the path is another now"),
    Row(P.DRAIN, S.DRAINED, P.CRUISE, (D.AGE_RATE, D.BEGIN_ROUNDS), "the rate is known"),
    Row(P.DRAIN, S.PERSISTENT, P.STARTUP, (D.FORGET,), "the path is another now"),
    Row(P.CRUISE, S.CRUISED, P.UP, (D.BEGIN_ROUNDS, D.RAISE_BOUND), "others may have gone"),
    Row(
        P.CRUISE,
        S.STALE,
        P.GLANCE,
        (D.BEGIN_GLANCE,),
        "a queue may hide the round trip",
    ),
    Row(P.CRUISE, S.PERSISTENT, P.STARTUP, (D.FORGET,), "the path is another now"),
    Row(P.UP, S.TRIED, P.DOWN, (D.AGE_RATE, D.BEGIN_ROUNDS), "trying makes a queue"),
    Row(P.UP, S.PERSISTENT, P.STARTUP, (D.FORGET,), "the path is another now"),
    Row(P.DOWN, S.DRAINED, P.CRUISE, (D.BEGIN_ROUNDS,), "the queue is gone"),
    Row(
        P.DOWN,
        S.STALE,
        P.GLANCE,
        (D.BEGIN_GLANCE,),
        "it does not go: whose queue is it?",
    ),
    Row(P.DOWN, S.PERSISTENT, P.STARTUP, (D.FORGET,), "the path is another now"),
    Row(P.GLANCE, S.SEEN, P.CRUISE, (D.ADOPT, D.BEGIN_ROUNDS), "the round trip is known"),
    Row(P.GLANCE, S.PERSISTENT, P.STARTUP, (D.FORGET,), "the path is another now"),
)

TOLERANT = Machine(
    "Loss-tolerant congestion control",
    P.STARTUP,
    ROWS,
    events=Sign,
    refused={
        P.STARTUP: frozenset({S.DRAINED, S.CRUISED, S.TRIED, S.STALE, S.SEEN}),
        P.DRAIN: frozenset({S.FULL, S.CRUISED, S.TRIED, S.STALE, S.SEEN}),
        P.CRUISE: frozenset({S.FULL, S.DRAINED, S.TRIED, S.SEEN}),
        P.UP: frozenset({S.FULL, S.DRAINED, S.CRUISED, S.STALE, S.SEEN}),
        P.DOWN: frozenset({S.FULL, S.CRUISED, S.TRIED, S.SEEN}),
        P.GLANCE: frozenset({S.FULL, S.DRAINED, S.CRUISED, S.TRIED, S.STALE}),
    },
)
