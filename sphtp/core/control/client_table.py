"""The client's state machine (SphTP, "Client FSM"; steps 2 to 10)."""

from sphtp.core.fsm import Machine, Name, Row


class ClientState(Name):
    """The states of a client on its way to one id that every server has acknowledged."""

    SEARCHING = "searching"
    ANNOUNCING = "announcing"
    BACKING_OFF = "backing off"
    ESTABLISHED = "established"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    LEFT = "left"
    REFUSED = "refused"


class ClientSignal(Name):
    """The inputs of the client's state table."""

    SERVER_HEARD = "servers are live, but none registers new ids"
    SERVER_READY = "a server that registers new ids is live"
    CONNECTED = "a bus connection came up"
    HEARTBEAT_DUE = "time for the next heartbeat"
    ACKNOWLEDGED = "every active server of the view acknowledged"
    UNKNOWN = "a server does not know the id"
    STALE = "servers have other data"
    REVISED = "the application changed the data"
    CONFLICT = "a server knows another holder of the id"
    BUSY = "a server is full"
    DENIED = "a server refuses this client for good"
    DEADLINE = "not every server answered in time"
    BACKED_OFF = "the pause is over"
    SERVERS_LOST = "no server is live any more"
    LEAVE = "the application leaves"


class ClientAction(Name):
    """The actions of the client's state table."""

    REQUEST_ID = "draw an id and a nonce, subscribe to it, announce it, and start the deadline"
    ANNOUNCE = "send an announcement"
    CONFIRM = "announce again to servers of the view that have not acknowledged"
    HEARTBEAT = "send a heartbeat"
    SEND_DATA = "send the initial simulation data"
    LOOKUP = "ask for all peers, and again for the peers of open lookups"
    PAUSE = "start a pause of random length"
    FORGET_ANSWERS = "void all acknowledgements"
    WITHDRAW = "send LEAVE, to give the id up"
    KEEP_PEERS = "keep the peers for one expiry, until servers vouch for them again"
    TELL_ESTABLISHED = "report to the application: established"
    TELL_RESUMED = "report to the application: established again"
    TELL_SUSPENDED = "report to the application: suspended"
    TELL_ID_LOST = "report to the application: id lost"
    TELL_REFUSED = "report to the application: refused"
    TELL_LEFT = "report to the application: left"


_S, _E, _A = ClientState, ClientSignal, ClientAction

_RETRY = (_A.WITHDRAW, _A.PAUSE)
_LOSE_ID = (_A.TELL_ID_LOST, _A.WITHDRAW, _A.PAUSE)
_LEAVE = (_A.WITHDRAW, _A.TELL_LEFT)
_DENY = (_A.WITHDRAW, _A.TELL_REFUSED)
# A heartbeat that is before the data tells a revision that no server has, and draws a NACK.
_GREET = (_A.SEND_DATA, _A.HEARTBEAT, _A.LOOKUP)

_ROWS: tuple[Row[ClientState, ClientSignal, ClientAction], ...] = (
    Row(_S.SEARCHING, _E.SERVER_READY, _S.ANNOUNCING, (_A.REQUEST_ID,), "steps 3 to 5"),
    Row(_S.SEARCHING, _E.LEAVE, _S.LEFT, _LEAVE, "no server is needed to leave"),
    Row(_S.ANNOUNCING, _E.HEARTBEAT_DUE, _S.ANNOUNCING, (_A.ANNOUNCE,), "step 5 repeats them"),
    Row(
        _S.ANNOUNCING,
        _E.CONNECTED,
        _S.ANNOUNCING,
        (_A.ANNOUNCE,),
        "this server missed the announcement",
    ),
    Row(
        _S.ANNOUNCING,
        _E.ACKNOWLEDGED,
        _S.ESTABLISHED,
        (_A.TELL_ESTABLISHED, _A.KEEP_PEERS, *_GREET),
        "step 10, when the whole view agrees",
    ),
    Row(_S.ANNOUNCING, _E.CONFLICT, _S.BACKING_OFF, _RETRY, "step 9: all servers must agree"),
    Row(_S.ANNOUNCING, _E.BUSY, _S.BACKING_OFF, _RETRY, "step 9: the view has to be unanimous"),
    Row(_S.ANNOUNCING, _E.DEADLINE, _S.BACKING_OFF, _RETRY, "step 9: no response in time"),
    Row(_S.ANNOUNCING, _E.DENIED, _S.REFUSED, _DENY, "another id would not help"),
    Row(_S.ANNOUNCING, _E.SERVERS_LOST, _S.SEARCHING, (_A.WITHDRAW,), "back to step 3"),
    Row(_S.ANNOUNCING, _E.LEAVE, _S.LEFT, _LEAVE, "some servers may have registered the id"),
    Row(_S.BACKING_OFF, _E.BACKED_OFF, _S.ANNOUNCING, (_A.REQUEST_ID,), "step 4 again"),
    Row(_S.BACKING_OFF, _E.SERVERS_LOST, _S.SEARCHING, (), "back to step 3"),
    Row(_S.BACKING_OFF, _E.LEAVE, _S.LEFT, _LEAVE, "the client has withdrawn the id already"),
    Row(
        _S.ESTABLISHED,
        _E.HEARTBEAT_DUE,
        _S.ESTABLISHED,
        (_A.HEARTBEAT, _A.CONFIRM),
        "normal heartbeats; a server that joined needs an announcement",
    ),
    Row(
        _S.ESTABLISHED,
        _E.CONNECTED,
        _S.ESTABLISHED,
        (_A.HEARTBEAT, _A.CONFIRM),
        "a restarted server learns at once which ids are held",
    ),
    Row(_S.ESTABLISHED, _E.UNKNOWN, _S.ESTABLISHED, (_A.ANNOUNCE,), "id and nonce stay the same"),
    Row(_S.ESTABLISHED, _E.STALE, _S.ESTABLISHED, (_A.SEND_DATA,), "the last data was lost"),
    Row(_S.ESTABLISHED, _E.REVISED, _S.ESTABLISHED, (_A.SEND_DATA,), "servers send it to peers"),
    Row(_S.ESTABLISHED, _E.BUSY, _S.ESTABLISHED, (), "other servers still have the id"),
    Row(_S.ESTABLISHED, _E.CONFLICT, _S.BACKING_OFF, _LOSE_ID, "the id has two holders"),
    Row(_S.ESTABLISHED, _E.DENIED, _S.REFUSED, _DENY, "another id would not help"),
    Row(
        _S.ESTABLISHED,
        _E.SERVERS_LOST,
        _S.SUSPENDED,
        (_A.FORGET_ANSWERS, _A.TELL_SUSPENDED),
        "the client goes on: channels between peers stay open",
    ),
    Row(_S.ESTABLISHED, _E.LEAVE, _S.LEFT, _LEAVE, "servers need not wait for the expiry"),
    Row(
        _S.SUSPENDED,
        _E.HEARTBEAT_DUE,
        _S.SUSPENDED,
        (_A.HEARTBEAT,),
        "servers may receive messages although none of theirs arrive",
    ),
    Row(_S.SUSPENDED, _E.CONNECTED, _S.SUSPENDED, (_A.HEARTBEAT,), "a server may run again"),
    Row(
        _S.SUSPENDED,
        _E.SERVER_HEARD,
        _S.RESUMING,
        (_A.HEARTBEAT, _A.ANNOUNCE),
        "the heartbeat tells a restarted server that the id is in use",
    ),
    Row(
        _S.SUSPENDED,
        _E.SERVER_READY,
        _S.RESUMING,
        (_A.HEARTBEAT, _A.ANNOUNCE),
        "as with a server that registers no new ids",
    ),
    Row(
        _S.SUSPENDED,
        _E.ACKNOWLEDGED,
        _S.ESTABLISHED,
        (_A.TELL_RESUMED, _A.KEEP_PEERS, *_GREET),
        "their acknowledgements arrived before their heartbeats",
    ),
    Row(_S.SUSPENDED, _E.LEAVE, _S.LEFT, _LEAVE, "servers may receive messages"),
    Row(
        _S.RESUMING,
        _E.HEARTBEAT_DUE,
        _S.RESUMING,
        (_A.HEARTBEAT, _A.ANNOUNCE),
        "the client announces the same id and nonce until every server acknowledges",
    ),
    Row(
        _S.RESUMING,
        _E.CONNECTED,
        _S.RESUMING,
        (_A.HEARTBEAT, _A.ANNOUNCE),
        "the server missed the last announcements",
    ),
    Row(
        _S.RESUMING,
        _E.ACKNOWLEDGED,
        _S.ESTABLISHED,
        (_A.TELL_RESUMED, _A.KEEP_PEERS, *_GREET),
        "all servers of the view have acknowledged the id again",
    ),
    Row(_S.RESUMING, _E.UNKNOWN, _S.RESUMING, (_A.ANNOUNCE,), "id and nonce stay the same"),
    Row(_S.RESUMING, _E.STALE, _S.RESUMING, (_A.SEND_DATA,), "the last data was lost"),
    Row(_S.RESUMING, _E.REVISED, _S.RESUMING, (_A.SEND_DATA,), "servers send it to peers"),
    Row(_S.RESUMING, _E.BUSY, _S.RESUMING, (), "the next heartbeat repeats the announcement"),
    Row(_S.RESUMING, _E.CONFLICT, _S.BACKING_OFF, _LOSE_ID, "another client took the id"),
    Row(_S.RESUMING, _E.DENIED, _S.REFUSED, _DENY, "another id would not help"),
    Row(_S.RESUMING, _E.SERVERS_LOST, _S.SUSPENDED, (_A.FORGET_ANSWERS,), "servers are gone again"),
    Row(_S.RESUMING, _E.LEAVE, _S.LEFT, _LEAVE, "servers need not wait for the expiry"),
)

NACKS = frozenset((_E.UNKNOWN, _E.STALE, _E.CONFLICT, _E.BUSY, _E.DENIED))
"""The signals that are answers of servers about one id.

All other signals are the client's own findings, or commands of the application.
"""

_ANSWERS = NACKS | {_E.ACKNOWLEDGED}
_WAITS = frozenset((_E.DEADLINE, _E.BACKED_OFF))
_HEARD = frozenset((_E.SERVER_HEARD, _E.SERVER_READY))

CLIENT = Machine(
    "client",
    ClientState.SEARCHING,
    _ROWS,
    events=ClientSignal,
    final=frozenset((_S.LEFT, _S.REFUSED)),
    refused={
        _S.SEARCHING: _ANSWERS
        | _WAITS
        | {_E.SERVER_HEARD, _E.CONNECTED, _E.HEARTBEAT_DUE, _E.SERVERS_LOST, _E.REVISED},
        _S.ANNOUNCING: _HEARD | {_E.UNKNOWN, _E.STALE, _E.REVISED, _E.BACKED_OFF},
        _S.BACKING_OFF: _ANSWERS
        | _HEARD
        | {_E.CONNECTED, _E.HEARTBEAT_DUE, _E.DEADLINE, _E.REVISED},
        _S.ESTABLISHED: _HEARD | _WAITS | {_E.ACKNOWLEDGED},
        _S.SUSPENDED: NACKS | _WAITS | {_E.SERVERS_LOST, _E.REVISED},
        _S.RESUMING: _HEARD | _WAITS,
        _S.LEFT: frozenset(_E),
        _S.REFUSED: frozenset(_E),
    },
)
"""The compiled table; ``ClientMachine`` runs it."""
