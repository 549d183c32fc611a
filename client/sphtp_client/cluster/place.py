"""The start of a process on another machine: unpack its parcel, and execute its command.

    python -m sphtp_client.cluster.place

The other machine has neither the secret of the run nor the scenario, and its address is unknown
before the process runs there. So standard input begins with a parcel (``launcher.carry``): the
length of a JSON text in ten decimal digits, and the text.

- ``files`` become files in memory, which no other user can open, and which end with the process.
  An argument ``{"file": 0}`` stands for the path of the first file.
- ``{"facing": "10.0.0.0/16"}`` stands for the address of this machine from which packets to that
  network leave.

A line of JSON on standard output has the machine and the process id. Then exec replaces this
program by the command, with the same process id and pipes, and the rest of standard input. So on
that machine the secret is never in a command line, in an environment, or on a disk.

This module needs the standard library only.
"""

import json
import os
import socket
import sys
from base64 import b64decode
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any, Final

DIGITS: Final = 10
ANY_PORT: Final = 9
STDIN: Final = 0
WRONG_PARCEL: Final = 2

# Each process uses one processor fully, so further threads would not make it faster.
_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
_NOT_THEIRS: Final = "SPHTP_"


def inherited_from(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for processes of the cluster, which get their settings as options.

    It has no variables ``SPHTP_...``, and limits numeric libraries to one thread.
    """
    return without_settings(environ) | _ONE_THREAD


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without settings of SphTP."""
    return {key: text for key, text in environ.items() if not key.startswith(_NOT_THEIRS)}


def address_facing(network: str) -> str:
    """Return the address of this machine from which packets to a network leave; sends no packet.

    Raises ``OSError`` if there is no route to it, and ``ValueError`` if it is not a network.
    """
    target = ip_network(network, strict=False)
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6
    # In a network of more than one address, the first one is the network itself.
    towards = target[min(1, target.num_addresses - 1)]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(towards), ANY_PORT))
        here: str = probe.getsockname()[0]
        return here


def unpack(parcel: Any) -> list[str]:
    """Create the files of a parcel in memory, and return the arguments of its command."""
    paths = [_in_memory(b64decode(content)) for content in parcel["files"]]
    arguments = []
    for argument in parcel["arguments"]:
        match argument:
            case {"file": index}:
                arguments.append(paths[index])
            case {"facing": network}:
                arguments.append(address_facing(network))
            case word:
                arguments.append(word)
    return arguments


def _in_memory(content: bytes) -> str:
    # Without MFD_CLOEXEC, so that exec keeps the descriptor open.
    descriptor = os.memfd_create("sphtp", 0)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, content)
    return f"/proc/self/fd/{descriptor}"


def _read(size: int) -> bytes:
    """Read exactly ``size`` bytes of standard input."""
    found = b""
    while len(found) < size:
        chunk = os.read(STDIN, size - len(found))
        if not chunk:
            sys.exit(WRONG_PARCEL)  # The launcher is gone.
        found += chunk
    return found


def main() -> None:
    """Unpack the parcel, report machine and process id, and execute the command."""
    parcel = json.loads(_read(int(_read(DIGITS))))
    try:
        arguments = unpack(parcel)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{socket.gethostname()}: {parcel['network']}: {error}\n")
        sys.exit(WRONG_PARCEL)
    here = {"event": "placed", "host": socket.gethostname(), "pid": os.getpid()}
    print(json.dumps(here), flush=True)
    environment = inherited_from(os.environ)
    os.execve(sys.executable, [sys.executable, *arguments], environment)  # noqa: S606


if __name__ == "__main__":
    main()
