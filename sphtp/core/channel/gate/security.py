"""Everything that decides how safe a node is, in one place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sphtp.core.channel.gate.settings import GateSettings
from sphtp.core.channel.gate.trust import OpenDoor, Trust
from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.errors import SettingsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """Of a node whose channels are sealed. Raises ``SettingsError`` for a ``psk`` that is none."""

    identity: Identity | None = None
    """Who it is to its peers; drawn anew by default."""
    allow: Callable[[bytes], bool] | None = None
    """Which public keys of peers it opens channels with; all by default.

    An error of its own is logged under ``sphtp.security``, and means no.
    """
    psk: bytes | None = field(default=None, repr=False)
    """A secret of 32 bytes that both sides need; nobody else gets further than a cookie."""
    limits: GateSettings = field(default_factory=GateSettings)
    """How much strangers may ask of it."""
    trust: Trust | None = None
    """Who is who, instead of ``allow``: for members of a cluster."""

    def __post_init__(self) -> None:
        if self.psk is not None and len(self.psk) != KEY_SIZE:
            raise SettingsError(f"psk has {len(self.psk)} bytes; allowed is {KEY_SIZE}")

    @property
    def judge(self) -> Trust:
        """Who says who is who."""
        return self.trust or OpenDoor(self.allow)


SEALED: Final = Security()
"""What a node is by default: sealed, with a new identity, open to whoever comes."""
