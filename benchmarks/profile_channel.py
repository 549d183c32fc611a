"""Where the time goes: one of the two processes of a measurement, under cProfile."""

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

from sphtp_benchmarks.catalog import OURS, Traffic
from sphtp_benchmarks.catalogs import CATALOGS
from sphtp_benchmarks.part import Part, Role

OTHER: Final = {
    Role.SEND: Role.RECEIVE,
    Role.RECEIVE: Role.SEND,
    Role.PING: Role.ECHO,
    Role.ECHO: Role.PING,
    Role.PUBLISH: Role.SUBSCRIBE,
    Role.SUBSCRIBE: Role.PUBLISH,
}
WAITING: Final = {Role.RECEIVE, Role.ECHO, Role.PUBLISH}
ROLES: Final = {
    Traffic.ONE_WAY: (Role.SEND, Role.RECEIVE),
    Traffic.TO_AND_FRO: (Role.PING, Role.ECHO),
    Traffic.TO_MANY: (Role.PUBLISH, Role.SUBSCRIBE),
}
GRACE: Final = 1.5


@click.command()
@click.argument("kind", type=click.Choice(list(CATALOGS)), default="channel")
@click.option("--case", default="64B", show_default=True)
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), help="Default: the side that sends."
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True)
@click.option("--sort", type=click.Choice(["tottime", "cumtime"]), default="tottime")
@click.option("--lines", type=click.IntRange(1), default=30, show_default=True)
def main(kind: str, case: str, role: str | None, seconds: float, sort: str, lines: int) -> None:
    """Profile one side of a channel, or of a stream; the other runs in a process of its own."""
    cases = CATALOGS[kind].cases
    roles = ROLES[cases[case].traffic] if case in cases and cases[case].receivers == 1 else ()
    chosen = Role(role) if role else next(iter(roles), Role.SEND)
    if chosen not in roles:
        raise click.UsageError(
            f"{kind} has no case {case} with one {chosen} and one {OTHER[chosen]}"
        )
    mine = Part(system=OURS, case=case, role=chosen, seconds=seconds, warm_up=0.0, catalog=kind)
    other = replace(mine, role=OTHER[chosen])
    run = profile_waiting if chosen in WAITING else profile_calling
    profile = run(mine, other)
    pstats.Stats(profile).strip_dirs().sort_stats(sort).print_stats(lines)


def profile_calling(mine: Part, other: Part) -> cProfile.Profile:
    """Start the other side, wait for its port, and call it."""
    with spawned(other) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        profile = profiled(replace(mine, port=port))
        assert process.stdin is not None
        process.stdin.close()
    return profile


def profile_waiting(mine: Part, other: Part) -> cProfile.Profile:
    """Start this side, which says its port on standard output, and let the other side call."""
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


def profiled(part: Part) -> cProfile.Profile:
    """Play a part for its seconds; parts do not end by themselves, so Ctrl-C is simulated."""
    stop = threading.Timer(part.seconds + GRACE, os.kill, (os.getpid(), signal.SIGINT))
    stop.start()
    profile = cProfile.Profile()
    try:
        module = import_module(f"sphtp_benchmarks.systems.{part.module}")
        profile.runcall(getattr(module, part.role), part)
    except (KeyboardInterrupt, BaseExceptionGroup):
        pass
    finally:
        stop.cancel()
    return profile


def spawned(part: Part) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sphtp_benchmarks.half", part.written()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
