"""What a connection reports."""

from dataclasses import dataclass
from enum import IntEnum


class CloseReason(IntEnum):
    """Why a channel ended. The first ones travel in CLOSE; the others are this side's verdict."""

    DONE = 0
    ABORTED = 1
    REFUSED = 16
    UNREACHABLE = 17
    VANISHED = 18
    DRAIN_TIMEOUT = 19
    SCHEMA = 20
    PATH_TOO_SMALL = 21


@dataclass(frozen=True, slots=True)
class Opened:
    """Both sides know each other; messages flow."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The one terminal event: why, in words, and whether this side asked for it."""

    reason: CloseReason
    text: str
    by_peer: bool
    refusal: str = ""
    """Of a channel that was refused, in a word why."""


ConnectionEvent = Opened | Closed
