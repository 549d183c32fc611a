"""The board of a run: the state of each process, and the notices for people or scripts.

A supervisor calls its methods, as those of ``RunStatus`` for a cluster. In contrast to that, the
rules decide on the phase of a program, the lines of programs are notices, and notices may be JSON.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from sphtp_client.cluster.outcome import RunOutcome, why
from sphtp_client.cluster.run_status import (
    NOT_STARTED,
    ProcessExit,
    ProcessRole,
    ProcessStatus,
    RunStatus,
)
from sphtp_client.program import ExitStatus
from sphtp_client.run.rules import Phase, Rules, RunVerdict
from sphtp_client.simulation.reports import Started, parse_event

_INTRODUCTION: Final = re.compile(rb'\{"pid": (\d+)\}')
_QUIET: Final = frozenset(("debug", "info"))
"""Levels of a server's log that are not shown."""
_SHOWN_ELSEWHERE: Final = frozenset(("event", "level", "timestamp"))


class ProgramLogs:
    """The log files of servers and programs: appends the lines of each to ``NAME.log``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = dict[str, TextIO]()

    def write(self, name: str, line: str) -> None:
        """Append a line to a file, which the first line opens. Raises ``OSError``."""
        if name not in self._files:
            path = self._folder / f"{name}.log"
            self._files[name] = path.open("a", encoding="utf-8", errors="backslashreplace")
        file = self._files[name]
        file.write(f"{line}\n")
        file.flush()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            # A failed write has been reported before.
            with suppress(OSError):
                file.close()


class RunBoard(RunStatus):
    """The state of every process of a run, by name; ``clock`` is that of the rules.

    With ``logs``, the lines of servers and programs go to files, and are no notices until a file
    cannot be written.
    """

    def __init__(
        self,
        rules: Rules,
        clock: Callable[[], float],
        ready_lines: Mapping[str, re.Pattern[str]],
        *,
        as_json: bool,
        logs: ProgramLogs | None = None,
    ) -> None:
        super().__init__()
        self.rules = rules
        self.clock = clock
        self.changes = 0
        """The number of changes so far after which the rules may decide anew."""
        self.is_stopping = False
        self.last_lines: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        """The addresses of the servers, from their last starts."""
        self._ready_lines = ready_lines
        self._introduced: set[str] = set()
        self._early: dict[str, list[str]] = {}
        self._as_json = as_json
        self._logs = logs

    def has_changed(self, seen: int) -> bool:
        """Return True if ``changes`` differs from ``seen``."""
        return self.changes != seen

    def note(self, event: str, text: str, /, **values: object) -> None:
        """Add a notice: the text, or with JSON the event and its values."""
        self.notices.append(json.dumps({"event": event, **values}) if self._as_json else text)

    def spawned(self, process: ProcessStatus, pid: int) -> None:
        """Note the process id of a server, or of the guard of a program."""
        self._introduced.discard(process.name)
        process.pid = pid
        if process.role is ProcessRole.SERVER:
            self._begun(process.name, pid)

    def not_started(self, process: ProcessStatus, reason: str) -> None:
        """Treat a process that could not be spawned as one that ended at once."""
        process.failure = f"cannot be started: {reason}"
        self._end(process.name, NOT_STARTED, asked=False)

    def note_line(self, process: ProcessStatus, line: bytes) -> None:
        """Handle a log entry of a server, the process id from a guard, or a line of a program."""
        name, introduction = process.name, _INTRODUCTION.fullmatch(line)
        if process.role is ProcessRole.SERVER:
            self._note_entry(name, line.decode(errors="replace"))
        elif introduction and name not in self._introduced:
            self._introduced.add(name)
            process.pid = int(introduction[1])
            self._begun(name, int(introduction[1]))
        else:
            self._show(name, line.decode(errors="replace"), "stdout")

    def note_error_line(self, process: ProcessStatus, line: str) -> None:
        """Show a line of standard error, for a program after its process id has arrived."""
        super().note_error_line(process, line)
        name, is_program = process.name, process.role is ProcessRole.PROGRAM
        if is_program and name not in self._introduced:
            # It has overtaken the line with the process id, which is in another pipe.
            self._early.setdefault(name, []).append(line)
        else:
            self._show(name, line, "stderr")

    def exited(self, process: ProcessStatus, code: int, *, asked: bool) -> None:
        """Note the end of a process, and apply its restart rule unless the run is stopping."""
        self._show_early(process.name)
        self._end(process.name, code, asked=asked)

    def outcome(self, stopped_by: ExitStatus | None) -> RunOutcome:
        """Return the outcome of the run, after all processes have ended."""
        end = self.rules.end
        failed = [name for name, state in self.rules.states.items() if state.phase is Phase.FAILED]
        cause = end.program if end is not None and end.verdict is RunVerdict.FAILED else None
        remarks = tuple(f"{name} failed: {self.why(name)}" for name in failed if name != cause)
        if cause is not None:
            return RunOutcome(ExitStatus.FAILED, f"{cause} failed: {self.why(cause)}", remarks)
        if stopped_by is None:
            return RunOutcome(ExitStatus.FINISHED, "finished", remarks)
        if stopped_by is ExitStatus.INTERRUPTED and not self.rules.awaited():
            return RunOutcome(ExitStatus.FINISHED, "stopped", remarks)
        return RunOutcome(stopped_by, f"{stopped_by.word} before the end", remarks)

    def why(self, name: str) -> str:
        """Return the reason why a program failed, in words."""
        state = self.rules.states[name]
        if state.lost is not None:
            return f"it waited for {state.lost}, which {self.rules.states[state.lost].phase.value}"
        plural = "s" if state.restarts > 1 else ""
        times = f", after {state.restarts} restart{plural}" if state.restarts else ""
        process = self.processes[name]
        has_ended = state.code == 0 and process.failure is None
        return f"{'it ended with exit code 0' if has_ended else why(process)}{times}"

    def document(self) -> Iterator[dict[str, Any]]:
        """Yield an object for each server and each program, for the JSON document."""
        for name, state in self.rules.states.items():
            process = self.processes.get(name)
            yield {
                "program": name,
                "phase": "ended" if state.phase is Phase.RUNNING else state.phase.value,
                "exit_code": process.exit.code if process and process.exit else state.code,
                "restarts": state.restarts,
            }

    def _begun(self, name: str, pid: int) -> None:
        self.note("started", f"{name}: pid {pid}", program=name, pid=pid)
        self._show_early(name)

    def _show_early(self, name: str) -> None:
        for line in self._early.pop(name, ()):
            self._show(name, line, "stderr")

    def _show(self, name: str, line: str, stream: str) -> None:
        self.last_lines[name] = line
        if not self._is_logged(name, line):
            self.note("line", f"{name} | {line}", program=name, stream=stream, text=line)
        pattern = self._ready_lines.get(name)
        if pattern is not None and pattern.search(line):
            self._ready(name)

    def _ready(self, name: str) -> None:
        if not self.rules.states[name].is_ready:
            self.note("ready", f"{name}: ready", program=name)
            self.rules.handle_ready(name)
            self.changes += 1

    def _is_logged(self, name: str, line: str) -> bool:
        """Write a line to the file of its program; return False if there is none or it failed."""
        if self._logs is None:
            return False
        try:
            self._logs.write(name, line)
        except OSError as error:
            self._logs = None
            text = f"lines are shown here, because they cannot be written: {error}"
            self.note("logs", text, error=str(error))
            return False
        return True

    def _note_entry(self, name: str, line: str) -> None:
        """Handle a line of a server's log, and write it unchanged to its file."""
        event = parse_event(line.encode())
        is_logged = self._is_logged(name, line)
        if isinstance(event, Started):
            process = self.processes[name]
            process.id, process.address = event.id, f"{event.pub},{event.sub}"
            self.addresses[name] = self.last_lines[name] = process.address
            text = f"{name}: listens on {process.address}"
            self.note("listening", text, program=name, address=process.address)
            self.rules.handle_ready(name)
            self.changes += 1
            return
        shown = _for_people(line)
        if shown is not None:
            self.last_lines[name] = shown
            if not is_logged:
                self.note("line", f"{name} | {shown}", program=name, stream="stdout", text=shown)

    def _end(self, name: str, code: int, *, asked: bool) -> None:
        process = self.processes[name]
        process.exit = ProcessExit(code, asked)
        if self.is_stopping:
            self.note("ended", f"{name}: ended, {process.exit}", program=name, exit_code=code)
            return
        self.rules.handle_ended(name, code, self.clock())
        self.changes += 1
        self.note(
            "ended",
            f"{name}: {self._after_end(process)}",
            program=name,
            exit_code=code,
            phase=self.rules.states[name].phase.value,
        )

    def _after_end(self, process: ProcessStatus) -> str:
        state, rules = self.rules.states[process.name], self.rules.programs[process.name]
        ending = process.failure or str(process.exit)
        match state.phase:
            case Phase.BACKOFF:
                pause = state.start_at - self.clock()
                count = f"{state.in_a_row + 1} of {rules.max_restarts}"
                return f"{ending}; starts again in {pause:.1f} s ({count})"
            case Phase.FAILED:
                return f"failed, {ending}"
            case _:
                return "finished"


def _for_people(line: str) -> str | None:
    """Return an entry of a server's log as text; None for the levels debug and info.

    A line that is no entry is returned unchanged.
    """
    try:
        entry = json.loads(line)
        if entry["level"] in _QUIET:
            return None
    except (ValueError, TypeError, LookupError):
        return line
    rest = (f"{key}={text}" for key, text in entry.items() if key not in _SHOWN_ELSEWHERE)
    return " ".join((str(entry.get("event")), *rest))
