"""Peers whose address changes: followed when they have answered from there."""

from typing import Final

from sphtp.core.channel.noise import encode_path
from sphtp.core.channel.protection import SecureSession
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.entropy import Secrets
from sphtp.core.front import Kind

RETRY: Final = 0.2
"""Seconds between two challenges under one bond, wherever its datagrams come from."""


class PathValidation:
    """Challenges a new address (RFC 9000, section 8.2), so that nobody is sent what it never asked.

    A datagram that somebody copied and sent from elsewhere proves nothing: only who has the keys
    can echo a nonce, and only who is there can have read it.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def challenge(self, now: float, bond: SecureSession, address: Address) -> Datagrams | None:
        """What to send to an address from which something newer came than from the old one."""
        if bond.trial is not None and now < bond.trial[2] + RETRY:
            return None
        nonce = self._secrets.getrandbits(64)
        bond.trial = address, nonce, now
        challenge = encode_path(Kind.CHALLENGE, bond.peer, nonce)
        return bond.seal(challenge, len(challenge), address)

    def respond(self, bond: SecureSession, address: Address, nonce: int) -> Datagrams:
        """The echo of a challenge, to where it came from."""
        response = encode_path(Kind.RESPONSE, bond.peer, nonce)
        return bond.seal(response, len(response), address)

    def is_proven(self, bond: SecureSession, address: Address, nonce: int) -> bool:
        """Whether an echo proves that the peer is there; each challenge serves once."""
        if bond.trial is None or bond.trial[:2] != (address, nonce):
            return False
        bond.trial = None
        return True
