"""The two sides of a sealed handshake, as tables.

A side that dials has a greeting; a side that is dialled has a visitor. When both dial at once each
has one of either kind, until the endpoint gives one of them up.
"""

from sphtp.core.fsm import Machine, Name, Row


class Greeted(Name):
    """Where a greeting is."""

    GREETING = "sent GREET, was not welcomed"
    CONFIRMING = "told who this side is, heard no answer to that"
    RENEWING = "the same, and greets anew meanwhile"
    SEALED = "both sides have the keys"


class Reply(Name):
    """What happens to a greeting."""

    CONNECT = "the endpoint wants to connect, or asks again"
    UNHEARD = "it asks again, so late that the peer may have forgotten whom it asked"
    COOKIE = "the first cookie came"
    NEW_COOKIE = "another one came, from an address that had given one"
    ASKED = "WELCOME came and asks who this side is"
    ACCEPTED = "an ACCEPT came that nobody else can have written"
    REFUSED = "a REFUSE came that nobody else can have written"
    IMPOSTOR = "an answer came from somebody else than the peer wanted"


class Say(Name):
    """What it then does."""

    GREET = "send GREET, with the cookie if there is one"
    CONFIRM = "make keys, and a CONFIRM, and send that"
    CONFIRM_AGAIN = "send the last CONFIRM again"
    PROGRESS = "tell the endpoint that the peer is there, and the next flight leaves"
    BEGIN_ANEW = "begin another handshake, and keep the keys of this one until that gave others"
    SEAL = "seal all that leaves from now on"
    HAND_ON = "hand the answer to the endpoint"
    OBJECT = "tell the endpoint who is not there"
    RENEW = "begin anew should the endpoint ask again"


G, R, S = Greeted, Reply, Say

GREETING = Machine(
    "Greeting",
    G.GREETING,
    (
        Row(G.GREETING, R.CONNECT, G.GREETING, (S.GREET,), "GREET, COOKIE or WELCOME was lost"),
        Row(G.GREETING, R.COOKIE, G.GREETING, (S.PROGRESS, S.GREET), "this address is real"),
        Row(G.GREETING, R.NEW_COOKIE, G.GREETING, (S.GREET,), "the one it gave before is too old"),
        Row(
            G.GREETING,
            R.ASKED,
            G.CONFIRMING,
            (S.PROGRESS, S.CONFIRM),
            "the key was not known beforehand",
        ),
        Row(G.GREETING, R.ACCEPTED, G.SEALED, (S.SEAL, S.HAND_ON), "the peer knows who asks"),
        Row(G.GREETING, R.REFUSED, G.GREETING, (S.RENEW, S.HAND_ON), "another address may accept"),
        Row(G.GREETING, R.IMPOSTOR, G.GREETING, (S.RENEW, S.OBJECT), "as good as a refusal"),
        Row(
            G.CONFIRMING,
            R.CONNECT,
            G.CONFIRMING,
            (S.CONFIRM_AGAIN,),
            "CONFIRM or its answer was lost",
        ),
        Row(
            G.CONFIRMING,
            R.UNHEARD,
            G.RENEWING,
            (S.CONFIRM_AGAIN, S.BEGIN_ANEW, S.GREET),
            "the peer restarted, or the path is bad: which of them, only an answer tells",
        ),
        Row(G.CONFIRMING, R.ACCEPTED, G.SEALED, (S.SEAL, S.HAND_ON), "the peer knows who asks"),
        Row(G.CONFIRMING, R.REFUSED, G.GREETING, (S.RENEW, S.HAND_ON), "another one may accept"),
        Row(G.CONFIRMING, R.IMPOSTOR, G.GREETING, (S.RENEW, S.OBJECT), "as good as a refusal"),
        Row(
            G.RENEWING,
            R.CONNECT,
            G.RENEWING,
            (S.CONFIRM_AGAIN, S.GREET),
            "either may be answered",
        ),
        Row(G.RENEWING, R.COOKIE, G.RENEWING, (S.PROGRESS, S.GREET), "this address is real"),
        Row(G.RENEWING, R.NEW_COOKIE, G.RENEWING, (S.GREET,), "the one it gave before is too old"),
        Row(
            G.RENEWING,
            R.ASKED,
            G.CONFIRMING,
            (S.PROGRESS, S.CONFIRM),
            "the peer has forgotten whom it asked",
        ),
        Row(G.RENEWING, R.ACCEPTED, G.SEALED, (S.SEAL, S.HAND_ON), "it was the path"),
        Row(G.RENEWING, R.REFUSED, G.GREETING, (S.RENEW, S.HAND_ON), "another one may accept"),
        Row(G.RENEWING, R.IMPOSTOR, G.GREETING, (S.RENEW, S.OBJECT), "as good as a refusal"),
    ),
    events=Reply,
    final=frozenset({G.SEALED}),
    refused={
        G.GREETING: frozenset({R.UNHEARD}),
        G.CONFIRMING: frozenset({R.COOKIE, R.NEW_COOKIE, R.ASKED}),
        G.RENEWING: frozenset({R.UNHEARD}),
        G.SEALED: frozenset(Reply),
    },
)


class Visit(Name):
    """Where a visitor is."""

    ASKED = "was asked who it is"
    PRESENTED = "is known, and the endpoint has its CONNECT"
    WELCOMED = "was accepted, and has not used the keys yet"
    SETTLED = "has used the keys, or was refused: nothing of the handshake is needed any more"


class Knock(Name):
    """What happens to a visitor."""

    GREETED_AGAIN = "its GREET came again"
    CONFIRMED = "its CONFIRM came"
    ACCEPTED = "the endpoint accepts it"
    REFUSED = "the endpoint, or trust, refuses it"
    HEARD = "something came that only it can have sealed"
    LATE = "it took too long"


class Respond(Name):
    """What is then done."""

    KEEP = "give it as much time again, within what the whole may take"
    REPEAT = "send the last answer again"
    PRESENT = "hand its CONNECT to the endpoint"
    ANSWER = "send the answer: in a WELCOME, or sealed if it has the keys"
    FORGET = "forget the handshake"


V, K, D = Visit, Knock, Respond

VISIT = Machine(
    "Visitor",
    V.PRESENTED,
    (
        Row(V.ASKED, K.GREETED_AGAIN, V.ASKED, (D.KEEP, D.REPEAT), "WELCOME was lost"),
        Row(V.ASKED, K.CONFIRMED, V.PRESENTED, (D.KEEP, D.PRESENT), "now it is known"),
        Row(V.ASKED, K.LATE, V.SETTLED, (D.FORGET,), "it went, or never was"),
        Row(V.PRESENTED, K.ACCEPTED, V.WELCOMED, (D.ANSWER,), "the endpoint has room"),
        Row(
            V.PRESENTED, K.REFUSED, V.SETTLED, (D.ANSWER, D.FORGET), "told so, by this side itself"
        ),
        Row(V.PRESENTED, K.LATE, V.SETTLED, (D.FORGET,), "this side's own attempt was kept"),
        Row(V.WELCOMED, K.GREETED_AGAIN, V.WELCOMED, (D.KEEP, D.REPEAT), "WELCOME was lost"),
        Row(V.WELCOMED, K.CONFIRMED, V.WELCOMED, (D.KEEP, D.PRESENT), "the answer to it was lost"),
        Row(V.WELCOMED, K.ACCEPTED, V.WELCOMED, (D.ANSWER,), "the endpoint asks again"),
        Row(
            V.WELCOMED, K.REFUSED, V.SETTLED, (D.ANSWER, D.FORGET), "the endpoint changed its mind"
        ),
        Row(V.WELCOMED, K.HEARD, V.SETTLED, (D.FORGET,), "both sides have the keys"),
        Row(V.WELCOMED, K.LATE, V.SETTLED, (D.FORGET,), "it went, or never was"),
    ),
    events=Knock,
    # One that has to tell who it is starts by being asked.
    entries=frozenset({V.ASKED}),
    final=frozenset({V.SETTLED}),
    refused={
        V.ASKED: frozenset({K.ACCEPTED, K.REFUSED, K.HEARD}),
        V.PRESENTED: frozenset({K.GREETED_AGAIN, K.CONFIRMED, K.HEARD}),
        V.WELCOMED: frozenset(),
        V.SETTLED: frozenset(Knock),
    },
)
