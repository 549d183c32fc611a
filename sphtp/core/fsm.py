"""State machines as tables, the runner that performs them, and their alarms.

A ``Machine`` is a table of rows: in state ``at``, event ``on`` leads to state ``to`` and does
``do`` in order. The constructor checks that each pair of state and event either has a row or is
refused on purpose. The table contains only the names of actions, and calls no function, so that
``diagram`` can draw it.

A ``Runner`` joins a table with the methods of a class. A class method makes the runner once, after
the class exists, because a compiled class body cannot name its own methods. An instance needs the
attribute ``state``, and ``alarms`` if the runner handles its timers. The state changes first, then
the actions run, so that an action may cause the next event.

The meaning of a refused event depends on the cause of the event, and each event has one kind of
cause. So a runner needs a rule for each event that any state refuses:

- ``raised``: a caller caused the event. ``StateError`` names state and event; nothing changes.
- ``counted``: the network caused the event. Only a counter changes, and a peer cannot make this
  side raise.
- ``ignored``: the event reports a fact (the last byte is acked, a timer expired, a server is ready)
  that came too early or too late to matter. Nothing changes.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from sphtp.errors import LocalError, StateError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
A = TypeVar("A", bound=Enum)


class Name(Enum):
    """Base of states, events and actions; hashed by identity, which makes lookups faster."""

    __hash__ = object.__hash__


class TableError(LocalError):
    """A faulty table, or a runner that does not fit its table: see ``Machine`` and ``Runner``."""


class Row(NamedTuple, Generic[S, E, A]):
    """A rule: in state ``at``, event ``on`` leads to state ``to`` and runs the actions ``do``.

    The actions run in their order. ``why`` is the reason for the rule.
    """

    at: S
    on: E
    to: S
    do: tuple[A, ...]
    why: str


class Machine(Generic[S, E, A]):
    """A table of states and events, checked when it is made.

    ``entries`` are states beside ``initial`` in which an instance may start. ``refused`` has, for
    each state, the events that have no row there on purpose. Raises ``TableError`` if a state and
    an event have two rows, a row and a refusal, or neither, if a state cannot be reached, if a
    state that is not ``final`` has no way out, or if a final one has a way out.
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
        """All states, in the order of their definition."""
        return tuple(type(self.initial))

    @property
    def actions(self) -> frozenset[A]:
        """All actions of the rows; a runner must have a method for each."""
        return frozenset(action for row in self.rows for action in row.do)

    def find(self, state: S, event: E) -> Row[S, E, A] | None:
        """Return the row of a state and an event; None if the state refuses the event."""
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


class Stateful(Protocol[S]):
    """An object that a runner moves from state to state."""

    state: S


class AlarmDriven(Stateful[S], Protocol[S, E]):
    """An object whose alarms are events of its table."""

    alarms: "Alarms[E]"


Method = Callable[..., None]


class Runner(Generic[S, E, A]):
    """The runner of a table: it calls a method for each action, and has a rule for refused events.

    ``methods`` are functions of a class. The runner calls each with the instance and the arguments
    of ``step``. Each event that some state refuses is in one of ``raised``, ``counted`` and
    ``ignored``; ``count`` is the method that counts an event. With ``timed`` the instance has
    ``alarms`` named by events, and a change of state stops the alarms that the new state refuses
    before the actions run.

    Raises ``TableError`` if an action has no method, a method no action, or a refused event not
    exactly one rule, or if there are ``counted`` events without ``count`` or the reverse.
    """

    __slots__ = ("_count", "_counted", "_ignored", "_machine", "_steps")

    def __init__(
        self,
        machine: Machine[S, E, A],
        methods: Mapping[A, Method],
        *,
        raised: Iterable[E] = (),
        counted: Iterable[E] = (),
        ignored: Iterable[E] = (),
        count: Method | None = None,
        timed: bool = False,
    ) -> None:
        rules = [frozenset(raised), frozenset(counted), frozenset(ignored)]
        _check_rules(machine, methods, rules, has_count=count is not None)
        self._machine = machine
        _, self._counted, self._ignored = rules
        self._count = count
        self._steps: dict[S, dict[E, tuple[S, tuple[Method, ...]]]] = {
            state: {} for state in machine.states
        }
        for row in machine.rows:
            actions = tuple(methods[action] for action in row.do)
            refused = machine.refused.get(row.to, frozenset())
            stops = (_stop_alarms(refused),) if timed and refused and row.to is not row.at else ()
            self._steps[row.at][row.on] = row.to, stops + actions

    def step(self, owner: Stateful[S], event: E, *arguments: Any) -> None:
        """Take the row of ``event``: change the owner's state, then call the row's methods.

        Raises ``StateError`` if the state refuses an event of ``raised``.
        """
        found = self._steps[owner.state].get(event)
        if found is None:
            self._refuse(owner, owner, event)
            return
        owner.state, actions = found
        for action in actions:
            action(owner, *arguments)

    def step_of(self, subject: Stateful[S], owner: Any, event: E, *arguments: Any) -> None:
        """Take the row of ``event`` for a subject whose actions are methods of an owner.

        The arguments of a method are the owner, the subject, and ``arguments``. Raises as ``step``.
        """
        found = self._steps[subject.state].get(event)
        if found is None:
            self._refuse(subject, owner, event)
            return
        subject.state, actions = found
        for action in actions:
            action(owner, subject, *arguments)

    def handle_timeout(self, owner: AlarmDriven[S, E], now: float) -> None:
        """Take the row of every alarm that is due, with ``now`` as the argument."""
        while (event := owner.alarms.take(now)) is not None:
            self.step(owner, event, now)

    def _refuse(self, subject: Stateful[S], owner: Any, event: E) -> None:
        if event in self._ignored:
            return
        if event in self._counted and self._count is not None:
            self._count(owner)
            return
        name = self._machine.name
        raise StateError(f"{name} in state {subject.state.name} refuses {event.name}")


class Alarms(Generic[E]):
    """The timers of one machine, at most one for each name. Times are absolute, in seconds.

    ``due`` is the earliest time; None if no alarm is set.
    """

    __slots__ = ("_times", "due")

    def __init__(self) -> None:
        self._times: dict[E, float] = {}
        # Read far more often than an alarm changes.
        self.due: float | None = None

    def set(self, name: E, due: float) -> None:
        """Set the alarm ``name`` to ``due``, in place of its earlier time if it has one."""
        self._times[name] = due
        self._find_due()

    def move(self, name: E, due: float) -> None:
        """Change the time of the alarm ``name``, if it is set."""
        if name in self._times:
            self.set(name, due)

    def postpone(self, name: E, seconds: float) -> None:
        """Postpone the alarm ``name`` by ``seconds``, if it is set."""
        if name in self._times:
            self.set(name, self._times[name] + seconds)

    def stop(self, *names: E) -> None:
        """Unset the alarms ``names``; those not set are ignored."""
        for name in names:
            self._times.pop(name, None)
        self._find_due()

    def clear(self) -> None:
        """Unset all alarms."""
        self.stop(*self.pending())

    def pending(self) -> tuple[E, ...]:
        """Return the names of the alarms that are set."""
        return tuple(self._times)

    def take(self, now: float) -> E | None:
        """Unset the alarm that has been due longest and return its name; None if none is due."""
        if self.due is None or self.due > now:
            return None
        name = min(self._times, key=self._times.__getitem__)
        self.stop(name)
        return name

    def _find_due(self) -> None:
        self.due = min(self._times.values(), default=None)


def diagram(machine: Machine[S, E, A]) -> str:
    """Return the machine as a mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state.name}" for state in machine.states if state in machine.entries]
    lines += [f"    {row.at.name} --> {row.to.name}: {row.on.name}" for row in machine.rows]
    lines += [f"    {state.name} --> [*]" for state in machine.states if state in machine.final]
    return "\n".join(lines)


def table(machine: Machine[S, E, A]) -> str:
    """Return the rows, and then the events that each state refuses, as markdown tables."""
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


def _check_rules(
    machine: Machine[S, E, A],
    methods: Mapping[A, Method],
    rules: list[frozenset[E]],
    *,
    has_count: bool,
) -> None:
    refused = {event for events in machine.refused.values() for event in events}
    problems = [f"{name.name} has no method" for name in machine.actions.difference(methods)]
    problems += [
        f"{name.name} is no action of it" for name in set(methods).difference(machine.actions)
    ]
    for event in refused:
        decided = sum(event in rule for rule in rules)
        if decided != 1:
            problems.append(f"{event.name}, refused, has {decided} rules")
    if has_count is not bool(rules[1]):
        problems.append("events are counted if and only if there is a method that counts")
    if problems:
        raise TableError(f"{machine.name}: " + "; ".join(sorted(problems)))


def _stop_alarms(events: Iterable[E]) -> Method:
    names = tuple(events)

    def stop(owner: AlarmDriven[S, E], *_: Any) -> None:
        owner.alarms.stop(*names)

    return stop
