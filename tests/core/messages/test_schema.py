"""The schema: the same lines and the same 64 bits everywhere, and a difference has a name."""

from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any

from sphtp.core.messages import (
    BitMessage,
    Bits,
    Compressed,
    Compression,
    Limit,
    MessageFactory,
    PlainMessages,
    Range,
    difference,
    fingerprint,
)
from tests.cases import each
from tests.core.messages.kinds import KINDS, Colour, Point, Shot, Step

DESCRIPTION = [
    "(compression): deflate, at most 1048576 bytes",
    (
        "Declared: bits Declared[flag, small, big, only, single, double, steps, name, key, "
        "gear, maybe, home, pair, many, path, shot](boolean, integer(0..127), "
        "integer(-1180591620717411303424..1180591620717411303424), integer(5..5), float32, "
        "float, compressed(-1.0..2.0 by 0.001), text[12], bytes[200], enum(REVERSE, NEUTRAL, "
        "FIRST), optional(integer(10..12)), Point[x, y](float, float), boolean, enum(RED, "
        "GREEN, BLUE), list[9](boolean), list[40](integer(0..7)), Shot[angle, "
        "power](compressed(-180.0..180.0 by 0.01), integer(0..100)))"
    ),
    (
        "Everything: msgpack Everything(flag: boolean, count: integer(-5..5), free: integer, "
        "ratio: compressed(0.0..1.0 by 0.1), name: text[8], key: bytes, colour: enum(RED, "
        "GREEN, BLUE), home: Point(x: float, y: float), path: list(Point(x: float, y: "
        "float)), pair: tuple(integer, text), many: tuple(float), table: dict(text, "
        "list(integer)), maybe: optional(Point(x: float, y: float)), small: "
        "optional(integer(0..15)), payload: anything, shot: Shot[angle, "
        "power](compressed(-180.0..180.0 by 0.01), integer(0..100)), gears: "
        "dict(enum(REVERSE, NEUTRAL, FIRST), boolean))"
    ),
    "Shot: bits Shot[angle, power](compressed(-180.0..180.0 by 0.01), integer(0..100))",
    "Step: msgpack Step(number: integer, time: float, name: text)",
    (
        "Written: bits Written[flag, small, whole, single, double, steps, name, key, colour, "
        "maybe, path, shots, shot](boolean, integer(0..127), integer(-1000..1000), float32, "
        "float, compressed(-1.0..2.0 by 0.001), text[12], bytes[200], enum(RED, GREEN, "
        "BLUE), optional(integer(10..12)), list[40](integer(0..7)), list[3](Shot[angle, "
        "power](compressed(-180.0..180.0 by 0.01), integer(0..100))), Shot[angle, "
        "power](compressed(-180.0..180.0 by 0.01), integer(0..100)))"
    ),
]


def test_the_description_is_pinned() -> None:
    assert MessageFactory(KINDS, compression=Compression()).describe() == DESCRIPTION
    assert MessageFactory(KINDS).describe() == DESCRIPTION[1:]


def test_the_hash_is_pinned() -> None:
    """Whatever the seed of Python's own hashes, which each run of the tests draws anew."""
    assert MessageFactory(KINDS, compression=Compression()).schema_hash == 0xC612617DB75D65A9
    assert MessageFactory([Step]).schema_hash == 0x2C77CA21EA122425
    assert MessageFactory([Shot]).schema_hash == 0x0D6E275168359FBE
    assert PlainMessages().schema_hash == 0
    assert PlainMessages(compression=Compression()).schema_hash == 0x5028C3AF0424DE7F
    assert fingerprint(["Ä: msgpack"]) == 0x404472452828D099


def kind(name: str, base: type, **fields: Any) -> type:
    """Make a dataclass with these fields."""
    listed = [(field, annotation, None) for field, annotation in fields.items()]
    return make_dataclass(name, listed, bases=(base,))


BASIS = {"a": Annotated[int, Range(0, 9)], "b": Annotated[str, Limit(5)], "c": Colour}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "name": ("Other", BASIS),
    "field name": ("Kind", {"x": BASIS["a"], "b": BASIS["b"], "c": BASIS["c"]}),
    "order": ("Kind", {"b": BASIS["b"], "a": BASIS["a"], "c": BASIS["c"]}),
    "fewer": ("Kind", {"a": BASIS["a"], "b": BASIS["b"]}),
    "more": ("Kind", BASIS | {"d": bool}),
    "type": ("Kind", BASIS | {"a": bool}),
    "bound": ("Kind", BASIS | {"a": Annotated[int, Range(0, 10)]}),
    "limit": ("Kind", BASIS | {"b": Annotated[str, Limit(6)]}),
    "members": ("Kind", BASIS | {"c": make_dataclass("Point", [("x", float), ("z", float)])}),
    "optional": ("Kind", BASIS | {"c": Colour | None}),
}


@each("base", [object, BitMessage])
@each(("name", "fields"), OTHERS.values())
def test_every_difference_shows(name: str, fields: dict[str, Any], base: type) -> None:
    ours = MessageFactory([Shot, kind("Kind", base, **BASIS)])
    theirs = MessageFactory([Shot, kind(name, base, **fields)])
    assert ours.schema_hash != theirs.schema_hash
    assert (difference(ours.describe(), theirs.describe()) or "").startswith("Kind: here ")


def test_bits_and_msgpack_are_told_apart() -> None:
    ours = MessageFactory([kind("Kind", object, **BASIS)])
    theirs = MessageFactory([kind("Kind", BitMessage, **BASIS)])
    assert ours.schema_hash != theirs.schema_hash


def test_two_ways_to_say_the_same_are_the_same() -> None:
    one = MessageFactory([kind("Kind", BitMessage, a=Annotated[int, Bits(3)])])
    other = MessageFactory([kind("Kind", BitMessage, a=Annotated[int, Range(0, 7)])])
    assert one.schema_hash == other.schema_hash
    whole = MessageFactory([kind("Kind", object, a=Annotated[float, Compressed(0, 1, 1)])])
    exact = MessageFactory([kind("Kind", object, a=Annotated[float, Compressed(0.0, 1.0, 1.0)])])
    assert whole.schema_hash == exact.schema_hash


@dataclass
class Home:
    """Its bounds lie within."""

    at: Point
    shot: Shot


def test_the_first_difference_is_named() -> None:
    ours = MessageFactory([Shot, Step]).describe()
    assert difference(ours, list(reversed(ours))) is None
    assert difference(ours, [ours[0]]) == f"Step: here {ours[1].partition(': ')[2]}, there missing"
    assert (difference([], ours) or "").startswith("Shot: here missing, there bits Shot[")
    squeezed = MessageFactory([Shot, Step], compression=Compression(max_size=9)).describe()
    assert difference(ours, squeezed) == (
        "(compression): here missing, there deflate, at most 9 bytes"
    )


def test_lines_of_a_stranger_do_no_harm() -> None:
    assert difference(["A: x"], ["", "A", "A: x", ": ", "\0"]) is not None
