"""The server's state machine (SphTP, "Server FSM"; steps 1, 6 to 8 and 11).

The table names the steps of the original protocol. ``ServerMachine`` (``server``) runs it. A server
joins a cluster in these steps:

1. ``ServerMachine.handle_start`` dials the addresses to join, starts the heartbeats, and sets
   ``WAITED`` to twice the expiry. With ``new_cluster`` the server is active at once.
2. ``ServerMachine._on_server_heartbeat`` takes the heartbeats of others. ``Cluster`` and its
   ``ViewKeeper.update`` (``server_set``) build the view of this server and all live ones, and
   connect to all servers that the heartbeats name. This server is a member of its view from the
   start, and others add it at its first heartbeat.
3. A heartbeat of an active member causes ``ACTIVE_LIVE``: the server requests that member's list,
   at each heartbeat until it is active. ``Replication.on_snapshot`` (``registrations``) takes the
   parts. When the list of an active member is complete, ``SNAPSHOT_COMPLETE`` makes the server
   active.
4. Else ``WAITED`` makes it active. A server that has to join others becomes active only after
   another server was live: ``ServerMachine._await_company`` stops or postpones ``WAITED``.
5. ``ServerMachine._open`` sends a heartbeat with the state ``ACTIVE``. From then on, clients need
   this server's acknowledgement, too (``Directory.is_unanimous`` in ``directory``).

With a shared registry, ``handle_start`` causes ``REGISTRY_LOST`` instead, and ``REGISTRY_REACHED``
makes the detached server active. The registry decides on the view (``Cluster.set_view``).
"""

from sphtp.core.fsm import Machine, Name, Row


class ServerState(Name):
    """The states of a server. Only an active one registers ids that are new to it.

    A server with a shared registry is detached while this registry is out of reach.
    """

    JOINING = "joining"
    ACTIVE = "active"
    DETACHED = "detached"
    STOPPED = "stopped"


class ServerSignal(Name):
    """The inputs of the server's state table."""

    NEW_CLUSTER = "this server has to found a cluster"
    SNAPSHOT_COMPLETE = "an active member has sent all clients whose heartbeats it receives"
    WAITED = (
        "twice the expiry has passed, and, if this server has to join one, another server was live"
    )
    HEARTBEAT_DUE = "time for the next heartbeat"
    ACTIVE_LIVE = "a heartbeat of an active member arrived"
    ANNOUNCED_NEW = "a client announces an id that no client holds"
    ANNOUNCED_HELD = "a client announces an id that it holds"
    ANNOUNCED_TAKEN = (
        "a client announces an id that another one holds or held less than an expiry ago, or that "
        "it has given up"
    )
    HEARTBEAT_HELD = "a heartbeat of a registered client"
    HEARTBEAT_UNKNOWN = "a heartbeat of an id that is not registered"
    HEARTBEAT_FOREIGN = "a heartbeat of an id that another client holds"
    SNAPSHOT_REQUESTED = "a member requests the clients whose heartbeats this server receives"
    REGISTRY_LOST = "the shared registry is out of reach, or the lease may have ended"
    REGISTRY_REACHED = "the shared registry is in reach, and the lease is live"
    STOP = "the application stops the server"


class ServerAction(Name):
    """The actions of the server's state table."""

    HEARTBEAT = "send a heartbeat to clients and servers"
    REGISTER = "register the id, or send a NACK: wrong version, no room, or not admitted"
    REGISTER_RESERVED = "register the id if it is reserved for this client"
    ACKNOWLEDGE = "acknowledge the id"
    REFRESH = "restart the expiry of the client"
    REFUSE = "send a NACK: conflict"
    REFUSE_UNKNOWN = "send a NACK: unknown"
    RESERVE = "reserve the id for the client that uses it"
    REQUEST_SNAPSHOT = "request from the active member the clients whose heartbeats it receives"
    SEND_SNAPSHOT = "send all clients whose heartbeats arrive here"
    OPEN = "announce to clients and servers that this server registers new ids from now on"
    FALL_SILENT = "drop waiting answers and changes, so that clients do not rely on this server"
    SEND_LEAVE = "send LEAVE to clients and servers"
    REPORT_STATE = "report the new state to the application"


S, E, A = ServerState, ServerSignal, ServerAction

FROM_CLIENTS = frozenset(
    (
        E.ANNOUNCED_NEW,
        E.ANNOUNCED_HELD,
        E.ANNOUNCED_TAKEN,
        E.HEARTBEAT_HELD,
        E.HEARTBEAT_UNKNOWN,
        E.HEARTBEAT_FOREIGN,
    )
)
"""The signals that are messages of clients."""

_OPEN = (A.OPEN, A.REPORT_STATE)
_STOP = (A.SEND_LEAVE, A.REPORT_STATE)
_DETACH = (A.FALL_SILENT, A.REPORT_STATE)

_ROWS: tuple[Row[ServerState, ServerSignal, ServerAction], ...] = (
    Row(S.JOINING, E.NEW_CLUSTER, S.ACTIVE, _OPEN, "there is no other server with a list"),
    Row(S.JOINING, E.SNAPSHOT_COMPLETE, S.ACTIVE, _OPEN, "the server has every holder now"),
    Row(S.JOINING, E.WAITED, S.ACTIVE, _OPEN, "each holder has sent a heartbeat, or has expired"),
    Row(S.JOINING, E.HEARTBEAT_DUE, S.JOINING, (A.HEARTBEAT,), "step 1: servers send heartbeats"),
    Row(S.JOINING, E.ACTIVE_LIVE, S.JOINING, (A.REQUEST_SNAPSHOT,), "a list ends the wait sooner"),
    Row(
        S.JOINING,
        E.ANNOUNCED_NEW,
        S.JOINING,
        (A.REGISTER_RESERVED,),
        "no answer, unless the client has sent heartbeats with the id before",
    ),
    Row(S.JOINING, E.ANNOUNCED_HELD, S.JOINING, (A.ACKNOWLEDGE,), "it is registered already"),
    Row(S.JOINING, E.ANNOUNCED_TAKEN, S.JOINING, (A.REFUSE,), "step 7: another client has the id"),
    Row(S.JOINING, E.HEARTBEAT_HELD, S.JOINING, (A.REFRESH,), "step 11: a sign of life"),
    Row(
        S.JOINING,
        E.HEARTBEAT_UNKNOWN,
        S.JOINING,
        (A.RESERVE, A.REFUSE_UNKNOWN),
        "only a client that holds the id sends heartbeats with it",
    ),
    Row(S.JOINING, E.HEARTBEAT_FOREIGN, S.JOINING, (A.REFUSE,), "one holder at a time"),
    Row(S.JOINING, E.STOP, S.STOPPED, _STOP, "programs need not wait for the expiry"),
    Row(S.ACTIVE, E.HEARTBEAT_DUE, S.ACTIVE, (A.HEARTBEAT,), "step 1: servers send heartbeats"),
    Row(S.ACTIVE, E.ANNOUNCED_NEW, S.ACTIVE, (A.REGISTER,), "step 8: no client has the id"),
    Row(
        S.ACTIVE,
        E.ANNOUNCED_HELD,
        S.ACTIVE,
        (A.ACKNOWLEDGE,),
        "the ACK was lost, or the client renews its lease",
    ),
    Row(S.ACTIVE, E.ANNOUNCED_TAKEN, S.ACTIVE, (A.REFUSE,), "step 7: another client has the id"),
    Row(S.ACTIVE, E.HEARTBEAT_HELD, S.ACTIVE, (A.REFRESH,), "step 11: a sign of life"),
    Row(
        S.ACTIVE,
        E.HEARTBEAT_UNKNOWN,
        S.ACTIVE,
        (A.REFUSE_UNKNOWN,),
        "the client announces the id again",
    ),
    Row(S.ACTIVE, E.HEARTBEAT_FOREIGN, S.ACTIVE, (A.REFUSE,), "one holder at a time"),
    Row(
        S.ACTIVE,
        E.SNAPSHOT_REQUESTED,
        S.ACTIVE,
        (A.SEND_SNAPSHOT,),
        "the list of the server that requests it may lack clients",
    ),
    Row(S.ACTIVE, E.STOP, S.STOPPED, _STOP, "programs need not wait for the expiry"),
    Row(
        S.JOINING,
        E.REGISTRY_LOST,
        S.DETACHED,
        _DETACH,
        "at its start, a server has not reached the registry yet",
    ),
    Row(S.ACTIVE, E.REGISTRY_LOST, S.DETACHED, _DETACH, "its registrations may be outdated"),
    Row(S.DETACHED, E.REGISTRY_REACHED, S.ACTIVE, _OPEN, "the registry has every holder"),
    Row(
        S.DETACHED, E.HEARTBEAT_DUE, S.DETACHED, (), "clients have to suspend before the lease ends"
    ),
    Row(S.DETACHED, E.HEARTBEAT_HELD, S.DETACHED, (A.REFRESH,), "step 11: a sign of life"),
    Row(S.DETACHED, E.STOP, S.STOPPED, _STOP, "programs need not wait for the expiry"),
)

_JOINS = frozenset((E.NEW_CLUSTER, E.SNAPSHOT_COMPLETE, E.WAITED, E.ACTIVE_LIVE))

SERVER = Machine(
    "server",
    ServerState.JOINING,
    _ROWS,
    events=ServerSignal,
    final=frozenset((S.STOPPED,)),
    refused={
        S.JOINING: frozenset((E.SNAPSHOT_REQUESTED, E.REGISTRY_REACHED)),
        S.ACTIVE: _JOINS | {E.REGISTRY_REACHED},
        S.DETACHED: _JOINS
        | (FROM_CLIENTS - {E.HEARTBEAT_HELD})
        | {E.SNAPSHOT_REQUESTED, E.REGISTRY_LOST},
        S.STOPPED: frozenset(E),
    },
)
"""The compiled table; ``ServerMachine`` runs it."""
