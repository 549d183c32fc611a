"""What a source tells its application."""

from typing import NamedTuple


class Crybaby(NamedTuple):
    """A receiver asks for more than its NAK budget, and is not listened to in that."""

    receiver: int


class SourceClosed(NamedTuple):
    """The session is over; ``unrepaired`` datagrams are not known to be with all receivers."""

    unrepaired: int


SourceEvent = Crybaby | SourceClosed
