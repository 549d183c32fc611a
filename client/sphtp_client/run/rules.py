"""The rules of a run: which program starts when, which one starts again, and when the run is over.

Theory of operation. Each program waits until those that it comes after are ready, or have finished,
and then starts. What happens when it ends is the matter of its restart rule: it starts again after
a backoff that doubles from one restart to the next, or it has ended for good. It has **finished**
if it ended for good with exit code 0, and has **failed** otherwise. A program that ran for the time
``steady`` before it ended counts as sound: its backoff and its number of restarts begin anew.

The run is over when a program has failed whose failure matters, or when each program that the run
waits for has finished. Programs end in the reverse order of their starts.

The rules have no clock: each input has the time ``now``, and ``next_alarm`` is the time at which
``poll_starts`` has something to return at the latest.
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
    """It has not been started: others have to be ready first."""
    RUNNING = "running"
    BACKOFF = "restarting"
    """It ended, and starts again when its backoff is over."""
    FINISHED = "finished"
    FAILED = "failed"


ENDED = frozenset((Phase.FINISHED, Phase.FAILED))


@dataclass(frozen=True, kw_only=True)
class ProgramRules:
    """The rules of one program; times in seconds.

    ``after`` are programs that must be ready before it starts, and ``after_end`` those that must
    have finished. ``announces`` is True if it is ready only when it says so. ``stands_in`` are the
    programs of which one is enough: its failure matters only if they have all failed, too.
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
    """Restarts since it was last steady."""
    started_at: float = 0.0
    start_at: float = 0.0
    """The end of its backoff."""
    code: int | None = None
    """Its last exit code, or minus the number of a signal."""
    lost: str | None = None
    """The program that it waited for in vain."""


class RunVerdict(Enum):
    """The reason for the end of a run."""

    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class RunEnd:
    """The end of a run, and the program that failed."""

    verdict: RunVerdict
    program: str | None = None


@dataclass
class Rules:
    """The rules of all programs, and the phase of each."""

    programs: Mapping[str, ProgramRules]
    states: dict[str, ProgramState] = field(init=False)
    end: RunEnd | None = field(default=None, init=False)
    """The end of the run, once there is one; the first one stays."""

    def __post_init__(self) -> None:
        self.states = {name: ProgramState() for name in self.programs}

    def poll_starts(self, now: float) -> list[str]:
        """Return the programs to start now, in the order of the file; they then run."""
        starts = []
        for name, state in self.states.items():
            is_due = state.phase is Phase.BACKOFF and now >= state.start_at
            if is_due:
                state.restarts += 1
                state.in_a_row += 1
            if is_due or (state.phase is Phase.WAITING and not self.waits_for(name)):
                state.phase, state.started_at = Phase.RUNNING, now
                state.is_ready = state.is_ready or not self.programs[name].announces
                starts.append(name)
        # One that is ready as soon as it starts lets others start.
        return [*starts, *self.poll_starts(now)] if starts else starts

    def next_alarm(self) -> float:
        """Return the time at which a backoff is over, or infinity."""
        backoffs = (s.start_at for s in self.states.values() if s.phase is Phase.BACKOFF)
        return min(backoffs, default=inf)

    def handle_ready(self, name: str) -> None:
        """Note that a program is ready."""
        self.states[name].is_ready = True

    def handle_ended(self, name: str, code: int, now: float) -> None:
        """Note the end of a program: it starts again later, or has ended for good."""
        rules, state = self.programs[name], self.states[name]
        state.code = code
        if now - state.started_at >= rules.steady:
            state.in_a_row = 0
        if not _restarts(rules.restart, code):
            state.phase = Phase.FAILED if code else Phase.FINISHED
        elif state.in_a_row < rules.max_restarts:
            state.phase = Phase.BACKOFF
            # 64 times two is more than a day for any first pause, and fits a float.
            pause = rules.backoff * 2.0 ** min(state.in_a_row, 64)
            state.start_at = now + min(pause, rules.backoff_max)
        else:
            state.phase = Phase.FAILED
        self._settle()

    def stop_order(self) -> Iterator[list[str]]:
        """Yield the programs to end together: each before those that it came after."""
        left = dict(self.programs)
        while left:
            needed = {other for rules in left.values() for other in rules.after | rules.after_end}
            layer = [name for name in left if name not in needed]
            yield layer
            for name in layer:
                del left[name]

    def waits_for(self, name: str) -> list[str]:
        """Return the programs without which one cannot start yet, in the order of the file."""
        rules = self.programs[name]
        return [
            other
            for other, state in self.states.items()
            if (other in rules.after and not state.is_ready)
            or (other in rules.after_end and state.phase is not Phase.FINISHED)
        ]

    def awaited(self) -> list[str]:
        """Return the programs that the run waits for."""
        return [name for name, rules in self.programs.items() if not rules.background]

    def _settle(self) -> None:
        """Find those that wait in vain, and the end of the run."""
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
        """Return the programs whose failure ends the run; causes come before effects."""
        failed = [
            name
            for name, rules in self.programs.items()
            if rules.essential and self._has_failed({name, *rules.stands_in})
        ]
        return sorted(failed, key=self._distance)

    def _distance(self, name: str) -> int:
        """Return how many programs waited in vain between this one and the cause."""
        lost = self.states[name].lost
        return 0 if lost is None else 1 + self._distance(lost)

    def _has_failed(self, names: Iterable[str]) -> bool:
        return all(self.states[name].phase is Phase.FAILED for name in names)


def _restarts(restart: Restart, code: int) -> bool:
    return restart is Restart.ALWAYS or (restart is Restart.ON_FAILURE and code != 0)
