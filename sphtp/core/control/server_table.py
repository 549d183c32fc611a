"""The server's state machine (SphTP, "Server FSM"; steps 1, 6 to 8 and 11)."""

from sphtp.core.fsm import Machine, Name, Row


class ServerState(Name):
    """The states of a server. Only an active one registers ids that are new to it."""

    JOINING = "joining"
    ACTIVE = "active"
    STOPPED = "stopped"


class ServerSignal(Name):
    """The inputs of the server's state table."""

    NEW_CLUSTER = "this server is told to found a cluster"
    SNAPSHOT_COMPLETE = "an active member told all it knows"
    WAITED = "two expiries have passed, and a server is heard if one is to be joined"
    HEARTBEAT_DUE = "time for the next heartbeat"
    ACTIVE_HEARD = "an active member is heard"
    ANNOUNCED_NEW = "a client announces an id that nobody holds"
    ANNOUNCED_HELD = "a client announces an id that it holds"
    ANNOUNCED_TAKEN = "a client announces an id that another one holds"
    HEARTBEAT_HELD = "a heartbeat of a registered client"
    HEARTBEAT_UNKNOWN = "a heartbeat of an id that is not registered"
    HEARTBEAT_FOREIGN = "a heartbeat of an id that another client holds"
    SNAPSHOT_REQUESTED = "a member asks for all we know"
    STOP = "the application stops the server"


class ServerAction(Name):
    """The actions of the server's state table."""

    HEARTBEAT = "send a heartbeat to clients and servers"
    REGISTER = "register the id, or refuse it when there is no room"
    REGISTER_RESERVED = "register the id if it is reserved for this very client"
    ACKNOWLEDGE = "acknowledge the id"
    REFRESH = "note that the client is alive"
    REFUSE = "negative acknowledge: conflict"
    REFUSE_UNKNOWN = "negative acknowledge: unknown"
    RESERVE = "keep the id for the client that uses it"
    REQUEST_SNAPSHOT = "ask the active member for all it knows"
    SEND_SNAPSHOT = "tell all that we know first-hand"
    OPEN = "tell clients and servers that new ids are registered from now on"
    SEND_LEAVE = "tell clients and servers to drop this server at once"
    TELL_STATE = "tell the application the new state"


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
    Row(_S.JOINING, _E.NEW_CLUSTER, _S.ACTIVE, _OPEN, "there is nobody to learn from"),
    Row(_S.JOINING, _E.SNAPSHOT_COMPLETE, _S.ACTIVE, _OPEN, "now it knows every holder"),
    Row(_S.JOINING, _E.WAITED, _S.ACTIVE, _OPEN, "every holder has been heard, or has expired"),
    Row(_S.JOINING, _E.HEARTBEAT_DUE, _S.JOINING, (_A.HEARTBEAT,), "step 1"),
    Row(_S.JOINING, _E.ACTIVE_HEARD, _S.JOINING, (_A.REQUEST_SNAPSHOT,), "the short way in"),
    Row(
        _S.JOINING,
        _E.ANNOUNCED_NEW,
        _S.JOINING,
        (_A.REGISTER_RESERVED,),
        "silence, unless the client was heard using the id before",
    ),
    Row(_S.JOINING, _E.ANNOUNCED_HELD, _S.JOINING, (_A.ACKNOWLEDGE,), "nothing new about it"),
    Row(_S.JOINING, _E.ANNOUNCED_TAKEN, _S.JOINING, (_A.REFUSE,), "step 7"),
    Row(_S.JOINING, _E.HEARTBEAT_HELD, _S.JOINING, (_A.REFRESH,), "step 11, the other way round"),
    Row(
        _S.JOINING,
        _E.HEARTBEAT_UNKNOWN,
        _S.JOINING,
        (_A.RESERVE, _A.REFUSE_UNKNOWN),
        "normal heartbeats come from holders only",
    ),
    Row(_S.JOINING, _E.HEARTBEAT_FOREIGN, _S.JOINING, (_A.REFUSE,), "one holder at a time"),
    Row(_S.JOINING, _E.STOP, _S.STOPPED, _STOP, "nobody waits for the expiry"),
    Row(_S.ACTIVE, _E.HEARTBEAT_DUE, _S.ACTIVE, (_A.HEARTBEAT,), "step 1"),
    Row(_S.ACTIVE, _E.ANNOUNCED_NEW, _S.ACTIVE, (_A.REGISTER,), "step 8"),
    Row(_S.ACTIVE, _E.ANNOUNCED_HELD, _S.ACTIVE, (_A.ACKNOWLEDGE,), "its first answer was lost"),
    Row(_S.ACTIVE, _E.ANNOUNCED_TAKEN, _S.ACTIVE, (_A.REFUSE,), "step 7"),
    Row(_S.ACTIVE, _E.HEARTBEAT_HELD, _S.ACTIVE, (_A.REFRESH,), "step 11, the other way round"),
    Row(_S.ACTIVE, _E.HEARTBEAT_UNKNOWN, _S.ACTIVE, (_A.REFUSE_UNKNOWN,), "it announces again"),
    Row(_S.ACTIVE, _E.HEARTBEAT_FOREIGN, _S.ACTIVE, (_A.REFUSE,), "one holder at a time"),
    Row(_S.ACTIVE, _E.SNAPSHOT_REQUESTED, _S.ACTIVE, (_A.SEND_SNAPSHOT,), "it joins, or repairs"),
    Row(_S.ACTIVE, _E.STOP, _S.STOPPED, _STOP, "nobody waits for the expiry"),
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
