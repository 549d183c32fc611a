"""The server's state machine (SphTP, "Server FSM"; steps 1, 6 to 8 and 11)."""

from sphtp.core.fsm import Machine, Name, Row


class ServerState(Name):
    """The states of a server. Only an active one registers ids that are new to it."""

    JOINING = "joining"
    ACTIVE = "active"
    STOPPED = "stopped"


class ServerSignal(Name):
    """The inputs of the server's state table."""

    NEW_CLUSTER = "this server has to found a cluster"
    SNAPSHOT_COMPLETE = "an active member has sent all clients that it hears itself"
    WAITED = (
        "twice the expiry has passed, and, if this server has to join one, another server is live"
    )
    HEARTBEAT_DUE = "time for the next heartbeat"
    ACTIVE_HEARD = "a heartbeat of an active member came"
    ANNOUNCED_NEW = "a client announces an id that no client holds"
    ANNOUNCED_HELD = "a client announces an id that it holds"
    ANNOUNCED_TAKEN = "a client announces an id that another one holds"
    HEARTBEAT_HELD = "a heartbeat of a registered client"
    HEARTBEAT_UNKNOWN = "a heartbeat of an id that is not registered"
    HEARTBEAT_FOREIGN = "a heartbeat of an id that another client holds"
    SNAPSHOT_REQUESTED = "a member asks for the clients that this server hears itself"
    STOP = "the application stops the server"


class ServerAction(Name):
    """The actions of the server's state table."""

    HEARTBEAT = "send a heartbeat to clients and servers"
    REGISTER = "register the id, or refuse it when there is no room"
    REGISTER_RESERVED = "register the id if it is reserved for this client"
    ACKNOWLEDGE = "acknowledge the id"
    REFRESH = "note that the client is alive"
    REFUSE = "negative acknowledge: conflict"
    REFUSE_UNKNOWN = "negative acknowledge: unknown"
    RESERVE = "reserve the id for the client that uses it"
    REQUEST_SNAPSHOT = "ask the active member for all clients"
    SEND_SNAPSHOT = "send all clients whose heartbeats arrive here"
    OPEN = "announce to clients and servers that this server registers new ids from now on"
    SEND_LEAVE = "send LEAVE to clients and servers"
    TELL_STATE = "report the new state to the application"


_S, _E, _A = ServerState, ServerSignal, ServerAction

FROM_CLIENTS = frozenset(
    (
        _E.ANNOUNCED_NEW,
        _E.ANNOUNCED_HELD,
        _E.ANNOUNCED_TAKEN,
        _E.HEARTBEAT_HELD,
        _E.HEARTBEAT_UNKNOWN,
        _E.HEARTBEAT_FOREIGN,
    )
)
"""The signals that are messages of clients."""

_OPEN = (_A.OPEN, _A.TELL_STATE)
_STOP = (_A.SEND_LEAVE, _A.TELL_STATE)

_ROWS = (
    Row(_S.JOINING, _E.NEW_CLUSTER, _S.ACTIVE, _OPEN, "there is no other server with a list"),
    Row(_S.JOINING, _E.SNAPSHOT_COMPLETE, _S.ACTIVE, _OPEN, "the server knows every holder now"),
    Row(_S.JOINING, _E.WAITED, _S.ACTIVE, _OPEN, "each holder was live, or expired"),
    Row(_S.JOINING, _E.HEARTBEAT_DUE, _S.JOINING, (_A.HEARTBEAT,), "step 1"),
    Row(_S.JOINING, _E.ACTIVE_HEARD, _S.JOINING, (_A.REQUEST_SNAPSHOT,), "it ends the wait sooner"),
    Row(
        _S.JOINING,
        _E.ANNOUNCED_NEW,
        _S.JOINING,
        (_A.REGISTER_RESERVED,),
        "no answer, unless the client has sent heartbeats with the id before",
    ),
    Row(_S.JOINING, _E.ANNOUNCED_HELD, _S.JOINING, (_A.ACKNOWLEDGE,), "it is registered already"),
    Row(_S.JOINING, _E.ANNOUNCED_TAKEN, _S.JOINING, (_A.REFUSE,), "step 7"),
    Row(_S.JOINING, _E.HEARTBEAT_HELD, _S.JOINING, (_A.REFRESH,), "step 11: a sign of life"),
    Row(
        _S.JOINING,
        _E.HEARTBEAT_UNKNOWN,
        _S.JOINING,
        (_A.RESERVE, _A.REFUSE_UNKNOWN),
        "only holders send normal heartbeats",
    ),
    Row(_S.JOINING, _E.HEARTBEAT_FOREIGN, _S.JOINING, (_A.REFUSE,), "one holder at a time"),
    Row(_S.JOINING, _E.STOP, _S.STOPPED, _STOP, "so that no program waits for the expiry"),
    Row(_S.ACTIVE, _E.HEARTBEAT_DUE, _S.ACTIVE, (_A.HEARTBEAT,), "step 1"),
    Row(_S.ACTIVE, _E.ANNOUNCED_NEW, _S.ACTIVE, (_A.REGISTER,), "step 8"),
    Row(_S.ACTIVE, _E.ANNOUNCED_HELD, _S.ACTIVE, (_A.ACKNOWLEDGE,), "its first answer was lost"),
    Row(_S.ACTIVE, _E.ANNOUNCED_TAKEN, _S.ACTIVE, (_A.REFUSE,), "step 7"),
    Row(_S.ACTIVE, _E.HEARTBEAT_HELD, _S.ACTIVE, (_A.REFRESH,), "step 11: a sign of life"),
    Row(_S.ACTIVE, _E.HEARTBEAT_UNKNOWN, _S.ACTIVE, (_A.REFUSE_UNKNOWN,), "it announces again"),
    Row(_S.ACTIVE, _E.HEARTBEAT_FOREIGN, _S.ACTIVE, (_A.REFUSE,), "one holder at a time"),
    Row(
        _S.ACTIVE, _E.SNAPSHOT_REQUESTED, _S.ACTIVE, (_A.SEND_SNAPSHOT,), "it joins, or has losses"
    ),
    Row(_S.ACTIVE, _E.STOP, _S.STOPPED, _STOP, "so that no program waits for the expiry"),
)

SERVER = Machine(
    "server",
    ServerState.JOINING,
    _ROWS,
    events=ServerSignal,
    final=frozenset((_S.STOPPED,)),
    refused={
        _S.JOINING: frozenset((_E.SNAPSHOT_REQUESTED,)),
        _S.ACTIVE: frozenset(
            (_E.NEW_CLUSTER, _E.SNAPSHOT_COMPLETE, _E.WAITED, _E.ACTIVE_HEARD),
        ),
        _S.STOPPED: frozenset(_E),
    },
)
"""The compiled table; ``ServerMachine`` runs it."""
