"""Launchers: they start the processes of a cluster, on this machine or where an engine places them.

An engine allocates machines to programs: Slurm, Dask, and through Dask also Kubernetes, SSH and
clouds. A ``Launcher`` is the interface to an engine. It starts a process and returns a
``RunningProcess``, with lines of output, the exit code, and three ways to end the process. All
other parts are the same for all launchers: the order of starts (``course``), the supervision
(``supervisor``), and the verdict (``outcome``).

The files that a process on another machine needs travel through its standard input: see ``carry``
and ``place``. So an engine only has to forward three pipes.

``--on NAME`` or ``--on NAME://ADDRESS`` opens the launcher of that name, an entry point of the
group ``sphtp.launchers``, so that any package can add one.
"""

import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from sphtp.__main__ import how_to_get
from sphtp.errors import SettingsError
from sphtp_client.cluster.place import DIGITS
from sphtp_client.cluster.process import ChildProcess, RunningProcess, StopTimeouts
from sphtp_client.cluster.run_status import ProcessRole

GROUP: Final = "sphtp.launchers"
LOCAL: Final = "local"
LOOPBACK: Final = "127.0.0.1"
OWN_ADDRESS: Final = "{address}"
"""The word of a command line that stands for the address of the machine on which it runs."""


@dataclass(frozen=True)
class ProcessSpec:
    """A process to start.

    Without ``environment``, ``directory`` and ``timeouts``, the process has the defaults of the
    launcher and the supervisor. ``files`` are the words of the command that are paths of files,
    which another machine does not have. The word ``OWN_ADDRESS`` of the command stands for the
    machine's address in ``network``. On other machines, ``environment`` and ``directory`` have no
    effect.
    """

    name: str
    role: ProcessRole
    command: tuple[str, ...]
    slab: int | None = None
    environment: Mapping[str, str] | None = None
    directory: Path | None = None
    timeouts: StopTimeouts | None = None
    files: tuple[Path, ...] = ()
    network: str | None = None


class Launcher(Protocol):
    """The interface of launchers, which start processes somewhere."""

    @property
    def network(self) -> str | None:
        """The default network on which processes reach each other, such as ``10.0.0.0/16``.

        None stands for the loopback of this machine, on which all processes run. It is empty if the
        engine does not know its network; then ``--network`` has to give it.
        """
        ...

    @property
    def slots(self) -> int | None:
        """The most processes that it can run at a time; None if there is no limit."""
        ...

    @property
    def loss_time(self) -> float:
        """The most seconds from the loss of a machine until the launcher detects the loss."""
        ...

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Start a process. Raises ``OSError`` if that fails."""
        ...


Opening = AbstractAsyncContextManager[Launcher]


class LocalLauncher:
    """A launcher that starts child processes on this machine."""

    network = None
    slots = None
    loss_time = 0.0

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Start a process. Raises ``OSError`` if that fails."""
        return await ChildProcess.spawn(
            spec.command, environment=spec.environment, directory=spec.directory
        )


@asynccontextmanager
async def open_local(_: str) -> AsyncIterator[LocalLauncher]:
    """Open the launcher for this machine."""
    yield LocalLauncher()


class Parcel(NamedTuple):
    """The start of a process on another machine: arguments for Python, and its first input."""

    arguments: tuple[str, ...]
    input: bytes


def carry(spec: ProcessSpec) -> Parcel:
    """Pack a process with its files for another machine. Raises ``OSError`` for an unreadable file.

    The other machine needs the same version of SphTP. Variables ``SPHTP_...`` in its environment
    are ignored.
    """
    places = {str(path): number for number, path in enumerate(spec.files)}

    def packed(word: str) -> Any:
        if word == OWN_ADDRESS:
            return {"facing": spec.network}
        return {"file": places[word]} if word in places else word

    assert spec.command[0] == sys.executable
    content = {
        "arguments": [packed(word) for word in spec.command[1:]],
        "files": [b64encode(path.read_bytes()).decode() for path in spec.files],
        "network": spec.network,
    }
    text = json.dumps(content).encode()
    return Parcel(("-m", "sphtp_client.cluster.place"), b"%0*d" % (DIGITS, len(text)) + text)


def find_launcher(on: str) -> Opening:
    """Return a context manager that opens the launcher named by ``--on``.

    Raises ``SettingsError`` if there is no such launcher, or a package for it is not installed.
    """
    name = on.partition("://")[0]
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise SettingsError(f"--on {on}: there is no {name!r}; there are {', '.join(found)}")
    try:
        opening: Opening = found[name].load()(on)
    except ModuleNotFoundError as error:
        raise SettingsError(how_to_get(f"--on {name}", error) or str(error)) from error
    return opening
