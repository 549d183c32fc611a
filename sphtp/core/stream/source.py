"""The source of a stream: one transport session with its topics, repaired by NAK.

Messages are numbered and bundled into datagrams (``transmission``), which leave no faster than the
data rate (``rate_limit``) and no further ahead than the slowest receiver allows (``flow_control``).
They are kept in the transmission window (``transmission_window``). The source replies to NAKs with
repairs from the window, and with NCFs (``retransmission``). Session messages announce the window,
mostly while no data leaves (``transmission_window``). Messages are retained for late joiners
(``retention``).

The owner passes inputs. After each it calls ``poll_transmit`` until nothing may leave, and then
``poll_timeout``. The latest 1024 events wait for ``poll_event``.

The table is the life of a source. Data, repairs and session messages do not change its state,
except the first message, the last datagram and the last session message. A flag marks the session
messages of a source that ends: CLOSING means that it sends no new data, CLOSED that it has ended.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from sphtp.core.datagrams import MOST_DATAGRAMS, MOST_PLAIN
from sphtp.core.entropy import Secrets
from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.stream.events import ALL_RECEIVERS, OutgoingBodies, SourceClosed, SourceEvent
from sphtp.core.stream.flow_control import SHARE, FlowControl, ReceiverLag
from sphtp.core.stream.rate_limit import RateLimit
from sphtp.core.stream.retention import History
from sphtp.core.stream.retransmission import Retransmitter
from sphtp.core.stream.settings import OVERHEAD, StreamSettings
from sphtp.core.stream.statistics import SourceCounters, SourceStatistics, source_snapshot
from sphtp.core.stream.transmission import (
    WORTH_WAKING,
    MessageNumberer,
    PendingBodies,
    Transmission,
)
from sphtp.core.stream.transmission_window import SessionMessageSchedule, TransmissionWindow
from sphtp.core.stream.wire import (
    DATA_OVERHEAD,
    MOST_TAILS,
    BodyFlag,
    SessionMessage,
    StatusMessage,
    Window,
    decode_feedback_untrusted,
    encode_session,
)
from sphtp.core.timers import earliest
from sphtp.errors import LocalError, RemoteError, SettingsError


class SourceState(Name):
    """The states of a source."""

    IDLE = "has sent no data; announces its first number"
    ACTIVE = "sends and repairs; announces its tail when it is silent"
    DRAINING = "closed; waiting data still leaves"
    CLOSING = "all data has left; repairs for the linger"
    ENDING = "repairs no more; announces its end in a few session messages"
    CLOSED = "ended; sends nothing"


class SourceInput(Name):
    """The events of a source."""

    SEND = "the application sends"
    CLOSE = "the application closes"
    DRAINED = "the last datagram has left"
    DONE = "every receiver has reported all data and the end, and fetches no history"
    LINGER_OVER = "the linger is over"
    SENT = "the last session message has left"


class SourceAction(Name):
    """The actions of a source."""

    LINGER = "start the timer of the linger; send session messages at the minimum interval"
    FINISH = "drop repairs, wait for no receiver, and start the last session messages"
    REPORT = "report the end to the application, with the number of unconfirmed datagrams"


S, E, A = SourceState, SourceInput, SourceAction

SOURCE: Final = Machine(
    "Source",
    S.IDLE,
    (
        Row(S.IDLE, E.SEND, S.ACTIVE, (), "from now on receivers can miss data"),
        Row(S.IDLE, E.CLOSE, S.ENDING, (A.FINISH,), "no data was sent, so none can be missing"),
        Row(S.ACTIVE, E.SEND, S.ACTIVE, (), "a source may send any number of datagrams"),
        Row(S.ACTIVE, E.CLOSE, S.DRAINING, (), "closing must not lose data"),
        Row(S.DRAINING, E.CLOSE, S.DRAINING, (), "it is closing already"),
        Row(S.DRAINING, E.DRAINED, S.CLOSING, (A.LINGER,), "the tail is final now"),
        Row(S.CLOSING, E.CLOSE, S.CLOSING, (), "it is closing already"),
        Row(S.CLOSING, E.DONE, S.ENDING, (A.FINISH,), "no receiver needs a repair any more"),
        Row(S.CLOSING, E.LINGER_OVER, S.ENDING, (A.FINISH,), "there are no more repairs"),
        Row(S.ENDING, E.CLOSE, S.ENDING, (), "it is closing already"),
        Row(S.ENDING, E.SENT, S.CLOSED, (A.REPORT,), "receivers that missed them time out"),
        Row(S.CLOSED, E.CLOSE, S.CLOSED, (), "it is closed"),
    ),
    events=SourceInput,
    final=frozenset({S.CLOSED}),
    refused={
        S.IDLE: frozenset({E.DRAINED, E.DONE, E.LINGER_OVER, E.SENT}),
        S.ACTIVE: frozenset({E.DRAINED, E.DONE, E.LINGER_OVER, E.SENT}),
        S.DRAINING: frozenset({E.SEND, E.DONE, E.LINGER_OVER, E.SENT}),
        S.CLOSING: frozenset({E.SEND, E.DRAINED, E.SENT}),
        S.ENDING: frozenset({E.SEND, E.DRAINED, E.DONE, E.LINGER_OVER}),
        S.CLOSED: frozenset({E.SEND, E.DRAINED, E.DONE, E.LINGER_OVER, E.SENT}),
    },
)

TAKES_FEEDBACK: Final = frozenset({S.IDLE, S.ACTIVE, S.DRAINING, S.CLOSING})
"""The states in which the source handles NAKs and STATUS messages. A STATUS before the first data
already limits the source.
"""

ALL_SENT: Final = frozenset({S.CLOSING, S.ENDING, S.CLOSED})
"""The states in which no new data leaves any more."""

SESSION_FLAGS: Final = {S.CLOSING: BodyFlag.CLOSING, S.ENDING: BodyFlag.CLOSED}
"""The flags of session messages, by state."""


class SourceTransport:
    """A source of ``topics`` topics, whose first datagram has the sequence number ``first``.

    ``first`` is 1 or more. ``envelope`` is the size of header and seal in each datagram. With
    ``shared`` the receivers are a multicast group, and each datagram reaches all of them. Times are
    in seconds, sizes in bytes. Raises ``SettingsError`` unless there are 1 to 64 topics.
    """

    def __init__(
        self,
        secrets: Secrets,
        settings: StreamSettings,
        *,
        now: float,
        topics: int = 1,
        first: int = 1,
        envelope: int = 0,
        shared: bool = False,
    ) -> None:
        if not 1 <= topics <= MOST_TAILS:
            raise SettingsError(f"{topics} topics; allowed is 1 to {MOST_TAILS}")
        self.session = secrets.getrandbits(32) or 1
        """The number of the session, drawn at random; never 0."""
        self.history = History(settings, topics)
        """The messages that are kept for late join."""
        self.size = size = settings.max_datagram - envelope
        """The most bytes of a datagram's body."""
        self._settings = settings
        self.state = SOURCE.initial
        self.counters = counters = SourceCounters()
        self._numberer = MessageNumberer(topics, size - DATA_OVERHEAD, settings.max_message)
        self._pending_bodies = PendingBodies(topics, size - DATA_OVERHEAD, self._numberer.part)
        self._window = TransmissionWindow(first, settings.window, settings.window_age)
        # The window must have room for one datagram.
        reach = max(settings.flow_window, size + OVERHEAD) if settings.flow_window else 0
        self._flow = FlowControl(reach, settings.patience, settings.nak_budget, self._window)
        rate_limit = RateLimit(settings)
        self._transmission = Transmission(
            size,
            rate_limit,
            self._pending_bodies,
            self._window,
            self._flow,
            counters,
            is_long=settings.bandwidth_delay > 0,
        )
        self._sessions = SessionMessageSchedule(now, settings)
        self._events = deque[SourceEvent](maxlen=1024)
        self._retransmitter = Retransmitter(
            settings,
            size,
            rate_limit,
            self._window,
            self._sessions,
            counters,
            self._events,
            shared=shared,
        )
        self._batch = max(min(MOST_DATAGRAMS, MOST_PLAIN // size), 1)
        self._linger_over: float | None = None

    # Getters

    @property
    def is_closing(self) -> bool:
        """True if no new data will leave: ``tails`` and the lead in ``window`` are final."""
        return self.state in ALL_SENT

    @property
    def window(self) -> Window:
        """The datagrams that the source has sent and still holds."""
        return self._window.span

    @property
    def tails(self) -> Sequence[tuple[int, int]]:
        """Pairs of a topic and the number after its last message that left."""
        return tuple(self._pending_bodies.tails.items())

    @property
    def room(self) -> int:
        """Bytes of messages that ``send_many`` takes now. While it is not 0, any message fits."""
        return self._transmission.room

    @property
    def has_much_room(self) -> bool:
        """True if there is room enough to wake a sender that waits for room."""
        return self._transmission.room >= WORTH_WAKING

    @property
    def part(self) -> int:
        """Bytes of each fragment of a message but the last, also of those from the history."""
        return self._numberer.part

    @property
    def reach(self) -> int:
        """The most bytes by which the source may be ahead of a receiver; 0 sets no limit."""
        return self._flow.reach

    @property
    def unrepaired(self) -> int:
        """Number of datagrams that some receiver has not reported as received or given up."""
        return self._flow.unrepaired(self._window.lead)

    def end(self, topic: int) -> int:
        """Return the number after the last message of a topic, sent or waiting."""
        return self._numberer.next[topic]

    def begins(self, topic: int) -> int:
        """Return the number of the first message of a topic of which nothing has left."""
        return self._pending_bodies.begins(topic)

    def pace(self, now: float, receiver: int) -> ReceiverLag:
        """Return the lag of a receiver. Raises ``LocalError`` for an unknown receiver."""
        known = self._flow.find(receiver)
        if known is None:
            raise LocalError(f"there is no receiver {receiver}")
        return ReceiverLag(
            behind=max(self._window.lead - known.done, 0),
            room=known.room,
            silence=now - known.reported_at,
            is_left_behind=known.is_left_behind,
        )

    def statistics(self) -> SourceStatistics:
        """Return the counts of the session, and the present levels."""
        return source_snapshot(
            self.counters,
            window_datagrams=len(self._window),
            window_bytes=self._window.size,
            waiting_bytes=self._transmission.waiting,
            waiting_repairs=self._retransmitter.waiting,
            receivers=len(self._flow),
            left_behind=self._flow.left_behind,
        )

    # Commands

    def measure(self, payloads: Sequence[bytes]) -> list[int]:
        """Return the bytes of messages. Raises ``MessageTooLargeError`` as ``send_many``."""
        return self._numberer.measure(payloads)

    def send_many(self, now: float, topic: int, payloads: Sequence[bytes]) -> int:
        """Queue messages, and return the number of the first one.

        Raises ``MessageTooLargeError`` if one is over ``max_message``, ``StateError`` after
        ``close``, and ``LocalError`` if there is no room or no such topic. Then none is queued.
        """
        lengths = self._check(topic, payloads)
        self._step(now, SourceInput.SEND)
        first = self._numberer.next[topic]
        for numbered in self._numberer.number(topic, payloads, lengths):
            self._transmission.add(now, topic, numbered)
            self.history.add(now, topic, numbered)
        self._ask_for_reports(now)
        self.counters.messages_sent += len(payloads)
        return first

    def close(self, now: float) -> None:
        """Close the source: no new messages are accepted, but waiting ones still leave.

        Then it sends repairs until all receivers have reported all data and the end, and fetch no
        more history, for the linger at most.
        """
        self._step(now, SourceInput.CLOSE)
        self._progress(now)

    # Inputs

    def handle_joined(self, now: float, receiver: int, settled: int | None = None) -> None:
        """Add a receiver, which gets the datagrams after the lead of the present window.

        A receiver that rejoins has received or given up all datagrams up to ``settled``.
        """
        lead = self._window.lead
        self._flow.join(now, receiver, lead, settled)
        self._sessions.handle_joined(now)

    def handle_left(self, now: float, receiver: int) -> None:
        """Remove a receiver."""
        self._flow.leave(receiver)
        self._retransmitter.leave(receiver)
        self._update(now)
        self._progress(now)

    def handle_feedback_untrusted(self, now: float, receiver: int, body: bytes) -> None:
        """Take a NAK or a STATUS of a receiver.

        It is dropped and counted if it is malformed, names a datagram that was never sent, comes
        from an unknown receiver, or comes after the end.
        """
        counters, lead = self.counters, self._window.lead
        known = self._flow.find(receiver)
        if self.state not in TAKES_FEEDBACK or known is None:
            counters.feedback_foreign += 1
            return
        try:
            feedback = decode_feedback_untrusted(body, lead)
        except RemoteError:
            counters.feedback_invalid += 1
            return
        named = feedback.lead if isinstance(feedback, StatusMessage) else feedback.spans[-1].last
        if named > lead:
            # The source has never sent a datagram with this number.
            counters.feedback_invalid += 1
        elif isinstance(feedback, StatusMessage):
            self._flow.handle_status(now, receiver, feedback)
            self._update(now)
            self._progress(now)
        else:
            self._retransmitter.handle_nak(now, receiver, known, feedback.spans)

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due."""
        self._flow.expire(now)
        self._update(now)
        if self._linger_over is not None and now >= self._linger_over:
            self._step(now, SourceInput.LINGER_OVER)

    # Outputs

    def poll_transmit(self, now: float) -> OutgoingBodies | None:
        """Return a batch of bodies that leaves next; None if none may leave now.

        Repeated calls return a batch of NCFs and repairs for each receiver for which some may
        leave, then a batch of a session message and new data for all receivers, and so on.
        """
        outgoing = self._retransmitter.poll(now, self._batch) or self._poll_for_all(now)
        # When the retransmitter returns None, it has begun another round.
        return outgoing or self._retransmitter.poll(now, self._batch)

    def poll_timeout(self) -> float | None:
        """Return the time by which to call ``handle_timeout`` and ``poll_transmit``; None if no
        timer is set.
        """
        return earliest(
            self._transmission.ready,
            self._retransmitter.ready,
            self._flow.due,
            self._sessions.due,
            self._linger_over,
        )

    def poll_event(self) -> SourceEvent | None:
        """Return the next event for the application; None if none waits."""
        return self._events.popleft() if self._events else None

    # Checks, new data and transitions

    def _check(self, topic: int, payloads: Sequence[bytes]) -> list[int]:
        """Return the lengths of messages. Raises the errors of ``send_many``, except StateError."""
        if topic not in self._pending_bodies.tails:
            raise LocalError(f"no topic {topic}; there are {len(self._pending_bodies.tails)}")
        if not self.room:
            waiting = self._transmission.waiting
            raise LocalError(f"{waiting} bytes wait to leave; wait until there is room")
        return self._numberer.measure(payloads)

    def _poll_for_all(self, now: float) -> OutgoingBodies | None:
        """Return the next session message and new data; None if none may leave."""
        bodies, lead = list[bytes](), self._window.lead
        number = self._sessions.poll(now)
        if number is not None:
            bodies.append(self._encode_announcement(now, number))
        bodies += self._transmission.poll(now, self._batch - len(bodies))
        if self._window.lead != lead:
            self._sessions.handle_data(now)
        self._ask_for_reports(now)
        self._progress(now)
        return OutgoingBodies(ALL_RECEIVERS, bodies) if bodies else None

    def _update(self, now: float) -> None:
        """Update the time at which new data may leave, after a change in flow control."""
        self._transmission.update(now)
        self._ask_for_reports(now)

    def _ask_for_reports(self, now: float) -> None:
        if (since := self._flow.awaited_since) is not None:
            self._sessions.handle_awaited(now, since, self._settings.patience / SHARE)

    def _encode_announcement(self, now: float, number: int) -> bytes:
        # Without new data and requests, nothing else drops datagrams and messages that are too old.
        self._window.expire(now)
        self.history.expire(now)
        self.counters.sessions_sent += 1
        flags = SESSION_FLAGS.get(self.state, BodyFlag.NONE)
        return encode_session(SessionMessage(flags, self.window, number, self.tails))

    def _progress(self, now: float) -> None:
        """Step the table if its state waits for no further data, report or session message."""
        if self.state is SourceState.DRAINING and not self._transmission.waiting:
            self._step(now, SourceInput.DRAINED)
        if self.state is SourceState.CLOSING and self._flow.is_done(self._window.lead):
            self._step(now, SourceInput.DONE)
        if self.state is SourceState.ENDING and self._sessions.due is None:
            self._step(now, SourceInput.SENT)

    def _step(self, now: float, event: SourceInput) -> None:
        _RUNNER.step(self, event, now)

    def _linger(self, now: float) -> None:
        self._linger_over = now + self._settings.linger
        self._sessions.close(now)

    def _finish(self, now: float) -> None:
        self._linger_over = None
        self._retransmitter.clear()
        self._flow.close()
        self._sessions.finish(now)

    def _report(self, _now: float) -> None:
        self._events.append(SourceClosed(self.unrepaired))

    @classmethod
    def runner(cls) -> Runner[SourceState, SourceInput, SourceAction]:
        return Runner(
            SOURCE,
            {
                SourceAction.LINGER: cls._linger,
                SourceAction.FINISH: cls._finish,
                SourceAction.REPORT: cls._report,
            },
            raised=SourceInput,
        )


_RUNNER = SourceTransport.runner()
