"""Messages in bits: what is read is what was written, and there is one way to write it."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.messages import BitMessage, BitStream
from sphtp.errors import RemoteError, WireError
from tests.core.messages.kinds import Declared, Point, Shot, Written, in_bits
from tests.profiles import brisk, few


@brisk
@given(in_bits)
def test_no_part_of_it_is_a_message(message: BitMessage) -> None:
    """That whole ones come back, as long as measured, the factory's tests hold."""
    data = message.write()
    assert type(message).read_untrusted(data) == message
    for cut in range(len(data)):
        with pytest.raises(RemoteError):
            type(message).read_untrusted(data[:cut])
    with pytest.raises(RemoteError):
        type(message).read_untrusted(data + b"\0")


def survives(kind: type[BitMessage], data: bytes) -> None:
    """Bytes are refused, or they are just what the message that they give would write."""
    try:
        message = kind.read_untrusted(data)
    except RemoteError:
        return
    assert message.write() == data


@few
@given(in_bits)
def test_a_flipped_bit_is_refused_or_another_message(message: BitMessage) -> None:
    data = message.write()
    number = int.from_bytes(data, "little")
    # One in every byte, each time another one.
    for bit in range(0, 8 * len(data), 7):
        survives(type(message), (number ^ (1 << bit)).to_bytes(len(data), "little"))


@given(st.sampled_from([Shot, Declared, Written]), st.binary(max_size=120))
def test_made_up_bytes_are_refused_or_a_message(kind: type[BitMessage], data: bytes) -> None:
    survives(kind, data)


def test_the_bytes_of_a_shot() -> None:
    assert Shot(angle=90.0, power=100).measure() == 16 + 7
    assert Shot(angle=90.0, power=100).write() == (27_000 | 100 << 16).to_bytes(3, "little")


def test_a_field_that_does_not_fit_is_named() -> None:
    with pytest.raises(WireError, match=r"power: 101 is outside 0\.\.100"):
        Shot(power=101).write()
    with pytest.raises(WireError, match="angle"):
        Shot(angle=200.0).measure()


def test_writing_leaves_a_message_as_it_is() -> None:
    message = Declared(single=0.1, steps=0.00049, path=[1], home=Point(1.0, 2.0))
    path, home = message.path, message.home
    twin = replace(message)
    message.write()
    message.measure()
    assert message == twin
    assert message.path is path
    assert message.home is home


def test_a_nested_object_of_another_kind_is_refused() -> None:
    message = Declared()
    message.home = Shot()  # type: ignore[assignment]
    with pytest.raises(WireError, match="home: Point wanted, Shot given"):
        message.write()


@pytest.mark.parametrize("name", ["pair", "many", "path"])
def test_a_value_without_items_is_refused_in_place_of_a_list_or_tuple(name: str) -> None:
    message = Declared()
    setattr(message, name, None)
    with pytest.raises(WireError, match=f"{name}: (list|tuple) wanted, NoneType given"):
        message.write()


class Picky(BitMessage):
    """Refuses values in its own way."""

    def __init__(self) -> None:
        self.names = {1: "one"}
        self.name = "one"

    def serialize(self, stream: BitStream) -> None:
        number = next(number for number, name in self.names.items() if name == self.name)
        self.name = self.names[stream.bits(number, 8)]


def test_what_a_serialize_of_the_user_raises_is_the_peers_doing() -> None:
    assert Picky.read_untrusted(b"\x01").name == "one"
    with pytest.raises(RemoteError, match="Picky refuses it"):
        Picky.read_untrusted(b"\x02")


class Branching(BitMessage):
    """Serializes what is there, and asks the stream where it must."""

    def __init__(self, items: list[int] | None = None) -> None:
        self.items = items or []

    def serialize(self, stream: BitStream) -> None:
        more = stream.boolean(bool(self.items))
        if more:
            self.items = stream.sequence(self.items, 4, lambda one: stream.bits(one, 4))
        elif stream.reading:
            self.items = []


@given(st.lists(st.integers(0, 15), max_size=4))
def test_a_serialize_may_branch(items: list[int]) -> None:
    message = Branching(items)
    assert message.measure() == (1 + 3 + 4 * len(items) if items else 1)
    assert Branching.read_untrusted(message.write()).items == items


@dataclass
class Chain(BitMessage):
    """Holds one of its own kind: it can be read, as deep as Python goes."""

    length: int = 0

    def serialize(self, stream: BitStream) -> None:
        inner = Chain(self.length - 1) if self.length else None
        inner = stream.optional(inner, lambda one: stream.message(one, Chain))
        self.length = inner.length + 1 if inner else 0


def test_a_chain_too_deep_for_python_is_the_peers_doing() -> None:
    assert Chain.read_untrusted(Chain(20).write()) == Chain(20)
    with pytest.raises(RemoteError):
        Chain.read_untrusted(b"\xff" * 10_000 + b"\0")
