"""A Noise handshake as an object: what to send, what came, and the keys at the end."""

from typing import Final

from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.core.secure.noise.patterns import Pattern, Token
from sphtp.core.secure.noise.small_order import require_useful
from sphtp.core.secure.noise.state import HandshakeState
from sphtp.errors import (
    LocalError,
    MessageTooLargeError,
    RemoteError,
    SettingsError,
    StateError,
    untrusted,
)

MOST_BYTES: Final = 65_535
"""The longest message, in bytes, as the specification has it."""
LIMIT: Final = f"allowed are {MOST_BYTES}"


class Handshake:
    """One side of a handshake.

    ``identity`` is this side's, ``remote`` the other's public key where the pattern wants it
    beforehand; ``psk`` is a secret of 32 bytes that both share. ``prologue`` is what both must
    agree on without saying it. The keys are as secret as ``secrets`` is unpredictable.

    Raises ``SettingsError`` for a ``remote`` or ``psk`` that is missing, unexpected or unfit.
    """

    __slots__ = ("_at", "_initiator", "_messages", "_state")

    def __init__(
        self,
        pattern: Pattern,
        *,
        initiator: bool,
        identity: Identity,
        secrets: Secrets,
        prologue: bytes = b"",
        remote: bytes | None = None,
        psk: bytes | None = None,
    ) -> None:
        _require_key("remote", remote, pattern, wanted=initiator and pattern.responder_known)
        _require_key("psk", psk, pattern, wanted=pattern.has_psk)
        if remote is not None:
            _require_useful(remote)
        self._initiator = initiator
        self._messages = pattern.messages
        self._at = 0
        self._state = HandshakeState(pattern, initiator, identity, secrets, prologue, remote, psk)

    @property
    def is_finished(self) -> bool:
        """Whether all messages have passed, so that ``split`` gives the keys."""
        return self._at == len(self._messages)

    @property
    def is_my_turn(self) -> bool:
        """Whether the next message is to be written here."""
        return not self.is_finished and self._initiator == (self._at % 2 == 0)

    @property
    def remote(self) -> bytes | None:
        """The other side's static public key, 32 bytes, once it is known."""
        return self._state.remote

    @property
    def handshake_hash(self) -> bytes:
        """What stands for all that was said so far, 32 bytes; at the end, both have the same."""
        return self._state.symmetric.hash

    def write(self, payload: bytes) -> bytes:
        """Make the next message, with ``payload`` in it as secret as the pattern has it by then.

        Raises ``StateError`` when it is not this side's turn, and ``MessageTooLargeError``.
        """
        if not self.is_my_turn:
            raise StateError("a handshake message is written in turn")
        state = self._state.copy()
        message = state.write(self._tokens, payload)
        if len(message) > MOST_BYTES:
            raise MessageTooLargeError(f"a handshake message of {len(message)} bytes; {LIMIT}")
        self._advance(state)
        return message

    @untrusted
    def read_untrusted(self, message: bytes) -> bytes:
        """Take the next message, and return its payload.

        After a ``RemoteError`` everything is as before, and the true message can still be read.
        The first message of XX is in the clear: nothing tells who sent it.
        """
        if self.is_finished or self.is_my_turn:
            raise RemoteError("a handshake message out of turn")
        if len(message) > MOST_BYTES:
            raise RemoteError(f"a handshake message of {len(message)} bytes; {LIMIT}")
        state = self._state.copy()
        payload = state.read(self._tokens, message)
        self._advance(state)
        return payload

    def split(self) -> tuple[bytes, bytes]:
        """The keys for what follows, 32 bytes each: to send with, and to receive with.

        Raises ``StateError`` before the handshake is finished.
        """
        if not self.is_finished:
            raise StateError("a handshake has keys when it is finished")
        to_responder, to_initiator = self._state.symmetric.split()
        return (to_responder, to_initiator) if self._initiator else (to_initiator, to_responder)

    @property
    def _tokens(self) -> tuple[Token, ...]:
        return self._messages[self._at]

    def _advance(self, state: HandshakeState) -> None:
        self._state = state
        self._at += 1


def _require_key(name: str, key: bytes | None, pattern: Pattern, *, wanted: bool) -> None:
    if (key is not None) != wanted:
        problem = "is missing" if wanted else "has no place"
        raise SettingsError(f"{name} {problem} in this side of {pattern.name}")
    if key is not None and len(key) != KEY_SIZE:
        raise SettingsError(f"{name} has {len(key)} bytes; allowed is {KEY_SIZE}")


def _require_useful(remote: bytes) -> None:
    try:
        require_useful(remote)
    except LocalError as error:
        raise SettingsError(f"remote is {error}") from error
