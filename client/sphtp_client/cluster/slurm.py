"""Processes as steps of a Slurm allocation: ``--on slurm``, inside ``salloc`` or ``sbatch``.

Each process is a job step of one task: ``srun`` requests a processor from Slurm, starts the process
there, forwards its standard input, output and error, and ends with its exit code. So the launcher
has a child process ``srun`` for each process.

- When the input of ``srun`` closes, the input of the process closes, too. This also happens when
  this program is killed.
- At SIGTERM, ``srun`` kills its step, and ends after the step.
- At the end, the launcher cancels the steps of this run that are left because their ``srun`` was
  killed.
"""

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_network
from secrets import token_hex
from signal import valid_signals
from typing import Final

import trio

from sphtp.errors import SettingsError
from sphtp_client.cluster.launcher import ProcessSpec, carry
from sphtp_client.cluster.process import ChildProcess, RunningProcess

SRUN: Final = (
    "srun",
    # One task, on processors of its own, beside the other steps.
    *("--nodes=1", "--ntasks=1", "--exact"),
    # Zero: all steps share the memory of the allocation, instead of the first one getting it all.
    "--mem=0",
    # Wait a minute at most for a processor, not until other steps end.
    "--immediate=60",
    "--quiet",
)
SIGNALLED: Final = 128
"""The exit code of ``srun`` exceeds the number of a signal that has ended its task by this much."""
ANSWER: Final = 20.0
"""The timeout of a command of Slurm, in seconds."""
_NODE_ADDRESS: Final = re.compile(r"\bNodeAddr=(\S+)")
SLURMD_TIMEOUT: Final = 300.0
"""Slurm's default for the silence, in seconds, after which a node counts as lost."""
_SLURMD_TIMEOUT: Final = re.compile(r"\bSlurmdTimeout\s*=\s*(\d+)")
_PER_NODE: Final = re.compile(r"(\d+)(?:\(x(\d+)\))?")


class SlurmStep(ChildProcess):
    """The child process ``srun`` of a process."""

    async def wait(self) -> int:
        code = await super().wait()
        return SIGNALLED - code if code - SIGNALLED in valid_signals() else code


class SlurmLauncher:
    """A launcher that starts processes in an allocation of Slurm."""

    def __init__(self, job: str, network: str, slots: int, loss_time: float) -> None:
        self.network = network
        self.slots = slots
        self.loss_time = loss_time
        self._job = job
        self._name = f"sphtp-{token_hex(4)}"

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Start a process. Raises ``OSError`` if that fails."""
        parcel = carry(spec)
        command = (*SRUN, f"--job-name={self._name}", sys.executable, *parcel.arguments)
        return await SlurmStep.spawn(command, beginning=parcel.input, environment=os.environ)

    async def cancel_rest(self) -> None:
        """Cancel the steps of this run that are left."""
        listing = await _answer("squeue", "--noheader", "--steps", "--jobs", self._job,
                                "--format=%i %j")  # fmt: skip
        steps = [line.split()[0] for line in listing.splitlines() if line.endswith(self._name)]
        if steps:
            await _answer("scancel", "--signal=KILL", *steps)


@asynccontextmanager
async def open_slurm(on: str) -> AsyncIterator[SlurmLauncher]:
    """Open the launcher of the present allocation.

    Raises ``SettingsError`` if there is no allocation, or ``srun`` is not installed.
    """
    if shutil.which("srun") is None:
        raise SettingsError(f"--on {on} needs srun: install Slurm's client commands")
    job, nodes = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_NODELIST")
    if job is None or nodes is None:
        raise SettingsError(f"--on {on}: there is no allocation: run this inside salloc or sbatch")
    text = await _answer("scontrol", "--oneliner", "show", "node", nodes)
    network = await _network_of(_NODE_ADDRESS.findall(text))
    patience = _SLURMD_TIMEOUT.search(await _answer("scontrol", "show", "config"))
    loss_time = float(patience[1]) if patience else SLURMD_TIMEOUT
    launcher = SlurmLauncher(job, network, slots_of(os.environ), loss_time)
    try:
        yield launcher
    finally:
        with trio.CancelScope(shield=True):
            await launcher.cancel_rest()


def slots_of(environ: Mapping[str, str]) -> int:
    """Return the number of tasks of an allocation, or without it the number of its processors."""
    if "SLURM_NTASKS" in environ:
        return int(environ["SLURM_NTASKS"])
    counts = _PER_NODE.findall(environ.get("SLURM_JOB_CPUS_PER_NODE", "1"))
    return sum(int(processors) * int(nodes or 1) for processors, nodes in counts)


async def _network_of(names: list[str]) -> str:
    """Return the address of a node as a network; a loopback address only if there is no other.

    Return an empty text if no name has an address.
    """
    found = []
    for name in names:
        with suppress(OSError):
            answers = await trio.socket.getaddrinfo(name, None, type=trio.socket.SOCK_DGRAM)
            found.append(ip_address(answers[0][4][0]))
    # A node may resolve its own name to loopback.
    found.sort(key=lambda address: address.is_loopback)
    return str(ip_network(found[0])) if found else ""


async def _answer(*command: str) -> str:
    """Return the output of a command of Slurm; empty after a timeout or if it cannot start."""
    with trio.move_on_after(ANSWER), suppress(OSError):
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )
        return done.stdout.decode(errors="replace")
    return ""
