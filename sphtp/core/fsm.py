"""State machines as tables: rows are data, checked when compiled and printable as diagrams.

A machine knows states, events and the names of actions; it calls nothing. Its runner asks for the
row of an event, takes the row's state and performs the row's actions in order. An event without a
row is refused: the runner raises when a person caused it, and counts when the network did.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Generic, TypeVar

from sphtp.errors import LocalError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
A = TypeVar("A", bound=Enum)


class Name(Enum):
    """Base of states, events and actions. Identity hashing makes lookups five times faster."""

    __hash__ = object.__hash__


class TableError(LocalError):
    """A table with duplicate, unreachable, dead-end or missing rows."""


@dataclass(frozen=True, slots=True)
class Row(Generic[S, E, A]):
    """In state ``at``, event ``on`` leads to ``to`` and does ``do`` in order, because ``why``."""

    at: S
    on: E
    to: S
    do: tuple[A, ...]
    why: str


class Machine(Generic[S, E, A]):
    """A compiled table.

    ``entries`` are states beside ``initial`` in which a machine may start. ``refused`` names, per
    state, the events that have no row there on purpose: a pair that is neither a row nor refused is
    an error, as is one that is both.
    """

    def __init__(
        self,
        name: str,
        initial: S,
        rows: Iterable[Row[S, E, A]],
        *,
        events: type[E],
        entries: frozenset[S] = frozenset(),
        final: frozenset[S] = frozenset(),
        refused: Mapping[S, frozenset[E]],
    ) -> None:
        self.name = name
        self.initial = initial
        self.entries = entries | {initial}
        self.final = final
        self.refused = MappingProxyType(dict(refused))
        self.rows = tuple(rows)
        self._events = events
        self._table = _compile(self.rows)
        self._check()

    @property
    def states(self) -> tuple[S, ...]:
        """Every state, in the order of its definition."""
        return tuple(type(self.initial))

    @property
    def actions(self) -> frozenset[A]:
        """Every action that some row names; a runner must have a method for each."""
        return frozenset(action for row in self.rows for action in row.do)

    def find(self, state: S, event: E) -> Row[S, E, A] | None:
        """Return the row of this event, or None when the state refuses it."""
        return self._table.get(state, {}).get(event)

    def _check(self) -> None:
        problems = [*self._unreachable(), *self._dead_ends(), *self._undecided()]
        if problems:
            raise TableError(f"{self.name}: " + "; ".join(problems))

    def _unreachable(self) -> Iterable[str]:
        reached, frontier = set(self.entries), list(self.entries)
        while frontier:
            for row in self._table.get(frontier.pop(), {}).values():
                if row.to not in reached:
                    reached.add(row.to)
                    frontier.append(row.to)
        return (f"{state.name} is unreachable" for state in self.states if state not in reached)

    def _dead_ends(self) -> Iterable[str]:
        for state in self.states:
            leaves = any(row.to is not state for row in self._table.get(state, {}).values())
            if state not in self.final and not leaves:
                yield f"{state.name} is a dead end"
            if state in self.final and leaves:
                yield f"{state.name} is final and has a way out"

    def _undecided(self) -> Iterable[str]:
        for state in self.states:
            refused = self.refused.get(state, frozenset())
            for event in self._events:
                has_row = self.find(state, event) is not None
                if has_row and event in refused:
                    yield f"{state.name} both has a row for {event.name} and refuses it"
                if not has_row and event not in refused:
                    yield f"{state.name} neither has a row for {event.name} nor refuses it"


class Alarms(Generic[S]):
    """Absolute times in seconds; a name set again moves, and one that is not set never rings."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[S, float] = {}

    def set(self, name: S, due: float) -> None:
        """Let ``name`` ring at ``due``."""
        self._times[name] = due

    def move(self, name: S, due: float) -> None:
        """Let ``name`` ring at ``due`` instead, if it was set."""
        if name in self._times:
            self._times[name] = due

    def postpone(self, name: S, seconds: float) -> None:
        """Let ``name`` ring so much later, if it was set."""
        if name in self._times:
            self._times[name] += seconds

    def stop(self, *names: S) -> None:
        """Let none of ``names`` ring; those not set are left."""
        for name in names:
            self._times.pop(name, None)

    def clear(self) -> None:
        """Let nothing ring."""
        self._times.clear()

    def pending(self) -> tuple[S, ...]:
        """Return the names that are set."""
        return tuple(self._times)

    def take(self, now: float) -> S | None:
        """Unset and return the name that has been due for longest; None when none is due."""
        name = min(self._times, key=self._times.__getitem__, default=None)
        if name is None or self._times[name] > now:
            return None
        del self._times[name]
        return name

    def next_due(self) -> float | None:
        """Return the earliest time; None when nothing is set."""
        return min(self._times.values(), default=None)


def diagram(machine: Machine[S, E, A]) -> str:
    """Draw the machine as a mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state.name}" for state in machine.states if state in machine.entries]
    lines += [f"    {row.at.name} --> {row.to.name}: {row.on.name}" for row in machine.rows]
    lines += [f"    {state.name} --> [*]" for state in machine.states if state in machine.final]
    return "\n".join(lines)


def table(machine: Machine[S, E, A]) -> str:
    """Print the rows, then what each state refuses, as markdown tables."""
    lines = ["| at | on | to | do | why |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.at.name} | {row.on.name} | {row.to.name} "
        f"| {', '.join(action.name for action in row.do)} | {row.why} |"
        for row in machine.rows
    ]
    lines += ["", "| state | refuses |", "|---|---|"]
    for state in machine.states:
        refused = sorted(event.name for event in machine.refused.get(state, frozenset()))
        lines.append(f"| {state.name} | {', '.join(refused)} |")
    return "\n".join(lines)


def _compile(rows: Iterable[Row[S, E, A]]) -> Mapping[S, Mapping[E, Row[S, E, A]]]:
    compiled: dict[S, dict[E, Row[S, E, A]]] = {}
    for row in rows:
        events = compiled.setdefault(row.at, {})
        if row.on in events:
            raise TableError(f"two rows for {row.on.name} in {row.at.name}")
        events[row.on] = row
    return MappingProxyType({at: MappingProxyType(events) for at, events in compiled.items()})
