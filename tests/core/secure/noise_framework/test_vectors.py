"""The vectors that other implementations of Noise publish; `vectors.json` names its sources."""

import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sphtp.core.secure.identity import Identity
from sphtp.core.secure.noise_framework import NoiseHandshake
from tests.cases import each
from tests.core.secure.noise_framework.conversation import PATTERNS

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text(encoding="utf-8"))
OTHER = {"initiator": "responder", "responder": "initiator"}
PATTERN = {pattern.protocol_name.decode(): pattern for pattern in PATTERNS}


class Given:
    """Entropy that is the private key of the vector, once."""

    def __init__(self, key: bytes) -> None:
        self._keys = [key]

    def random(self) -> float:
        raise NotImplementedError

    def getrandbits(self, count: int, /) -> int:
        assert count == 256
        return int.from_bytes(self._keys.pop(), "little")

    def uniform(self, a: float, b: float) -> float:
        raise NotImplementedError


def side_of(vector: dict[str, Any], role: str) -> NoiseHandshake:
    pattern = PATTERN[vector["protocol"]]
    remote = Identity(bytes.fromhex(vector["responder"]["static"])).public
    asks = role == "initiator" and pattern.responder_known
    return NoiseHandshake(
        pattern,
        initiator=role == "initiator",
        identity=Identity(bytes.fromhex(vector[role]["static"])),
        secrets=Given(bytes.fromhex(vector[role]["ephemeral"])),
        prologue=bytes.fromhex(vector["prologue"]),
        remote=remote if asks else None,
        psk=bytes.fromhex(vector["psk"]) if "psk" in vector else None,
    )


def label(vector: dict[str, Any]) -> str:
    return f"{vector['source']}-{vector['protocol']}"


@each("vector", VECTORS["vectors"])
def test_every_byte_is_that_of_the_vector(vector: dict[str, Any]):
    sides = {role: side_of(vector, role) for role in OTHER}
    count = len(PATTERN[vector["protocol"]].messages)
    for message in vector["messages"][:count]:
        writer, reader = sides[message["sender"]], sides[OTHER[message["sender"]]]
        payload = bytes.fromhex(message["payload"])
        assert writer.write(payload).hex() == message["ciphertext"]
        assert reader.read_untrusted(bytes.fromhex(message["ciphertext"])) == payload

    hashes = {side.handshake_hash.hex() for side in sides.values()}
    assert hashes == {vector.get("handshake_hash", sides["initiator"].handshake_hash.hex())}
    require_transport(vector["messages"][count:], sides)


def require_transport(messages: list[dict[str, str]], sides: dict[str, NoiseHandshake]) -> None:
    """What is said after the handshake shows that the keys are right, each in its direction."""
    assert {message["sender"] for message in messages} == set(OTHER)
    counters = dict.fromkeys(OTHER, 0)
    for message in messages:
        sender = message["sender"]
        nonce = counters[sender].to_bytes(12, "big")
        counters[sender] += 1
        sending, receiving = sides[sender].split()[0], sides[OTHER[sender]].split()[1]
        sealed = AESGCM(sending).encrypt(nonce, bytes.fromhex(message["payload"]), None)
        assert sealed.hex() == message["ciphertext"]
        assert AESGCM(receiving).decrypt(nonce, sealed, None).hex() == message["payload"]


def test_there_are_vectors_of_every_pattern_and_every_source():
    assert {vector["protocol"] for vector in VECTORS["vectors"]} == set(PATTERN)
    assert {vector["source"] for vector in VECTORS["vectors"]} == set(VECTORS["sources"])
    assert any("handshake_hash" in vector for vector in VECTORS["vectors"])
