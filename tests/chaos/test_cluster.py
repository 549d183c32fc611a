"""`sphtp cluster` while its processes freeze, and while its disk is full: verified or named."""

import os
import signal
import sys
from pathlib import Path

import pytest
import trio

from tests.apps.cluster.running import ENDLESS, MORTAL, cluster, gone, is_alive

pytestmark = pytest.mark.chaos

ALLOWED = "16"
"""Blocks of 512 bytes that a log may have: full after the first packets."""


@pytest.mark.soak
async def test_a_frozen_server_does_not_stop_the_run(gas_file: Path) -> None:
    options = ("--servers", "2", "--clients", "2", "--steps", "3000", "--verify")
    async with cluster(gas_file, *options) as run:
        await run.all_running(2)
        frozen = run.pids()["server 1"]
        os.kill(frozen, signal.SIGSTOP)
        await run.line(r"client \d: 3000 steps")
        os.kill(frozen, signal.SIGCONT)
        assert await run.end() == 0
    assert run.lines[-1].startswith("verified: bit-identical")


@pytest.mark.soak
async def test_a_frozen_client_is_named_and_does_not_stay(gas_file: Path) -> None:
    options = ("--servers", "1", "--clients", "3", "--steps", ENDLESS, *MORTAL)
    async with cluster(gas_file, *options) as run:
        await run.all_running(3)
        os.kill(run.pids()["client 2"], signal.SIGSTOP)
        assert await run.end() == 3
    assert any("slab 2" in line and "no packet arrived for 1.2 s" in line for line in run.lines)
    assert not any(is_alive(pid) for pid in run.pids().values())


@pytest.mark.soak
async def test_a_frozen_supervisor_finds_the_run_done(gas_file: Path) -> None:
    options = ("--servers", "1", "--clients", "2", "--steps", "2000", "--verify")
    async with cluster(gas_file, *options) as run:
        await run.all_running(2)
        run.process.send_signal(signal.SIGSTOP)
        try:
            for slab in range(2):
                await gone(run.pids()[f"client {slab}"])
        finally:
            run.process.send_signal(signal.SIGCONT)
        assert await run.end() == 0
    assert run.lines[-1].startswith("verified: bit-identical")


@pytest.mark.soak
async def test_full_disks_under_all_logs_do_not_stop_the_run(
    gas_file: Path, tmp_path: Path
) -> None:
    shell = ("sh", "-c", 'ulimit -f "$0" && exec "$@" >/dev/full', ALLOWED, sys.executable)
    options = ("--clients=2", "--steps=100", "--verify", f"--qlog={tmp_path / 'logs'}")
    command = [*shell, "-m", "sphtp", "cluster", f"--scenario={gas_file}", *options]
    with trio.fail_after(30):
        done = await trio.run_process(command, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"<stdout>: No space left on device; no more is written" in done.stderr
    for slab in range(2):
        assert (tmp_path / "logs" / f"client-{slab}.sqlog").stat().st_size <= int(ALLOWED) * 1024
