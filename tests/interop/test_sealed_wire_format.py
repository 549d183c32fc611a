"""Part three of `docs/reference/wire` says what the code does: bytes and numbers."""

from random import Random
from typing import Any

import pytest

from sphtp.core.channel import noise as wire
from sphtp.core.channel import path_validation, protection, stateless_reset
from sphtp.core.channel.handshake import Refusal, Refuse, encode_refuse
from sphtp.core.channel.noise import PADDING, PATTERNS, prologue
from sphtp.core.channel.path_mtu import FLOOR
from sphtp.core.channel.security import RANGES, HandshakeCounters, HandshakeLimits, PeerPin
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import FRONT, Datagrams, Kind, encode_front
from sphtp.core.schema import Schema
from sphtp.core.secure.seal import EPOCH_BITS, WINDOW, Sealer, Unsealer
from tests.cases import Decorator, each
from tests.core.channel.sealed import LEFT, RIGHT, identity, make_sealed
from tests.interop import sessions
from tests.interop.datagrams import read_datagram
from tests.interop.page import Vector, read_vectors, rows_under
from tests.interop.sessions import Spoken, hold_session

VECTORS = read_vectors()
EPOCH = 1 << EPOCH_BITS
SEALS = {"opener": "to_answerer", "answerer": "to_opener"}


def family(prefix: str) -> Decorator:
    found = [vector for vector in VECTORS if vector.name.startswith(f"{prefix}/")]
    assert found, prefix
    return each("vector", found)


def described(said: list[Spoken]) -> list[tuple[str, int, int]]:
    return [(who, read_datagram(data)["kind"], len(data)) for who, data in said]


@family("session")
def test_we_hold_a_session_so(vector: Vector) -> None:
    said = hold_session(vector.fields)
    told = vector.fields["datagrams"]
    assert described(said) == [(d["from"], d["kind"], d["size"]) for d in told]
    assert b"".join(datagram for _, datagram in said) == vector.data


@family("session")
def test_we_seal_under_the_keys_of_a_session(vector: Vector) -> None:
    unsealers = {
        name: Unsealer(bytes.fromhex(vector.fields["keys"][key]), FRONT.size, HandshakeCounters())
        for name, key in SEALS.items()
    }
    said = hold_session(vector.fields)
    sealed = 0
    for (who, datagram), told in zip(said, vector.fields["datagrams"], strict=True):
        if told["kind"] == Kind.SEALED:
            opened = unsealers[who].open(datagram, len(datagram))
            assert opened == [bytes.fromhex(told["inside"])]
            sealed += 1
    assert sealed >= 2


@family("session")
def test_we_use_the_cookie_of_a_session(vector: Vector) -> None:
    said = [read_datagram(datagram) for _, datagram in hold_session(vector.fields)]
    cookies = [fields["cookie"] for fields in said if "cookie" in fields]
    assert cookies == [bytes(16).hex(), vector.fields["cookie"], vector.fields["cookie"]]


def test_every_pattern_has_a_session() -> None:
    shown = {v.fields["pattern"] for v in VECTORS if v.name.startswith("session/")}
    assert shown == set(PATTERNS)


@family("sealed")
def test_we_seal_so(vector: Vector) -> None:
    fields = vector.fields
    key, plain = bytes.fromhex(fields["key"]), bytes.fromhex(fields["plain"])
    front = encode_front(Kind.SEALED, fields["connection_id"])
    # A row that does not fit into the rest of an epoch begins the next one.
    first = min(fields["counter"], (fields["epoch"] + 1) * EPOCH - 1)
    rows = 1 if first == fields["counter"] else 2
    sealed, size = Sealer(key, front, first).seal(plain * rows, len(plain))
    assert sealed[:size] == vector.data


@family("sealed")
def test_we_open_what_is_sealed_so(vector: Vector) -> None:
    fields, counters = vector.fields, HandshakeCounters()
    first = fields["epoch"] * EPOCH
    unsealer = Unsealer(bytes.fromhex(fields["key"]), FRONT.size, counters, first)
    assert unsealer.open(vector.data, len(vector.data)) == [bytes.fromhex(fields["plain"])]
    assert unsealer.open(vector.data, len(vector.data)) == []
    assert (counters.forged, counters.replayed) == (0, 1)


@family("epoch")
def test_our_next_key_is_that(vector: Vector) -> None:
    sealer = Sealer(bytes.fromhex(vector.fields["key"]), b"", EPOCH - 1)
    sealer.seal(b"the last one under this key", 100)
    assert sealer.present == (vector.data, EPOCH)


@family("proof")
def test_our_proof_is_that(vector: Vector) -> None:
    """Shown to whoever sends something sealed for a channel that is not known here."""
    side = {"static": vector.fields["static"], "ephemeral": "00" * 32, "connection_id": 1}
    endpoint = sessions.make_endpoint({"token": 1, "answerer": side}, "answerer")
    stray = encode_front(Kind.SEALED, vector.fields["connection_id"]) + bytes(40)
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, stray))
    answer = endpoint.poll_transmit(0.0)
    assert answer is not None
    assert answer.data == stateless_reset.encode_reset(vector.fields["connection_id"], vector.data)


@family("prologue")
def test_our_prologue_is_that(vector: Vector) -> None:
    named = vector.fields
    assert prologue(PATTERNS[named["pattern"]], named["opener"], named["token"]) == vector.data


def test_the_patterns_are_those_of_the_code() -> None:
    page = {int(row[0]): (row[1], row[2]) for row in rows_under("Patterns")}
    ours = {n: (p.name, p.protocol_name.decode()) for n, p in PATTERNS.items()}
    assert page == ours


def test_the_numbers_are_those_of_the_code() -> None:
    page = [float(row[1]) for row in rows_under("Sealing in numbers")]
    assert page == [
        wire.SMALLEST_GREET,
        wire.COOKIE_SIZE,
        stateless_reset.PROOF_SIZE,
        protection.SEAL_OVERHEAD,
        EPOCH,
        WINDOW,
        path_validation.RETRY,
    ]
    assert len(PADDING) == wire.SMALLEST_GREET


def test_the_limits_are_those_of_the_code() -> None:
    rows = {row[0]: row[1:3] for row in rows_under("Limits of the handshake")}
    assert rows.keys() == RANGES.keys()
    for name, (default, bounds) in rows.items():
        assert float(default) == getattr(HandshakeLimits(), name), name
        assert tuple(map(float, bounds.split(" to "))) == RANGES[name], name


def unanswered(name: str, **fields: Any) -> bytes:
    """A GREET of the page, changed, as far as it is seen before any key."""
    (greet,) = [v.fields for v in VECTORS if v.name == name]
    named = {**greet, **fields}
    noise = bytes.fromhex(named["noise"])
    cookie = bytes.fromhex(named["cookie"])
    return wire.encode_greet(
        wire.Greet(named["opener"], named["token"], named["pattern"], cookie, noise)
    )


class TestRefusalsInTheClear:
    """What a stranger is told, by the words of the page."""

    def ask(self, datagram: bytes, psk: bytes | None = None) -> bytes:
        endpoint = make_sealed("right", psk=psk)
        endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, datagram))
        answer = endpoint.poll_transmit(0.0)
        assert answer is not None
        assert endpoint.poll_transmit(0.0) is None
        if answer.data[0] & 0x0F != Kind.COOKIE:
            return answer.data
        cookie = wire.decode_answer_untrusted(answer.data).content
        endpoint.handle_datagrams_untrusted(
            0.0, Datagrams.of(LEFT, datagram[:18] + cookie + datagram[34:])
        )
        answer = endpoint.poll_transmit(0.0)
        assert answer is not None
        return answer.data

    def refusal(self, why: Refusal) -> bytes:
        return encode_refuse(2712847316, Refuse(6153737369425722316, why))

    @pytest.mark.parametrize("pattern", [0, 3, 255])
    def test_a_pattern_that_is_not_taken(self, pattern: int) -> None:
        greet = unanswered("datagram/GREET", pattern=pattern)
        assert self.ask(greet) == self.refusal(Refusal.DENIED)

    @pytest.mark.parametrize("pattern", [1, 2])
    def test_a_pattern_without_the_secret(self, pattern: int) -> None:
        greet = unanswered("datagram/GREET", pattern=pattern)
        assert self.ask(greet, bytes(32)) == self.refusal(Refusal.DENIED)

    def test_a_message_for_another_key(self) -> None:
        assert self.ask(unanswered("datagram/GREET")) == self.refusal(Refusal.WRONG_PEER)

    def test_a_connect_in_the_clear(self) -> None:
        (connect,) = [v.data for v in VECTORS if v.name == "datagram/CONNECT"]
        assert self.ask(connect) == self.refusal(Refusal.SEALED)

    def test_another_version(self) -> None:
        (greet,) = [v.data for v in VECTORS if v.name == "malformed/datagram/GREET in version 2"]
        assert self.ask(greet) == b"\x23" + self.refusal(Refusal.VERSION)[1:]


@pytest.mark.parametrize("known", [True, False], ids=["IK", "XX"])
def test_with_types_a_greeting_is_as_large_as_any_path_takes(known: bool) -> None:
    lines = [f"T{n}: msgpack T{n}(number: integer)" for n in range(400)]
    endpoint = make_sealed("left", schema=Schema(lines))
    endpoint.dial(0.0, [RIGHT], 0, PeerPin(identity("right").public if known else None))
    row = endpoint.poll_transmit(0.0)
    assert row is not None
    assert row.size == FLOOR if known else row.size < FLOOR


def test_cookies_hold_for_one_address_opener_token_and_noise() -> None:
    endpoint = make_sealed("right")
    base = unanswered("datagram/GREET", pattern=2)
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, base))
    row = endpoint.poll_transmit(0.0)
    assert row is not None
    cookie = wire.decode_answer_untrusted(row.data).content
    good = base[:18] + cookie + base[34:]
    random = Random(1)
    for at in (5, 8, 9, 16, *random.sample(range(34, len(good)), 20)):
        bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, bad))
        assert answered_with(endpoint) == Kind.COOKIE, at
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of((LEFT[0], LEFT[1] + 1), good))
    assert answered_with(endpoint) == Kind.COOKIE
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, good))
    assert answered_with(endpoint) == Kind.WELCOME


def answered_with(endpoint: Any) -> int:
    row = endpoint.poll_transmit(0.0)
    assert row is not None
    kind: int = read_datagram(row.data)["kind"]
    return kind


def test_a_sealed_side_tells_sizes_without_the_seal() -> None:
    (session,) = [v for v in VECTORS if v.name == "session/IK"]
    offers = []
    for datagram in session.fields["datagrams"]:
        if datagram["kind"] in (Kind.GREET, Kind.WELCOME):
            inside = read_datagram(bytes.fromhex(datagram["inside"])[stateless_reset.PROOF_SIZE :])
            offers.append(inside["offer"]["max_datagram"])
    assert set(offers) == {ChannelSettings().max_datagram - protection.SEAL_OVERHEAD}
