"""The life of a transport session as a receiver sees it, as a table.

What was missing when the session ends is given up first, each range with its reason; then it is
over. Whether something is missing when the source's last word comes, the table cannot say: it is
why that word is two events.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sphtp.core.entropy import Entropy
from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.events import Arrived, EndReason, GivenUp
from sphtp.core.stream.nak import NakGenerator
from sphtp.core.stream.records import Record, decode_records_untrusted
from sphtp.core.stream.settings import OVERHEAD, SHARE, StreamSettings, first_grant
from sphtp.core.stream.statistics import (
    ReceiverCounters,
    ReceiverStatistics,
    receiver_snapshot,
)
from sphtp.core.stream.wire import (
    DATA_OVERHEAD,
    SQN,
    Body,
    BodyFlag,
    Ncf,
    SessionMessage,
    StatusMessage,
    StreamData,
    Window,
    decode_body_untrusted,
    trail_of_next,
)
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError


class ReceiverState(Name):
    """Where a receiver is in its session."""

    JOINING = "nothing heard yet"
    ACTIVE = "there is a source"
    ENDING = "the source closes: it repairs, and sends nothing new"
    ENDED = "over, and nothing is missing that was not given up"


class ReceiverEvent(Name):
    """What happens to the session."""

    HEARD = "something of the source came"
    CLOSING = "the source closes"
    CLOSED = "the source has gone, and something is missing"
    COMPLETE = "the source has gone, and nothing is missing"
    SILENT = "nothing was heard for too long"
    GONE = "the source's node vanished"


class ReceiverAction(Name):
    """What the receiver then does."""

    LINGER = "be patient for the linger only"
    HURRY = "wait for what may still be on its way"
    SETTLE = "give up what is missing"


S, E, A = ReceiverState, ReceiverEvent, ReceiverAction

RECEIVER = Machine(
    "Receiver",
    S.JOINING,
    (
        Row(S.JOINING, E.HEARD, S.ACTIVE, (), "it is there"),
        Row(S.JOINING, E.SILENT, S.ENDED, (A.SETTLE,), "nobody is there"),
        Row(S.JOINING, E.GONE, S.ENDED, (A.SETTLE,), "nobody is there any more"),
        Row(S.ACTIVE, E.CLOSING, S.ENDING, (A.LINGER,), "its linger is for the last repairs"),
        Row(S.ACTIVE, E.CLOSED, S.ENDING, (A.HURRY,), "a repair may have been overtaken"),
        Row(S.ACTIVE, E.COMPLETE, S.ENDED, (A.SETTLE,), "there is nothing to wait for"),
        Row(S.ACTIVE, E.SILENT, S.ENDED, (A.SETTLE,), "the source vanished"),
        Row(S.ACTIVE, E.GONE, S.ENDED, (A.SETTLE,), "nobody is left to repair"),
        Row(S.ENDING, E.CLOSING, S.ENDING, (), "said again, for those that missed it"),
        Row(S.ENDING, E.CLOSED, S.ENDING, (A.HURRY,), "a repair may have been overtaken"),
        Row(S.ENDING, E.COMPLETE, S.ENDED, (A.SETTLE,), "there is nothing to wait for"),
        Row(S.ENDING, E.SILENT, S.ENDED, (A.SETTLE,), "its last word was lost"),
        Row(S.ENDING, E.GONE, S.ENDED, (A.SETTLE,), "nobody is left to repair"),
    ),
    events=ReceiverEvent,
    final=frozenset({S.ENDED}),
    refused={
        # Whatever says that a source closes was heard first.
        S.JOINING: frozenset({E.CLOSING, E.CLOSED, E.COMPLETE}),
        S.ACTIVE: frozenset({E.HEARD}),
        S.ENDING: frozenset({E.HEARD}),
        S.ENDED: frozenset(ReceiverEvent),
    },
)


# When a receiver reports how far it is, and how much room there is: see ``Flow`` for why.


class StatusReports:
    """Reports a receiver's status when the source asks, or has used up much of the last one.

    ``reach`` is how many bytes the source may be ahead, 0 for no matter how many; ``burst`` how
    many this side can take at once. All are counted as ``grants`` has it. Unless it ``knows_lead``,
    this receiver does not know what the source takes for granted.
    """

    __slots__ = ("_burst", "_every", "_is_asked", "_reach", "_told")

    def __init__(self, reach: int, burst: int, *, knows_lead: bool = True) -> None:
        self._reach = reach
        self._burst = burst
        self._every = max(min(reach, burst) // SHARE, 1)
        # How far the source was told that it may send, or takes for granted, from the join on.
        self._told = first_grant(reach) if knows_lead else None
        self._is_asked = False

    def ask(self) -> None:
        """The source has sent a session message, which asks for a report."""
        self._is_asked = True

    def is_due(self, taken: int, behind_gap: int, room: int) -> bool:
        """Whether to report, unasked, of a receiver that has ``taken`` so many bytes.

        Of these, ``behind_gap`` are behind something that is missing; its reader leaves ``room``.
        """
        if not self._reach or self._told is None:
            return False
        settled = taken - behind_gap
        return settled + self._ahead(behind_gap, room) - self._told >= self._every

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
        """Return what to report of a receiver that has everything up to ``lead``, if it is time."""
        if not self._is_asked and not self.is_due(taken, behind_gap, room):
            return None
        self._is_asked = False
        if self._reach:
            room = self._ahead(behind_gap, room)
            self._told = taken - behind_gap + room
        return StatusMessage(lead, room, is_fetching, knows_end)

    def _ahead(self, behind_gap: int, room: int) -> int:
        # What came behind a gap has left the socket, and makes room for others there.
        return min(self._reach, room, behind_gap + self._burst)


# The transport of one session at a receiver: datagrams in, each on once, and NAKs out.


REACH: Final = 1 << 30
"""How far a lead may jump, and a window reach: further is no source's doing."""

NOWHERE: Final = 1 << 31
"""The lead before there is one: whatever comes first, its 32 bits are its number."""

ACTIVE: Final = ReceiverState.ACTIVE


class Receiver:
    """Takes the bodies of one source's session; knows datagrams, and nothing of topics.

    ``window`` is the source's as told when this receiver joined, and what comes after its lead is
    wanted; without one, the first datagram is the start. Ask for everything that is polled after
    every input: what arrived, what was given up, tails, and, after ``poll_timeout`` too, NAKs.
    """

    __slots__ = (
        "_arrived",
        "_counters",
        "_end_reason",
        "_heard",
        "_hearers",
        "_next",
        "_patience",
        "_recovery",
        "_session_number",
        "_settings",
        "_start",
        "_tails",
        "state",
    )

    def __init__(
        self, entropy: Entropy, settings: StreamSettings, now: float, window: Window | None
    ) -> None:
        self.state = RECEIVER.initial
        self._settings = settings
        self._counters = ReceiverCounters()
        self._recovery = NakGenerator(entropy, settings, self._counters)
        self._start = None if window is None else window.lead + 1
        # The number that follows all that is known.
        self._next = NOWHERE + 1 if self._start is None else self._start
        self._heard = now
        self._end_reason = EndReason.VANISHED
        self._patience = settings.activity_timeout
        self._arrived: deque[Arrived] = deque()
        self._session_number: int | None = None
        self._tails: Sequence[tuple[int, int]] | None = None
        self._hearers: Mapping[type, Callable[[float, Any, list[Record] | None], None]] = {
            StreamData: self._hear_data,
            SessionMessage: self._hear_session,
            Ncf: self._hear_ncf,
        }

    @property
    def lead(self) -> int | None:
        """The highest number known; None as long as nothing is."""
        return None if self._start is None else self._next - 1

    @property
    def settled(self) -> int | None:
        """Everything up to this number is here, or given up; None as long as nothing is known."""
        missing = self._recovery.missing
        return missing.oldest.first - 1 if missing else self.lead

    @property
    def taken(self) -> tuple[int, int]:
        """How many bytes came, and about how many of them are behind what is missing.

        Counted as ``grants`` has it.
        """
        counters, settled = self._counters, self.settled
        taken = counters.bytes + OVERHEAD * counters.datagrams
        if settled is None or settled == self._next - 1:
            return taken, 0
        return taken, (self._next - 1 - settled) * taken // max(counters.datagrams, 1)

    @property
    def knows_end(self) -> bool:
        """Whether the source has said that nothing follows what is known."""
        return self._end_reason is EndReason.CLOSED

    @property
    def end_reason(self) -> EndReason:
        """Why it is over, or would be if nothing more were heard."""
        return self._end_reason

    def is_missing_between(self, a: int, b: int) -> bool:
        """Whether any datagram after ``a`` and before ``b`` may still come."""
        return self._recovery.missing.touches(a + 1, b - 1)

    def statistics(self) -> ReceiverStatistics:
        """Return what was counted until now."""
        recovery = self._recovery
        return receiver_snapshot(
            self._counters, recovery.missing.total, recovery.nak_stm, recovery.nak_tx
        )

    # Inputs

    def handle_body_untrusted(self, now: float, body: bytes) -> None:
        """Take what the source said; what makes no sense is dropped and counted."""
        counters = self._counters
        counters.datagrams += 1
        counters.bytes += len(body)
        try:
            sqn = self._next
            trail = trail_of_next(body, sqn) if self.state is ACTIVE else None
            if trail is None:
                self._take_untrusted(now, decode_body_untrusted(body, sqn - 1))
                return
            # The next one, as almost always: nothing else can have changed but the trail.
            records = decode_records_untrusted(body, DATA_OVERHEAD)
            self._arrived.append(Arrived(sqn, False, records))
            self._next = sqn + 1
            self._heard = now
            self._recovery.advance_trail(trail)
        except RemoteError:
            counters.malformed += 1

    def handle_timeout(self, now: float) -> None:
        """Act on the time that ``poll_timeout`` told."""
        self._recovery.expire(now)
        if now >= self._heard + self._patience:
            self._step(ReceiverEvent.SILENT)

    def handle_alive(self, now: float) -> None:
        """Take note that the node of the source is there, silent or not."""
        # A source that has said it closes is not waited for any longer than it lingers.
        if self.state is ACTIVE or self.state is ReceiverState.JOINING:
            self._heard = now

    def handle_window(self, now: float, window: Window) -> None:
        """Take what the source's node tells of it on another way, which loses nothing."""
        if self.state is not ReceiverState.ENDED:
            self._heard = now
            self._step(ReceiverEvent.HEARD)
            self._see(now, window)

    def handle_closing(self, now: float, window: Window) -> None:
        """Take the same of a source that closes: nothing follows."""
        self.handle_window(now, window)
        self._close(ReceiverEvent.CLOSING)

    def handle_gone(self, now: float, *, anew: bool = False) -> None:
        """Take note that nobody will repair: the source's node vanished, or began ``anew``."""
        self._heard = now
        if anew and not self.knows_end:
            self._end_reason = EndReason.BEGAN_ANEW
        self._step(ReceiverEvent.GONE)

    # Outputs

    def poll_transmit(self, now: float) -> bytes | None:
        """Return the body of a NAK to send to the source, if one is due."""
        return self._recovery.poll_nak(now)

    def poll_timeout(self) -> float | None:
        """When to come back; None when it is all over."""
        if self.state is ReceiverState.ENDED:
            return None
        return earliest(self._heard + self._patience, self._recovery.next_due)

    def poll_arrived(self) -> Arrived | None:
        """Return a datagram to hand on, in the order of arrival; each comes once."""
        return self._arrived.popleft() if self._arrived else None

    def poll_given_up(self) -> GivenUp | None:
        """Return datagrams that will not come on this way; each is told once."""
        given_up = self._recovery.given_up
        return given_up.popleft() if given_up else None

    def poll_tails(self) -> Sequence[tuple[int, int]] | None:
        """Return topics and their next numbers by the latest session message, once."""
        tails, self._tails = self._tails, None
        return tails

    # What the source says

    def _take_untrusted(self, now: float, said: Body) -> None:
        if self.state is ReceiverState.ENDED:
            self._counters.after_end += 1
            return
        if not self._is_plausible(said):
            self._counters.implausible += 1
            return
        # Before anything changes, as this may fail.
        records = self._read_untrusted(said) if isinstance(said, StreamData) else None
        self._heard = now
        if self._start is None:
            self._start = self._next = _start_of(said)
        self._step(ReceiverEvent.HEARD)
        self._hearers[type(said)](now, said, records)

    def _is_plausible(self, said: Body) -> bool:
        lead, trail = said.window
        jump = 0 if self._start is None else abs(lead - self._next + 1)
        named = said.spans[-1].last if isinstance(said, Ncf) else lead
        return jump <= REACH and lead - trail <= REACH and named <= lead

    def _read_untrusted(self, data: StreamData) -> list[Record] | None:
        """Return what is in a datagram that is not here yet."""
        is_new = (
            self._start is None
            or data.sqn >= self._next
            or self._recovery.missing.touches(data.sqn, data.sqn)
        )
        return decode_records_untrusted(bytes(data.records)) if is_new else None

    def _hear_data(self, now: float, data: StreamData, records: list[Record] | None) -> None:
        sqn, repair = data.sqn, BodyFlag.REPAIR in data.flags
        if self._start is None or sqn < self._start:
            self._counters.before_start += 1
        elif records is None:
            self._counters.duplicates += 1
        else:
            self._arrived.append(Arrived(sqn, repair, records))
            if sqn < self._next:
                self._recovery.fill(now, sqn, repair=repair)
            else:
                self._reach(now, sqn - 1)
                self._next = sqn + 1
        self._see(now, data.window)

    def _hear_session(self, now: float, session: SessionMessage, _: list[Record] | None) -> None:
        counters, recovery = self._counters, self._recovery
        counters.session_messages += 1
        self._see(now, session.window)
        if self._is_latest(session.number):
            self._tails = session.tails
        if BodyFlag.CLOSED in session.flags:
            self._close(ReceiverEvent.CLOSED if recovery.missing else ReceiverEvent.COMPLETE)
        elif BodyFlag.CLOSING in session.flags:
            self._close(ReceiverEvent.CLOSING)

    def _is_latest(self, number: int) -> bool:
        known = self._session_number
        full = number if known is None else SQN.unwrap(number, known)
        if known is not None and full <= known:
            return False
        self._session_number = full
        return True

    def _hear_ncf(self, now: float, ncf: Ncf, _: list[Record] | None) -> None:
        self._counters.count_ncf(ncf)
        self._see(now, ncf.window)
        self._recovery.hear_ncf(now, ncf)

    def _see(self, now: float, window: Window) -> None:
        self._reach(now, window.lead)
        self._recovery.advance_trail(window.trail)

    def _reach(self, now: float, lead: int) -> None:
        """Whatever there is up to ``lead`` and is not here is missing."""
        if lead >= self._next:
            self._recovery.find_missing(now, self._next, lead)
            self._next = lead + 1

    # Actions

    def _close(self, event: ReceiverEvent) -> None:
        self._end_reason = EndReason.CLOSED
        self._step(event)

    def _step(self, event: ReceiverEvent) -> None:
        self._RUNNER.step(self, event)

    def _linger(self) -> None:
        # One session message that gets lost is not the end.
        self._patience = max(self._settings.linger, 3 * self._settings.session_min)

    def _hurry(self) -> None:
        self._patience = self._settings.nak_backoff

    def _settle(self) -> None:
        self._recovery.end()

    _RUNNER = Runner(
        RECEIVER,
        {
            ReceiverAction.LINGER: _linger,
            ReceiverAction.HURRY: _hurry,
            ReceiverAction.SETTLE: _settle,
        },
        ignored=ReceiverEvent,
    )


def _start_of(said: Body) -> int:
    """Where a receiver starts that was told no window: with the first original, or what is next."""
    if isinstance(said, StreamData) and BodyFlag.REPAIR not in said.flags:
        return said.sqn
    return said.window.lead + 1
