"""What mutation starts from where nothing is kept yet: inputs that are well formed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np
from aioice import stun

from sphtp.core.arrays import array_parts
from sphtp.core.channel import noise as wire
from sphtp.core.channel import path_validation, shared_memory, stateless_reset
from sphtp.core.channel.frames import (
    AckDelay,
    Close,
    Credit,
    Fragment,
    Frame,
    Header,
    Messages,
    Padding,
    Ping,
    Skip,
    Unreliable,
    encode_data,
    encode_frames,
)
from sphtp.core.channel.handshake import (
    Accept,
    Connect,
    Refusal,
    Refuse,
    TransportParameters,
    encode_accept,
    encode_connect,
    encode_refuse,
)
from sphtp.core.control.announcement import Announcement
from sphtp.core.control.records import ServerAddress
from sphtp.core.datagrams import Kind
from sphtp.core.packing import PLAIN
from sphtp.core.requests import wire as requests
from sphtp.core.schema import Mismatch
from sphtp_client.simulation.frames import frame_of
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.slabs import Slab
from sphtp_client.simulation.state import pack
from tests.core.messages.kinds import Declared, Point, Shot, Step, Written
from tests.fuzz.choices import Dice
from tests.fuzz.control import overheard
from tests.fuzz.decoders import COMPRESSION, FACTORIES, scenario
from tests.fuzz.registry import registry_starts
from tests.fuzz.reports import REPORT_STARTS
from tests.fuzz.sealed import OPENER, TOKEN
from tests.fuzz.services import known_messages
from tests.fuzz.stream_starts import STREAM_STARTS

OFFER: Final = TransportParameters(7, 3, 0, 1024, 2**20, 1200, 10_000, 99)
SENTENCES: Final[Sequence[Sequence[Frame]]] = (
    [Messages(0, 0, [b"one", b"three"]), Credit(5, 2**20)],
    [Messages(1, 5, [b"four"] * 4)],
    [AckDelay(0.003), Fragment(0, 9, 100, 5000, bytes(50))],
    [Unreliable(2, 3, [b"", b"x"]), Skip(0, 4, 77)],
    [Ping(), Close(1, "good-bye")],
    [Padding(20)],
)
STEPS: Final = [Step(1, 0.5, "one"), Shot(), Declared(), Written(), Declared(home=Point(1.0, 2.0))]


def starts(name: str) -> Sequence[bytes]:
    """Inputs for a target: its own, or scripts that mean something to whatever follows scripts."""
    own = STARTS.get(name)
    return tuple(own()) if own is not None else _scripts()


@cache
def _scripts() -> Sequence[bytes]:
    dice = Dice("scripts")
    return tuple(dice.some_bytes(size) for size in (20, 60, 200, 400, 400, 800))


def _frames() -> Iterable[bytes]:
    return map(encode_frames, SENTENCES)


def _packets() -> Iterable[bytes]:
    return (encode_data(7, Header(5, 3, 0b1011)) + frames for frames in _frames())


def _rows() -> Iterable[bytes]:
    """The size of a datagram, less one, and then datagrams of that size."""
    sentences: list[list[Frame]] = [[Messages(0, 3 * it, [b"ab"] * 3)] for it in range(4)]
    parts: list[list[Frame]] = [[Fragment(0, 0, 10 * it, 40, bytes(10))] for it in range(4)]
    nothing: list[list[Frame]] = [[]] * 4
    for row in (sentences, parts, nothing):
        packets = [
            encode_data(7, Header(place, 2 * place, 3)) + encode_frames(frames)
            for place, frames in enumerate(row)
        ]
        yield (len(packets[0]) - 1).to_bytes(2, "little") + b"".join(packets)


def _requests() -> Iterable[bytes]:
    for message in (
        requests.RequestMessage(0, "load", b"\x07"),
        requests.RequestMessage(2**32 - 1, "öffne", b"\x93\x01\x02\x03", 1.5),
        requests.CancelMessage(7),
        requests.ReplyMessage(7, b"\xc0"),
        requests.ErrorMessage(7, requests.ErrorReason.APPLICATION, "E", "text", b"\x01"),
        requests.GoodbyeMessage(),
    ):
        yield requests.encode_message(message)


def _announcements() -> Iterable[bytes]:
    for text in ("tcp://10.0.0.1:8764", "tls+tcp://[::1]:8764"):
        values = Announcement.make(ServerAddress.parse(text), 2, b"secret").encode()
        yield "\n".join(f"{key}={value}" for key, value in values.items()).encode()


def _of_stun() -> Iterable[bytes]:
    message, method, kind = stun.Message, stun.Method.BINDING, stun.Class
    request = message(method, kind.REQUEST, bytes(12))
    yield bytes(request)
    request.add_fingerprint()
    yield bytes(request)
    mapped = {"XOR-MAPPED-ADDRESS": ("203.0.113.1", 40_000)}
    yield bytes(message(method, kind.RESPONSE, bytes(12), mapped))
    relayed = {"XOR-PEER-ADDRESS": ("203.0.113.1", 4), "DATA": b"sealed"}
    yield bytes(message(stun.Method.DATA, kind.INDICATION, bytes(12), relayed))
    refused = {"ERROR-CODE": (401, "Unauthorized"), "REALM": "sphtp", "NONCE": b"once"}
    yield bytes(message(stun.Method.ALLOCATE, kind.ERROR, bytes(12), refused))
    yield b"\x40\x00\x00\x02ab"
    check = message(method, kind.INDICATION, bytes(12), {"USERNAME": f"{0:08x}:{5:08x}"})
    check.add_message_integrity(b"0" * 16)
    yield bytes(check)


def _of_shared_memory() -> Iterable[bytes]:
    yield b"\x00" + shared_memory.encode_hello(7)
    for common in (0, 2**21):
        terms = shared_memory.SegmentTerms(bytes(16), 2**20, common)
        yield b"\x01" + shared_memory.encode_segment(terms)
    for slot in (3, shared_memory.COMMON + 3):
        region = shared_memory.Region(slot, 1, shared_memory.DATA_START, 5000)
        yield b"\x02" + shared_memory.encode_descriptor(bytes(16), region)


def _entries() -> Iterable[bytes]:
    """An entry behind its length, the number of entries, and its place; then a notice likewise."""
    region = shared_memory.Region(3, 1, shared_memory.DATA_START, 5000)
    entry = shared_memory.encode_descriptor(bytes(16), region)[16:]
    ring = bytes([len(entry)]) + entry + (1).to_bytes(4, "little") + bytes(2)
    yield ring
    segment = bytearray(4 * (shared_memory.NOTICES + 2 * shared_memory.NOTICE_WORDS))
    with memoryview(segment) as view, view.cast("I") as words:
        shared_memory.write_notice(view, words, 1, region, 7)
    notice = segment[-4 * shared_memory.NOTICE_WORDS :][:32]
    yield ring + bytes([1, len(notice)]) + notice + (7).to_bytes(2, "little") + b"\xff" * 8
    yield bytes([len(entry)]) + entry + (5).to_bytes(4, "little") + (3).to_bytes(2, "little")


def _shared_messages() -> Iterable[bytes]:
    yield from _arrays()
    yield PLAIN.encode(np.arange(6.0).reshape(2, 3), None)
    yield PLAIN.encode(bytes(9000), None)
    yield from (FACTORIES[0].encode(message) for message in STEPS)


def _connects() -> Iterable[bytes]:
    yield encode_connect(Connect(1, 3, OFFER))
    yield encode_connect(Connect(1, 0, OFFER, (1, 2, 3), 100))


def _refuses() -> Iterable[bytes]:
    yield encode_refuse(7, Refuse(1, Refusal.FULL))
    yield encode_refuse(7, Refuse(1, Refusal.SCHEMA, Mismatch(5, 6, "Step: number")))


def _accepts() -> Iterable[bytes]:
    yield encode_accept(7, Accept(1, OFFER))


def _messages() -> Iterable[bytes]:
    for number, factory in enumerate(FACTORIES):
        yield from (bytes([number]) + factory.encode(message) for message in STEPS)


def _arrays() -> Iterable[bytes]:
    for made in (np.arange(6.0).reshape(2, 3), np.array(True), np.zeros((0, 7), ">c16")):
        yield b"".join(array_parts(made))


def _payloads() -> Iterable[bytes]:
    """A codec, a number of payloads, and those, each behind its length."""
    for number, factory in enumerate(FACTORIES, 2):
        encoded = [factory.encode(message) for message in STEPS[:3]]
        yield bytes([number, 2]) + b"".join(bytes([len(it)]) + it for it in encoded)
    yield b"\x00\x01\x01\xc0\x02\x91\x05"


def _spheres() -> Iterable[bytes]:
    table = initial_spheres(scenario())
    near = (table.x[:, 0] >= 0.2) & (table.x[:, 0] < 0.21)
    yield pack(table.take(near), 1)
    yield pack(table.take(np.arange(2)), 1)


def _frames_of_slabs() -> Iterable[bytes]:
    """So few spheres that an input holds them."""
    slab = Slab(scenario(), 0, 2, initial=initial_spheres(scenario()).take(np.arange(3)))
    yield PLAIN.encode(frame_of(slab, 1), None)


def _handshake_payloads() -> Iterable[bytes]:
    """A proof, and a datagram for the token and the connection id that targets expect."""
    offer = replace(OFFER, connection_id=OPENER)
    yield bytes(16) + encode_connect(Connect(TOKEN, 0, offer))
    yield bytes(16) + encode_accept(OPENER, Accept(TOKEN, OFFER))
    yield bytes(16) + encode_refuse(OPENER, Refuse(TOKEN, Refusal.FULL))


def _greets() -> Iterable[bytes]:
    for pattern in (1, 2, 3):
        yield wire.encode_greet(wire.Greet(OPENER, TOKEN, pattern, bytes(16), bytes(200)))


def _of_strangers() -> Iterable[bytes]:
    return (bytes([0x20 | it[0] & 0x0F]) + it[1:] for it in _greets())


def _answers() -> Iterable[bytes]:
    yield wire.encode_answer(Kind.COOKIE, OPENER, wire.Answer(TOKEN, bytes(16)))
    yield wire.encode_answer(Kind.WELCOME, OPENER, wire.Answer(TOKEN, bytes(96)))


def _confirms() -> Iterable[bytes]:
    yield wire.encode_confirm(wire.Confirm(OPENER, TOKEN, bytes(150)))


def _resets() -> Iterable[bytes]:
    yield stateless_reset.encode_reset(OPENER, bytes(16))


def _paths() -> Iterable[bytes]:
    yield path_validation.encode_path(Kind.CHALLENGE, OPENER, 5)


def _unprotected() -> Iterable[bytes]:
    """Datagrams whose first byte says their kind alone."""
    whole = (_greets, _of_strangers, _answers, _confirms, _resets, _paths, _connects, _refuses)
    yield from (bytes([it[0] & 0x0F]) + it[1:] for make in whole for it in make())
    yield bytes([Kind.SEALED]) + bytes(60)


def _protected() -> Iterable[bytes]:
    """Whether from elsewhere, the kind, and what then follows the front."""
    for elsewhere in (0, 1):
        for kind in Kind:
            yield bytes([elsewhere, kind]) + (5).to_bytes(8, "little")
            yield bytes([elsewhere, kind]) + (TOKEN).to_bytes(8, "little") + bytes([1])
            yield bytes([elsewhere, kind]) + bytes(8) + encode_frames(SENTENCES[0])


def _to_a_responder() -> Iterable[bytes]:
    for pattern in (0, 1):
        yield from (bytes([pattern]) + it for it in _handshake_payloads())


def _statuses() -> Iterable[bytes]:
    member = b'{"id": 2, "state": "active", "address": null}'
    yield b'{"id": 2, "view": {"number": 1, "members": [%s]}, "counters": {"foreign": 3}}' % member
    yield b'{"clients": [{"id": 3, "candidates": ["127.0.0.1 5000"], "told_by": null}]}'
    yield b'{"wall_time": 1.5, "view": {"members": [{"address": "tcp://127.0.0.1:8764"}, {}, 7]}}'
    yield b'{"wall_time": 1%s}' % (400 * b"0")
    yield b'{"a": ' + 40 * b"[" + 40 * b"]" + b"}"
    yield 2000 * b"["


STARTS: Final[Mapping[str, Callable[[], Iterable[bytes]]]] = {
    "channel-front": _packets,
    "channel-header": _packets,
    "channel-frames": _frames,
    "channel-packet": _packets,
    "channel-runs": _rows,
    "request": _requests,
    "group-message": known_messages,
    # A member that introduces itself, and then says one of each.
    "group-watched": lambda: (bytes([0, 1, 1, 1, 2, 1, 3, 1, 7, 1, 4, 1]),),
    "announcement": _announcements,
    "stun": _of_stun,
    "shared-memory": _of_shared_memory,
    "shared-segment": _entries,
    "shared-message": _shared_messages,
    "channel-connect": _connects,
    "channel-accept": _accepts,
    "channel-refuse": _refuses,
    "control-message": overheard,
    "control-intake": overheard,
    "control-status": _statuses,
    "messages": _payloads,
    "message": _messages,
    "messages-plain": lambda: (it[1:] for it in _payloads()),
    "message-array": _arrays,
    "message-in-bits": lambda: (it.write() for it in (Declared(), Written())),
    "message-inflated": lambda: (COMPRESSION.deflate(bytes(5000), compress=True) or b"",),
    "simulation-spheres": _spheres,
    "simulation-slab": _spheres,
    "simulation-frame": _frames_of_slabs,
    "noise-greet": _greets,
    "noise-version": _of_strangers,
    "noise-answer": _answers,
    "noise-confirm": _confirms,
    "stateless-reset": _resets,
    "path-validation": _paths,
    "noise-payload": _handshake_payloads,
    "sealed-unprotected": _unprotected,
    "sealed-protected": _protected,
    "noise-responder": _to_a_responder,
    "noise-initiator": _handshake_payloads,
    "registry-stored": registry_starts,
    **REPORT_STARTS,
    **STREAM_STARTS,
}
