"""What becomes of a range of missing datagrams, as a table.

Where a part of a range arrives, or is spoken of in an NCF, the range is split, and each part goes
its own way. Ranges found while the timer of another one's first NAK runs join that timer; those
that one NAK named share the next one.
"""

from sphtp.core.fsm import Machine, Name, Row


class GapState(Name):
    """Where a range is."""

    WAIT_FIRST = "found, and maybe only late: no NAK has named it"
    WAIT_REPAIR = "a NAK has named it"
    SUPPRESSED = "an NCF said that it does not come now"
    DISABLED = "this receiver sends no NAKs; others may"
    FILLED = "here"
    LOST = "given up"


class GapEvent(Name):
    """What happens to it."""

    ASKED = "its timer rang, and a NAK with it leaves"
    IGNORED = "NCF: it was repaired a moment ago"
    RX_DELAY = "NCF: its repair waits for its turn"
    SHED = "NCF: too much waits already"
    NO_RETRY = "NCF: it will not be repaired"
    REPAIRED = "it came as a repair"
    LATE = "it came by itself: it was not lost, only overtaken"
    BELOW_TRAIL = "the source's transmission window has moved on"
    TOO_OLD = "it is missing for a generation interval"
    CROWDED = "the loss map is full, and it is the oldest"
    SESSION_OVER = "the session is over"


class GapAction(Name):
    """What is then done."""

    ARM = "start its timer anew"
    COUNT_RECOVERED = "count it as recovered, with the time and the NAKs that it took"
    COUNT_OUT_OF_ORDER = "count it as out of order"
    GIVE_UP = "tell that the transport gave up on it, and why"


S, E, A = GapState, GapEvent, GapAction

GapRow = Row[GapState, GapEvent, GapAction]

MISSING = (S.WAIT_FIRST, S.WAIT_REPAIR, S.SUPPRESSED, S.DISABLED)

ASKING: tuple[GapRow, ...] = (
    Row(S.WAIT_FIRST, E.ASKED, S.WAIT_REPAIR, (A.ARM,), "it did not come by itself"),
    Row(S.WAIT_REPAIR, E.ASKED, S.WAIT_REPAIR, (A.ARM,), "the NAK or the repair was lost"),
    Row(S.SUPPRESSED, E.ASKED, S.WAIT_REPAIR, (A.ARM,), "it should have come by now"),
)

# One that is suppressed is not put off again, or the NAKs of others could do so for ever.
SUPPRESSING: tuple[GapRow, ...] = tuple(
    Row(state, event, S.SUPPRESSED, (A.ARM,), why)
    for state in (S.WAIT_FIRST, S.WAIT_REPAIR)
    for event, why in (
        (E.IGNORED, "until the source listens again; that repair may be on its way"),
        (E.RX_DELAY, "until its turn has come"),
        (E.SHED, "asking at once would only add to it"),
    )
)

ARRIVING: tuple[GapRow, ...] = tuple(
    Row(state, event, S.FILLED, (action,), why)
    for state in MISSING
    for event, action, why in (
        (E.REPAIRED, A.COUNT_RECOVERED, "whoever asked for it"),
        (E.LATE, A.COUNT_OUT_OF_ORDER, "the network changed the order"),
    )
)

LOSING: tuple[GapRow, ...] = tuple(
    Row(state, event, S.LOST, (A.GIVE_UP,), why)
    for state in MISSING
    for event, why in (
        (E.NO_RETRY, "the source knows best"),
        (E.BELOW_TRAIL, "nobody can repair it"),
        (E.TOO_OLD, "someone waits for what is behind it"),
        (E.CROWDED, "memory has an end"),
        (E.SESSION_OVER, "every gap is settled before the end is told"),
    )
)

GAP = Machine(
    "Missing range",
    S.WAIT_FIRST,
    (*ASKING, *SUPPRESSING, *ARRIVING, *LOSING),
    events=GapEvent,
    entries=frozenset({S.DISABLED}),
    final=frozenset({S.FILLED, S.LOST}),
    refused={
        S.SUPPRESSED: frozenset({E.IGNORED, E.RX_DELAY, E.SHED}),
        S.DISABLED: frozenset({E.ASKED, E.IGNORED, E.RX_DELAY, E.SHED}),
        S.FILLED: frozenset(GapEvent),
        S.LOST: frozenset(GapEvent),
    },
)
