"""The factory: tight type numbers, unknown types refused, nothing but RemoteError from bytes."""

from dataclasses import dataclass, make_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.messages import BitMessage, BitStream, Compression, MessageFactory, PlainMessages
from sphtp.errors import RemoteError, SettingsError, WireError
from tests.cases import each
from tests.core.messages.kinds import (
    KINDS,
    Point,
    Shot,
    Step,
    everything,
    messages,
    payloads,
    shots,
    steps,
)
from tests.profiles import brisk

factory = MessageFactory(KINDS)
squeezing = MessageFactory(KINDS, compression=Compression(threshold=0))
both = st.sampled_from([factory, squeezing])


class Signal(BitMessage):
    """Nothing but its type."""

    def serialize(self, stream: BitStream) -> None:
        pass


def signals(count: int) -> list[type]:
    return [type(f"Signal{number:05}", (Signal,), {}) for number in range(count)]


def records(count: int) -> list[type]:
    return [make_dataclass(f"Record{number:05}", []) for number in range(count)]


@brisk
@given(messages)
def test_round_trip_as_long_as_measured(message: object) -> None:
    for codec in (factory, squeezing):
        assert codec.decode_untrusted(codec.encode(message)) == message
        plain = codec.encode(message, compress=False)
        assert codec.decode_untrusted(plain) == message
        assert len(plain) == (codec.measure(message) + 7) // 8


@given(both, st.binary(max_size=100))
def test_made_up_bytes_are_refused_or_a_message(factory: MessageFactory, data: bytes) -> None:
    try:
        message = factory.decode_untrusted(data)
    except RemoteError:
        return
    assert type(message) in KINDS


@brisk
@given(both, shots | steps | everything)
def test_cut_or_flipped_only_remote_errors_leave(factory: MessageFactory, message: object) -> None:
    data = factory.encode(message)
    for cut in range(len(data)):
        with pytest.raises(RemoteError):
            factory.decode_untrusted(data[:cut])
    number = int.from_bytes(data, "little")
    # One in every byte, each time another one.
    for bit in range(0, 8 * len(data), 7):
        flipped = (number ^ (1 << bit)).to_bytes(len(data), "little")
        try:
            assert type(factory.decode_untrusted(flipped)) in KINDS
        except RemoteError:
            continue


@each(("count", "bits"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (256, 8), (257, 9)])
def test_a_type_number_takes_the_fewest_bits(count: int, bits: int) -> None:
    kinds = signals(count)
    last = kinds[-1]()
    tight = MessageFactory(kinds)
    assert tight.measure(last) == bits
    assert tight.encode(last) == (count - 1).to_bytes((bits + 7) // 8, "little")
    assert type(tight.decode_untrusted(tight.encode(last))) is kinds[-1]
    loose = MessageFactory(kinds, compression=Compression())
    assert loose.measure(last) == bits + 1


@pytest.mark.parametrize(("count", "size"), [(1, 0), (2, 1), (256, 1), (257, 2)])
def test_before_msgpack_it_takes_whole_bytes(count: int, size: int) -> None:
    kinds = records(count)
    tight = MessageFactory(kinds)
    assert tight.encode(kinds[-1]()) == (count - 1).to_bytes(size, "little") + b"\x90"
    assert type(tight.decode_untrusted(tight.encode(kinds[-1]()))) is kinds[-1]


@pytest.mark.parametrize("make", [signals, records])
def test_a_number_out_of_bounds_is_refused(make) -> None:
    kinds = make(5)
    five = MessageFactory(kinds)
    tail = b"\x90" if make is records else b""
    for number in range(256):
        data = bytes([number]) + tail
        if number < 5:
            assert type(five.decode_untrusted(data)) is kinds[number]
        else:
            with pytest.raises(RemoteError):
                five.decode_untrusted(data)


def test_bits_follow_the_type_number_at_once() -> None:
    pair = MessageFactory([Shot, Step])
    assert pair.measure(Shot()) == 1 + Shot().measure()
    assert pair.encode(Shot(-180.0, 3)) == (3 << 17).to_bytes(3, "little")
    assert pair.encode(Step(1, 2.0, "x"))[:2] == b"\x01\x93"


def test_types_are_numbered_by_name_in_whatever_order_they_come() -> None:
    one, other = MessageFactory([Shot, Step]), MessageFactory([Step, Shot])
    assert one.types == other.types == (Shot, Step)
    assert one.schema_hash == other.schema_hash


@dataclass
class Child(Step):
    pass


@each("message", [Child(1, 2.0, "x"), Point(0.0, 0.0), {"a": 1}, None, Step])
def test_what_is_not_registered_is_refused(message: object) -> None:
    with pytest.raises(WireError, match="not a registered type"):
        factory.encode(message)
    with pytest.raises(WireError, match="not a registered type"):
        factory.measure(message)


class NeedsMore(BitMessage):
    def __init__(self, value: int) -> None:
        self.value = value

    def serialize(self, stream: BitStream) -> None:
        self.value = stream.bits(self.value, 3)


@dataclass(frozen=True)
class Frozen(BitMessage):
    flag: bool = False


class Backwards(Signal):
    def serialize(self, stream: BitStream) -> None:
        stream.integer(0, 5, 4)


class Endless(Signal):
    inner: "Endless | None" = None

    def serialize(self, stream: BitStream) -> None:
        self.inner = stream.optional(self.inner, lambda one: stream.message(one, Endless))


@each(
    ("types", "complaint"),
    [
        ([], "without types"),
        ([Step, type("Step", (Signal,), {})], "two types of message are called Step"),
        ([int], "int is neither"),
        ([NeedsMore], "NeedsMore cannot be created blank"),
        ([Frozen], "Frozen cannot be created blank and serialized: FrozenInstanceError"),
        ([Backwards], "Backwards: a range from 5 to 4 is empty"),
        ([Endless], "Endless: Endless holds a message of its own kind"),
        ([BitMessage], "BitMessage cannot be created blank"),
    ],
)
def test_a_type_that_cannot_be_carried_is_refused(types: list[type], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        MessageFactory(types)


@brisk
@given(payloads)
def test_plain_messages_are_whatever_msgpack_carries(payload: object) -> None:
    for codec in (PlainMessages(), PlainMessages(compression=Compression(threshold=0))):
        assert codec.decode_untrusted(codec.encode(payload)) == payload


@each("data", [b"", b"\xc1", b"\x81\x90\x01", b"\x91" * 5000, b"\x01\x02"])
def test_plain_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteError):
        PlainMessages().decode_untrusted(data)


@pytest.mark.parametrize("payload", [object(), 2**64, "\ud800", {1, 2}])
def test_plain_values_that_msgpack_cannot_carry_are_refused(payload: object) -> None:
    with pytest.raises(WireError):
        PlainMessages().encode(payload)
