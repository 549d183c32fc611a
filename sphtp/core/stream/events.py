"""Outputs of source, receiver and delivery controller: arrivals, losses, and the end."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sphtp.core.fsm import Name
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import Record


class LossReason(Name):
    """The reason of a loss."""

    WINDOW = "the source's transmission window moved on"
    TIMEOUT = "it was missing for a whole generation interval"
    NO_RETRY = "the source refused a repair"
    FETCH_TIMEOUT = "the source's history did not deliver it in time"
    GONE = "the source's history does not have it any more, or the source keeps no history"
    MAP_OVERFLOW = "too much was missing or waited for it, or it exceeded max_message"
    OVERRUN = "the receive buffer was full, mostly because the reader was too slow"
    SESSION_END = "the session ended before it arrived"


class EndReason(Name):
    """The reason of a stream's end."""

    CLOSED = "the source has closed the stream"
    VANISHED = "the source vanished: no datagram came for too long, or its node is gone"
    BEGAN_ANEW = "the source was started again, with another session"


class Origin(Name):
    """The path on which a message arrived."""

    LIVE = "the stream, as new data or as a repair"
    RETRANSMIT = "late join: fetched before this side had caught up with the source"
    OTR = "off-transport recovery: fetched after that, or without a late join"


class Arrived(NamedTuple):
    """A datagram that the transport delivers, once, with its decoded records."""

    sqn: int
    repair: bool
    records: list[Record]


class GivenUp(NamedTuple):
    """Datagrams that the transport no longer tries to recover."""

    span: Span
    reason: LossReason


class Batch(NamedTuple):
    """Consecutive messages of a topic, the first of them with the number ``first``."""

    first: int
    payloads: Sequence[bytes]
    origin: Origin


class Loss(NamedTuple):
    """Messages of a topic that are lost, with the numbers from ``first`` to ``last``."""

    first: int
    last: int
    reason: LossReason


class StreamEnd(NamedTuple):
    """The end of a stream: every message below ``next`` was delivered, or its loss reported.

    If the source has ``CLOSED``, it sent no others. Otherwise it may have sent messages from
    ``next`` on of which this side received no trace; they are lost, too.
    """

    reason: EndReason
    next: int


class Crybaby(NamedTuple):
    """A receiver that requests more repairs than its NAK budget allows.

    The source ignores its requests beyond the budget.
    """

    receiver: int


class SourceClosed(NamedTuple):
    """The end of a session.

    ``unrepaired`` is the number of datagrams that some receiver has not reported as received or
    given up.
    """

    unrepaired: int


SourceEvent = Crybaby | SourceClosed


Item = Batch | Loss | StreamEnd
"""The items of a reader: messages, losses in their place, and the end."""

ALL_RECEIVERS: Final = 0
"""The receiver number that stands for all receivers."""


class OutgoingBodies(NamedTuple):
    """Bodies that leave together for one receiver, or for ``ALL_RECEIVERS``."""

    receiver: int
    bodies: list[bytes]
