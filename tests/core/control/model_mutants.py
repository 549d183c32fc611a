"""Mutants: for each rule of registration, the real machines without that rule.

A mutant changes one row of a table, or one method, as long as its context is open. The search has
to find a violation in the case beside it. A rule whose mutant nobody catches is either no rule, or
the case is too small.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from sphtp.core.control import client, registrations, server, server_set
from sphtp.core.control.client import ClientIdentity, ClientMachine
from sphtp.core.control.client_table import CLIENT, ClientAction, ClientSignal, ClientState
from sphtp.core.control.directory import Directory, IdLease
from sphtp.core.control.machine import ControlMachine
from sphtp.core.control.records import ClusterView, Holder
from sphtp.core.control.registrations import ClientAdmission, Replication
from sphtp.core.control.registry import ReservedIds
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_table import SERVER, ServerAction, ServerSignal, ServerState
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import NO_NONCE
from sphtp.core.fsm import Machine, Row
from sphtp.core.timers import Liveness
from tests.core.control.model import Case
from tests.core.control.model_world import EXPIRY

Context = AbstractContextManager[Any]


class Mutant(NamedTuple):
    """The machines without one rule, and the case in which that breaks something."""

    rule: str
    """The rule, as the real machines follow it."""
    change: Callable[[], Context]
    """Opens a context in which the machines break it."""
    case: Case


# Changes of rows


@contextmanager
def _client_row(
    at: ClientState, on: ClientSignal, to: ClientState, *do: ClientAction
) -> Iterator[None]:
    table = _changed(CLIENT, Row(at, on, to, do, "mutant"), ClientSignal)
    with patch.object(client, "CLIENT", table):
        runner = ClientMachine.runner()
    with _run_by(ClientMachine, table, runner):
        yield


@contextmanager
def _server_row(
    at: ServerState, on: ServerSignal, to: ServerState, *do: ServerAction
) -> Iterator[None]:
    table = _changed(SERVER, Row(at, on, to, do, "mutant"), ServerSignal)
    with patch.object(server, "SERVER", table):
        runner = ServerMachine.runner()
    with _run_by(ServerMachine, table, runner):
        yield


def _changed(table: Machine[Any, Any, Any], row: Row[Any, Any, Any], events: Any) -> Any:
    rows = [row if (it.at, it.on) == (row.at, row.on) else it for it in table.rows]
    final, refused = table.final, table.refused
    return Machine(table.name, table.initial, rows, events=events, final=final, refused=refused)


def _run_by(kind: type[Any], table: Any, runner: Any) -> Context:
    begin: Any = ControlMachine.__init__

    def begin_changed(self: Any, own: Any, own_runner: Any, *others: Any) -> None:
        chosen = (table, runner) if isinstance(self, kind) else (own, own_runner)
        begin(self, *chosen, *others)

    return patch.object(ControlMachine, "__init__", begin_changed)


# Changes of methods


def _is_for_any_client(self: Any, own: Holder, server: int, answered: Holder) -> bool:
    return own.nonce != NO_NONCE and answered.id == own.id


def _view_of_heard(heartbeats: Any) -> ClusterView:
    members = sorted((it.member for it in heartbeats), key=lambda member: member.id)
    return ClusterView(1, tuple(members))


_DRAW: Final[Any] = ClientIdentity.draw


def _draw_a_nonce(self: Any, taken: Any) -> None:
    number = self.holder.id
    _DRAW(self, taken)
    self.holder = Holder(number or self.holder.id, self.holder.nonce)


def _last_wins(held: Any, claimed: Any, key: Any) -> Any:
    return held


def _open_unread(self: Any, now: float, message: Any) -> bool:
    return True


_TAKE_EXPIRED: Final[Any] = Liveness.take_expired


def _keep_all(self: Any, now: float) -> list[int]:
    for number in _TAKE_EXPIRED(self, now):
        self.refresh(now, number)
    return []


_END: Final[Any] = IdLease.next_due


def _end_later(self: Any) -> float | None:
    end: float | None = _END(self)
    return None if end is None else end + _LATE


def _do_nothing(*_: Any, **__: Any) -> None:
    pass


def _method(of: Any, name: str, value: Any) -> Callable[[], Context]:
    return partial(patch.object, of, name, value)


_LATE: Final = EXPIRY + 1
"""The ticks by which a lease is too long if it counts from an answer that was as late."""

_NOT_RECEIVED: Final = Case(
    name="two servers, an owner that is not received",
    is_established=True,
    wishes=9,
    ticks=3,
    partition="X",
    is_one_way=True,
    divided_before=4,
)

S, E, A = ClientState, ClientSignal, ClientAction
T, F, B = ServerState, ServerSignal, ServerAction

MUTANTS: Final = (
    Mutant(
        "an answer counts for the client whose nonce it echoes",
        _method(Directory, "is_for", _is_for_any_client),
        Case(name="one server, foreign answers", servers="A", foreign_answers=True),
    ),
    Mutant(
        "a server refuses an id that another client holds",
        partial(_server_row, T.ACTIVE, F.ANNOUNCED_TAKEN, T.ACTIVE, B.ACKNOWLEDGE),
        Case(name="one server", servers="A"),
    ),
    Mutant(
        "a server acknowledges the holder of an id again",
        partial(_server_row, T.ACTIVE, F.ANNOUNCED_HELD, T.ACTIVE, B.REFUSE),
        Case(
            name="one server, partition", servers="A", is_established=True, ticks=4, partition="X"
        ),
    ),
    Mutant(
        "every active server of the view has to acknowledge",
        _method(Directory, "is_unanimous", property(lambda self: bool(self._acknowledged_by))),
        Case(name="two servers"),
    ),
    Mutant(
        "the view has servers that the client has not heard",
        _method(server_set, "current_view", _view_of_heard),
        Case(name="two servers, not heard", has_announced=False),
    ),
    Mutant(
        "a client that was refused draws another id",
        _method(ClientIdentity, "draw", _draw_a_nonce),
        Case(name="one server", servers="A"),
    ),
    Mutant(
        "of two holders the one with the lower nonce keeps the id, at every server",
        partial(patch.object, registrations, "max", _last_wins, create=True),
        Case(name="two servers"),
    ),
    Mutant(
        "a restarted server registers no id that is new to it",
        _method(ClientAdmission, "register_reserved", ClientAdmission.register),
        Case(name="one server, restart", servers="A", is_established=True, ticks=1, restarts=1),
    ),
    Mutant(
        "it waits for two expiries if no other server has a list",
        _method(ControlTimers, "joining", property(lambda self: self.heartbeat)),
        Case(
            name="one server, restart, loss",
            servers="A",
            is_established=True,
            ticks=2,
            losses=1,
            restarts=1,
        ),
    ),
    Mutant(
        "it reads the whole list of another server before it registers new ids",
        _method(Replication, "on_snapshot", _open_unread),
        Case(
            name="two servers, restart, delay", is_established=True, ticks=2, delays=1, restarts=1
        ),
    ),
    Mutant(
        "until then it reserves an id for the client that uses it",
        _method(ClientAdmission, "reserve", _do_nothing),
        Case(
            name="one server, restart",
            servers="A",
            is_established=True,
            wishes=9,
            ticks=8,
            restarts=1,
        ),
    ),
    Mutant(
        "the client announces again, with the same nonce",
        partial(_client_row, S.ESTABLISHED, E.UNKNOWN, S.ANNOUNCING, A.REQUEST_ID),
        Case(name="one server, restart", servers="A", is_established=True, ticks=1, restarts=1),
    ),
    Mutant(
        "a client without servers keeps its id, and announces it to those that come back",
        partial(_client_row, S.SUSPENDED, E.SERVER_READY, S.ANNOUNCING, A.REQUEST_ID),
        Case(
            name="one server, partition", servers="A", is_established=True, ticks=4, partition="X"
        ),
    ),
    Mutant(
        "an owner whose id no server confirms for one expiry is not established any more",
        partial(_client_row, S.ESTABLISHED, E.LEASE_OVER, S.ESTABLISHED),
        _NOT_RECEIVED,
    ),
    Mutant(
        "its lease counts from the time at which it announced the id",
        _method(IdLease, "next_due", _end_later),
        _NOT_RECEIVED,
    ),
    Mutant(
        "an id that expired is reserved for its last holder",
        _method(ReservedIds, "put", _do_nothing),
        Case(name="one server, 4 losses", servers="A", is_established=True, ticks=5, losses=4),
    ),
    Mutant(
        "a server that is silent for one expiry leaves the view",
        _method(Liveness, "take_expired", _keep_all),
        Case(name="one server, restart", servers="A", ticks=0, restarts=1),
    ),
)
