"""The life of a transport session as a receiver sees it, as a table.

What was missing when the session ends is given up first, each range with its reason; then it is
over. Whether something is missing when the source's last word comes, the table cannot say: it is
why that word is two events.
"""

from sphtp.core.fsm import Machine, Name, Row


class ReceiverState(Name):
    """Where a receiver is in its session."""

    JOINING = "nothing heard yet"
    ACTIVE = "there is a source"
    ENDING = "the source closes: it repairs, and sends nothing new"
    ENDED = "over, and nothing is missing that was not given up"


class ReceiverEvent(Name):
    """What happens to the session."""

    HEARD = "something of the source came"
    CLOSING = "the source closes"
    CLOSED = "the source has gone, and something is missing"
    COMPLETE = "the source has gone, and nothing is missing"
    SILENT = "nothing was heard for too long"
    GONE = "the source's node vanished"


class ReceiverAction(Name):
    """What the receiver then does."""

    LINGER = "be patient for the linger only"
    HURRY = "wait for what may still be on its way"
    SETTLE = "give up what is missing"


S, E, A = ReceiverState, ReceiverEvent, ReceiverAction

RECEIVER = Machine(
    "Receiver",
    S.JOINING,
    (
        Row(S.JOINING, E.HEARD, S.ACTIVE, (), "it is there"),
        Row(S.JOINING, E.SILENT, S.ENDED, (A.SETTLE,), "nobody is there"),
        Row(S.JOINING, E.GONE, S.ENDED, (A.SETTLE,), "nobody is there any more"),
        Row(S.ACTIVE, E.CLOSING, S.ENDING, (A.LINGER,), "its linger is for the last repairs"),
        Row(S.ACTIVE, E.CLOSED, S.ENDING, (A.HURRY,), "a repair may have been overtaken"),
        Row(S.ACTIVE, E.COMPLETE, S.ENDED, (A.SETTLE,), "there is nothing to wait for"),
        Row(S.ACTIVE, E.SILENT, S.ENDED, (A.SETTLE,), "the source vanished"),
        Row(S.ACTIVE, E.GONE, S.ENDED, (A.SETTLE,), "nobody is left to repair"),
        Row(S.ENDING, E.CLOSING, S.ENDING, (), "said again, for those that missed it"),
        Row(S.ENDING, E.CLOSED, S.ENDING, (A.HURRY,), "a repair may have been overtaken"),
        Row(S.ENDING, E.COMPLETE, S.ENDED, (A.SETTLE,), "there is nothing to wait for"),
        Row(S.ENDING, E.SILENT, S.ENDED, (A.SETTLE,), "its last word was lost"),
        Row(S.ENDING, E.GONE, S.ENDED, (A.SETTLE,), "nobody is left to repair"),
    ),
    events=ReceiverEvent,
    final=frozenset({S.ENDED}),
    refused={
        # Whatever says that a source closes was heard first.
        S.JOINING: frozenset({E.CLOSING, E.CLOSED, E.COMPLETE}),
        S.ACTIVE: frozenset({E.HEARD}),
        S.ENDING: frozenset({E.HEARD}),
        S.ENDED: frozenset(ReceiverEvent),
    },
)
