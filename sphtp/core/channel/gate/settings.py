"""How much strangers may ask of a gate."""

from dataclasses import dataclass, fields

from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    """Bounds of a gate; times in seconds.

    Raises ``SettingsError``, naming the setting, when one is out of range.
    """

    handshakes_per_second: float = 500.0
    """Messages of others' handshakes that are computed, each some 0.3 ms; others come again.

    Those who know this node's key or its secret, and strangers, have this much each."""
    half_open: int = 256
    """Handshakes of others under way at a time; for one who was introduced a stranger goes."""
    handshake_timeout: float = 5.0
    """After how much silence one of them is forgotten; after four times that in any case."""
    resets_per_second: float = 100.0
    """Peers told that their channel is not known here; a quarter of them at one address, and half
    at one host."""
    cookie_lifetime: float = 30.0
    """How long an address counts as proven, at least."""

    def __post_init__(self) -> None:
        for field in fields(self):
            low, high = RANGES[field.name]
            value = getattr(self, field.name)
            if not low <= value <= high:
                raise SettingsError(f"{field.name} is {value}; allowed is {low} to {high}")


RANGES: dict[str, tuple[float, float]] = {
    "handshakes_per_second": (1, 1e6),
    "half_open": (1, 65_536),
    "handshake_timeout": (0.1, 3600),
    "resets_per_second": (1, 1e6),
    "cookie_lifetime": (1, 3600),
}
