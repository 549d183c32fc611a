"""Handshake patterns: what each side knows beforehand, and what each message carries.

The tokens are those of the Noise specification, section 7. In a token of two letters the first
one is the initiator's key and the second one the responder's: ``e`` ephemeral, ``s`` static.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Token(Enum):
    """One step of a message."""

    E = "e"
    S = "s"
    EE = "ee"
    ES = "es"
    SE = "se"
    SS = "ss"
    PSK = "psk"


E, S, EE, ES, SE, SS, PSK = Token
CARRIED: Final = frozenset({E, S})
"""The tokens that put something into a message; the others mix what both sides have."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A handshake; the initiator sends the first of ``messages``, and then they alternate.

    ``responder_known`` is the pre-message: whether the initiator has the responder's static key
    beforehand.
    """

    name: str
    messages: tuple[tuple[Token, ...], ...]
    responder_known: bool = False

    @property
    def has_psk(self) -> bool:
        """Whether both sides need a secret that they have in common."""
        return any(PSK in tokens for tokens in self.messages)

    @property
    def protocol_name(self) -> bytes:
        """The full name, which is where both transcripts start."""
        return f"Noise_{self.name}_25519_AESGCM_SHA256".encode()


IK: Final = Pattern("IK", ((E, ES, S, SS), (E, EE, SE)), responder_known=True)
"""To a peer whose key is known: one round trip.

The first message can be played again by anybody: act on nothing in it before the peer is heard
under the new keys.
"""

XX: Final = Pattern("XX", ((E,), (E, EE, S, ES), (S, SE)))
"""To a peer who says its key: one and a half. Whether it is the right one is for the caller."""

XXPSK0: Final = Pattern("XXpsk0", ((PSK, E), (E, EE, S, ES), (S, SE)))
"""The same among those who share a secret: nobody else learns who they are."""
