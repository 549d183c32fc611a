"""A second reader of sealed channels, written from docs/reference/wire alone.

It shares no code with the project: `noiseprotocol` shakes hands, `cryptography` has the primitives,
and all else is the page's. It has both sides' private keys, so that it can write as well as read.
"""

import hmac
from collections.abc import Iterator
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from noise.connection import Keypair, NoiseConnection
from noise.exceptions import NoiseHandshakeError

from tests.interop.second_reader import Fields, Malformed, demand, read_datagram

FAMILIES = ("session/", "sealed/", "epoch/", "proof/", "prologue/")

PATTERNS = {1: "IK", 2: "XX", 3: "XXpsk0"}
IK = 1
OTHER = {"opener": "answerer", "answerer": "opener"}
CONNECT, ACCEPT, GREET, COOKIE, WELCOME, CONFIRM, SEALED = 1, 2, 4, 5, 6, 7, 8
# Where the Noise message is named, by the kind of its datagram.
NOISE = {GREET: "noise", WELCOME: "content", CONFIRM: "noise"}
PROOF_SIZE = 16
HEAD_SIZE = 13
EPOCH = 1 << 20


def noise_name(pattern: int) -> bytes:
    """Give the name of the Noise protocol."""
    return f"Noise_{PATTERNS[pattern]}_25519_AESGCM_SHA256".encode()


def prologue(pattern: int, opener: int, token: int) -> bytes:
    """Give what both sides hash first."""
    named = pattern.to_bytes(1, "little") + opener.to_bytes(4, "little")
    return b"SphTP 1" + named + token.to_bytes(8, "little")


def next_key(key: bytes) -> bytes:
    """Give the key of the next epoch."""
    return hmac.digest(key, b"SphTP next key\x01", "sha256")


def proof_of(static: bytes, connection_id: int) -> bytes:
    """Give the proof that ours make for a connection id."""
    extracted = hmac.digest(bytes(32), static, "sha256")
    reset_key = hmac.digest(extracted, b"SphTP reset\x01", "sha256")
    return hmac.digest(reset_key, connection_id.to_bytes(4, "little"), "sha256")[:PROOF_SIZE]


def seal(key: bytes, connection_id: int, counter: int, plain: bytes) -> bytes:
    """Seal a datagram under the key of its epoch."""
    head = b"\x18" + connection_id.to_bytes(4, "little") + counter.to_bytes(8, "little")
    return head + AESGCM(key).encrypt(nonce_of(counter), plain, head)


def open_sealed(key: bytes, epoch: int, data: bytes) -> bytes:
    """Open a datagram; the key is that of this epoch."""
    fields = read_datagram(data)
    demand(fields["kind"] == SEALED, "not sealed")
    ahead = fields["counter"] // EPOCH - epoch
    demand(ahead in (0, 1), "of an epoch that is not tried")
    try:
        right = next_key(key) if ahead else key
        plain = AESGCM(right).decrypt(
            nonce_of(fields["counter"]), data[HEAD_SIZE:], data[:HEAD_SIZE]
        )
    except InvalidTag:
        raise Malformed("not authentic") from None
    demand(plain[1:5] == data[1:5], "for another connection than outside")
    return plain


def nonce_of(counter: int) -> bytes:
    """Give the nonce of a counter."""
    return bytes(4) + counter.to_bytes(8, "big")


class Session:
    """Both sides of a handshake, by their private keys, and then the keys that it gives."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._static = {name: bytes.fromhex(fields[name]["static"]) for name in OTHER}
        self._sides = {name: self._side(name) for name in OTHER}
        self._payloads: dict[bytes, bytes] = {}
        self._cookie = bytes(PROOF_SIZE).hex()
        self._counters = dict.fromkeys(OTHER, 0)
        # The key under which each of them seals.
        self.keys: dict[str, bytes] = {}

    def _side(self, name: str) -> NoiseConnection:
        fields = self._fields
        pattern = fields["pattern"]
        side = NoiseConnection.from_name(noise_name(pattern))
        (side.set_as_initiator if name == "opener" else side.set_as_responder)()
        side.set_prologue(prologue(pattern, fields["opener"]["connection_id"], fields["token"]))
        side.set_keypair_from_private_bytes(Keypair.STATIC, self._static[name])
        ephemeral = bytes.fromhex(fields[name]["ephemeral"])
        side.set_keypair_from_private_bytes(Keypair.EPHEMERAL, ephemeral)
        if pattern == IK and name == "opener":
            key = X25519PrivateKey.from_private_bytes(self._static["answerer"])
            known = key.public_key().public_bytes_raw()
            side.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, known)
        if "psk" in fields:
            side.set_psks(psk=bytes.fromhex(fields["psk"]))
        side.start_handshake()
        return side

    def read(self, spoken: list[tuple[str, bytes]]) -> Iterator[Fields]:
        """Read all datagrams, by who sent them; yield what the page says of each."""
        for speaker, data in spoken:
            fields = read_datagram(data)
            self._check_front(speaker, fields)
            named: Fields = {"from": speaker, "kind": fields["kind"], "size": len(data)}
            if fields["kind"] == COOKIE:
                self._cookie = fields["cookie"]
                yield named
            elif fields["kind"] == SEALED:
                yield named | {"inside": self._open(speaker, fields["counter"], data).hex()}
            else:
                noise = bytes.fromhex(fields[NOISE[fields["kind"]]])
                yield named | name_payload(self._shake(speaker, noise))

    def _check_front(self, speaker: str, fields: Fields) -> None:
        """What the handshake says in the clear is the same in all of it."""
        told: dict[str, Any] = {
            "token": self._fields["token"],
            "opener": self._fields["opener"]["connection_id"],
            "pattern": self._fields["pattern"],
            "cookie": self._cookie,
        }
        if fields["kind"] == COOKIE:
            del told["cookie"]
        demand(all(fields[key] == told[key] for key in told if key in fields), "another attempt")
        to = 0 if fields["kind"] in (GREET, CONFIRM) else self._id_of(OTHER[speaker])
        demand(fields["connection_id"] == to, "to another connection")

    def _id_of(self, name: str) -> int:
        number: int = self._fields[name]["connection_id"]
        return number

    def _shake(self, speaker: str, noise: bytes) -> bytes:
        """Read a Noise message at one side and write it at the other, the first time it comes."""
        if noise in self._payloads:
            return self._payloads[noise]
        try:
            payload = bytes(self._sides[OTHER[speaker]].read_message(noise))
        except (InvalidTag, NoiseHandshakeError):
            raise Malformed("not authentic, or not in its turn") from None
        demand(bytes(self._sides[speaker].write_message(payload)) == noise, "not what we would say")
        self._payloads[noise] = payload
        for name, side in self._sides.items():
            if side.handshake_finished:
                self.keys[name] = bytes(side.noise_protocol.cipher_state_encrypt.k)
        if payload.strip(b"\0"):
            self._check_introduction(speaker, payload)
        return payload

    def _open(self, speaker: str, counter: int, data: bytes) -> bytes:
        demand(counter == self._counters[speaker], "counters grow one by one")
        self._counters[speaker] += 1
        plain = open_sealed(self.keys[speaker], 0, data)
        inside = read_datagram(plain)
        if inside["kind"] == WELCOME:
            demand(inside["token"] == self._fields["token"], "another attempt")
            self._check_introduction(speaker, bytes.fromhex(inside["content"]))
        return plain

    def _check_introduction(self, speaker: str, introduction: bytes) -> None:
        proof, datagram = introduction[:PROOF_SIZE], introduction[PROOF_SIZE:]
        own = self._id_of(speaker)
        demand(proof == proof_of(self._static[speaker], own), "a proof of something else")
        inside = read_datagram(datagram)
        demand(inside["kind"] == (CONNECT if speaker == "opener" else ACCEPT), "another kind")
        demand(inside["token"] == self._fields["token"], "another attempt")
        demand(inside["offer"]["connection_id"] == own, "another connection")


def name_payload(payload: bytes) -> Fields:
    """Name a payload as the page does."""
    is_padding = bool(payload) and not payload.strip(b"\0")
    return {"zeros": len(payload)} if is_padding else {"inside": payload.hex()}
