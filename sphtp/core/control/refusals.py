"""What a client makes of a server's no."""

from typing import Final

from sphtp.core.control.client_table import ClientSignal
from sphtp.core.control.vocabulary import Reason

_SIGNALS: Final = {
    Reason.CONFLICT: ClientSignal.CONFLICT,
    Reason.FULL: ClientSignal.BUSY,
    Reason.DENIED: ClientSignal.DENIED,
    Reason.VERSION: ClientSignal.DENIED,
    Reason.UNKNOWN: ClientSignal.UNKNOWN,
    Reason.STALE_DATA: ClientSignal.STALE,
}


class Refusals:
    """The last reason heard, and what each means to the table."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Reason | None = None

    @property
    def why(self) -> Reason:
        """The reason to tell the application."""
        return Reason.CONFLICT if self.last is None else self.last

    def note(self, reason: Reason) -> ClientSignal:
        """Return what has happened; what we do not know costs the id."""
        self.last = reason
        return _SIGNALS.get(reason, ClientSignal.CONFLICT)
