"""Flow control: how far a source may be ahead of its slowest receiver, and how long it waits.

Every receiver reports its position, and the bytes of room that its reader leaves (Aeron's status
messages). The source sends no further than the lowest of these limits. Datagrams count in bytes,
each with the memory that a kernel takes for it beside its data (``settings.OVERHEAD``): so neither
small datagrams nor large ones use up more of a socket's buffer than they count for.

A receiver limits the source only while it makes progress. The source awaits its report from three
moments on: when it joins, when the source has sent half of its room, and when it blocks the source.
If ``patience`` seconds pass without a report that raises its limit, the source leaves it behind: it
no longer waits for the receiver until that has caught up, but still repairs datagrams in the
transmission window. So the source mostly leaves a vanished receiver behind before it has to wait
for it.

``FlowControl`` is the source's side, ``StatusReports`` the receiver's.
"""

from sys import maxsize
from typing import Final, NamedTuple

from sphtp.core.stream.transmission_window import TransmissionWindow
from sphtp.core.stream.wire import StatusMessage
from sphtp.core.timers import earliest
from sphtp.core.token_bucket import TokenBucket

SHARE: Final = 4
"""The reports in one window: the source never waits for a report that is on its way.

Also the session messages in ``patience``, which ask a receiver for its report. A slow reader frees
a quarter of a window only now and then, so the source has to ask whether it reads at all.
"""


def first_grant(reach: int) -> int:
    """Return how many bytes a source may be ahead of a receiver that has not reported yet.

    ``reach`` is the most bytes that it may be ahead; 0 sets no limit.
    """
    return max(reach // SHARE, 1) if reach else 0


# The source's side


class ReceiverLag(NamedTuple):
    """The lag of a receiver: ``behind`` in datagrams, ``room`` in bytes, ``silence`` in seconds.

    ``is_left_behind`` is true if the source no longer waits for it.
    """

    behind: int
    room: int
    silence: float
    is_left_behind: bool


class SourceReceiver:
    """The source's record of one receiver.

    It has everything up to the datagram ``done``. It ``is_busy`` while it fetches history. Its
    ``nak_budget`` bounds the datagrams that it may ask for, so that it does not starve the others.
    """

    __slots__ = (
        "awaited_since",
        "complained_at",
        "done",
        "has_reported",
        "is_busy",
        "is_left_behind",
        "knows_end",
        "lead",
        "limit",
        "nak_budget",
        "position",
        "reported_at",
        "room",
    )

    def __init__(self, now: float, done: int, nak_budget: TokenBucket) -> None:
        self.done = done
        self.room = 0
        self.reported_at = now
        self.is_busy = True
        self.knows_end = False
        self.nak_budget = nak_budget
        # When the application was told that it asks for too much.
        self.complained_at: float | None = None
        # Its latest report: it had everything up to ``lead``, which is at ``position`` in the
        # transmission window, and could take more up to ``limit``.
        self.lead = done
        self.position = self.limit = 0
        # What is granted before the first report is a guess, which that report corrects.
        self.has_reported = False
        # Since when a report is awaited; None while none is.
        self.awaited_since: float | None = None
        self.is_left_behind = False

    @property
    def half(self) -> int:
        """The position at which the source has sent half of what the receiver can take."""
        return self.position + (self.limit - self.position) // 2


class FlowControl:
    """The receivers of a source, and the limit that they set.

    ``reach`` and positions in the transmission window are in bytes; a ``reach`` of 0 sets no limit.
    Each receiver may ask for ``nak_budget`` datagrams a second.
    """

    def __init__(
        self, reach: int, patience: float, nak_budget: float, window: TransmissionWindow
    ) -> None:
        self.reach = reach
        """The most bytes that the source may be ahead."""
        self.limit: int | None = None
        """The position up to which datagrams may leave; None when nothing limits them."""
        self.left_behind = 0
        """The number of times that a receiver was left behind."""
        self.awaited_since: float | None = None
        """The time since which the report of a receiver that has reported before is awaited."""
        self.due: float | None = None
        """The time at which a receiver will be left behind."""
        self._window = window
        self._patience = patience
        self._nak_budget = nak_budget
        self._receivers: dict[int, SourceReceiver] = {}
        # The lowest position at which a report will be awaited that is not awaited yet.
        self._half = maxsize

    def __len__(self) -> int:
        return len(self._receivers)

    def find(self, receiver: int) -> SourceReceiver | None:
        """Return the receiver with this number."""
        return self._receivers.get(receiver)

    def unrepaired(self, lead: int) -> int:
        """Return how many datagrams up to ``lead`` are not known to be with all receivers."""
        least = min((one.done for one in self._receivers.values()), default=lead)
        return max(lead - least, 0)

    def is_done(self, lead: int) -> bool:
        """Return True if all receivers have everything, if only from history, and know the end."""
        return not self.unrepaired(lead) and not any(
            one.is_busy or not one.knows_end for one in self._receivers.values()
        )

    # Who takes part

    def join(self, now: float, receiver: int, lead: int, done: int | None = None) -> None:
        """Add a receiver when the window's lead is ``lead``.

        It has everything up to ``done``, and needs nothing up to ``lead`` unless that is given.
        """
        one = self._receivers.get(receiver)
        if one is None:
            done = lead if done is None else min(done, lead)
            one = SourceReceiver(now, done, TokenBucket(self._nak_budget))
            self._receivers[receiver] = one
        if self.reach:
            one.lead = lead
            one.position = self._window.position_of(lead)
            one.limit = one.position + first_grant(self.reach)
            one.has_reported = one.is_left_behind = False
            one.awaited_since = now
            self._find_limit()

    def leave(self, receiver: int) -> None:
        """Remove a receiver."""
        self._receivers.pop(receiver, None)
        self._find_limit()

    def close(self) -> None:
        """Stop waiting for receivers, later ones included."""
        self.reach = 0
        for one in self._receivers.values():
            one.awaited_since = None
        self._find_limit()

    # What limits the source, and for how long

    def handle_status(self, now: float, receiver: int, status: StatusMessage) -> None:
        """Take a receiver's report. One that was left behind counts again once it caught up."""
        one = self._receivers.get(receiver)
        if one is None:
            return
        one.done = max(one.done, status.lead)
        one.room, one.reported_at = status.room, now
        one.is_busy = status.is_fetching
        one.knows_end |= status.knows_end
        if not self.reach or status.lead < one.lead:
            return
        position = self._window.position_of(status.lead)
        limit = position + min(self.reach, status.room)
        # Reports may overtake each other: one with less room takes nothing back.
        if limit <= one.limit and one.has_reported:
            return
        one.lead, one.position, one.limit = status.lead, position, limit
        one.has_reported, one.awaited_since = True, None
        if limit > self._window.position:
            one.is_left_behind = False
        self._find_limit()

    def handle_sent(self, now: float) -> None:
        """Await a report from each receiver of whose room the source has used half."""
        position = self._window.position
        if position >= self._half:
            for one in self._followed():
                if one.awaited_since is None and position >= one.half:
                    one.awaited_since = now
            self._find_limit()

    def handle_blocked(self, now: float) -> None:
        """Await a report from the receivers that block the source."""
        blocking = [
            one for one in self._followed() if one.awaited_since is None and one.limit == self.limit
        ]
        for one in blocking:
            one.awaited_since = now
        if blocking:
            self._find_limit()

    def expire(self, now: float) -> None:
        """Leave behind the receivers whose report was awaited for too long."""
        for one in self._followed():
            if one.awaited_since is not None and now >= one.awaited_since + self._patience:
                one.awaited_since = None
                one.is_left_behind = True
                self.left_behind += 1
        self._find_limit()

    def _followed(self) -> list[SourceReceiver]:
        if not self.reach:
            return []
        return [one for one in self._receivers.values() if not one.is_left_behind]

    def _find_limit(self) -> None:
        followed = self._followed()
        self.limit = min((one.limit for one in followed), default=None)
        halves = (one.half for one in followed if one.awaited_since is None)
        self._half = min(halves, default=maxsize)
        self.awaited_since = earliest(*(one.awaited_since for one in followed if one.has_reported))
        awaited = earliest(*(one.awaited_since for one in followed))
        self.due = None if awaited is None else awaited + self._patience


# The receiver's side


class StatusReports:
    """The receiver's reports: on request, and whenever it has room for a quarter of a window more.

    ``reach`` is the most bytes that the source may be ahead, 0 for no limit; ``burst`` is the most
    bytes that the receiver can take at once. Without ``knows_lead`` the receiver does not know the
    source's first grant.
    """

    __slots__ = ("_burst", "_every", "_is_asked", "_limit", "_reach")

    def __init__(self, reach: int, burst: int, *, knows_lead: bool = True) -> None:
        self._reach = reach
        self._burst = burst
        self._every = max(min(reach, burst) // SHARE, 1)
        # As far as the source may send by the last report, or by the join, in bytes from there.
        self._limit = first_grant(reach) if knows_lead else None
        self._is_asked = False

    def ask(self) -> None:
        """Report at the next poll, because the source has sent a session message."""
        self._is_asked = True

    def is_due(self, taken: int, behind_gap: int, room: int) -> bool:
        """Return True if a report is due, unasked, of a receiver that has ``taken`` so many bytes.

        Of these, ``behind_gap`` are behind something that is missing; its reader leaves ``room``.
        """
        if not self._reach or self._limit is None:
            return False
        settled = taken - behind_gap
        return settled + self._ahead(behind_gap, room) - self._limit >= self._every

    def poll(
        self,
        lead: int,
        taken: int,
        behind_gap: int,
        room: int,
        *,
        is_fetching: bool = False,
        knows_end: bool = False,
    ) -> StatusMessage | None:
        """Return the report of a receiver that has all up to ``lead``; None if none is due."""
        if not self._is_asked and not self.is_due(taken, behind_gap, room):
            return None
        self._is_asked = False
        if self._reach:
            room = self._ahead(behind_gap, room)
            self._limit = taken - behind_gap + room
        return StatusMessage(lead, room, is_fetching, knows_end)

    def _ahead(self, behind_gap: int, room: int) -> int:
        # What came behind a gap has left the socket, and makes room for others there.
        return min(self._reach, room, behind_gap + self._burst)
