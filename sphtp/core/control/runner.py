"""Runs a table: takes the row of a signal, changes the state, performs the row's actions."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from sphtp.core.control.counters import Count, Counters
from sphtp.core.fsm import Alarms, Machine, Name
from sphtp.errors import StateError

S = TypeVar("S", bound=Name)
E = TypeVar("E", bound=Name)
A = TypeVar("A", bound=Name)


class Runner(Generic[S, E, A]):
    """The state of one machine and its alarms.

    An alarm that a new state refuses is stopped. Raises ``KeyError`` when an action has no method.
    """

    __slots__ = ("_actions", "_counters", "_machine", "_state", "alarms")

    def __init__(
        self,
        machine: Machine[S, E, A],
        actions: Mapping[A, Callable[..., None]],
        counters: Counters,
    ) -> None:
        self.alarms: Alarms[E] = Alarms()
        self._actions = {action: actions[action] for action in machine.actions}
        self._counters = counters
        self._machine = machine
        self._state = machine.initial

    @property
    def state(self) -> S:
        """The present state."""
        return self._state

    @property
    def is_over(self) -> bool:
        """The state is final."""
        return self._state in self._machine.final

    def signal(self, now: float, signal: E, *subject: object) -> None:
        """Do what the row says; a signal that the state refuses is counted."""
        row = self._machine.find(self._state, signal)
        if row is None:
            self._counters.add(Count.REFUSED_BY_STATE)
            return
        self._state = row.to
        for pending in self.alarms.pending():
            if self._machine.find(row.to, pending) is None:
                self.alarms.stop(pending)
        for action in row.do:
            self._actions[action](now, *subject)

    def offer(self, now: float, signal: E, *subject: object) -> None:
        """Signal what holds rather than happens: a state that refuses it is not interested."""
        if self._machine.find(self._state, signal) is not None:
            self.signal(now, signal, *subject)

    def command(self, now: float, signal: E) -> None:
        """Signal what a person wants. Raises ``StateError`` when the state refuses it."""
        if self._machine.find(self._state, signal) is None:
            name = self._machine.name
            raise StateError(f"a {name} that is {self._state.value} refuses {signal.name}")
        self.signal(now, signal)

    def handle_timeout(self, now: float) -> None:
        """Signal what is due."""
        while (signal := self.alarms.take(now)) is not None:
            self.signal(now, signal)
