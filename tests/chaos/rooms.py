"""Where programs run and how they reach each other: two sides, and a network between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Side = Literal["left", "right"]
Pid = int


@dataclass(frozen=True)
class Door:
    """Where a program that has no ports yet will be reached; ``lead_to`` is told its ports."""

    ports: Sequence[int]
    lead_to: Callable[[Sequence[int]], None]


class Rooms:
    """One room for both sides, and no doors: everybody reaches everybody where they listen."""

    def entry(self, side: Side) -> tuple[str, ...]:
        """The words before a command that make it run on that side."""
        return ()

    def host(self, side: Side) -> str:
        """The address that programs of that side bind."""
        return "127.0.0.1"

    async def server_door(self, side: Side) -> Door | None:
        """Open the two ports of a server, if this network has them elsewhere."""
        return None

    async def peer_door(self, side: Side) -> Door | None:
        """Open the port of a peer, if this network has it elsewhere."""
        return None

    def moved_in(self, side: Side, pid: Pid) -> None:
        """Take note of who is where."""

    async def cut(self) -> None:
        """Let nothing pass from one side to the other, without a word to anybody."""
        raise NotImplementedError("one room cannot be cut in two")

    async def heal(self) -> None:
        """Let everything pass again."""
        raise NotImplementedError("one room cannot be cut in two")
