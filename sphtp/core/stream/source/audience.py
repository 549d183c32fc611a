"""The receivers of a source: who they are, what they have, what they may ask for."""

from sphtp.core.stream.bodies import Status
from sphtp.core.token_bucket import TokenBucket


class Listener:
    """A receiver; it has everything up to ``done``, and ``is_busy`` until it says that it is not.

    It is busy with history, of which the source knows nothing, or has not heard of the end. Its
    ``budget`` is how many datagrams it may ask for, so that it does not starve the others.
    """

    __slots__ = ("_reported_at", "budget", "done", "heard", "is_busy", "knows_end", "room")

    def __init__(self, now: float, done: int, budget: TokenBucket) -> None:
        self.done = done
        self.heard = now
        self.room = 0
        self.budget = budget
        self.is_busy = True
        self.knows_end = False
        self._reported_at: float | None = None

    def report(self, now: float, interval: float) -> bool:
        """Whether to report now that it asks for too much: once in ``interval`` seconds."""
        if self._reported_at is not None and now - self._reported_at < interval:
            return False
        self._reported_at = now
        return True


class Audience:
    """Receivers by number; each may ask for ``rate`` datagrams a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._listeners: dict[int, Listener] = {}

    def join(self, now: float, receiver: int, lead: int) -> None:
        """Take a receiver in, which needs nothing that was sent up to ``lead``."""
        if receiver not in self._listeners:
            self._listeners[receiver] = Listener(now, lead, TokenBucket(self._rate))

    def leave(self, receiver: int) -> None:
        """Forget a receiver."""
        self._listeners.pop(receiver, None)

    def find(self, receiver: int) -> Listener | None:
        """The receiver with this number."""
        return self._listeners.get(receiver)

    def confirm(self, now: float, receiver: int, status: Status) -> None:
        """Take a receiver's word for what it has."""
        listener = self._listeners.get(receiver)
        if listener is not None:
            listener.done = max(listener.done, status.lead)
            listener.heard, listener.room = now, status.room
            listener.is_busy = status.is_fetching
            listener.knows_end |= status.knows_end

    def is_done(self, lead: int) -> bool:
        """Whether all have everything up to ``lead`` and from history, and know of the end."""
        return not self.behind(lead) and not any(
            one.is_busy or not one.knows_end for one in self._listeners.values()
        )

    def behind(self, lead: int) -> int:
        """How many datagrams up to ``lead`` are not known to be with all of them."""
        least = min((listener.done for listener in self._listeners.values()), default=lead)
        return max(lead - least, 0)

    def __len__(self) -> int:
        return len(self._listeners)
