"""Flow control: the limit that the slowest receiver sets to a source, and its timeout.

Every receiver reports its position, and the bytes that its reader's buffer and its socket can take
beyond it (Aeron's status messages). The source sends no further than the lowest of these limits.
Each datagram counts with its bytes and with memory that a kernel takes for it in addition
(``settings.OVERHEAD``), because a socket's buffer holds far fewer bytes of small datagrams than of
large ones.

A receiver limits the source only while it makes progress. The source begins to await a report at
three moments: when the receiver joins, when the source has sent half of the receiver's room, and
when the receiver blocks the source. If no report raises the limit for ``patience`` seconds, the
source leaves the receiver behind: it no longer waits for this receiver until it has caught up, but
still repairs datagrams in the transmission window. So the source mostly leaves a vanished receiver
behind before this receiver blocks it.

``FlowControl`` is the source's side, ``StatusReports`` the receiver's.
"""

from sys import maxsize
from typing import Final, NamedTuple

from sphtp.core.stream.transmission_window import TransmissionWindow
from sphtp.core.stream.wire import StatusMessage
from sphtp.core.timers import earliest
from sphtp.core.token_bucket import TokenBucket

SHARE: Final = 4
"""The reports in one window, so that the source need not wait for a report that is on its way.

Also the session messages in ``patience`` that request an overdue report. A slow reader frees a
quarter of a window only now and then, and a requested report shows that it makes progress.
"""


def first_grant(reach: int) -> int:
    """Return the bytes by which a source may be ahead of a receiver that has not reported yet.

    ``reach`` is the most bytes by which the source may be ahead; 0 sets no limit.
    """
    return max(reach // SHARE, 1) if reach else 0


# The source's side


class ReceiverLag(NamedTuple):
    """The lag of a receiver.

    ``behind`` is the number of datagrams that it has not reported, ``room`` the bytes that it can
    take, and ``silence`` the seconds since its last report. ``is_left_behind`` is true if the
    source no longer waits for it.
    """

    behind: int
    room: int
    silence: float
    is_left_behind: bool


class SourceReceiver:
    """The source's record of one receiver.

    The receiver has received or given up every datagram up to ``done``. It ``is_busy`` until its
    first report, and while it fetches history. ``nak_budget`` limits the datagrams that it may
    request, so that it does not starve the others.
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
        # The time of the last ``Crybaby`` event for this receiver.
        self.complained_at: float | None = None
        # The latest report: datagrams up to ``lead`` were settled. This is at ``position`` in the
        # transmission window, and the receiver had room up to the position ``limit``.
        self.lead = done
        self.position = self.limit = 0
        # The limit before the first report is a guess, which the first report may also lower.
        self.has_reported = False
        # The time since which a report is awaited; None while none is awaited.
        self.awaited_since: float | None = None
        self.is_left_behind = False

    @property
    def half(self) -> int:
        """The position at which the source has used half of the receiver's reported room."""
        return self.position + (self.limit - self.position) // 2


class FlowControl:
    """The receivers of a source, and the limit that they set.

    ``reach`` and positions in the transmission window are in bytes; a ``reach`` of 0 sets no limit.
    ``patience`` is in seconds. Each receiver may request ``nak_budget`` datagrams per second.
    """

    def __init__(
        self, reach: int, patience: float, nak_budget: float, window: TransmissionWindow
    ) -> None:
        self.reach = reach
        """The most bytes by which the source may be ahead of a receiver; 0 sets no limit."""
        self.limit: int | None = None
        """The position up to which datagrams may leave; None if no receiver limits them."""
        self.left_behind = 0
        """The number of times that the source has left a receiver behind."""
        self.awaited_since: float | None = None
        """The earliest time since which a report is awaited, among receivers that have reported
        before; None if none is awaited.
        """
        self.due: float | None = None
        """The time at which the source leaves the next receiver behind; None if no report is
        awaited.
        """
        self._window = window
        self._patience = patience
        self._nak_budget = nak_budget
        self._receivers: dict[int, SourceReceiver] = {}
        # The lowest position from which on a further report will be awaited.
        self._half = maxsize

    def __len__(self) -> int:
        return len(self._receivers)

    def find(self, receiver: int) -> SourceReceiver | None:
        """Return the record of the receiver with this number; None if it is unknown."""
        return self._receivers.get(receiver)

    def unrepaired(self, lead: int) -> int:
        """Return the number of datagrams up to ``lead`` that some receiver has not reported as
        received or given up.
        """
        least = min((one.done for one in self._receivers.values()), default=lead)
        return max(lead - least, 0)

    def is_done(self, lead: int) -> bool:
        """Return True if all receivers have settled all datagrams up to ``lead``, know the end, and
        fetch no more history.
        """
        return not self.unrepaired(lead) and not any(
            one.is_busy or not one.knows_end for one in self._receivers.values()
        )

    # Receivers that join and leave

    def join(self, now: float, receiver: int, lead: int, done: int | None = None) -> None:
        """Add a receiver, or renew the limit of one that rejoins; ``lead`` is the window's lead.

        A new receiver needs the datagrams after ``done``, by default those after ``lead``.
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
        """Stop waiting for any receiver, also for those that join later."""
        self.reach = 0
        for one in self._receivers.values():
            one.awaited_since = None
        self._find_limit()

    # The limit, and its timeout

    def handle_status(self, now: float, receiver: int, status: StatusMessage) -> None:
        """Take a receiver's report. A receiver left behind limits the source again once it has
        caught up.
        """
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
        # Reports may overtake each other, so a lower limit is ignored.
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
        """Leave behind the receivers whose report has been awaited for ``patience`` seconds."""
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
    """The receiver's reports: on request, or when the source may send a quarter more.

    That is a quarter of ``reach`` or of ``burst``, whichever is less. ``reach`` is the most bytes
    by which the source may be ahead, 0 for no limit; ``burst`` is the most bytes that the receiver
    can take at once. If ``knows_lead`` is False, the receiver does not know the source's first
    grant, and sends its first report on request only.
    """

    __slots__ = ("_burst", "_every", "_is_asked", "_limit", "_reach")

    def __init__(self, reach: int, burst: int, *, knows_lead: bool = True) -> None:
        self._reach = reach
        self._burst = burst
        self._every = max(min(reach, burst) // SHARE, 1)
        # The bytes up to which the source may send by the last report or by the first grant.
        self._limit = first_grant(reach) if knows_lead else None
        self._is_asked = False

    def ask(self) -> None:
        """Make a report due, because the source has announced its window."""
        self._is_asked = True

    def is_due(self, taken: int, behind_gap: int, room: int) -> bool:
        """Return True if a report is due without a request. All arguments are in bytes.

        ``taken`` is all that the receiver has taken, ``behind_gap`` the part behind a missing
        datagram, and ``room`` the free part of the reader's buffer.
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
        """Return a report if one is due, else None.

        All datagrams up to ``lead`` have been received or given up. ``taken``, ``behind_gap`` and
        ``room`` are those of ``is_due``; the report repeats the other arguments.
        """
        if not self._is_asked and not self.is_due(taken, behind_gap, room):
            return None
        self._is_asked = False
        if self._reach:
            room = self._ahead(behind_gap, room)
            self._limit = taken - behind_gap + room
        return StatusMessage(lead, room, is_fetching, knows_end)

    def _ahead(self, behind_gap: int, room: int) -> int:
        # Datagrams behind a gap have left the socket's buffer, and so leave room there.
        return min(self._reach, room, behind_gap + self._burst)
