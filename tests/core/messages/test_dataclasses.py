"""Dataclasses by msgpack: types and bounds are checked on the way out, and on the way in."""

import struct
from dataclasses import InitVar, dataclass, field
from enum import Flag
from typing import Annotated, Any, Optional

import msgpack
import pytest
from hypothesis import strategies as st

from sphtp.core.messages import BitMessage, Bits, Float32, Limit, MessageFactory, Range
from sphtp.errors import RemoteError, SettingsError, WireError
from tests.cases import each
from tests.core.messages.kinds import Colour, Everything, Gear, Point, Shot, Step

factory = MessageFactory([Everything, Step])
ALONE = MessageFactory([Step])
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def sample() -> Everything:
    return Everything(
        flag=True,
        count=-5,
        free=2**64 - 1,
        ratio=0.5,
        name="eight ää"[:7],
        key=b"\0\xff",
        colour=Colour.BLUE,
        home=Point(1.0, -0.0),
        path=[Point(0.5, 2.0)],
        pair=(1, "one"),
        many=(1.0, 2.0),
        table={"a": [1, 2]},
        maybe=None,
        small=15,
        payload={"any": [None, 1, "x", b"y", {2: 3}]},
        shot=Shot(90.0, 1),
        gears={Gear.FIRST: True},
    )


def fields_of(message: object) -> Any:
    return msgpack.unpackb(factory.encode(message)[1:], strict_map_key=False)


def test_fields_travel_as_an_array() -> None:
    assert ALONE.encode(Step(7, 0.5, "x")) == b"\x93\x07\xcb" + struct.pack(">d", 0.5) + b"\xa1x"
    shot = Shot(90.0, 1).write()
    assert fields_of(sample())[6:9] == [2, [1.0, -0.0], [[0.5, 2.0]]]
    assert fields_of(sample())[-2:] == [shot, {2: True}]


@each(
    "values",
    [
        [1, 2.0],
        [1, 2.0, "x", 4],
        [],
        {0: 1, 1: 2.0, 2: "x"},
        None,
        "abc",
        [True, 2.0, "x"],
        [1.0, 2.0, "x"],
        [1, 2, "x"],
        [1, 2.0, b"x"],
        [1, 2.0, None],
    ],
)
def test_wrong_arity_or_type_is_refused(values: Any) -> None:
    with pytest.raises(RemoteError):
        ALONE.decode_untrusted(msgpack.packb(values))


@each(
    "data",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        b"\x93\x01\xcb\0\0\0\0\0\0\0\0\xa1\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\x81\x90\x01",
        b"\x91" * 100_000,
        b"\xd6\xff\0\0\0\0",
        b"\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        msgpack.packb([1, 2.0, "x"]) + b"\0",
    ],
)
def test_bad_msgpack_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteError):
        ALONE.decode_untrusted(data)


@each(
    ("change", "complaint"),
    [
        ({"count": 6}, "count: 6 is outside -5..5"),
        ({"free": 1.0}, "free: integer wanted, float given"),
        ({"free": 2**64}, "msgpack cannot carry it"),
        ({"ratio": 1.1}, "ratio: 1.1 is outside"),
        ({"ratio": "1"}, "ratio: float wanted, str given"),
        ({"name": "ääääö"}, "name: 10 over the limit of 8"),
        ({"key": 5}, "key: bytes wanted, int given"),
        ({"colour": "b"}, "colour: Colour wanted, str given"),
        ({"home": (1.0, 2.0)}, "home: Point wanted, tuple given"),
        ({"home": Point(None, 1.0)}, "home: x: float wanted"),  # type: ignore[arg-type]
        ({"path": {}}, "path: list wanted, dict given"),
        ({"pair": (1, "x", 2)}, "pair: a tuple of 2 wanted, of 3 given"),
        ({"table": []}, "table: dict wanted, list given"),
        ({"maybe": Shot()}, "maybe: Point wanted, Shot given"),
        ({"small": 16}, "small: 16 is outside 0..15"),
        ({"payload": object()}, "msgpack cannot carry it"),
        ({"shot": Shot(power=101)}, "shot: power: 101 is outside 0..100"),
        ({"flag": 1}, "flag: bool wanted, int given"),
    ],
)
def test_a_wrong_value_is_refused_when_sent_and_named(
    change: dict[str, Any], complaint: str
) -> None:
    message = sample()
    vars(message).update(change)
    with pytest.raises(WireError, match=complaint):
        factory.encode(message)


def test_numbers_that_are_alike_are_taken_when_sent() -> None:
    sent = factory.encode(Step(True, 3, "x"))
    assert factory.decode_untrusted(sent) == Step(1, 3.0, "x")
    assert type(factory.decode_untrusted(sent).time) is float
    assert factory.decode_untrusted(factory.encode(Step(Gear.FIRST, 0.5, "x"))).number == 1


@dataclass
class Positive:
    """Refuses values in its own way."""

    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise KeyError(self.value)


def test_what_a_constructor_of_the_user_raises_is_the_peers_doing() -> None:
    alone = MessageFactory([Positive])
    assert alone.decode_untrusted(b"\x91\x01") == Positive(1)
    with pytest.raises(RemoteError, match="Positive refuses it"):
        alone.decode_untrusted(b"\x91\x00")


@dataclass
class Derived:
    base: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.base


@dataclass
class Nothing:
    pass


def test_only_what_the_constructor_takes_is_carried() -> None:
    odd = MessageFactory([Derived, Nothing])
    assert odd.encode(Derived(4)) == b"\x00\x91\x04"
    assert odd.decode_untrusted(b"\x00\x91\x04") == Derived(4)
    assert odd.encode(Nothing()) == b"\x01\x90"
    assert odd.decode_untrusted(b"\x01\x90") == Nothing()


@dataclass
class Tree:
    child: Optional["Tree"]


@dataclass
class WithInitVar:
    value: int
    seed: InitVar[int]


def with_field(annotation: Any, base: type = object) -> type:
    """Make a dataclass with one field of this type."""
    body = {"__annotations__": {"value": annotation}, "value": None}
    return dataclass(type("Odd", (base,), body))


REFUSED: dict[str, Any] = {
    "a set": set[int],
    "a bare list": list,
    "two types": int | str,
    "three types": int | str | None,
    "an object": object,
    "a number that is not real": complex,
    "a key that is a list": dict[tuple[int, ...], int],
    "a key that may be anything": dict[Any, int],
    "a limit on an integer": Annotated[int, Limit(3)],
    "a range on a float": Annotated[float, Range(0, 3)],
    "a bound on a boolean": Annotated[bool, Bits(1)],
    "a bound on a point": Annotated[Point, Limit(1)],
    "two bounds": Annotated[int, Bits(3), Range(0, 3)],
    "a forward reference to nothing": "Nowhere",
    "flags": Flag("Flags", ["A", "B"]),
    "a class that refers to itself": Tree,
    "a constructor that wants more": WithInitVar,
}
REFUSED_IN_BITS: dict[str, Any] = {
    "an integer without end": int,
    "text without end": str,
    "bytes without end": bytes,
    "a list without end": list[bool],
    "a tuple without end": tuple[bool, ...],
    "a dict": dict[int, int],
    "anything": Any,
    "items of no bit": Annotated[list[Annotated[int, Range(1, 1)]], Limit(9)],
}


@each("annotation", REFUSED.values())
def test_a_field_without_a_form_is_refused_when_registered(annotation: Any) -> None:
    with pytest.raises(SettingsError, match="Odd"):
        MessageFactory([with_field(annotation)])
    with pytest.raises(SettingsError, match="Odd"):
        MessageFactory([with_field(annotation, BitMessage)])


@each("annotation", REFUSED_IN_BITS.values())
def test_a_field_without_bounds_is_refused_in_bits(annotation: Any) -> None:
    MessageFactory([with_field(annotation)])
    with pytest.raises(SettingsError, match="Odd"):
        MessageFactory([with_field(annotation, BitMessage)])


def test_words_beside_a_type_that_are_no_bounds_are_passed_over() -> None:
    odd = with_field(Annotated[int, "metres", Bits(3)])
    assert MessageFactory([odd]).decode_untrusted(b"\x91\x07") == odd(7)
    single = with_field(Annotated[float, Float32()])
    assert MessageFactory([single]).describe() == ["Odd: msgpack Odd(value: float32)"]
