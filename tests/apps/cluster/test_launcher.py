"""Launchers: what travels to another machine, and what `--on` refuses."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sphtp_client.cluster.command import cluster
from sphtp_client.cluster.launcher import OWN_ADDRESS, ProcessSpec, carry
from sphtp_client.cluster.run_status import ProcessRole, RunStatus
from sphtp_client.cluster.slurm import slots_of
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
    ssh.write_text('#!/bin/sh\nshift 3; shift; exec "$PYTHON" "$@"\n')
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
    assert process.exit is not None
    assert (process.exit.code, process.exit.asked) == (0, True)


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


def test_the_room_of_an_allocation() -> None:
    assert slots_of({"SLURM_NTASKS": "5", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"}) == 5
    assert slots_of({"SLURM_JOB_CPUS_PER_NODE": "8(x2),3"}) == 19
    assert slots_of({}) == 1
