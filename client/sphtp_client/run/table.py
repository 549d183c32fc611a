"""The table of a run: one row for each server and each program."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from sphtp.core.printable import printable
from sphtp_client.run.board import RunBoard
from sphtp_client.run.rules import Phase

COLOURS: Final = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green")
STATE_COLOURS: Final = {
    Phase.WAITING: "dim",
    Phase.RUNNING: "green",
    Phase.BACKOFF: "yellow",
    Phase.FINISHED: "",
    Phase.FAILED: "bold red",
}
LONGEST_LINE: Final = 60
_PREFIX: Final = re.compile(r"([\w.-]+)(?: \||:) ")


def draw(board: RunBoard, seconds: float) -> Table:
    """Return the table of all programs; ``seconds`` is the time since the start of the run."""
    table = Table(title=f"programs, {seconds:.0f} s", title_justify="left")
    table.add_column("program", no_wrap=True)
    table.add_column("pid", justify="right")
    table.add_column("state")
    table.add_column("for", justify="right")
    table.add_column("restarts", justify="right")
    table.add_column("last line", no_wrap=True, overflow="ellipsis", max_width=LONGEST_LINE)
    for name, state in board.rules.states.items():
        process = board.processes.get(name)
        is_alive = process is not None and process.alive
        age = board.clock() - state.started_at
        table.add_row(
            Text(name, colour_of(name, board)),
            str(process.pid) if process is not None and is_alive else "",
            Text(state_of(name, board), STATE_COLOURS[state.phase]),
            f"{age:.0f} s" if is_alive else "",
            str(state.restarts) if state.restarts else "",
            Text(printable(board.last_lines.get(name, ""))),
        )
    return table


def summary(board: RunBoard) -> str | None:
    """Return the number of programs in each phase as one line; None when the run ends."""
    if board.is_stopping:
        return None
    phases = Counter(state.phase.value for state in board.rules.states.values())
    counts = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    return f"programs: {counts}"


def state_of(name: str, board: RunBoard) -> str:
    """Return the state of a program in words."""
    state = board.rules.states[name]
    process = board.processes.get(name)
    is_alive = process is not None and process.alive
    match state.phase:
        case Phase.WAITING | Phase.BACKOFF if board.is_stopping:
            return "not started"
        case Phase.RUNNING if board.is_stopping:
            return "ending" if is_alive else "ended"
        case Phase.WAITING:
            return _waiting_for(board.rules.waits_for(name))
        case Phase.RUNNING:
            return "ready" if state.is_ready else "starting"
        case Phase.BACKOFF:
            return f"restarts in {max(0.0, state.start_at - board.clock()):.0f} s"
        case Phase.FAILED:
            return f"failed: {board.why(name)}"
        case _:
            return "finished"


def _waiting_for(names: Sequence[str]) -> str:
    if not names:
        return "starts now"
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"waits for {names[0]}{more}"


def style(notice: str, board: RunBoard) -> Text:
    """Return a notice with the name of its program in the program's colour."""
    text = Text(notice)
    prefix = _PREFIX.match(notice)
    if prefix is not None and prefix[1] in board.rules.states:
        text.stylize(colour_of(prefix[1], board), 0, prefix.end(1))
    return text


def colour_of(name: str, board: RunBoard) -> str:
    """Return the colour of a program."""
    return COLOURS[list(board.rules.states).index(name) % len(COLOURS)]
