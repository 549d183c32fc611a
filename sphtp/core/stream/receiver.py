"""The receiver of a transport session: it delivers each datagram once, and sends NAKs.

A datagram above all known numbers shows that those between are missing. So does the lead in every
body of the source; in session messages it shows a loss at the end, too. Missing datagrams go into
the loss map, and NAKs request them (``nak``). The receiver passes each datagram on in the order of
arrival, or gives it up with a reason; ``delivery`` makes messages of them.

The table is the life of the session. When the session ends, the receiver first gives up each
missing range, with a reason. The table does not contain whether datagrams are missing when the last
session message comes: therefore this message causes one of two events.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sphtp.core.entropy import Entropy
from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.events import Arrived, EndReason, GivenUp
from sphtp.core.stream.loss_map import LossMap
from sphtp.core.stream.nak import NakGenerator
from sphtp.core.stream.records import Record, decode_records_untrusted
from sphtp.core.stream.settings import OVERHEAD, StreamSettings
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
    StreamData,
    Window,
    decode_body_untrusted,
    trail_of_next,
)
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError


class ReceiverState(Name):
    """The states of a session at its receiver."""

    JOINING = "no datagram of the source has arrived, and no window after the WELCOME"
    ACTIVE = "a datagram of the source has arrived, or a window after the WELCOME"
    ENDING = "the source closes: it repairs, and sends no new data"
    ENDED = "over; the receiver has given up every missing datagram"


class ReceiverEvent(Name):
    """The events of a session at its receiver."""

    ARRIVED = "a datagram of the source arrived, or its window over the channel"
    CLOSING = "the source closes"
    CLOSED = "the source has ended, and datagrams are missing"
    COMPLETE = "the source has ended, and no datagram is missing"
    SILENT = "no sign of life came within the timeout"
    GONE = "the source's node vanished or closed the channel, or the source was started anew"


class ReceiverAction(Name):
    """The actions of a session at its receiver."""

    LINGER = "set the timeout to the linger, or to three minimum session intervals if longer"
    HURRY = "set the timeout to the NAK backoff, for datagrams in flight"
    SETTLE = "give up the missing datagrams"


S, E, A = ReceiverState, ReceiverEvent, ReceiverAction

RECEIVER = Machine(
    "Receiver",
    S.JOINING,
    (
        Row(S.JOINING, E.ARRIVED, S.ACTIVE, (), "the source is live"),
        Row(S.JOINING, E.SILENT, S.ENDED, (A.SETTLE,), "the source sends nothing"),
        Row(S.JOINING, E.GONE, S.ENDED, (A.SETTLE,), "the source is gone"),
        Row(S.ACTIVE, E.CLOSING, S.ENDING, (A.LINGER,), "its linger is for the last repairs"),
        Row(S.ACTIVE, E.CLOSED, S.ENDING, (A.HURRY,), "a repair may have been overtaken"),
        Row(S.ACTIVE, E.COMPLETE, S.ENDED, (A.SETTLE,), "no datagram is missing"),
        Row(S.ACTIVE, E.SILENT, S.ENDED, (A.SETTLE,), "the source vanished"),
        Row(S.ACTIVE, E.GONE, S.ENDED, (A.SETTLE,), "no source is left to send repairs"),
        Row(S.ENDING, E.CLOSING, S.ENDING, (), "the source repeats the message"),
        Row(S.ENDING, E.CLOSED, S.ENDING, (A.HURRY,), "a repair may have been overtaken"),
        Row(S.ENDING, E.COMPLETE, S.ENDED, (A.SETTLE,), "no datagram is missing"),
        Row(S.ENDING, E.SILENT, S.ENDED, (A.SETTLE,), "its last message or a repair was lost"),
        Row(S.ENDING, E.GONE, S.ENDED, (A.SETTLE,), "no source is left to send repairs"),
    ),
    events=ReceiverEvent,
    final=frozenset({S.ENDED}),
    refused={
        # The session message with such a flag has caused ARRIVED first.
        S.JOINING: frozenset({E.CLOSING, E.CLOSED, E.COMPLETE}),
        S.ACTIVE: frozenset({E.ARRIVED}),
        S.ENDING: frozenset({E.ARRIVED}),
        S.ENDED: frozenset(ReceiverEvent),
    },
)

REACH: Final = 1 << 30
"""The most datagrams by which a lead may jump, or exceed the trail. No window is larger."""

NOWHERE: Final = 1 << 31
"""The lead before the first datagram, with which a 32-bit sqn is decoded unchanged."""

ACTIVE: Final = ReceiverState.ACTIVE


class Receiver:
    """The receiver of one source's session. It handles datagrams, but not topics.

    ``window`` is the source's window when this receiver joined; the receiver starts with the
    datagram after its lead. Without a window, it starts with the first datagram that arrives if
    this has new data, else with the datagram after the lead in it. After every input, poll all
    outputs: arrivals, datagrams given up, tails and NAKs. Times are in seconds.
    """

    __slots__ = (
        "_activity_at",
        "_arrived",
        "_counters",
        "_end_reason",
        "_naks",
        "_next",
        "_session_number",
        "_settings",
        "_start",
        "_tails",
        "_timeout",
        "state",
    )

    def __init__(
        self, entropy: Entropy, settings: StreamSettings, now: float, window: Window | None
    ) -> None:
        self.state = RECEIVER.initial
        self._settings = settings
        self._counters = ReceiverCounters()
        self._naks = NakGenerator(entropy, settings, self._counters)
        self._start = None if window is None else window.lead + 1
        # The number after the highest known one.
        self._next = NOWHERE + 1 if self._start is None else self._start
        # The time of the last sign of life, and the longest silence after it.
        self._activity_at = now
        self._timeout = settings.activity_timeout
        self._end_reason = EndReason.VANISHED
        self._arrived: deque[Arrived] = deque()
        self._session_number: int | None = None
        self._tails: Sequence[tuple[int, int]] | None = None

    @property
    def lead(self) -> int | None:
        """The highest known sequence number; None before the first datagram, without a window."""
        return None if self._start is None else self._next - 1

    @property
    def missing(self) -> LossMap:
        """The datagrams that may still come. Read only."""
        return self._naks.missing

    @property
    def settled(self) -> int | None:
        """The sequence number up to which all datagrams have arrived or were given up; None before
        the first datagram, without a window.
        """
        missing = self._naks.missing
        return missing.oldest.first - 1 if missing else self.lead

    @property
    def taken(self) -> tuple[int, int]:
        """The bytes that arrived, and about how many of them are behind a missing datagram.

        Each datagram counts as in ``flow_control``.
        """
        counters, settled = self._counters, self.settled
        taken = counters.bytes + OVERHEAD * counters.datagrams
        if settled is None or settled == self._next - 1:
            return taken, 0
        return taken, (self._next - 1 - settled) * taken // max(counters.datagrams, 1)

    @property
    def knows_end(self) -> bool:
        """True if the source has announced its end, so that no datagram follows the known ones."""
        return self._end_reason is EndReason.CLOSED

    @property
    def end_reason(self) -> EndReason:
        """The reason of the session's end; before it, the reason if no more datagrams came."""
        return self._end_reason

    def statistics(self) -> ReceiverStatistics:
        """Return the counts so far."""
        naks = self._naks
        return receiver_snapshot(self._counters, naks.missing.total, naks.nak_stm, naks.nak_tx)

    # Inputs

    def handle_body_untrusted(self, now: float, body: bytes) -> None:
        """Take a body of the source. A malformed one is dropped and counted."""
        counters = self._counters
        counters.datagrams += 1
        counters.bytes += len(body)
        try:
            sqn = self._next
            trail = trail_of_next(body, sqn) if self.state is ACTIVE else None
            if trail is None:
                self._handle_decoded_untrusted(now, decode_body_untrusted(body, sqn - 1))
                return
            # The next datagram, as almost always: only the trail can have changed.
            records = decode_records_untrusted(body, DATA_OVERHEAD)
            self._arrived.append(Arrived(sqn, False, records))
            self._next = sqn + 1
            self._activity_at = now
            self._naks.advance_trail(trail)
        except RemoteError:
            counters.malformed += 1

    def handle_timeout(self, now: float) -> None:
        """Give up datagrams missing for too long, and end the session if the source is silent."""
        self._naks.expire(now)
        if now >= self._activity_at + self._timeout:
            self._step(ReceiverEvent.SILENT)

    def handle_alive(self, now: float) -> None:
        """Note that the node of the source is alive, even if the source is silent."""
        # The silence of a closing source ends the session, even if the node is alive.
        if self.state is ACTIVE or self.state is ReceiverState.JOINING:
            self._activity_at = now

    def handle_window(self, now: float, window: Window) -> None:
        """Take the window that the source's node sends over its channel, which is reliable."""
        if self.state is not ReceiverState.ENDED:
            self._activity_at = now
            self._step(ReceiverEvent.ARRIVED)
            self._handle_window(now, window)

    def handle_closing(self, now: float, window: Window) -> None:
        """Take the last window of a source that closes; no datagram follows its lead."""
        self.handle_window(now, window)
        self._handle_end(ReceiverEvent.CLOSING)

    def handle_gone(self, now: float, *, anew: bool = False) -> None:
        """End the session: the source's node vanished or closed the channel, or the source was
        started ``anew``.
        """
        self._activity_at = now
        if anew and not self.knows_end:
            self._end_reason = EndReason.BEGAN_ANEW
        self._step(ReceiverEvent.GONE)

    # Outputs

    def poll_transmit(self, now: float) -> bytes | None:
        """Return the body of a NAK to send to the source; None if none is due."""
        return self._naks.poll_nak(now)

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None when the session is over."""
        if self.state is ReceiverState.ENDED:
            return None
        return earliest(self._activity_at + self._timeout, self._naks.next_due)

    def poll_arrived(self) -> Arrived | None:
        """Return the next datagram in the order of arrival, once; None if there is none."""
        return self._arrived.popleft() if self._arrived else None

    def poll_given_up(self) -> GivenUp | None:
        """Return datagrams that the transport has given up, once; None if there are none."""
        given_up = self._naks.given_up
        return given_up.popleft() if given_up else None

    def poll_tails(self) -> Sequence[tuple[int, int]] | None:
        """Return the topics and next numbers in the latest session message, once; else None."""
        tails, self._tails = self._tails, None
        return tails

    # Bodies of the source

    def _handle_decoded_untrusted(self, now: float, body: Body) -> None:
        if self.state is ReceiverState.ENDED:
            self._counters.after_end += 1
            return
        if not self._is_plausible(body):
            self._counters.implausible += 1
            return
        # Decode first: an error must leave the state unchanged.
        records = self._read_untrusted(body) if isinstance(body, StreamData) else None
        self._activity_at = now
        if self._start is None:
            self._start = self._next = _start_of(body)
        self._step(ReceiverEvent.ARRIVED)
        match body:
            case StreamData():
                self._handle_data(now, body, records)
            case SessionMessage():
                self._handle_session(now, body)
            case Ncf():
                self._counters.count_ncf(body)
                self._handle_window(now, body.window)
                self._naks.handle_ncf(now, body)

    def _is_plausible(self, body: Body) -> bool:
        lead, trail = body.window
        jump = 0 if self._start is None else abs(lead - self._next + 1)
        named = body.spans[-1].last if isinstance(body, Ncf) else lead
        return jump <= REACH and lead - trail <= REACH and named <= lead

    def _read_untrusted(self, data: StreamData) -> list[Record] | None:
        """Return the records of a new datagram; None for a duplicate, or one before the start."""
        is_new = (
            self._start is None
            or data.sqn >= self._next
            or self._naks.missing.touches(data.sqn, data.sqn)
        )
        return decode_records_untrusted(bytes(data.records)) if is_new else None

    def _handle_data(self, now: float, data: StreamData, records: list[Record] | None) -> None:
        sqn, repair = data.sqn, BodyFlag.REPAIR in data.flags
        if self._start is None or sqn < self._start:
            self._counters.before_start += 1
        elif records is None:
            self._counters.duplicates += 1
        else:
            self._arrived.append(Arrived(sqn, repair, records))
            if sqn < self._next:
                self._naks.fill(now, sqn, repair=repair)
            else:
                self._advance_lead(now, sqn - 1)
                self._next = sqn + 1
        self._handle_window(now, data.window)

    def _handle_session(self, now: float, session: SessionMessage) -> None:
        self._counters.session_messages += 1
        self._handle_window(now, session.window)
        if self._is_latest(session.number):
            self._tails = session.tails
        if BodyFlag.CLOSED in session.flags:
            is_complete = not self._naks.missing
            self._handle_end(ReceiverEvent.COMPLETE if is_complete else ReceiverEvent.CLOSED)
        elif BodyFlag.CLOSING in session.flags:
            self._handle_end(ReceiverEvent.CLOSING)

    def _is_latest(self, number: int) -> bool:
        known = self._session_number
        full = number if known is None else SQN.unwrap(number, known)
        if known is not None and full <= known:
            return False
        self._session_number = full
        return True

    def _handle_window(self, now: float, window: Window) -> None:
        self._advance_lead(now, window.lead)
        self._naks.advance_trail(window.trail)

    def _advance_lead(self, now: float, lead: int) -> None:
        """Add all datagrams above the known ones, up to ``lead``, to the loss map."""
        if lead >= self._next:
            self._naks.find_missing(now, self._next, lead)
            self._next = lead + 1

    def _handle_end(self, event: ReceiverEvent) -> None:
        self._end_reason = EndReason.CLOSED
        self._step(event)

    # Actions of the table

    def _step(self, event: ReceiverEvent) -> None:
        _RUNNER.step(self, event)

    def _linger(self) -> None:
        # The loss of a single session message must not end the session.
        self._timeout = max(self._settings.linger, 3 * self._settings.session_min)

    def _hurry(self) -> None:
        self._timeout = self._settings.nak_backoff

    def _settle(self) -> None:
        self._naks.end()

    @classmethod
    def runner(cls) -> Runner[ReceiverState, ReceiverEvent, ReceiverAction]:
        return Runner(
            RECEIVER,
            {
                ReceiverAction.LINGER: cls._linger,
                ReceiverAction.HURRY: cls._hurry,
                ReceiverAction.SETTLE: cls._settle,
            },
            ignored=ReceiverEvent,
        )


_RUNNER = Receiver.runner()


def _start_of(body: Body) -> int:
    """Return the first number for a receiver without a window: this new data's, or lead + 1."""
    if isinstance(body, StreamData) and BodyFlag.REPAIR not in body.flags:
        return body.sqn
    return body.window.lead + 1
