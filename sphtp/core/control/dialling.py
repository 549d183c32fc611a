"""Which servers to be connected to: the wish is declared, the difference is dialled."""

from collections import deque
from collections.abc import Iterable

from sphtp.core.control.outputs import Dial, HangUp
from sphtp.core.control.records import ServerAddress


class Dialler:
    """Turns the set of addresses wanted into Dial and HangUp commands."""

    __slots__ = ("_dialled", "_own", "_queue", "_standing")

    def __init__(self, standing: Iterable[ServerAddress], own: ServerAddress | None = None) -> None:
        self._own = own
        self._standing = dict.fromkeys(standing)
        self._dialled: dict[ServerAddress, None] = {}
        self._queue: deque[Dial | HangUp] = deque()

    def want(self, addresses: Iterable[ServerAddress | None]) -> None:
        """Be connected to these and the standing ones, and to no others."""
        wanted = {**self._standing, **{a: None for a in addresses if a is not None}}
        if self._own is not None:
            wanted.pop(self._own, None)
        self._queue += [HangUp(address) for address in self._dialled if address not in wanted]
        self._queue += [Dial(address) for address in wanted if address not in self._dialled]
        self._dialled = wanted

    def poll(self) -> Dial | HangUp | None:
        """Return the next command, or None."""
        return self._queue.popleft() if self._queue else None
