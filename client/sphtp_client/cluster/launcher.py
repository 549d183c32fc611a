"""Launchers: they start the processes of a cluster, on this machine or where an engine places them.

An engine that places programs on machines knows which are free, and may use them: Slurm, Dask, and
through Dask Kubernetes, SSH and clouds. A ``Launcher`` is the border to it. It starts a process and
returns a ``RunningProcess``: lines of output, the exit code, and three ways to end it. All else is
the same everywhere: the order of starts (``course``), the watch over what runs (``supervisor``),
and the verdict (``outcome``).

What a process on another machine needs, travels through its standard input: see ``carry`` and
``place``. So an engine has to forward three pipes, and nothing else.

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
"""The word of a command that stands for the address of the machine on which it runs."""


@dataclass(frozen=True)
class ProcessSpec:
    """A process to start.

    Without ``environment``, ``directory`` and ``timeouts`` it has those of all. ``files`` are those
    words of the command that name files, which another machine does not have. ``network`` is what
    the word ``OWN_ADDRESS`` of the command faces.
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
    """The way to start processes somewhere."""

    @property
    def network(self) -> str | None:
        """The network on which processes reach each other, such as ``10.0.0.0/16``, by default.

        None stands for the loopback of this machine, which they do not leave. It is empty where the
        engine does not know the network: then ``--network`` has to name it.
        """
        ...

    @property
    def slots(self) -> int | None:
        """The number of processes for which there is room; None if that is not limited."""
        ...

    @property
    def loss_time(self) -> float:
        """Seconds from the loss of a machine until its processes are known to be lost."""
        ...

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Start a process; raises ``OSError`` when that is impossible."""
        ...


Opening = AbstractAsyncContextManager[Launcher]


class LocalLauncher:
    """Children of this process."""

    network = None
    slots = None
    loss_time = 0.0

    async def start(self, spec: ProcessSpec) -> RunningProcess:
        """Start a process; raises ``OSError`` when that is impossible."""
        return await ChildProcess.spawn(
            spec.command, environment=spec.environment, directory=spec.directory
        )


@asynccontextmanager
async def open_local(_: str) -> AsyncIterator[LocalLauncher]:
    """Open the launcher of processes on this machine."""
    yield LocalLauncher()


class Parcel(NamedTuple):
    """The start of a process elsewhere: arguments for Python there, and its first input."""

    arguments: tuple[str, ...]
    input: bytes


def carry(spec: ProcessSpec) -> Parcel:
    """Pack a process for another machine, with its files. Raises ``OSError`` for a file.

    The interpreter there needs the same version of SphTP. What the machine has of our settings in
    its environment does not count.
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
    """Return the launcher that ``--on`` names, to be opened.

    Raises ``SettingsError`` if there is none, or what it needs is not installed.
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
