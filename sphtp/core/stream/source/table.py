"""The life of a source, as a table.

Data, repairs and session messages do not change it, but for the first data and the last. What is
said while a source ends tells receivers so: CLOSING that nothing new comes, CLOSED that it is over.
"""

from typing import Final

from sphtp.core.fsm import Machine, Name, Row
from sphtp.core.stream.bodies import BodyFlag


class SourceState(Name):
    """Where a source is in its life."""

    IDLE = "has sent nothing; tells where it will start"
    ACTIVE = "sends, repairs, and tells its tail when it is silent"
    DRAINING = "closed; what was sent before still leaves"
    CLOSING = "all has left; repairs for its linger"
    ENDING = "repairs no more; says so a few times"
    CLOSED = "over"


class SourceInput(Name):
    """What can happen to it."""

    SEND = "the application sends"
    CLOSE = "the application closes"
    DRAINED = "the last datagram has left"
    DONE = "every receiver has everything, and knows that it is the end"
    LINGER_OVER = "lingered long enough"
    SAID = "the last session message has left"


class SourceAction(Name):
    """What the source then does."""

    LINGER = "start the clock of lingering; session messages at the minimum interval"
    FINISH = "drop repairs that wait, wait for nobody; start the last session messages"
    REPORT = "tell the application, with how much is not known to have arrived"


S, E, A = SourceState, SourceInput, SourceAction

SOURCE: Final = Machine(
    "Source",
    S.IDLE,
    (
        Row(S.IDLE, E.SEND, S.ACTIVE, (), "now there is something to miss"),
        Row(S.IDLE, E.CLOSE, S.ENDING, (A.FINISH,), "nothing was sent, nothing can be missing"),
        Row(S.ACTIVE, E.SEND, S.ACTIVE, (), "as often as it pleases"),
        Row(S.ACTIVE, E.CLOSE, S.DRAINING, (), "nothing sent may be lost by closing"),
        Row(S.DRAINING, E.CLOSE, S.DRAINING, (), "it closes already"),
        Row(S.DRAINING, E.DRAINED, S.CLOSING, (A.LINGER,), "the tail can be told now"),
        Row(S.CLOSING, E.CLOSE, S.CLOSING, (), "it closes already"),
        Row(S.CLOSING, E.DONE, S.ENDING, (A.FINISH,), "nobody is left to repair for"),
        Row(S.CLOSING, E.LINGER_OVER, S.ENDING, (A.FINISH,), "what is missing now stays so"),
        Row(S.ENDING, E.CLOSE, S.ENDING, (), "it closes already"),
        Row(S.ENDING, E.SAID, S.CLOSED, (A.REPORT,), "whoever missed all of it has a timeout"),
        Row(S.CLOSED, E.CLOSE, S.CLOSED, (), "it is closed"),
    ),
    events=SourceInput,
    final=frozenset({S.CLOSED}),
    refused={
        S.IDLE: frozenset({E.DRAINED, E.DONE, E.LINGER_OVER, E.SAID}),
        S.ACTIVE: frozenset({E.DRAINED, E.DONE, E.LINGER_OVER, E.SAID}),
        S.DRAINING: frozenset({E.SEND, E.DONE, E.LINGER_OVER, E.SAID}),
        S.CLOSING: frozenset({E.SEND, E.DRAINED, E.SAID}),
        S.ENDING: frozenset({E.SEND, E.DRAINED, E.DONE, E.LINGER_OVER}),
        S.CLOSED: frozenset({E.SEND, E.DRAINED, E.DONE, E.LINGER_OVER, E.SAID}),
    },
)

LISTENING: Final = frozenset({S.IDLE, S.ACTIVE, S.DRAINING, S.CLOSING})
"""States in which feedback counts; what a receiver can take counts before the first data."""

OVER: Final = frozenset({S.CLOSING, S.ENDING, S.CLOSED})
"""States in which all that there was has left."""

SAYS: Final = {S.CLOSING: BodyFlag.CLOSING, S.ENDING: BodyFlag.CLOSED}
"""Flags of session messages, where there are any."""
