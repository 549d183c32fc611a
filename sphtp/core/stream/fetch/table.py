"""The receiver's side of late join and off-transport recovery, as a table.

A connection is made when something is wanted of the source's history, and not before. Frames come
in order or not at all, so that silence means trouble: after an interval it is asked again, and the
interval doubles. Whether anything is wanted the table cannot say: the runner looks after every
input, and tells.
"""

from sphtp.core.fsm import Machine, Name, Row


class Fetching(Name):
    """Where a fetcher is."""

    RESTING = "nothing is wanted, and there is no connection"
    CALLING = "a connection is wanted"
    WAITING = "the connection was refused or lost; another try comes later"
    TALKING = "connected, and answers are awaited"
    IDLE = "connected, and nothing is wanted"
    LAST = "the session is over; answers are awaited as long as they come"
    OVER = "nothing will be fetched any more"


class Fetched(Name):
    """What happens to it."""

    WANTED = "something is wanted, maybe more than before"
    SATISFIED = "nothing is wanted any more"
    CONNECTED = "there is a connection"
    DISCONNECTED = "the connection was refused, or lost"
    DUE = "the interval is over, and nothing came"
    EXHAUSTED = "nothing has come for as long as a message may take"
    END = "the session is over"


class Do(Name):
    """What it then does."""

    START = "begin to be patient"
    ASK = "ask for as much as may be on its way"
    ASK_AGAIN = "take what was asked for as not asked for"
    BACK_OFF = "wait for an interval, which doubles"
    GIVE_UP = "tell that what is wanted is lost"
    FORGO = "tell that what is wanted is lost with the session"
    STOP = "stop all clocks"


F, E, D = Fetching, Fetched, Do

FETCH = Machine(
    "Fetcher",
    F.RESTING,
    (
        Row(F.RESTING, E.WANTED, F.CALLING, (D.START,), "the history has it"),
        Row(F.RESTING, E.CONNECTED, F.IDLE, (), "it came by another way meanwhile"),
        Row(F.RESTING, E.END, F.OVER, (), "nothing is missing that could be fetched"),
        Row(F.CALLING, E.CONNECTED, F.TALKING, (D.ASK_AGAIN, D.ASK), "somebody is there"),
        Row(F.CALLING, E.DISCONNECTED, F.WAITING, (D.BACK_OFF,), "maybe it is a short trouble"),
        Row(F.CALLING, E.SATISFIED, F.RESTING, (D.STOP,), "it came by another way"),
        Row(F.CALLING, E.EXHAUSTED, F.RESTING, (D.GIVE_UP, D.STOP), "nobody is there"),
        Row(F.CALLING, E.END, F.OVER, (D.FORGO, D.STOP), "nobody will be there"),
        Row(F.WAITING, E.DUE, F.CALLING, (), "another try"),
        Row(F.WAITING, E.SATISFIED, F.RESTING, (D.STOP,), "it came by another way"),
        Row(F.WAITING, E.EXHAUSTED, F.RESTING, (D.GIVE_UP, D.STOP), "nobody is there"),
        Row(F.WAITING, E.END, F.OVER, (D.FORGO, D.STOP), "nobody will be there"),
        Row(F.TALKING, E.WANTED, F.TALKING, (D.ASK,), "keep the window full"),
        Row(F.TALKING, E.SATISFIED, F.IDLE, (D.STOP,), "all came, or is gone"),
        Row(F.TALKING, E.DISCONNECTED, F.WAITING, (D.BACK_OFF,), "maybe it is a short trouble"),
        Row(F.TALKING, E.DUE, F.TALKING, (D.BACK_OFF, D.ASK_AGAIN, D.ASK), "it was yet to be sent"),
        Row(F.TALKING, E.EXHAUSTED, F.IDLE, (D.GIVE_UP, D.STOP), "nobody listens"),
        Row(F.TALKING, E.END, F.LAST, (), "the history outlives the session"),
        Row(F.IDLE, E.WANTED, F.TALKING, (D.START, D.ASK), "the history has it"),
        Row(F.IDLE, E.DISCONNECTED, F.RESTING, (), "it is not needed"),
        Row(F.IDLE, E.END, F.LAST, (), "more may be missing now"),
        Row(F.LAST, E.WANTED, F.LAST, (D.ASK,), "keep the window full"),
        Row(F.LAST, E.SATISFIED, F.OVER, (D.STOP,), "all came, or is gone"),
        Row(F.LAST, E.DISCONNECTED, F.OVER, (D.FORGO, D.STOP), "the history is gone, too"),
        Row(F.LAST, E.DUE, F.OVER, (D.FORGO, D.STOP), "the history is gone, too"),
        Row(F.LAST, E.EXHAUSTED, F.OVER, (D.FORGO, D.STOP), "the history is gone, too"),
    ),
    events=Fetched,
    final=frozenset({F.OVER}),
    refused={
        F.RESTING: frozenset({E.SATISFIED, E.DISCONNECTED, E.DUE, E.EXHAUSTED}),
        F.CALLING: frozenset({E.WANTED, E.DUE}),
        F.WAITING: frozenset({E.WANTED, E.CONNECTED, E.DISCONNECTED}),
        F.TALKING: frozenset({E.CONNECTED}),
        F.IDLE: frozenset({E.SATISFIED, E.CONNECTED, E.DUE, E.EXHAUSTED}),
        F.LAST: frozenset({E.CONNECTED, E.END}),
        F.OVER: frozenset(Fetched),
    },
)
