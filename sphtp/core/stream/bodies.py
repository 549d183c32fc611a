"""What is said on a stream: the vocabulary of sources and receivers (Ultra Messaging's terms)."""

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import NamedTuple

from sphtp.core.stream.ranges import Span


class BodyType(IntEnum):
    """The first byte of a body."""

    DATA = 1
    SESSION = 2
    NCF = 3
    NAK = 4
    STATUS = 5


class BodyFlag(IntFlag):
    """The second byte of a body."""

    NONE = 0
    REPAIR = 1
    """DATA that was sent before."""
    CLOSING = 2
    """The source sends nothing new, and repairs for its linger; in a STATUS: that is known."""
    CLOSED = 4
    """The source is gone."""
    FETCHING = 8
    """STATUS of a receiver that has not all of the history that it wants."""


class NcfReason(IntEnum):
    """Why a repair does not come now."""

    NO_RETRY = 0
    """It never will: the window has moved on."""
    IGNORED = 1
    """It was repaired a moment ago."""
    RX_DELAY = 2
    """It waits for its turn, and will come."""
    SHED = 3
    """Too much waits already; it has to be asked for again."""


class Window(NamedTuple):
    """What a source holds: datagrams from ``trail`` to ``lead``; none when trail is above lead."""

    lead: int
    trail: int


class Data(NamedTuple):
    """A datagram of the stream: ``records`` are those of ``sphtp.core.stream.records``."""

    flags: BodyFlag
    window: Window
    sqn: int
    records: memoryview


class Session(NamedTuple):
    """A session message: there is a source, and so far did each topic get.

    ``tails`` are pairs of topic and the number that its next message will have.
    """

    flags: BodyFlag
    window: Window
    number: int
    tails: Sequence[tuple[int, int]]


class Ncf(NamedTuple):
    """A NAK confirmation: these will not be repaired now; ``retry_after`` in seconds, 0 unknown."""

    window: Window
    reason: NcfReason
    retry_after: float
    spans: Sequence[Span]


class Nak(NamedTuple):
    """A negative acknowledgement: these are missing. In order, and no number twice."""

    spans: Sequence[Span]


class Status(NamedTuple):
    """A receiver has, or has given up, everything up to ``lead``, and ``room`` bytes for more.

    While it ``is_fetching`` from the history, it is not done with the source; once it
    ``knows_end``, nothing that it does not know of will come.
    """

    lead: int
    room: int
    is_fetching: bool = False
    knows_end: bool = False


Body = Data | Session | Ncf
