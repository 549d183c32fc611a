"""An instrument that remembers what it was told."""

from collections.abc import Callable
from typing import Any

from sphtp.observe import Instrument

EVENTS = tuple(name for name in vars(Instrument) if not name.startswith("_"))


class Recorder(Instrument):
    """Keeps every event, in order: its name, and what came with it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...]]] = []
        for name in EVENTS:
            setattr(self, name, self._keep(name))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """What came with the events of this name."""
        assert name in EVENTS, name
        return [event for told, event in self.told if told == name]

    def last(self, name: str, place: int = 2) -> list[Any]:
        """What came in one place with the events of this name; the third, by default."""
        return [event[place] for event in self.of(name)]

    def _keep(self, name: str) -> Callable[..., None]:
        return lambda *event: self.told.append((name, event))
