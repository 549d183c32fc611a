"""Ids: servers even, clients odd, 0 and 1 nobody's (seed, "Least significant bit")."""

from sphtp.core.entropy import Entropy, Secrets

EVERYBODY = 0
"""The simulation id of server heartbeats, and of whatever else is for all clients."""

NO_NONCE = 0
"""Stands for the missing nonce of plain SphTP; never drawn."""


def draw_server_id(entropy: Entropy) -> int:
    """Draw an even id other than 0."""
    return _draw(entropy, 0)


def draw_client_id(entropy: Entropy) -> int:
    """Draw an odd id other than 1."""
    return _draw(entropy, 1)


def draw_nonce(secrets: Secrets) -> int:
    """Draw 64 bits other than all zero."""
    while True:
        nonce = secrets.getrandbits(64)
        if nonce != NO_NONCE:
            return nonce


def is_server_id(number: int) -> bool:
    """Tell whether this can be a server's id."""
    return number > 1 and number & 1 == 0


def is_client_id(number: int) -> bool:
    """Tell whether this can be a client's id."""
    return number > 1 and number & 1 == 1


def _draw(entropy: Entropy, parity: int) -> int:
    while True:
        number = (int(entropy.random() * (1 << 32)) & ~1) | parity
        if number > 1:
            return number
