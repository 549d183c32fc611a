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
