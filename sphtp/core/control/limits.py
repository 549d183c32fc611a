"""What a server holds at most."""

from dataclasses import dataclass
from typing import Final

from sphtp.core.control.fields import MAX_PARTS
from sphtp.core.control.parts import MAX_CHUNK, MAX_RECORD_SIZE
from sphtp.core.control.roster import CAPACITY
from sphtp.errors import SettingsError

MAX_CLIENTS: Final = min(CAPACITY, MAX_PARTS * (MAX_CHUNK // MAX_RECORD_SIZE))
"""So many are told to a client in one list, whatever their data, and so many it remembers."""

MAX_RATE: Final = 1_000_000
"""Per second; no server gets near."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one server. Raises ``SettingsError`` when one is wrong."""

    max_clients: int = 4096
    """Registrations held; the next announcement is refused with the reason FULL."""
    announces_per_second: float = 4096.0
    """Announcements answered, so many at once and so many per second; others have to come again."""
    lookups_per_second: float = 4096.0
    """The same for lookups, whose answers may be whole lists of clients."""

    def __post_init__(self) -> None:
        for name in ("announces_per_second", "lookups_per_second"):
            if not 1 <= getattr(self, name) <= MAX_RATE:
                raise SettingsError(f"{name} is {getattr(self, name)}; allowed are 1 to {MAX_RATE}")
        if not 1 <= self.max_clients <= MAX_CLIENTS:
            raise SettingsError(
                f"max_clients is {self.max_clients}; allowed are 1 to {MAX_CLIENTS}"
            )
