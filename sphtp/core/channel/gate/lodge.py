"""What both sides of a sealed handshake work with."""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from hmac import new as hmac
from typing import Final

from sphtp.core.channel.gate.bond import Bond
from sphtp.core.channel.gate.bonds import Bonds
from sphtp.core.channel.gate.counters import GateCounters
from sphtp.core.channel.gate.trust import Trust
from sphtp.core.channel.gate.wire import PROOF_SIZE
from sphtp.core.channel.handshake import Refuse
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import Identity
from sphtp.errors import RemoteError

RESET_PURPOSE: Final = b"SphTP reset"


def reset_purpose(port: int) -> bytes:
    """What the key of a node's resets is derived for.

    Two nodes of one identity must not tell proofs for each other's channels; where they share a
    machine, their ports differ.
    """
    return RESET_PURPOSE + (port.to_bytes(2, "little") if port else b"")


@dataclass(frozen=True, slots=True)
class Lodge:
    """Who this node is, whom it trusts, its bonds, and the ways out.

    ``say`` sends a datagram; ``pass_on`` hands the endpoint one that is authentic, and ``present``
    one of whoever has proven to have a key. It is told whose key a connection's peer has by
    ``introduce_peer``, and by ``object`` who answers in its place, and by ``progress`` which
    connection's handshake goes on.
    """

    identity: Identity
    secrets: Secrets
    trust: Trust
    psk: bytes | None = field(repr=False)
    counters: GateCounters
    bonds: Bonds
    say: Callable[[Datagrams], None]
    pass_on: Callable[[float, Address, bytes], None]
    present: Callable[[float, Address, bytes, bytes], None]
    introduce_peer: Callable[[int, bytes], None]
    object: Callable[[float, Address, int, Refuse], None]
    progress: Callable[[float, int], None]
    reset_key: bytes = field(repr=False)

    def proof(self, connection_id: int) -> bytes:
        """What a RESET for one of our connections will show.

        It follows from identity and port alone: a node that restarted with them can still make it,
        and nobody else but the one who was told.
        """
        name = connection_id.to_bytes(4, "little")
        return hmac(self.reset_key, name, sha256).digest()[:PROOF_SIZE]

    def settle(self, bond: Bond, own: int, peer: int) -> None:
        """Let a bond serve a connection."""
        self.bonds.add(bond, own, peer)
        self.introduce_peer(own, bond.key)

    def introduce(self, connection_id: int, datagram: bytes) -> bytes:
        """Put a datagram of the endpoint behind what its receiver has to know besides."""
        return self.proof(connection_id) + datagram


def read_introduction_untrusted(introduction: bytes) -> tuple[bytes, bytes]:
    """Take apart what ``Lodge.introduce`` put together: the proof, and the datagram."""
    if len(introduction) <= PROOF_SIZE:
        raise RemoteError(f"an introduction of {len(introduction)} bytes says nothing")
    return introduction[:PROOF_SIZE], introduction[PROOF_SIZE:]


def is_proven(proof: bytes, wanted: bytes) -> bool:
    """Whether a RESET shows what it must; takes as long wherever they differ."""
    return bool(wanted) and compare_digest(proof, wanted)
