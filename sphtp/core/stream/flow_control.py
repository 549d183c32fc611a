"""The receivers of a source: who they are, what they have, what they may ask for."""

from sys import maxsize
from typing import NamedTuple

from sphtp.core.stream.settings import first_grant
from sphtp.core.stream.transmission_window import TransmissionWindow
from sphtp.core.stream.wire import StatusMessage
from sphtp.core.timers import earliest
from sphtp.core.token_bucket import TokenBucket


class SourceReceiver:
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


class SourceReceivers:
    """Receivers by number; each may ask for ``rate`` datagrams a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._listeners: dict[int, SourceReceiver] = {}

    def join(self, now: float, receiver: int, lead: int) -> None:
        """Take a receiver in, which needs nothing that was sent up to ``lead``."""
        if receiver not in self._listeners:
            self._listeners[receiver] = SourceReceiver(now, lead, TokenBucket(self._rate))

    def leave(self, receiver: int) -> None:
        """Forget a receiver."""
        self._listeners.pop(receiver, None)

    def find(self, receiver: int) -> SourceReceiver | None:
        """The receiver with this number."""
        return self._listeners.get(receiver)

    def confirm(self, now: float, receiver: int, status: StatusMessage) -> None:
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


# Flow control of a stream: how far its source may be ahead of its slowest receiver.
#
# A receiver reports what it has, and how much room its reader leaves (Aeron's status messages).
# It holds the source up only as long as it goes on: who says of no progress for ``patience``
# seconds, from when it joins, or the source is half a window ahead of its word, or waits for it,
# is left behind until it does, and gets what can still be repaired. So one that is gone, or hears
# nothing, mostly is left behind before anybody has waited for it.


class ReceiverLag(NamedTuple):
    """How far a receiver is: ``behind`` in datagrams, ``room`` in bytes, ``silence`` in seconds.

    ``is_left_behind`` says that the source no longer waits for it.
    """

    behind: int
    room: int
    silence: float
    is_left_behind: bool


class _Pace:
    """One receiver: it has all up to ``at``; ``limit`` is as far as it can take more."""

    __slots__ = ("at", "is_heard", "lead", "limit", "since")

    def __init__(self, now: float, lead: int, at: int, limit: int) -> None:
        self.lead = lead
        self.at = at
        self.limit = limit
        # What it is granted before its first word is a guess, which that word corrects.
        self.is_heard = False
        # Since when its word is awaited; None while it is not.
        self.since: float | None = now

    @property
    def half(self) -> int:
        """Where half of what it can take has been sent: by then it should have spoken."""
        return self.at + (self.limit - self.at) // 2


class FlowControl:
    """Receivers by number. ``reach`` is in bytes, as are positions in the transmission window.

    A reach of 0 holds nothing back.
    """

    def __init__(self, reach: int, patience: float, window: TransmissionWindow) -> None:
        self.reach = reach
        """How many bytes the source may be ahead."""
        self.limit: int | None = None
        """The position up to which datagrams may leave; None when nobody is waited for."""
        self.left_behind = 0
        """How often somebody was left behind."""
        self._window = window
        self._patience = patience
        self._followed: dict[int, _Pace] = {}
        self._left: dict[int, _Pace] = {}
        # The position at which the source is too far ahead of somebody's word.
        self._ahead = maxsize

    @property
    def due(self) -> float | None:
        """When somebody's patience ends."""
        ends: float | None = None
        for pace in self._followed.values():
            if pace.since is not None:
                ends = earliest(ends, pace.since + self._patience)
        return ends

    def is_left(self, receiver: int) -> bool:
        """Whether a receiver was left behind, and has not kept up since."""
        return receiver in self._left

    def join(self, now: float, receiver: int, lead: int) -> None:
        """Wait for one more, which needs nothing up to ``lead``."""
        if self.reach:
            at = self._window.position_of(lead)
            self._followed[receiver] = _Pace(now, lead, at, at + first_grant(self.reach))
            self._find_limit()

    def leave(self, receiver: int) -> None:
        """Forget a receiver."""
        self._followed.pop(receiver, None)
        self._left.pop(receiver, None)
        self._find_limit()

    def hear(self, receiver: int, status: StatusMessage) -> None:
        """Take a receiver's word. One that was left behind is waited for when it keeps up again."""
        pace = self._followed.get(receiver) or self._left.get(receiver)
        if pace is None or status.lead < pace.lead:
            return
        at = self._window.position_of(status.lead)
        limit = at + min(self.reach, status.room)
        if limit <= pace.limit and pace.is_heard:
            return
        pace.lead, pace.at, pace.limit, pace.since = status.lead, at, limit, None
        pace.is_heard = True
        if receiver in self._left and limit > self._window.position:
            self._followed[receiver] = self._left.pop(receiver)
        self._find_limit()

    def go_on(self, now: float) -> None:
        """Take note that datagrams have left."""
        position = self._window.position
        if position >= self._ahead:
            for pace in self._followed.values():
                if pace.since is None and position >= pace.half:
                    pace.since = now
            self._find_limit()

    def hold(self, now: float) -> None:
        """Take it that the source waits."""
        for pace in self._followed.values():
            if pace.since is None and pace.limit == self.limit:
                pace.since = now

    def expire(self, now: float) -> None:
        """Leave behind those that it has waited for too long."""
        for receiver, pace in tuple(self._followed.items()):
            if pace.since is not None and now >= pace.since + self._patience:
                pace.since = None
                self._left[receiver] = self._followed.pop(receiver)
                self.left_behind += 1
        self._find_limit()

    def close(self) -> None:
        """Wait for nobody any more, whoever joins."""
        self.reach = 0
        self._followed.clear()
        self._left.clear()
        self._find_limit()

    def _find_limit(self) -> None:
        paces = self._followed.values()
        self.limit = min((pace.limit for pace in paces), default=None)
        halves = (pace.half for pace in paces if pace.since is None)
        self._ahead = min(halves, default=maxsize)
