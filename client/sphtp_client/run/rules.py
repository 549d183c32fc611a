"""The rules of a run: the starts and restarts of programs, and the end of the run.

Theory of operation. A program starts when all programs in its ``after`` have become ready, and all
in its ``after_end`` have finished. When it ends, its restart rule decides: the program starts again
after a backoff that doubles from one restart to the next, up to ``backoff_max``, or it has ended
for good. It has **finished** if it ended with exit code 0 and its rule asks for no restart. It has
**failed** if it ended for good otherwise, or if a program for which it waits will never be ready,
or never finish. If a program ran for the time ``steady`` before it ended, its backoff and its count
of restarts in a row begin anew.

The run ends when an essential program has failed, and all that stand in for it, or when each
program that is not in the background has ended. If all are in the background, only a failure ends
it. Programs are stopped before those in their ``after`` and ``after_end``.

The rules have no clock: inputs that depend on the time have the argument ``now``. ``next_alarm``
returns the time at which ``poll_starts`` next returns a program whose backoff is over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf


class Restart(Enum):
    """The ends of a program after which it starts again."""

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


class Phase(Enum):
    """The phases of a program."""

    WAITING = "waiting"
    """It has not been started: it waits for other programs, or for the next ``poll_starts``."""
    RUNNING = "running"
    BACKOFF = "restarting"
    """It ended, and starts again when its backoff is over."""
    FINISHED = "finished"
    FAILED = "failed"


ENDED = frozenset((Phase.FINISHED, Phase.FAILED))


@dataclass(frozen=True, kw_only=True)
class ProgramRules:
    """The rules of one program; times in seconds.

    ``after`` are programs that must have become ready before it starts, and ``after_end`` programs
    that must have finished. ``announces`` is True if it becomes ready by a line of its output, and
    False if it is ready as soon as it starts. ``stands_in`` are programs that can replace it: its
    failure ends the run only if they have all failed, too.
    """

    after: frozenset[str] = frozenset()
    after_end: frozenset[str] = frozenset()
    restart: Restart = Restart.NEVER
    max_restarts: int = 5
    backoff: float = 1.0
    backoff_max: float = 30.0
    steady: float = 10.0
    announces: bool = False
    essential: bool = True
    background: bool = False
    stands_in: frozenset[str] = frozenset()


@dataclass
class ProgramState:
    """The present phase of a program, and its past."""

    phase: Phase = Phase.WAITING
    is_ready: bool = False
    restarts: int = 0
    """All restarts so far."""
    in_a_row: int = 0
    """Restarts since its last run of at least ``steady`` seconds."""
    started_at: float = 0.0
    start_at: float = 0.0
    """The end of its backoff."""
    code: int | None = None
    """Its last exit code, or minus the number of a signal."""
    lost: str | None = None
    """The program without which it can never start; None if there is none."""


class RunVerdict(Enum):
    """The reason for the end of a run."""

    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class RunEnd:
    """The reason for the end of a run, and the program whose failure ended it, or None."""

    verdict: RunVerdict
    program: str | None = None


@dataclass
class Rules:
    """The rules of all programs, and the phase of each."""

    programs: Mapping[str, ProgramRules]
    states: dict[str, ProgramState] = field(init=False)
    end: RunEnd | None = field(default=None, init=False)
    """The end of the run; None before. Once set, it never changes."""

    def __post_init__(self) -> None:
        self.states = {name: ProgramState() for name in self.programs}

    def poll_starts(self, now: float) -> list[str]:
        """Return the programs to start now, and mark them as running.

        The first start of a program comes behind those of the programs in its ``after``.
        """
        starts: list[str] = []
        # A program that is ready as soon as it starts allows others to start.
        while found := [name for name in self.states if self._starts(name, now)]:
            starts += found
        return starts

    def _starts(self, name: str, now: float) -> bool:
        """Mark a program as running if it is to start now; return True if it is."""
        state = self.states[name]
        is_due = state.phase is Phase.BACKOFF and now >= state.start_at
        if is_due:
            state.restarts += 1
            state.in_a_row += 1
        elif state.phase is not Phase.WAITING or any(self._unmet(name)):
            return False
        state.phase, state.started_at = Phase.RUNNING, now
        state.is_ready = state.is_ready or not self.programs[name].announces
        return True

    def _unmet(self, name: str) -> Iterator[str]:
        """Yield the programs that keep a program from starting."""
        rules = self.programs[name]
        yield from (other for other in rules.after if not self.states[other].is_ready)
        for other in rules.after_end:
            if self.states[other].phase is not Phase.FINISHED:
                yield other

    def next_alarm(self) -> float:
        """Return the time at which the first backoff is over; infinity if there is none."""
        backoffs = (s.start_at for s in self.states.values() if s.phase is Phase.BACKOFF)
        return min(backoffs, default=inf)

    def handle_ready(self, name: str) -> None:
        """Note that a program is ready."""
        self.states[name].is_ready = True

    def handle_ended(self, name: str, code: int, now: float) -> None:
        """Apply the restart rule of a program that has ended."""
        rules, state = self.programs[name], self.states[name]
        state.code = code
        if now - state.started_at >= rules.steady:
            state.in_a_row = 0
        if not _restarts(rules.restart, code):
            state.phase = Phase.FAILED if code else Phase.FINISHED
        elif state.in_a_row < rules.max_restarts:
            state.phase = Phase.BACKOFF
            # The exponent has a bound, because a float overflows at 2^1024.
            pause = rules.backoff * 2.0 ** min(state.in_a_row, 64)
            state.start_at = now + min(pause, rules.backoff_max)
        else:
            state.phase = Phase.FAILED
        self._settle()

    def stop_order(self) -> Iterator[list[str]]:
        """Yield the groups of programs to stop, one after the other.

        A program is in an earlier group than those in its ``after`` and ``after_end``.
        """
        left = dict(self.programs)
        while left:
            needed = {other for rules in left.values() for other in rules.after | rules.after_end}
            layer = [name for name in left if name not in needed]
            yield layer
            for name in layer:
                del left[name]

    def waits_for(self, name: str) -> list[str]:
        """Return the programs that keep a program from starting, in the order of ``programs``."""
        unmet = set(self._unmet(name))
        return [other for other in self.programs if other in unmet]

    def awaited(self) -> list[str]:
        """Return the programs that are not in the background."""
        return [name for name, rules in self.programs.items() if not rules.background]

    def _settle(self) -> None:
        """Mark programs that can never start as failed, and find the end of the run."""
        while lost := dict(self._waiting_in_vain()):
            for name, other in lost.items():
                self.states[name].phase, self.states[name].lost = Phase.FAILED, other
        if self.end is not None:
            return
        for name in self._root_causes():
            self.end = RunEnd(RunVerdict.FAILED, name)
            return
        awaited = self.awaited()
        if awaited and all(self.states[name].phase in ENDED for name in awaited):
            self.end = RunEnd(RunVerdict.FINISHED)

    def _waiting_in_vain(self) -> Iterator[tuple[str, str]]:
        for name, state in self.states.items():
            if state.phase is Phase.WAITING:
                for other in self.programs[name].after:
                    if self.states[other].phase in ENDED and not self.states[other].is_ready:
                        yield name, other
                for other in self.programs[name].after_end:
                    if self.states[other].phase is Phase.FAILED:
                        yield name, other

    def _root_causes(self) -> Iterable[str]:
        """Return the programs whose failure ends the run, causes before effects."""
        failed = [
            name
            for name, rules in self.programs.items()
            if rules.essential and self._has_failed({name, *rules.stands_in})
        ]
        return sorted(failed, key=self._distance)

    def _distance(self, name: str) -> int:
        """Return the number of programs from this one to the one whose failure is the cause."""
        distance = 0
        while (lost := self.states[name].lost) is not None:
            name, distance = lost, distance + 1
        return distance

    def _has_failed(self, names: Iterable[str]) -> bool:
        return all(self.states[name].phase is Phase.FAILED for name in names)


def _restarts(restart: Restart, code: int) -> bool:
    return restart is Restart.ALWAYS or (restart is Restart.ON_FAILURE and code != 0)
