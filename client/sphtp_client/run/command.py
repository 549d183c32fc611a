"""The verb ``sphtp run``: run servers and programs that a file describes."""

import json as json_format
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
import trio
from rich.console import Console

from sphtp.errors import SettingsError
from sphtp_client.cluster.course import secret_file
from sphtp_client.cluster.display import LiveDisplay, PlainDisplay, RunDisplay
from sphtp_client.cluster.outcome import RunOutcome
from sphtp_client.connection import make_log_directory
from sphtp_client.program import ExitStatus, write_line
from sphtp_client.run.board import ProgramLogs, RunBoard
from sphtp_client.run.rules import Rules
from sphtp_client.run.run_file import RunFile, load_run_file, server_names
from sphtp_client.run.runner import RunPlan, perform_run
from sphtp_client.run.table import draw, style, summary


@click.command(short_help="Run servers and programs of yours from a file.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Check FILE, print its programs, and start nothing.")
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Append the output of each server and program to NAME.log in this directory, instead of "
    "showing it.",
)
@click.option(
    "--json",
    is_flag=True,
    help="Print JSON objects, one per line: events, the output of programs, and the outcome.",
)
def run(file: Path, check: bool, logs: Path | None, json: bool) -> None:
    """Start the servers and programs that FILE describes, restart them, and end them together.

    FILE is a TOML file: the optional tables [servers] and [environment], and a table [program.NAME]
    for each program. Programs start when the servers are ready. The command sets the variables
    SPHTP_CLIENT_SERVER, SPHTP_CLIENT_SECRET_FILE, SPHTP_CLIENT_HEARTBEAT and SPHTP_CLIENT_EXPIRY
    for them, from which open_client() without an address takes the servers, the secret and the
    timers. Each line of a program's output is shown behind the name of the program. On a terminal,
    a table of all programs stands below the lines.

    The run ends when all programs have ended (except those with background = true), when a
    program has failed (unless it has essential = false), when all servers have failed, or at
    Ctrl-C. The command then ends the programs, and after them the servers. It kills a program that
    does not end within its grace time, with all processes that the program has started.

    Exit codes: 0 all programs ended, 2 usage or a mistake in FILE, 3 an essential program or all
    servers failed, 130 after Ctrl-C, 143 after SIGTERM. If all programs have background = true,
    Ctrl-C ends the run with 0.
    """
    try:
        loaded = load_run_file(file, os.environ)
        if logs is not None and not check:
            make_log_directory(logs, "--logs")
    except SettingsError as error:
        print(error, file=sys.stderr)
        sys.exit(ExitStatus.USAGE.code)
    if check:
        for line in _describe(loaded):
            write_line(sys.stdout, line)
        return
    began = time.monotonic()
    ready_lines = {
        program.name: program.table.ready_line
        for program in loaded.programs
        if program.table.ready_line is not None
    }
    files = None if logs is None else ProgramLogs(logs)
    board = RunBoard(Rules(loaded.rules), time.monotonic, ready_lines, as_json=json, logs=files)
    with _secret_of(loaded) as secret, _display(board, json) as display:
        plan = RunPlan(loaded, secret)
        stopped_by = trio.run(partial(perform_run, plan, board, display.changed))
    if files is not None:
        files.close()
    outcome, seconds = board.outcome(stopped_by), time.monotonic() - began
    _write_outcome(outcome, board, seconds, json)
    sys.exit(outcome.verdict.code)


@contextmanager
def _secret_of(loaded: RunFile) -> Iterator[Path | None]:
    """Yield the path of the secret: that of the file, or a new one if this run starts servers."""
    if loaded.servers.secret_file is not None or not loaded.servers.number:
        yield loaded.servers.secret_file
    else:
        with secret_file() as fresh:
            yield fresh


def _display(board: RunBoard, json: bool) -> RunDisplay:
    """Return a display with a table for a terminal, and one with lines for other outputs."""
    if sys.stdout.isatty() and not json:
        notices, console = board.notices, Console()
        table, coloured = partial(draw, board), partial(style, board=board)
        return LiveDisplay(notices, table, time.monotonic, console, coloured)
    lines = (lambda _: None) if json else (lambda _: summary(board))
    return PlainDisplay(board.notices, lines, time.monotonic, sys.stdout)


def _describe(loaded: RunFile) -> Iterator[str]:
    """Yield a line for each server and program that the file would start, and a verdict."""
    for name in server_names(loaded.servers):
        yield f"{name}: sphtp server"
    for program in loaded.programs:
        yield f"{program.name}: {' '.join(program.command)}"
    yield f"{loaded.path}: the file is correct"


def _write_outcome(outcome: RunOutcome, board: RunBoard, seconds: float, json: bool) -> None:
    if json:
        facts = {
            "event": "outcome",
            "outcome": outcome.verdict.word,
            "exit_code": outcome.verdict.code,
            "message": outcome.sentence,
            "remarks": list(outcome.remarks),
            "seconds": round(seconds, 3),
            "programs": list(board.document()),
        }
        write_line(sys.stdout, json_format.dumps(facts))
        return
    for remark in outcome.remarks:
        write_line(sys.stdout, remark)
    write_line(sys.stdout, f"{outcome.sentence} ({seconds:.1f} s)")
