"""Authentication of the messages on the bus: marks of sent messages, checks of received ones.

There are two marks. The MAC by the cluster's secret separates members from strangers, and all
members add it. The signature by a server's key separates servers from other members. The MAC covers
the signature.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.senders import Pipe, SigningSession
from sphtp.core.control.vocabulary import is_server_id
from sphtp.core.secure.identity import format_key
from sphtp.core.secure.signing import (
    TO_CLIENTS,
    TO_SERVERS,
    ServerKey,
    SignatureStatus,
    SignatureVerdict,
    Signer,
    Verifier,
    strip_signature,
)
from sphtp.core.secure.vouch import Authenticity, Voucher, is_marked, strip
from sphtp.errors import SettingsError
from sphtp.shell.bus_dialing import BusArrival
from sphtp.shell.config import SECRETS

NONE_GIVEN: Final = "no secret: the servers have one, and none was given here"
ANOTHER_ONE: Final = "wrong secret: the servers have another one"
NONE_THERE: Final = "the servers have no secret, and one was given here"
NOT_SIGNED: Final = "the servers do not sign their messages, and keys of servers were given here"

_SENDER: Final = slice(4, 8)

_COUNTS: Final = {
    Authenticity.UNVOUCHED: Count.UNVOUCHED,
    Authenticity.REPLAYED: Count.REPLAYED,
    SignatureStatus.UNSIGNED: Count.UNSIGNED,
    SignatureStatus.UNKNOWN: Count.UNKNOWN_KEY,
    SignatureStatus.REPLAYED: Count.REPLAYED,
}


class VerifiedMessage(NamedTuple):
    """A message for a machine; ``pipe`` is None when the message proves its sender."""

    data: bytes
    pipe: Pipe
    session: SigningSession | None = None
    """The session of the server that signed the message, if servers have to sign."""


class Vouching:
    """The marks of one program's messages, and its checks of received ones."""

    def __init__(
        self, voucher: Voucher | None, signer: Signer | None, verifier: Verifier | None
    ) -> None:
        self._voucher = voucher
        self._signer = signer
        self._verifier = verifier
        self._secret_fault: str | None = None
        self._has_genuine = False
        self.is_repeated = False
        """True if the MAC showed that the last checked message was a replay of a genuine one."""

    @property
    def secret_fault(self) -> str | None:
        """The fault of secrets or keys because of which no message was genuine so far, or None."""
        return None if self._has_genuine else self._secret_fault

    @property
    def why_refused(self) -> str | None:
        """The last fault of secrets or keys, even if other messages were genuine, or None."""
        return self._secret_fault

    def mark(self, data: bytes) -> bytes:
        """Return a message with its marks.

        Raises ``MessageTooLargeError`` if the message leaves no room for them.
        """
        signed = data if self._signer is None else self._signer.sign(data)
        return signed if self._voucher is None else self._voucher.vouch(signed)

    def check(self, arrival: BusArrival, counters: ControlCounters) -> VerifiedMessage | None:
        """Return the verified message, or None if it was dropped and counted."""
        vouched = self._check_voucher(arrival, counters)
        if vouched is None or self._verifier is None:
            return vouched
        if not is_server_id(int.from_bytes(vouched.data[_SENDER], "little")):
            return vouched
        judged = self._verifier.judge(vouched.data, arrival.pipe)
        if judged.verdict is SignatureStatus.GENUINE:
            self._has_genuine = True
            session = SigningSession(judged.key, judged.boot)
            return VerifiedMessage(strip_signature(vouched.data), None, session)
        counters.add(_COUNTS[judged.verdict])
        if judged.verdict is SignatureStatus.UNKNOWN:
            self._secret_fault = _unknown(judged)
        elif judged.verdict is SignatureStatus.UNSIGNED and self._secret_fault is None:
            self._secret_fault = NOT_SIGNED
        return None

    def _check_voucher(
        self, arrival: BusArrival, counters: ControlCounters
    ) -> VerifiedMessage | None:
        if self._voucher is None:
            # Without a secret, the connection identifies the sender.
            if is_marked(arrival.data):
                self._secret_fault = NONE_GIVEN
            return VerifiedMessage(*arrival)
        verdict = self._voucher.judge(arrival.data)
        self.is_repeated = verdict is Authenticity.REPLAYED
        if verdict is Authenticity.GENUINE:
            self._has_genuine = self._has_genuine or self._verifier is None
            return VerifiedMessage(strip(arrival.data), None)
        counters.add(_COUNTS[verdict])
        if verdict is Authenticity.UNVOUCHED:
            self._secret_fault = ANOTHER_ONE if is_marked(arrival.data) else NONE_THERE
        return None


def vouching(secret: bytes | None, server_keys: Collection[bytes] = ()) -> Vouching:
    """Return the marks and checks of a client with this secret and these keys.

    Raises ``SettingsError`` for a wrong secret or key.
    """
    return Vouching(_voucher(secret), None, _verifier(server_keys, TO_CLIENTS))


def server_vouching(
    secret: bytes | None, key: ServerKey | None, server_keys: Collection[bytes]
) -> tuple[Vouching, Vouching]:
    """Return a server's marks for messages to clients, and those for messages to servers.

    Each has message numbers of its own. So a message to clients that somebody replays to a server
    does not use up the numbers of messages to servers. The first one also checks the messages that
    the server receives. Raises ``SettingsError`` for a wrong secret or key.
    """
    verifier = _verifier(trusted_by_server(key, server_keys), TO_SERVERS)
    to_clients, to_servers = (
        None if key is None else Signer(key, SECRETS.getrandbits(64), purpose)
        for purpose in (TO_CLIENTS, TO_SERVERS)
    )
    return (
        Vouching(_voucher(secret), to_clients, verifier),
        Vouching(_voucher(secret), to_servers, None),
    )


def trusted_by_server(key: ServerKey | None, server_keys: Collection[bytes]) -> frozenset[bytes]:
    """Return the public keys that a server trusts: those of servers, or of certifying clusters.

    ``key`` is the server's own key. Without ``server_keys``, the server trusts the key of the
    cluster that certifies ``key``. If no cluster certifies ``key``, the server trusts its own
    public key. Without ``key``, it trusts no key. Raises ``SettingsError`` if other servers would
    drop this server's messages.
    """
    named = frozenset(server_keys)
    if key is None:
        if named:
            raise SettingsError(
                "server_keys are given, but no signing_key: programs that accept only servers with "
                "these keys would drop this server's messages"
            )
        return named
    vouches = key.public if key.certificate is None else key.certificate.cluster
    if named and not named & {key.public, vouches}:
        raise SettingsError(
            f"neither this server's key {format_key(key.public)} nor the one that certifies it is "
            "among the server keys given: other servers would drop its messages"
        )
    return named or frozenset((vouches,))


def _unknown(judged: SignatureVerdict) -> str:
    certifier = "no cluster" if not any(judged.cluster) else format_key(judged.cluster)
    return (
        f"wrong server key: the server signs with {format_key(judged.key)}, certified by "
        f"{certifier}, and neither key was given here"
    )


def _voucher(secret: bytes | None) -> Voucher | None:
    return None if secret is None else Voucher(secret, SECRETS.getrandbits(64))


def _verifier(trusted: Collection[bytes], purpose: bytes) -> Verifier | None:
    return Verifier(trusted, purpose) if trusted else None
