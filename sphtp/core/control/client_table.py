"""The client's state machine (SphTP, "Client FSM"; steps 2 to 10).

The table names the steps of the original protocol.
"""

from sphtp.core.fsm import Machine, Name, Row


class ClientState(Name):
    """The states of a client, from the search for servers to the end."""

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

    SERVER_LIVE = "servers are live, but none registers new ids"
    SERVER_READY = "a server that registers new ids is live"
    CONNECTED = "a bus connection came up"
    HEARTBEAT_DUE = "time for the next heartbeat"
    ACKNOWLEDGED = "every active server of the view, or if none is active every one, acknowledged"
    UNKNOWN = "a server has not registered the id"
    STALE = "a server has another revision of the data"
    REVISED = "the application changed the data"
    CONFLICT = "at a server, another holder has the id or had it less than an expiry ago"
    BUSY = "a server is full"
    DENIED = "a server refuses this client for good"
    DEADLINE = "not every server that has to acknowledge has done so in time"
    BACKED_OFF = "the pause is over"
    SERVERS_LOST = "no server is live any more"
    LEASE_OVER = "no server has confirmed the id for one expiry"
    LEAVE = "the application leaves"


class ClientAction(Name):
    """The actions of the client's state table."""

    REQUEST_ID = "draw an id and a nonce, subscribe to it, announce it, and start the deadline"
    ANNOUNCE = "send an announcement"
    CONFIRM = (
        "announce again if a server that has to acknowledge has not, or the lease is half over"
    )
    HEARTBEAT = "send a heartbeat"
    SEND_DATA = "send the data, the topics and the groups of this client"
    LOOKUP = "request all peers, or those of the watched groups, and repeat open lookups"
    PAUSE = "start a pause of random length"
    FORGET_ANSWERS = "void all acknowledgements"
    WITHDRAW = "send LEAVE, to give the id up"
    KEEP_PEERS = "keep the peers for one expiry, until servers vouch for them again"
    REPORT_ESTABLISHED = "report to the application: established"
    REPORT_RESUMED = "report to the application: established again"
    REPORT_SUSPENDED = "report to the application: suspended"
    REPORT_ID_LOST = "report to the application: id lost"
    REPORT_REFUSED = "report to the application: refused"
    REPORT_LEFT = "report to the application: left"


S, E, A = ClientState, ClientSignal, ClientAction

_RETRY = (A.WITHDRAW, A.PAUSE)
_LOSE_ID = (A.REPORT_ID_LOST, A.WITHDRAW, A.PAUSE)
_LEAVE = (A.WITHDRAW, A.REPORT_LEFT)
_DENY = (A.WITHDRAW, A.REPORT_REFUSED)
# Servers publish a group from the first watch of a client on. So the lookup with the watches goes
# first: when the data then adds the client's record to its groups, all members that watch them get
# the record without a list. A heartbeat before the data would have a revision that no server has,
# and would cause a NACK.
_GREET = (A.LOOKUP, A.SEND_DATA, A.HEARTBEAT)

_ROWS: tuple[Row[ClientState, ClientSignal, ClientAction], ...] = (
    Row(
        S.SEARCHING,
        E.SERVER_READY,
        S.ANNOUNCING,
        (A.REQUEST_ID,),
        "steps 3 to 5: a server is live, so register an id",
    ),
    Row(S.SEARCHING, E.LEAVE, S.LEFT, _LEAVE, "no server is needed to leave"),
    Row(
        S.ANNOUNCING,
        E.HEARTBEAT_DUE,
        S.ANNOUNCING,
        (A.ANNOUNCE,),
        "step 5: announcements are repeated",
    ),
    Row(
        S.ANNOUNCING,
        E.CONNECTED,
        S.ANNOUNCING,
        (A.ANNOUNCE,),
        "this server missed the announcement",
    ),
    Row(
        S.ANNOUNCING,
        E.ACKNOWLEDGED,
        S.ESTABLISHED,
        (A.REPORT_ESTABLISHED, A.KEEP_PEERS, *_GREET),
        "step 10: the whole view agrees",
    ),
    Row(S.ANNOUNCING, E.CONFLICT, S.BACKING_OFF, _RETRY, "step 9: another client holds the id"),
    Row(S.ANNOUNCING, E.BUSY, S.BACKING_OFF, _RETRY, "step 9: the view has to be unanimous"),
    Row(
        S.ANNOUNCING, E.DEADLINE, S.BACKING_OFF, _RETRY, "step 9: not all servers answered in time"
    ),
    Row(S.ANNOUNCING, E.DENIED, S.REFUSED, _DENY, "another id would not help"),
    Row(S.ANNOUNCING, E.SERVERS_LOST, S.SEARCHING, (A.WITHDRAW,), "step 3: wait for servers"),
    Row(S.ANNOUNCING, E.LEAVE, S.LEFT, _LEAVE, "some servers may have registered the id"),
    Row(S.BACKING_OFF, E.BACKED_OFF, S.ANNOUNCING, (A.REQUEST_ID,), "step 4: try another id"),
    Row(S.BACKING_OFF, E.SERVERS_LOST, S.SEARCHING, (), "step 3: wait for servers"),
    Row(S.BACKING_OFF, E.LEAVE, S.LEFT, _LEAVE, "the client has withdrawn the id already"),
    Row(
        S.ESTABLISHED,
        E.HEARTBEAT_DUE,
        S.ESTABLISHED,
        (A.HEARTBEAT, A.CONFIRM),
        "normal heartbeats; a server that joined needs an announcement, and so does the lease",
    ),
    Row(
        S.ESTABLISHED,
        E.CONNECTED,
        S.ESTABLISHED,
        (A.HEARTBEAT, A.CONFIRM),
        "a restarted server sees at once that the id is held",
    ),
    Row(S.ESTABLISHED, E.UNKNOWN, S.ESTABLISHED, (A.ANNOUNCE,), "id and nonce stay the same"),
    Row(S.ESTABLISHED, E.STALE, S.ESTABLISHED, (A.SEND_DATA,), "the last data was lost"),
    Row(S.ESTABLISHED, E.REVISED, S.ESTABLISHED, (A.SEND_DATA,), "servers send it to peers"),
    Row(S.ESTABLISHED, E.BUSY, S.ESTABLISHED, (), "other servers still have the id"),
    Row(S.ESTABLISHED, E.CONFLICT, S.BACKING_OFF, _LOSE_ID, "the id has two holders"),
    Row(S.ESTABLISHED, E.DENIED, S.REFUSED, _DENY, "another id would not help"),
    Row(
        S.ESTABLISHED,
        E.SERVERS_LOST,
        S.SUSPENDED,
        (A.FORGET_ANSWERS, A.REPORT_SUSPENDED),
        "the client goes on: channels between peers stay open",
    ),
    Row(
        S.ESTABLISHED,
        E.LEASE_OVER,
        S.RESUMING,
        (A.FORGET_ANSWERS, A.REPORT_SUSPENDED, A.HEARTBEAT, A.ANNOUNCE),
        "its messages may be lost, and then another client may get the id",
    ),
    Row(S.ESTABLISHED, E.LEAVE, S.LEFT, _LEAVE, "servers need not wait for the expiry"),
    Row(
        S.SUSPENDED,
        E.HEARTBEAT_DUE,
        S.SUSPENDED,
        (A.HEARTBEAT,),
        "servers may receive messages although none of theirs arrive",
    ),
    Row(S.SUSPENDED, E.CONNECTED, S.SUSPENDED, (A.HEARTBEAT,), "a server may run again"),
    Row(
        S.SUSPENDED,
        E.SERVER_LIVE,
        S.RESUMING,
        (A.HEARTBEAT, A.ANNOUNCE),
        "the heartbeat shows a restarted server that the id is in use",
    ),
    Row(
        S.SUSPENDED,
        E.SERVER_READY,
        S.RESUMING,
        (A.HEARTBEAT, A.ANNOUNCE),
        "the same as with servers that register no new ids",
    ),
    Row(S.SUSPENDED, E.LEAVE, S.LEFT, _LEAVE, "servers may receive messages"),
    Row(
        S.RESUMING,
        E.HEARTBEAT_DUE,
        S.RESUMING,
        (A.HEARTBEAT, A.ANNOUNCE),
        "the client announces the same id and nonce until it is established again",
    ),
    Row(
        S.RESUMING,
        E.CONNECTED,
        S.RESUMING,
        (A.HEARTBEAT, A.ANNOUNCE),
        "the server missed the last announcements",
    ),
    Row(
        S.RESUMING,
        E.ACKNOWLEDGED,
        S.ESTABLISHED,
        (A.REPORT_RESUMED, A.KEEP_PEERS, *_GREET),
        "the servers have acknowledged the id again",
    ),
    Row(S.RESUMING, E.UNKNOWN, S.RESUMING, (A.ANNOUNCE,), "id and nonce stay the same"),
    Row(S.RESUMING, E.STALE, S.RESUMING, (A.SEND_DATA,), "the last data was lost"),
    Row(S.RESUMING, E.REVISED, S.RESUMING, (A.SEND_DATA,), "servers send it to peers"),
    Row(S.RESUMING, E.BUSY, S.RESUMING, (), "the next heartbeat repeats the announcement"),
    Row(S.RESUMING, E.CONFLICT, S.BACKING_OFF, _LOSE_ID, "another client took the id"),
    Row(S.RESUMING, E.DENIED, S.REFUSED, _DENY, "another id would not help"),
    Row(S.RESUMING, E.SERVERS_LOST, S.SUSPENDED, (A.FORGET_ANSWERS,), "servers are gone again"),
    Row(S.RESUMING, E.LEAVE, S.LEFT, _LEAVE, "servers need not wait for the expiry"),
)

NACKS = frozenset((E.UNKNOWN, E.STALE, E.CONFLICT, E.BUSY, E.DENIED))
"""The signals that a NACK of a server causes, by its reason."""

_ABOUT_THE_ID = NACKS | {E.ACKNOWLEDGED, E.LEASE_OVER}
_WAITS = frozenset((E.DEADLINE, E.BACKED_OFF))
_SERVERS_LIVE = frozenset((E.SERVER_LIVE, E.SERVER_READY))

CLIENT = Machine(
    "client",
    ClientState.SEARCHING,
    _ROWS,
    events=ClientSignal,
    final=frozenset((S.LEFT, S.REFUSED)),
    refused={
        S.SEARCHING: _ABOUT_THE_ID
        | _WAITS
        | {E.SERVER_LIVE, E.CONNECTED, E.HEARTBEAT_DUE, E.SERVERS_LOST, E.REVISED},
        S.ANNOUNCING: _SERVERS_LIVE | {E.UNKNOWN, E.STALE, E.REVISED, E.BACKED_OFF, E.LEASE_OVER},
        S.BACKING_OFF: _ABOUT_THE_ID
        | _SERVERS_LIVE
        | {E.CONNECTED, E.HEARTBEAT_DUE, E.DEADLINE, E.REVISED},
        S.ESTABLISHED: _SERVERS_LIVE | _WAITS | {E.ACKNOWLEDGED},
        S.SUSPENDED: _ABOUT_THE_ID | _WAITS | {E.SERVERS_LOST, E.REVISED},
        S.RESUMING: _SERVERS_LIVE | _WAITS | {E.LEASE_OVER},
        S.LEFT: frozenset(E),
        S.REFUSED: frozenset(E),
    },
)
"""The compiled table; ``ClientMachine`` runs it."""
