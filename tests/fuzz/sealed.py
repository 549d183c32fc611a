"""What comes to a sealed node: its datagrams, and what somebody with keys, or a name, can say.

Noise and seals let nothing pass that is made up, so the last ones here put the bytes inside.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from sphtp.core.channel import noise as wire
from sphtp.core.channel import path_validation, stateless_reset
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.noise import NUMBERS, prologue, read_payload_untrusted
from sphtp.core.channel.security import PeerPin
from sphtp.core.datagrams import Address, Datagrams, Kind, encode_front
from sphtp.core.secure.noise_framework import IK, XX, NoiseHandshake, Pattern
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, identity, keys_of, make_sealed
from tests.fuzz.choices import Script

OPENER: Final = 7
TOKEN: Final = 8
KNOWN: Final = PeerPin(identity("right").public)


def greet(data: bytes) -> None:
    """The first datagram of an opener."""
    assert wire.encode_greet(wire.decode_greet_untrusted(data))[5:] == data[5:]


def stranger(data: bytes) -> None:
    """The same in another version."""
    wire.decode_stranger_untrusted(data)


def answer(data: bytes) -> None:
    """A cookie, or a welcome."""
    decoded = wire.decode_answer_untrusted(data)
    assert wire.encode_answer(Kind.WELCOME, 0, decoded)[5:] == data[5:]


def confirm(data: bytes) -> None:
    """The third datagram of an opener."""
    assert wire.encode_confirm(wire.decode_confirm_untrusted(data))[5:] == data[5:]


def reset(data: bytes) -> None:
    """A proof that a channel is forgotten."""
    assert (
        stateless_reset.encode_reset(0, stateless_reset.decode_reset_untrusted(data))[5:]
        == data[5:]
    )


def path(data: bytes) -> None:
    """A challenge, or a response."""
    assert (
        path_validation.encode_path(Kind.CHALLENGE, 0, path_validation.decode_path_untrusted(data))[
            5:
        ]
        == data[5:]
    )


def payload(data: bytes) -> None:
    """What a handshake carries."""
    assert b"".join(read_payload_untrusted(data)) == data


def unprotected(data: bytes) -> None:
    """Whatever comes, by its first byte, to a node that somebody dials and that dials somebody."""
    node = make_sealed("right")
    node.dial(0.0, [LEFT], 0, KNOWN)
    said(node)
    script = Script(data)
    kind = script.below(16)
    node.handle_datagrams_untrusted(0.1, Datagrams.of(LEFT, bytes([0x10 | kind]) + data[1:]))
    said(node)


def protected(data: bytes) -> None:
    """What a peer that has keys seals, whatever it is, from where it was or from elsewhere."""
    pair = SealedPair(1)
    left, right = pair.open(KNOWN)
    script = Script(data)
    address: Address = ("10.0.0.9", 9) if script.below(2) else LEFT
    keys = keys_of(left)
    front = encode_front(Kind(script.below(len(Kind))), right.connection_id)
    for inner in (data[2:], front + data[2:]):
        sealed = keys.seal(RIGHT, inner or b"\0", len(inner) or 1)
        pair.right.handle_datagrams_untrusted(
            pair.now, Datagrams(address, sealed.data, sealed.size)
        )
        said(pair.right)


def responder(data: bytes) -> None:
    """What somebody who has a name, and a cookie, asks for."""
    script = Script(data)
    pattern = (IK, XX)[script.below(2)]
    node, handshake = make_sealed("right"), _handshake(pattern, "left", initiator=True)
    noise = handshake.write(data[1:] if pattern is IK else bytes(wire.SMALLEST_GREET))
    for cookie in (wire.NO_COOKIE, None):
        if cookie is None:
            cookie = wire.decode_answer_untrusted(said(node)[0].data).content
        opening = wire.Greet(OPENER, TOKEN, NUMBERS[pattern.name], cookie, noise)
        padded = wire.encode_greet(opening).ljust(wire.SMALLEST_GREET, b"\0")
        node.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, padded))
    answers = said(node)
    if pattern is XX:
        handshake.read_untrusted(wire.decode_answer_untrusted(answers[0].data).content)
        told = wire.Confirm(OPENER, TOKEN, handshake.write(data[1:]))
        node.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, wire.encode_confirm(told)))
        said(node)


def initiator(data: bytes) -> None:
    """What the one who was dialled, and is who it should be, answers."""
    node = make_sealed("left")
    node.dial(0.0, [RIGHT], 0, KNOWN)
    asked = wire.decode_greet_untrusted(said(node)[0].data)
    front = prologue(IK, asked.opener, asked.token)
    handshake = _handshake(IK, "right", initiator=False, front=front)
    handshake.read_untrusted(asked.noise)
    data = data.replace(_names(OPENER, TOKEN), _names(asked.opener, asked.token))
    welcome = wire.Answer(asked.token, handshake.write(data))
    node.handle_datagrams_untrusted(
        0.1, Datagrams.of(RIGHT, wire.encode_answer(Kind.WELCOME, asked.opener, welcome))
    )
    said(node)


def _names(opener: int, token: int) -> bytes:
    return opener.to_bytes(4, "little") + token.to_bytes(8, "little")


def said(node: Endpoint) -> list[Datagrams]:
    """All that a node has to send by now."""
    rows = []
    while (row := node.poll_transmit(0.2)) is not None:
        rows.append(row)
        assert len(rows) < 100, "a node that does not end"
    while node.poll_active() is not None:
        pass
    return rows


def _handshake(
    pattern: Pattern, name: str, *, initiator: bool, front: bytes | None = None
) -> NoiseHandshake:
    return NoiseHandshake(
        pattern,
        initiator=initiator,
        identity=identity(name),
        secrets=Random(name),
        prologue=prologue(pattern, OPENER, TOKEN) if front is None else front,
        remote=identity("right").public if initiator and pattern.responder_known else None,
    )


SEALED: Final[Mapping[str, Callable[[bytes], None]]] = {
    "noise-greet": greet,
    "noise-version": stranger,
    "noise-answer": answer,
    "noise-confirm": confirm,
    "stateless-reset": reset,
    "path-validation": path,
    "noise-payload": payload,
    "sealed-unprotected": unprotected,
    "sealed-protected": protected,
    "noise-responder": responder,
    "noise-initiator": initiator,
}
