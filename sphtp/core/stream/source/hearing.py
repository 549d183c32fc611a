"""Hearing NAKs: what of one is listened to, and what follows from the rest.

What was never sent is invalid. What is no longer in the window is not answered, but the window's
trail is told again, at most once per ignore interval, so that receivers give up early. What goes
over its receiver's budget is left out, the newest first: it will be asked for again.
"""

from collections import deque
from collections.abc import Sequence

from sphtp.core.stream.bodies import Nak, Status
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source.audience import Audience, Listener
from sphtp.core.stream.source.counters import SourceCounters
from sphtp.core.stream.source.events import Crybaby, SourceEvent
from sphtp.core.stream.source.repair_desk import RepairDesk
from sphtp.core.stream.source.session_schedule import SessionSchedule
from sphtp.core.stream.source.window import TransmissionWindow
from sphtp.core.stream.wire import decode_feedback_untrusted
from sphtp.errors import RemoteError


class Hearing:
    """Turns NAKs of receivers into repairs of a window."""

    def __init__(
        self,
        settings: StreamSettings,
        window: TransmissionWindow,
        audience: Audience,
        desk: RepairDesk,
        sessions: SessionSchedule,
        counters: SourceCounters,
        events: deque[SourceEvent],
    ) -> None:
        self._report_interval = settings.generation
        self._window = window
        self._audience = audience
        self._desk = desk
        self._sessions = sessions
        self._counters = counters
        self._events = events

    def handle_feedback_untrusted(self, now: float, receiver: int, body: bytes) -> Status | None:
        """Take what a receiver says; return it if it is a STATUS."""
        counters = self._counters
        listener = self._audience.find(receiver)
        if listener is None:
            counters.feedback_foreign += 1
            return None
        try:
            said = self._read_untrusted(body)
        except RemoteError:
            counters.feedback_invalid += 1
            return None
        if isinstance(said, Status):
            return said
        self._hear_nak(now, receiver, listener, said.spans)
        return None

    def _hear_nak(
        self, now: float, receiver: int, listener: Listener, spans: Sequence[Span]
    ) -> None:
        counters = self._counters
        counters.nak_packets_received += 1
        self._window.expire(now)
        for span in spans:
            counters.naks_received += span.size
            self._hear(now, receiver, listener, span)

    def _read_untrusted(self, body: bytes) -> Nak | Status:
        lead = self._window.lead
        said = decode_feedback_untrusted(body, lead)
        last = said.lead if isinstance(said, Status) else said.spans[-1].last
        if last > lead:
            raise RemoteError(f"datagram {last} was not sent; the lead is {lead}")
        return said

    def _hear(self, now: float, receiver: int, listener: Listener, span: Span) -> None:
        trail = self._window.trail
        inside = Span(max(span.first, trail), span.last)
        if span.first < trail:
            self._counters.naks_out_of_window += min(span.last + 1, trail) - span.first
            self._sessions.handle_out_of_window(now)
        if inside.size <= 0:
            return
        granted = listener.budget.take_up_to(now, inside.size)
        if granted:
            self._desk.ask(now, receiver, Span(inside.first, inside.first + granted - 1))
            self._sessions.handle_nak(now)
        if granted < inside.size:
            self._counters.naks_over_budget += inside.size - granted
            self._complain(now, receiver, listener)

    def _complain(self, now: float, receiver: int, listener: Listener) -> None:
        if listener.report(now, self._report_interval):
            self._counters.crybabies += 1
            self._events.append(Crybaby(receiver))
