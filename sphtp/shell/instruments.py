"""Several instruments as one. A faulty instrument affects no other one."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import trio

from sphtp.core.channel.instrument import Instrument
from sphtp.core.datagrams import Address

EVENTS: Final = tuple(name for name in vars(Instrument) if not name.startswith("_"))

log: Final = logging.getLogger("sphtp.instrument")


@contextmanager
def watching(instruments: Sequence[Instrument], address: Address) -> Iterator[Instrument | None]:
    """Call instruments at a node's start and end; yield one that stands for all, None for none."""
    if not instruments:
        yield None
        return
    everybody = Instruments(instruments)
    everybody.node_opened(trio.current_time(), address)
    try:
        yield everybody
    finally:
        everybody.node_closed(trio.current_time())


class Instruments(Instrument):
    """Passes every event on to the instruments that have a method for it.

    An instrument that raises gets no further events; its error is logged under
    ``sphtp.instrument``.
    """

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._players = {
            name: [player for player in instruments if _has_own(player, name)] for name in EVENTS
        }
        for name, players in self._players.items():
            if players:
                setattr(self, name, partial(self._pass_on, name, players))

    def _pass_on(self, name: str, players: list[Instrument], *event: Any) -> None:
        for player in tuple(players):
            try:
                getattr(player, name)(*event)
            except Exception:
                log.exception("instrument %r raised in %s, and was removed", player, name)
                self._remove(player)

    def _remove(self, player: Instrument) -> None:
        for players in self._players.values():
            if player in players:
                players.remove(player)


def _has_own(player: Instrument, name: str) -> bool:
    method = getattr(player, name)
    return getattr(method, "__func__", method) is not getattr(Instrument, name)
