"""The delivery controller of a topic, as a table.

What transport and history tell goes through the same gate in every state; the states say where the
stream begins, who is still to bring what is missing, and when all is told.
"""

from sphtp.core.fsm import Machine, Name, Row


class Delivering(Name):
    """Where the controller is."""

    HOLDING = "keeps what comes: not known yet where the history begins"
    CATCHING_UP = "history is being fetched; what is live waits for it, or is fetched in its turn"
    FOLLOWING = "what is live is told as it comes"
    DRAINING = "the session is over; what was asked of the history is awaited"
    ENDED = "all was told"


class Turn(Name):
    """What happens to it."""

    BEGIN = "it is known where the stream begins"
    MERGED = "nothing of the history is missing any more"
    END = "the session is over"
    SETTLED = "nothing at all is missing any more"


class Tell(Name):
    """What it then does."""

    BEGIN = "tell what is there from the beginning on"
    FOLLOW = "what is fetched from now on was lost by the transport"
    GIVE_UP = "what the transport has not brought is lost, or fetched"
    END = "tell the end"


D, T, A = Delivering, Turn, Tell

DELIVERY = Machine(
    "Delivery",
    D.FOLLOWING,
    (
        Row(D.HOLDING, T.BEGIN, D.CATCHING_UP, (A.BEGIN,), "the source told what it keeps"),
        Row(D.CATCHING_UP, T.MERGED, D.FOLLOWING, (A.FOLLOW,), "history met what is live"),
        Row(D.CATCHING_UP, T.END, D.DRAINING, (A.GIVE_UP,), "the history outlives the session"),
        Row(D.FOLLOWING, T.END, D.DRAINING, (A.GIVE_UP,), "the transport brings nothing more"),
        Row(D.DRAINING, T.SETTLED, D.ENDED, (A.END,), "every message was told, or its loss"),
    ),
    events=Turn,
    # One that joins late starts by holding.
    entries=frozenset({D.HOLDING}),
    final=frozenset({D.ENDED}),
    refused={
        D.HOLDING: frozenset({T.MERGED, T.END, T.SETTLED}),
        D.CATCHING_UP: frozenset({T.BEGIN, T.SETTLED}),
        D.FOLLOWING: frozenset({T.BEGIN, T.MERGED, T.SETTLED}),
        D.DRAINING: frozenset({T.BEGIN, T.MERGED, T.END}),
        D.ENDED: frozenset(Turn),
    },
)
