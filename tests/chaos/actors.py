"""The two kinds of actor: a server and a peer. Each starts again as what it was."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from sphtp import ServerAddress
from tests.chaos.disk import Disk
from tests.chaos.process import Line, Program
from tests.chaos.rooms import Door, Side

EXPIRY: Final = 1.0
"""Seconds; short, so that a case takes no more than a few."""

UNREAD: Final = 64
"""Messages that a peer may have acknowledged and not read."""

PACE: Final = 0.005
"""Seconds between two messages of a speaker, as if it computed a step in between."""

PATIENCE: Final = 15.0
"""Seconds that a peer looks for servers, or for the peer that it speaks to."""

QUIET: Final = ("--log-level=debug", "--no-announce")
"""The options of a server that is found by its address alone."""

PEER: Final = (str(Path(__file__).parent / "programs" / "peer.py"),)
WORKER: Final = ("-m", "tests.chaos.programs.worker")


def timers(expiry: float) -> dict[str, float]:
    """Return the periods of servers and clients."""
    return {"heartbeat": 0.1, "expiry": expiry, "announce_deadline": 0.4}


def channel(timeout: float) -> dict[str, Any]:
    """Return the settings of channels."""
    patient = {"close_timeout": 3 * timeout, "receive_buffer": UNREAD, "linger": 0.1}
    return {"keepalive": 0.1, "timeout": timeout, "connect_timeout": timeout, **patient}


class Actor:
    """A program on one side, and what it said first."""

    def __init__(self, name: str, side: Side) -> None:
        self.name = name
        self.side: Side = side
        self.entry: tuple[str, ...] = ()
        self.log: Callable[[int], Path] | None = None
        self.program: Program
        self.first: Line

    def moved_in(self, program: Program, first: Line) -> None:
        """It runs, perhaps once more."""
        self.program, self.first = program, first


class Server(Actor):
    """A daemon. It keeps its ports."""

    greeting = "started"

    def __init__(
        self,
        name: str,
        side: Side,
        host: str,
        others: "Sequence[Server]",
        door: Door | None,
        periods: dict[str, float],
        disk: Disk | None,
        options: Sequence[str] = QUIET,
    ) -> None:
        super().__init__(name, side)
        if disk is not None:
            self.entry, self.log = disk.entry(), disk.log
        self._host = host
        self._timers = [f"--{name.replace('_', '-')}={value}" for name, value in periods.items()]
        self._joins = [other.address for other in others]
        self._is_new = not others
        self._options = options
        self._door = door
        self._ports = [0, 0]

    @property
    def id(self) -> int:
        return int(self.first["id"])

    @property
    def address(self) -> str:
        """Where others reach it."""
        return str(self.first["advertised"])

    @property
    def listens_at(self) -> ServerAddress:
        """Where it is reached without a relay."""
        return ServerAddress.parse(f"tcp://{self._host}:{self._ports[0]},{self._ports[1]}")

    def command(self) -> list[str]:
        logs = (
            "--log-format=json",
            *self._options,
            "--insecure",
            f"--host={self._host}",
        )
        ports = (f"--pub-port={self._ports[0]}", f"--sub-port={self._ports[1]}")
        joins = [f"--join={address}" for address in self._joins]
        # One that starts again knows nothing of whoever holds an id.
        new = ["--new"] if self._is_new and not any(self._ports) else []
        return [sys.executable, "-m", "sphtp", "server", *logs, *ports, *self._timers, *joins, *new,
                *self._advertise()]  # fmt: skip

    def moved_in(self, program: Program, first: Line) -> None:
        is_back = any(self._ports)
        super().moved_in(program, first)
        self._ports = [int(first[name].rpartition(":")[2]) for name in ("pub", "sub")]
        if self._door is not None and not is_back:
            self._door.lead_to(self._ports)

    def _advertise(self) -> list[str]:
        if self._door is None:
            return []
        return ["--advertise=tcp://127.0.0.1:{},{}".format(*self._door.ports)]


class Peer(Actor):
    """A client that speaks to peers, by their names. It keeps its port."""

    greeting = "registered"

    def __init__(
        self,
        name: str,
        side: Side,
        plan: dict[str, Any],
        door: Door | None,
        program: Sequence[str] = PEER,
    ) -> None:
        super().__init__(name, side)
        self._program = program
        self._door = door
        self._plan = {"name": name, "pace": PACE, "patience": PATIENCE, "port": 0, "qlog": None,
                      "key": None,
                      "advertise": [("127.0.0.1", door.ports[0])] if door else [], **plan,
                      }  # fmt: skip

    @property
    def id(self) -> int:
        """Its number; it may have had to take another one."""
        told = self.program.of("Established") or [self.first]
        return int(told[-1]["id"])

    async def leave(self) -> None:
        """Let it say its last word and go."""
        for command, answer in (("finish", "drained"), ("leave", "ended")):
            await self.program.tell(command)
            await self.program.heard(answer)
        assert await self.program.ended() == 0, self.program.story("it ended badly")

    def command(self) -> list[str]:
        return [sys.executable, *self._program, json.dumps(self._plan)]

    def moved_in(self, program: Program, first: Line) -> None:
        super().moved_in(program, first)
        self._plan["port"] = first["port"]
        if self._door is not None:
            self._door.lead_to([first["port"]])
