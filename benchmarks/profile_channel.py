"""Where the time of a channel goes: one of the two processes of a measurement, under cProfile."""

import cProfile
import json
import os
import pstats
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from typing import Final

import click

from sphtp_client.bench.catalog import CASES, OURS
from sphtp_client.bench.part import Part, Role
from sphtp_client.bench.systems import sphtp as channel

OTHER: Final = {
    Role.SEND: Role.RECEIVE,
    Role.RECEIVE: Role.SEND,
    Role.PING: Role.ECHO,
    Role.ECHO: Role.PING,
}
WAITING: Final = {Role.RECEIVE, Role.ECHO}
GRACE: Final = 1.5


@click.command()
@click.option("--case", type=click.Choice(list(CASES)), default="64B", show_default=True)
@click.option("--role", type=click.Choice(["send", "receive", "echo", "ping"]), default="send")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True)
@click.option("--sort", type=click.Choice(["tottime", "cumtime"]), default="tottime")
@click.option("--lines", type=click.IntRange(1), default=30, show_default=True)
def main(case: str, role: str, seconds: float, sort: str, lines: int) -> None:
    """Profile one side of a channel; the other side runs in a process of its own."""
    chosen = Role(role)
    if CASES[case].measure.is_stream != (chosen in {Role.SEND, Role.RECEIVE}):
        raise click.UsageError(f"case {case} has no role {role}")
    mine = Part(system=OURS, case=case, role=chosen, seconds=seconds, warm_up=0.0)
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
        profile.runcall(getattr(channel, part.role), part)
    except (KeyboardInterrupt, BaseExceptionGroup):
        pass
    finally:
        stop.cancel()
    return profile


def spawned(part: Part) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sphtp_client.bench.half", part.written()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    main()
