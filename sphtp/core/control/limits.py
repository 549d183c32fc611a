"""What a server holds at most."""

from dataclasses import dataclass

from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one server. Raises ``SettingsError`` when one is wrong."""

    max_clients: int = 4096
    """Registrations held; the next announcement is refused with the reason FULL."""

    def __post_init__(self) -> None:
        if self.max_clients < 1:
            raise SettingsError(f"max_clients must be at least 1, not {self.max_clients}")
