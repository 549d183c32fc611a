"""What a server holds at most."""

from dataclasses import dataclass
from typing import Final

from sphtp.core.control.fields import MAX_PARTS
from sphtp.core.control.parts import MAX_CHUNK, MAX_RECORD_SIZE
from sphtp.core.control.roster import CAPACITY
from sphtp.errors import SettingsError

MAX_CLIENTS: Final = min(CAPACITY, MAX_PARTS * (MAX_CHUNK // MAX_RECORD_SIZE))
"""So many are told to a client in one list, whatever their data, and so many it remembers."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one server. Raises ``SettingsError`` when one is wrong."""

    max_clients: int = 4096
    """Registrations held; the next announcement is refused with the reason FULL."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_clients <= MAX_CLIENTS:
            raise SettingsError(
                f"max_clients is {self.max_clients}; allowed are 1 to {MAX_CLIENTS}"
            )
