"""A peer that is killed at a chosen step of handing over, writing, reading and freeing memory.

``python -m tests.shell.mortal_peer PORT`` reads a number and a word from each line of its input. It
forks a process that opens a channel to that port, sends and receives large arrays, and kills itself
at that step: at the n-th call or return in the modules that perform shared memory. The word puts
the process apart: ``user``, ``ipc`` or ``net``; ``here`` does not. It prints ``STATUS STEPS`` when
the process is gone: minus the signal, or the steps that it took until its end.
"""

import ctypes
import os
import signal
import sys
from types import FrameType
from typing import Any, Final

import numpy as np
import trio

from sphtp import Config, Node, open_node
from sphtp.config import ChannelSettings
from sphtp.core.channel import shared_memory as decides
from sphtp.shell import shared_memory as performs

ARRAY: Final = np.arange(20_000, dtype=np.float64)
MESSAGES: Final = 12
WATCHED: Final = {decides.__file__, performs.__file__}
SETTINGS: Final = ChannelSettings(linger=0.0, close_timeout=1.0)


class Steps:
    """Counts calls and returns, those of C from watched files among them, and kills at the last."""

    def __init__(self, last: int) -> None:
        self.taken = 0
        self._last = last

    def __call__(self, frame: FrameType, _event: str, _argument: Any) -> None:
        if frame.f_code.co_filename in WATCHED:
            self.taken += 1
            if self.taken == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


NAMESPACES: Final = {"ipc": 0x08000000, "net": 0x40000000}
ANOTHER_USER: Final = 54_321
NOT_ALLOWED: Final = 77


def go_apart(where: str) -> None:
    """Become another user, or go to a namespace of its own."""
    if where == "user" and os.geteuid() == 0:
        os.setuid(ANOTHER_USER)
    elif where == "user" or (where in NAMESPACES and ctypes.CDLL(None).unshare(NAMESPACES[where])):
        os._exit(NOT_ALLOWED)


async def talk(port: int, where: str) -> None:
    """Exchange arrays; the first ones, until the segments are there, one by one."""
    async with open_node(config=Config(channel=SETTINGS)) as node:
        # Its UDP socket stays where it is.
        go_apart(where)
        await exchange(node, port)


async def exchange(node: Node, port: int) -> None:
    async with node.open_channel("127.0.0.1", port) as channel:
        for number in range(MESSAGES):
            await channel.send(ARRAY + number)
            assert (await channel.receive())[0] == number
            await trio.lowlevel.checkpoint()


def main() -> None:
    port = int(sys.argv[1])
    for line in sys.stdin:
        reader, writer = os.pipe()
        step, where = line.split()
        child = os.fork()
        if not child:
            steps = Steps(int(step))
            sys.setprofile(steps)
            trio.run(talk, port, where)
            sys.setprofile(None)
            os.write(writer, str(steps.taken).encode())
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), os.read(reader, 20).decode() or 0, flush=True)
        os.close(reader)


if __name__ == "__main__":
    main()
