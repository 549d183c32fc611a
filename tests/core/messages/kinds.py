"""Messages of every kind, and strategies that make them."""

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Annotated, Any

from hypothesis import strategies as st

from sphtp.core.messages import BitMessage, Bits, BitStream, Compressed, Float32, Limit, Range


class Colour(Enum):
    RED = "r"
    GREEN = "g"
    BLUE = "b"


class Gear(IntEnum):
    REVERSE = -1
    NEUTRAL = 0
    FIRST = 1


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Step:
    number: int
    time: float
    name: str


@dataclass(frozen=True)
class Everything:
    """A dataclass for msgpack with a field of every type."""

    flag: bool
    count: Annotated[int, Range(-5, 5)]
    free: int
    ratio: Annotated[float, Compressed(0.0, 1.0, 0.1)]
    name: Annotated[str, Limit(8)]
    key: bytes
    colour: Colour
    home: Point
    path: list[Point]
    pair: tuple[int, str]
    many: tuple[float, ...]
    table: dict[str, list[int]]
    maybe: Point | None
    small: Annotated[int | None, Bits(4)]
    payload: Any
    shot: "Shot"
    gears: dict[Gear, bool] = field(default_factory=dict, kw_only=True)


@dataclass
class Shot(BitMessage):
    """Its annotations say it all."""

    angle: Annotated[float, Compressed(-180.0, 180.0, 0.01)] = 0.0
    power: Annotated[int, Range(0, 100)] = 0


@dataclass
class Declared(BitMessage):
    """Declared, with a field of every type that bits can hold."""

    flag: bool = False
    small: Annotated[int, Bits(7)] = 0
    big: Annotated[int, Range(-(2**70), 2**70)] = 0
    only: Annotated[int, Range(5, 5)] = 5
    single: Annotated[float, Float32()] = 0.0
    double: float = 0.0
    steps: Annotated[float, Compressed(-1.0, 2.0, 0.001)] = 0.0
    name: Annotated[str, Limit(12)] = ""
    key: Annotated[bytes, Limit(200)] = b""
    gear: Gear = Gear.REVERSE
    maybe: Annotated[int | None, Range(10, 12)] = None
    home: Point = field(default_factory=lambda: Point(0.0, 0.0))
    pair: tuple[bool, Colour] = (False, Colour.RED)
    many: Annotated[tuple[bool, ...], Limit(9)] = ()
    path: Annotated[list[Annotated[int, Bits(3)]], Limit(40)] = field(default_factory=list)
    shot: Shot = field(default_factory=Shot)


class Written(BitMessage):
    """Written by hand, with every call that a stream has."""

    def __init__(self) -> None:
        self.flag = False
        self.small = self.whole = 0
        self.single = self.double = self.steps = 0.0
        self.name = ""
        self.key = b""
        self.colour = Colour.RED
        self.maybe: int | None = None
        self.path: list[int] = []
        self.shots: list[Shot] = []
        self.shot = Shot()

    def serialize(self, stream: BitStream) -> None:
        self.flag = stream.boolean(self.flag)
        self.small = stream.bits(self.small, 7)
        self.whole = stream.integer(self.whole, -1000, 1000)
        self.single = stream.float32(self.single)
        self.double = stream.float64(self.double)
        self.steps = stream.compressed(self.steps, -1.0, 2.0, 0.001)
        self.name = stream.text(self.name, 12)
        self.key = stream.data(self.key, 200)
        self.colour = stream.enum(self.colour, Colour)
        self.maybe = stream.optional(self.maybe, lambda one: stream.integer(one, 10, 12))
        self.path = stream.sequence(self.path, 40, lambda one: stream.bits(one, 3))
        self.shots = stream.sequence(self.shots, 3, lambda one: stream.message(one, Shot))
        self.shot = stream.message(self.shot, Shot)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Written) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return 0


def stepped(bound: Compressed) -> st.SearchStrategy[float]:
    """Floats that come back as they went in."""
    return st.integers(0, bound.steps).map(bound.value_of)


def texts(maximum: int) -> st.SearchStrategy[str]:
    # What is too long in UTF-8 is not drawn: to throw it away took most of the time.
    return st.text(st.characters(max_codepoint=127), max_size=maximum) | st.text(
        st.characters(codec="utf-8"), max_size=maximum // 4
    )


floats = st.floats(allow_nan=False)
singles = st.floats(width=32, allow_nan=False)
points = st.builds(Point, floats, floats)
fine = stepped(Compressed(-1.0, 2.0, 0.001))
shots = st.builds(Shot, stepped(Compressed(-180.0, 180.0, 0.01)), st.integers(0, 100))
int64 = st.integers(-(2**63), 2**64 - 1)
payloads = st.recursive(
    st.none() | st.booleans() | int64 | floats | texts(20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(9), inner, max_size=4),
    max_leaves=8,
)

declared = st.builds(
    Declared,
    flag=st.booleans(),
    small=st.integers(0, 127),
    big=st.integers(-(2**70), 2**70),
    single=singles,
    double=floats,
    steps=fine,
    name=texts(12),
    key=st.binary(max_size=20),
    gear=st.sampled_from(Gear),
    maybe=st.none() | st.integers(10, 12),
    home=points,
    pair=st.tuples(st.booleans(), st.sampled_from(Colour)),
    many=st.lists(st.booleans(), max_size=9).map(tuple),
    path=st.lists(st.integers(0, 7), max_size=12),
    shot=shots,
)
everything = st.builds(
    Everything,
    flag=st.booleans(),
    count=st.integers(-5, 5),
    free=int64,
    ratio=st.floats(0.0, 1.0),
    name=texts(8),
    key=st.binary(max_size=9),
    colour=st.sampled_from(Colour),
    home=points,
    path=st.lists(points, max_size=3),
    pair=st.tuples(int64, texts(9)),
    many=st.lists(floats, max_size=4).map(tuple),
    table=st.dictionaries(texts(4), st.lists(int64, max_size=3), max_size=3),
    maybe=st.none() | points,
    small=st.none() | st.integers(0, 15),
    payload=payloads,
    shot=shots,
    gears=st.dictionaries(st.sampled_from(Gear), st.booleans()),
)


@st.composite
def writtens(draw: st.DrawFn) -> Written:
    message = Written()
    message.flag = draw(st.booleans())
    message.small = draw(st.integers(0, 127))
    message.whole = draw(st.integers(-1000, 1000))
    message.single = draw(singles)
    message.double = draw(floats)
    message.steps = draw(fine)
    message.name = draw(texts(12))
    message.key = draw(st.binary(max_size=20))
    message.colour = draw(st.sampled_from(Colour))
    message.maybe = draw(st.none() | st.integers(10, 12))
    message.path = draw(st.lists(st.integers(0, 7), max_size=12))
    message.shots = draw(st.lists(shots, max_size=3))
    message.shot = draw(shots)
    return message


steps = st.builds(Step, int64, floats, texts(20))
written = writtens()
in_bits = shots | declared | written
KINDS = (Shot, Declared, Written, Step, Everything)
messages = in_bits | steps | everything
