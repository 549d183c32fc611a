"""Launchers: what travels to another machine, and what `--on` refuses."""

import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any, cast

import pytest
import trio
from click.testing import CliRunner

from sphtp_client.cluster.command import cluster
from sphtp_client.cluster.launcher import OWN_ADDRESS, ProcessSpec, carry
from sphtp_client.cluster.run_status import ProcessRole, RunStatus
from sphtp_client.cluster.slurm import SlurmLauncher, open_slurm, slots_of
from sphtp_client.cluster.supervisor import open_supervisor
from sphtp_client.simulation.reports import Placed, parse_event
from tests.apps.cluster.running import fake_slurm
from tests.house.pages import ROOT, blocks

REVEAL = """
import os, sys
path, address, word = sys.argv[1:]
command = open("/proc/self/cmdline").read() + open("/proc/self/environ").read()
text = open(path).read()
print(text, oct(os.stat(path).st_mode & 0o777), address, word, text in command)
print(os.environ["OMP_NUM_THREADS"], "SPHTP_CLIENT_SERVER" in os.environ)
print(sys.stdin.read())
"""


def spec_of(path: Path, network: str = "127.0.0.0/8") -> ProcessSpec:
    command = (sys.executable, "-S", "-c", REVEAL, str(path), OWN_ADDRESS, "{word}")
    return ProcessSpec("a", ProcessRole.CLIENT, command, files=(path,), network=network)


def test_a_parcel_brings_files_and_the_address_and_then_the_command_reads_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_text("secret")
    parcel = carry(spec_of(path))
    path.unlink()
    assert not any("secret" in word for word in parcel.arguments)
    environment = os.environ | {"SPHTP_CLIENT_SERVER": "tcp://elsewhere:1"}
    done = subprocess.run(
        [sys.executable, *parcel.arguments],
        input=parcel.input + b"and on",
        env=environment,
        capture_output=True,
        check=True,
    )
    placed, *lines = done.stdout.decode().splitlines()
    assert isinstance(parse_event(placed.encode()), Placed)
    assert lines == ["secret 0o600 127.0.0.1 {word} False", "1 False", "and on"]


async def test_the_launcher_of_the_page_starts_processes_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its `ssh` runs the command here."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift 6; exec "$PYTHON" "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHON", sys.executable)
    (program,) = blocks(ROOT / "docs/how-to/place-a-cluster.md", "python")
    names: dict[str, Any] = {}
    exec(program.text, names)
    path = tmp_path / "file"
    path.write_text("secret")
    status = RunStatus()
    async with (
        names["open_ssh"]("ssh://127.0.0.1,127.0.0.2") as launcher,
        open_supervisor(status, lambda: None, launcher=launcher) as supervisor,
    ):
        process = await supervisor.start(spec_of(path))
        await supervisor.wait_until(lambda: process.place is not None)
        ssh.write_text("#!/bin/sh\nexec 0<&-\necho no way there >&2; exit 7\n")
        path.write_text("long " * 100_000)  # more than a pipe takes
        failed = await supervisor.start(replace(spec_of(path), name="b"))
        await supervisor.wait_until(lambda: failed.exit is not None)
    assert process.exit is not None
    assert (process.exit.code, process.exit.asked) == (0, True)
    assert failed.exit is not None
    assert (failed.exit.code, [*failed.errors]) == (7, ["no way there"])


def test_a_network_without_a_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("secret")
    parcel = carry(spec_of(path, "not/anything"))
    done = subprocess.run(
        [sys.executable, *parcel.arguments], input=parcel.input, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert "not/anything" in done.stderr.decode()


def refusal(*arguments: str) -> str:
    result = CliRunner().invoke(cluster, ["--steps", "3", *arguments])
    assert result.exit_code == 2, result.output
    return result.output.strip()


def test_what_is_missing_is_named_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = refusal("--on", "ssh://host")
    assert said == "--on ssh://host: there is no 'ssh'; there are dask, local, slurm, tls+dask"
    assert "--network = 10.0.0.300/8: " in refusal("--network", "10.0.0.300/8")
    assert "use loopback" in refusal("--network", "10.0.0.0/8")
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "sphtp_client.cluster.dask_workers", raising=False)
    said = refusal("--on", "dask://127.0.0.1:9")
    assert said == "--on dask needs distributed: pip install 'sphtp[dask]' brings it."
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal("--on", "slurm") == "--on slurm needs srun: install Slurm's client commands"


def test_slurm_without_an_allocation_or_without_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_slurm(tmp_path, monkeypatch)
    assert "there is no allocation: run this inside salloc" in refusal("--on", "slurm")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    said = refusal("--on", "slurm", "--servers", "1", "--clients", "1", "--verify")
    assert said.endswith("there is room for 2 processes, and this run has 3")


def allocate(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"JOB_ID": "7", "JOB_NODELIST": "n1", "NTASKS": "3"}.items():
        monkeypatch.setenv(f"SLURM_{name}", text)


async def unresolvable(*_arguments: object, **_options: object) -> None:
    raise socket.gaierror


def test_addresses_that_slurm_does_not_know_can_be_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_slurm(tmp_path, monkeypatch, node="nowhere")
    allocate(monkeypatch)
    monkeypatch.setattr(trio.socket, "getaddrinfo", unresolvable)
    words = ("--on", "slurm", "--servers", "1", "--clients", "1")
    assert refusal(*words).endswith("the addresses there are unknown: give --network")
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 9\n")
    result = CliRunner().invoke(cluster, ["--steps", "3", *words, "--network", "127.0.0.0/8"])
    assert "server 1 failed: exit code 9" in result.output


async def test_a_start_that_is_cancelled_leaves_no_srun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_slurm(tmp_path, monkeypatch)
    (tmp_path / "srun").write_text("#!/bin/sh\nexec sleep 60\n")
    path = tmp_path / "file"
    path.write_text("secret")
    spawned = []
    opening = trio.lowlevel.open_process

    async def open_process(*arguments: Any, **options: Any) -> trio.Process:
        spawned.append(await opening(*arguments, **options))
        return spawned[0]

    monkeypatch.setattr(trio.lowlevel, "open_process", open_process)
    with trio.CancelScope() as scope:
        scope.cancel()
        await SlurmLauncher("7", "127.0.0.1", 1, 0.0).start(spec_of(path))
    assert scope.cancelled_caught
    assert [process.returncode for process in spawned] == [-SIGKILL]


@pytest.mark.parametrize(
    ("code", "found"), [(137, -9), (139, -11), (143, -15), (3, 3), (128, 128), (255, 255)]
)
async def test_an_exit_code_of_srun_for_a_signal_is_that_signal(
    code: int, found: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_slurm(tmp_path, monkeypatch)
    (tmp_path / "srun").write_text(f"#!/bin/sh\nexit {code}\n")
    path = tmp_path / "file"
    path.write_text("secret")
    process = await SlurmLauncher("7", "127.0.0.1", 1, 0.0).start(spec_of(path))
    assert await process.wait() == found
    await process.aclose()


@pytest.mark.parametrize(("line", "seconds"), [("SlurmdTimeout = 40 sec", 40.0), ("", 300.0)])
async def test_slurm_says_when_it_notices_a_dead_node(
    line: str, seconds: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_slurm(tmp_path, monkeypatch)
    allocate(monkeypatch)
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho NodeAddr=127.0.0.1; echo '{line}'\n")
    async with open_slurm("slurm") as launcher:
        assert launcher.loss_time == seconds


class Stalled:
    """A client of Dask: its scheduler finds no worker before ``free``."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def submit(self, *_arguments: object, **_options: object) -> "Stalled":
        return self

    def result(self, timeout: float) -> None:
        self.free.wait(timeout)


async def test_a_scheduler_whose_own_name_is_unknown_here_has_no_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Scheduler:
        def __init__(self, *_arguments: object, **_options: object) -> None: ...

        def scheduler_info(self) -> dict[str, Any]:
            return {"workers": {"a": {}}, "address": "tcp://nowhere:8786"}

        def close(self) -> None: ...

    # Loaded here and not above, since Dask takes half a second of each process that collects tests.
    from sphtp_client.cluster import dask_workers

    monkeypatch.setattr(trio.socket, "getaddrinfo", unresolvable)
    monkeypatch.setattr(dask_workers, "Client", Scheduler)
    async with dask_workers.open_dask("dask://10.0.0.1:8786") as launcher:
        assert launcher.network == ""


async def test_the_wait_for_a_worker_of_dask_can_be_cancelled(tmp_path: Path) -> None:
    from sphtp_client.cluster.dask_workers import DaskLauncher

    path = tmp_path / "file"
    path.write_text("secret")
    stalled = Stalled()
    launcher = DaskLauncher(cast("Any", stalled), "127.0.0.1")
    began = trio.current_time()
    with trio.move_on_after(0.01) as scope:
        await launcher.start(spec_of(path))
    stalled.free.set()
    assert scope.cancelled_caught
    assert trio.current_time() - began < 10.0


def test_the_room_of_an_allocation() -> None:
    assert slots_of({"SLURM_NTASKS": "5", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"}) == 5
    assert slots_of({"SLURM_JOB_CPUS_PER_NODE": "8(x2),3"}) == 19
    assert slots_of({}) == 1
