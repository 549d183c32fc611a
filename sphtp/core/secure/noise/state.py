"""One side's keys in mid-handshake, and what the tokens of a message do to them.

This is the HandshakeState of the Noise specification, section 5.3, but for the turns.
"""

from typing import Self

from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import KEY_SIZE, Identity
from sphtp.core.secure.noise.patterns import CARRIED, Pattern, Token
from sphtp.core.secure.noise.small_order import require_useful
from sphtp.core.secure.noise.symmetric import SymmetricState
from sphtp.core.wire import Reader


class HandshakeState:
    """What one side has and has heard; the keys are named by the letters of the tokens.

    A message that fails half way leaves it spoilt: work on a copy.
    """

    __slots__ = ("_initiator", "_own", "_pattern", "_psk", "_secrets", "_theirs", "symmetric")

    def __init__(
        self,
        pattern: Pattern,
        initiator: bool,
        static: Identity,
        secrets: Secrets,
        prologue: bytes,
        remote: bytes | None,
        psk: bytes | None,
    ) -> None:
        self._pattern = pattern
        self._initiator = initiator
        self._secrets = secrets
        self._psk = psk or b""
        self._own = {"s": static}
        self._theirs = {"s": remote} if remote is not None else {}
        self.symmetric = SymmetricState(pattern.protocol_name)
        self.symmetric.mix_hash(prologue)
        if pattern.responder_known:
            known = self._theirs["s"] if initiator else static.public
            self.symmetric.mix_hash(known)

    def copy(self) -> Self:
        """Another one that has come as far."""
        twin = object.__new__(type(self))
        twin._pattern, twin._initiator = self._pattern, self._initiator
        twin._secrets, twin._psk = self._secrets, self._psk
        twin._own, twin._theirs = self._own.copy(), self._theirs.copy()
        twin.symmetric = self.symmetric.copy()
        return twin

    @property
    def remote(self) -> bytes | None:
        """The other side's static key, if it is known yet."""
        return self._theirs.get("s")

    def write(self, tokens: tuple[Token, ...], payload: bytes) -> bytes:
        """Make a message of these tokens."""
        parts = []
        for token in tokens:
            if token in CARRIED:
                parts.append(self._write_key(token))
            else:
                self._mix(token)
        parts.append(self.symmetric.encrypt_and_hash(payload))
        return b"".join(parts)

    def read(self, tokens: tuple[Token, ...], message: bytes) -> bytes:
        """Take a message of these tokens apart, and return its payload."""
        reader = Reader(message)
        for token in tokens:
            if token in CARRIED:
                self._read_key(token, reader)
            else:
                self._mix(token)
        return self.symmetric.decrypt_and_hash(reader.rest())

    def _write_key(self, token: Token) -> bytes:
        if token is Token.S:
            return self.symmetric.encrypt_and_hash(self._own["s"].public)
        ephemeral = self._own["e"] = Identity.draw(self._secrets)
        self._note_ephemeral(ephemeral.public)
        return ephemeral.public

    def _read_key(self, token: Token, reader: Reader) -> None:
        if token is Token.S:
            sealed = reader.take(KEY_SIZE + self.symmetric.overhead)
            key = self.symmetric.decrypt_and_hash(sealed)
        else:
            key = reader.take(KEY_SIZE)
            self._note_ephemeral(key)
        require_useful(key)
        self._theirs[token.value] = key

    def _note_ephemeral(self, public: bytes) -> None:
        self.symmetric.mix_hash(public)
        # Section 9.2: else a key from the shared secret alone would be the same each time.
        if self._pattern.has_psk:
            self.symmetric.mix_key(public)

    def _mix(self, token: Token) -> None:
        if token is Token.PSK:
            self.symmetric.mix_key_and_hash(self._psk)
        else:
            mine, its = token.value if self._initiator else reversed(token.value)
            self.symmetric.mix_key(self._own[mine].exchange(self._theirs[its]))
