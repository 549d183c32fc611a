"""The functions that take the time: one process of a measurement, under cProfile."""

import cProfile
import json
import os
import pstats
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from importlib import import_module
from typing import Final

import click

from sphtp_benchmarks.catalog import OURS, TrafficPattern
from sphtp_benchmarks.catalogs import CATALOGS
from sphtp_benchmarks.process_task import ProcessTask, TaskRole

OTHER: Final = {
    TaskRole.SEND: TaskRole.RECEIVE,
    TaskRole.RECEIVE: TaskRole.SEND,
    TaskRole.PING: TaskRole.ECHO,
    TaskRole.ECHO: TaskRole.PING,
    TaskRole.PUBLISH: TaskRole.SUBSCRIBE,
    TaskRole.SUBSCRIBE: TaskRole.PUBLISH,
}
WAITING: Final = {TaskRole.RECEIVE, TaskRole.ECHO, TaskRole.PUBLISH}
ROLES: Final = {
    TrafficPattern.ONE_WAY: (TaskRole.SEND, TaskRole.RECEIVE),
    TrafficPattern.TO_AND_FRO: (TaskRole.PING, TaskRole.ECHO),
    TrafficPattern.TO_MANY: (TaskRole.PUBLISH, TaskRole.SUBSCRIBE),
}
GRACE: Final = 1.5


@click.command()
@click.argument("kind", type=click.Choice(list(CATALOGS)), default="channel")
@click.option("--case", default="64B", show_default=True)
@click.option(
    "--role",
    type=click.Choice([role.value for role in OTHER]),
    help="Default: the side that sends.",
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True)
@click.option("--sort", type=click.Choice(["tottime", "cumtime"]), default="tottime")
@click.option("--lines", type=click.IntRange(1), default=30, show_default=True)
def main(kind: str, case: str, role: str | None, seconds: float, sort: str, lines: int) -> None:
    """Profile one side of a case of KIND; the other side runs in a process of its own."""
    cases = CATALOGS[kind].cases
    is_pair = case in cases and cases[case].receivers == 1
    roles = ROLES.get(cases[case].traffic, ()) if is_pair else ()
    chosen = TaskRole(role) if role else next(iter(roles), TaskRole.SEND)
    if chosen not in roles:
        raise click.UsageError(
            f"{kind} has no case {case} with one {chosen} and one {OTHER[chosen]}"
        )
    mine = ProcessTask(
        system=OURS, case=case, role=chosen, seconds=seconds, warm_up=0.0, catalog=kind
    )
    other = replace(mine, role=OTHER[chosen])
    run = profile_waiting if chosen in WAITING else profile_calling
    profile = run(mine, other)
    pstats.Stats(profile).strip_dirs().sort_stats(sort).print_stats(lines)


def profile_calling(mine: ProcessTask, other: ProcessTask) -> cProfile.Profile:
    """Start the other side, wait for its port, and call it."""
    with spawned(other) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        profile = profiled(replace(mine, port=port))
        assert process.stdin is not None
        process.stdin.close()
    return profile


def profile_waiting(mine: ProcessTask, other: ProcessTask) -> cProfile.Profile:
    """Start this side, which prints its port on standard output, and let the other side call."""
    reading, writing = os.pipe()
    real = os.dup(1)
    os.dup2(writing, 1)
    processes: list[subprocess.Popen[str]] = []

    def call() -> None:
        with os.fdopen(os.dup(reading), encoding="utf-8") as lines:
            port = json.loads(lines.readline())["port"]
            processes.append(spawned(replace(other, port=port)))

    threading.Thread(target=call, daemon=True).start()
    try:
        return profiled(mine)
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def profiled(part: ProcessTask) -> cProfile.Profile:
    """Perform a task until ``GRACE`` seconds after its time is over.

    Tasks do not end by themselves, so Ctrl-C is simulated.
    """
    # Before the timer runs: on a loaded machine the import can take longer than the task.
    module = import_module(f"sphtp_benchmarks.systems.{part.module}")
    stop = threading.Timer(part.seconds + GRACE, os.kill, (os.getpid(), signal.SIGINT))
    stop.start()
    profile = cProfile.Profile()
    try:
        profile.runcall(getattr(module, part.role), part)
    except (KeyboardInterrupt, BaseExceptionGroup):
        pass
    finally:
        stop.cancel()
    return profile


def spawned(part: ProcessTask) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sphtp_benchmarks.half", part.written()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
