"""A bad network at a node's own socket, for experiments.

The socket drops, duplicates and holds back incoming datagrams on purpose. It delivers a held
datagram after a few later ones from the same address, or after a few receive calls if fewer
arrive. The seed and the order of the datagrams decide which ones are affected, not the time.
``sphtp.testing.network`` has links with a rate, and with delays in seconds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from random import Random
from sys import maxsize
from typing import Final

import trio

from sphtp.core.datagrams import Address, Datagrams
from sphtp.errors import SettingsError
from sphtp.shell.udp import UdpSocket

MOST_OVERTAKING: Final = 3
"""The most later datagrams that overtake a held one; the least number is 1."""

MOST_CALLS: Final = 8
"""The receive calls after which a held datagram is delivered, overtaken or not."""

LULL: Final = 0.005
"""Seconds until the next receive call on a silent socket while a datagram is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impairment:
    """The faults of the datagrams that a node receives: shares from 0 to less than 1.

    Raises ``SettingsError``, naming the share, when one is out of range.
    """

    duplicate: float = 0.0
    """The share of datagrams that are duplicated; ``loss`` and ``reorder`` apply to each copy."""
    loss: float = 0.0
    """The share of datagrams that are dropped."""
    reorder: float = 0.0
    """The share of datagrams that are held back, so that later ones from the same address overtake
    them.
    """

    def __post_init__(self) -> None:
        for field in fields(self):
            share = getattr(self, field.name)
            if not 0 <= share < 1:
                raise SettingsError(f"{field.name} is {share}; allowed is 0 to less than 1")


def open_socket(host: str, port: int, impairment: Impairment | None, seed: int | None) -> UdpSocket:
    """Bind a socket with this impairment, or an ordinary one for None or if all shares are 0.

    Raises ``UdpAddressError`` if the address cannot be bound.
    """
    if impairment is None or impairment == Impairment():
        return UdpSocket(host, port)
    return ImpairedSocket(host, port, impairment, Random(seed))


@dataclass(slots=True)
class _Held:
    """A datagram that waits for ``overtaking`` later ones, or for ``calls`` receive calls."""

    row: Datagrams
    overtaking: int
    calls: int = MOST_CALLS

    @property
    def is_due(self) -> bool:
        return self.overtaking <= 0 or self.calls <= 0


class ImpairedSocket(UdpSocket):
    """A socket that impairs the datagrams that it receives, and counts the faults."""

    def __init__(
        self,
        host: str,
        port: int,
        impairment: Impairment,
        random: Random,
        *,
        is_shared: bool = False,
    ) -> None:
        super().__init__(host, port, is_shared=is_shared)
        self._impairment = impairment
        self._random = random
        self._held: list[_Held] = []

    def open_shared(self, host: str, port: int) -> UdpSocket:
        """Bind another socket with the same impairment. Raises ``UdpAddressError``."""
        random = Random(self._random.getrandbits(64))
        return ImpairedSocket(host, port, self._impairment, random, is_shared=True)

    def receive_batch(self, limit: int, size: int = maxsize) -> Sequence[Datagrams]:
        """Return new datagrams, and those held long enough, each in a row of its own."""
        rows: list[Datagrams] = []
        for row in super().receive_batch(limit, size):
            for datagram in row.datagrams:
                rows += self._treat(Datagrams.of(row.address, datagram))
        for held in self._held:
            held.calls -= 1
        return rows + self._release()

    async def wait_readable(self) -> None:
        """Wait for a datagram, for ``LULL`` seconds at most while one is held."""
        if not self._held:
            await super().wait_readable()
            return
        with trio.move_on_after(LULL):
            await super().wait_readable()

    def _treat(self, row: Datagrams) -> Iterator[Datagrams]:
        yield from self._carry(row)
        if self._happens(self._impairment.duplicate):
            self.counters.duplicated_on_purpose += 1
            yield from self._carry(row)

    def _carry(self, row: Datagrams) -> Iterator[Datagrams]:
        if self._happens(self._impairment.loss):
            self.counters.dropped_on_purpose += 1
        elif self._happens(self._impairment.reorder):
            self.counters.held_back_on_purpose += 1
            self._held.append(_Held(row, self._random.randint(1, MOST_OVERTAKING)))
        else:
            yield row
            self._overtake(row.address)
            yield from self._release()

    def _overtake(self, address: Address) -> None:
        for held in self._held:
            if held.row.address == address:
                held.overtaking -= 1

    def _release(self) -> list[Datagrams]:
        due = [held.row for held in self._held if held.is_due]
        if due:
            self._held = [held for held in self._held if not held.is_due]
        return due

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share
