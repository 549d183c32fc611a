"""Late join and off-transport recovery (OTR) at the receiver: messages from the source's history.

A receiver that joins late wants messages that the source sent before. A receiver whose transport
gave datagrams up wants their messages. The fetcher requests both over a TCP connection to the
source, the oldest first, with a limit of the messages requested at once (``FetchWindow``). The
shell makes the connection, which carries the frames of ``late_join_wire``.

By the table a connection is needed only while messages are wanted. Frames come in order or not at
all, so silence is a fault: after an interval the receiver repeats its requests, and the interval
doubles. The table does not contain whether messages are wanted: ``update`` checks this after every
input, and steps the table.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from sphtp.core.fsm import Alarms, Machine, Name, Row, Runner
from sphtp.core.serial import SerialNumber
from sphtp.core.stream.events import LossReason
from sphtp.core.stream.late_join_wire import (
    MOST_REQUESTS,
    MOST_SPANS,
    Answer,
    AskRequest,
    EndAnswer,
    FetchRequest,
    GoneAnswer,
    InfoAnswer,
    MessagesAnswer,
    RequestKey,
    decode_answer_untrusted,
    encode_ask,
    encode_fetch,
)
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.records import Record
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError


class FetchState(Name):
    """The states of a fetcher."""

    RESTING = "no message is wanted, and there is no connection"
    CALLING = "messages are wanted, and the connection is being made"
    WAITING = "the connection was refused or lost; another try comes later"
    TALKING = "connected, and replies are awaited"
    IDLE = "connected, and no message is wanted"
    LAST = "the session is over; fetches on as long as replies come"
    OVER = "fetches no messages any more"


class FetchEvent(Name):
    """The events of a fetcher."""

    WANTED = "messages are wanted, perhaps more than before"
    SATISFIED = "no message is wanted any more"
    CONNECTED = "the connection is open"
    DISCONNECTED = "the connection was refused, or lost"
    DUE = "the interval without a reply, or before another attempt, is over"
    EXHAUSTED = "no reply came within the fetch timeout"
    END = "the session is over"


class FetchAction(Name):
    """The actions of a fetcher."""

    START = "start the fetch timeout"
    ASK = "send requests up to the limit"
    ASK_AGAIN = "mark all requests as not sent"
    BACK_OFF = "wait for an interval, which doubles"
    GIVE_UP = "report that the wanted messages are lost"
    FORGO = "report that the wanted messages are lost with the session"
    STOP = "stop all timers, and mark no message as requested; late replies still count"


S, E, A = FetchState, FetchEvent, FetchAction

FETCH = Machine(
    "Fetcher",
    S.RESTING,
    (
        Row(S.RESTING, E.WANTED, S.CALLING, (A.START,), "the history has them"),
        Row(S.RESTING, E.CONNECTED, S.IDLE, (), "the messages came by another way"),
        Row(S.RESTING, E.END, S.OVER, (), "without a connection, no more is fetched"),
        Row(S.CALLING, E.CONNECTED, S.TALKING, (A.ASK_AGAIN, A.ASK), "requests can be sent"),
        Row(S.CALLING, E.DISCONNECTED, S.WAITING, (A.BACK_OFF,), "the failure may be temporary"),
        Row(S.CALLING, E.SATISFIED, S.RESTING, (A.STOP,), "the messages came by another way"),
        Row(S.CALLING, E.EXHAUSTED, S.RESTING, (A.GIVE_UP, A.STOP), "the source does not reply"),
        Row(S.CALLING, E.END, S.OVER, (A.FORGO, A.STOP), "the source is gone"),
        Row(S.WAITING, E.DUE, S.CALLING, (), "a further attempt"),
        Row(S.WAITING, E.SATISFIED, S.RESTING, (A.STOP,), "the messages came by another way"),
        Row(S.WAITING, E.EXHAUSTED, S.RESTING, (A.GIVE_UP, A.STOP), "the source does not reply"),
        Row(S.WAITING, E.END, S.OVER, (A.FORGO, A.STOP), "the source is gone"),
        Row(S.TALKING, E.WANTED, S.TALKING, (A.ASK,), "keep the window full"),
        Row(S.TALKING, E.SATISFIED, S.IDLE, (A.STOP,), "all messages came, or are lost"),
        Row(S.TALKING, E.DISCONNECTED, S.WAITING, (A.BACK_OFF,), "the failure may be temporary"),
        Row(S.TALKING, E.DUE, S.TALKING, (A.BACK_OFF, A.ASK_AGAIN, A.ASK), "no reply came"),
        Row(S.TALKING, E.EXHAUSTED, S.IDLE, (A.GIVE_UP, A.STOP), "the source does not reply"),
        Row(S.TALKING, E.END, S.LAST, (), "the history may outlive the session"),
        Row(S.IDLE, E.WANTED, S.TALKING, (A.START, A.ASK), "the history has them"),
        Row(S.IDLE, E.DISCONNECTED, S.RESTING, (), "the connection is not needed"),
        Row(S.IDLE, E.END, S.LAST, (), "more messages may be missing now"),
        Row(S.LAST, E.WANTED, S.LAST, (A.ASK,), "keep the window full"),
        Row(S.LAST, E.SATISFIED, S.OVER, (A.STOP,), "all messages came, or are lost"),
        Row(S.LAST, E.DISCONNECTED, S.OVER, (A.FORGO, A.STOP), "the history is gone"),
        Row(S.LAST, E.DUE, S.OVER, (A.FORGO, A.STOP), "the history is gone"),
        Row(S.LAST, E.EXHAUSTED, S.OVER, (A.FORGO, A.STOP), "the history is gone"),
    ),
    events=FetchEvent,
    final=frozenset({S.OVER}),
    refused={
        S.RESTING: frozenset({E.SATISFIED, E.DISCONNECTED, E.DUE, E.EXHAUSTED}),
        S.CALLING: frozenset({E.WANTED, E.DUE}),
        S.WAITING: frozenset({E.WANTED, E.CONNECTED, E.DISCONNECTED}),
        S.TALKING: frozenset({E.CONNECTED}),
        S.IDLE: frozenset({E.SATISFIED, E.CONNECTED, E.DUE, E.EXHAUSTED}),
        S.LAST: frozenset({E.CONNECTED, E.END}),
        S.OVER: frozenset(FetchEvent),
    },
)


class FetchWindow:
    """The requested messages of ``wanted``, at most ``size``; a request expires after ``timeout``.

    Times are in seconds. Messages that are no longer wanted leave the window.
    """

    __slots__ = ("_asked", "_expiries", "_size", "_timeout", "_wanted")

    def __init__(self, wanted: RangeSet, size: int, timeout: float) -> None:
        self._wanted = wanted
        self._size = size
        self._timeout = timeout
        self._asked = RangeSet()
        self._expiries = deque[tuple[float, Span]]()

    @property
    def next_due(self) -> float | None:
        """The time at which the first request expires that is still wanted; None without one."""
        while self._expiries and not self._wanted.within(*self._expiries[0][1]):
            self._expiries.popleft()
        return self._expiries[0][0] if self._expiries else None

    def fill(self, now: float) -> list[Span]:
        """Return the numbers to request now: none while more than half of a window is requested."""
        held = [part for span in self._asked for part in self._wanted.within(*span)]
        self._asked = RangeSet(held)
        number = self._asked.total
        # At least half a window at once, so that there are fewer requests than messages.
        if 2 * number > self._size:
            return []
        spans = self._choose(self._size - number)
        for span in spans:
            self._asked.add(*span)
            self._expiries.append((now + self._timeout, span))
        return spans

    def expire(self, now: float) -> list[Span]:
        """Remove and return the numbers whose requests have expired."""
        expired = list[Span]()
        while (due := self.next_due) is not None and due <= now:
            expired.append(self._expiries.popleft()[1])
        return expired

    def postpone(self, seconds: float) -> None:
        """Let all requests expire later by ``seconds``."""
        self._expiries = deque((due + seconds, span) for due, span in self._expiries)

    def open(self) -> None:
        """Mark all numbers as not requested. Their requests still expire at the same times."""
        self._asked.clear()

    def clear(self) -> None:
        """Remove all numbers and their times."""
        self._asked.clear()
        self._expiries.clear()

    def _choose(self, room: int) -> list[Span]:
        spans = list[Span]()
        for wanted in self._wanted:
            for first, last in self._asked.without(*wanted):
                spans.append(Span(first, min(last, first + room - 1)))
                room -= spans[-1].size
                if not room or len(spans) == MOST_SPANS:
                    return spans
        return spans


MOST_DOUBLED: Final = 10
"""The longest wait before requests are repeated, in fetch intervals."""


RESUME_TIME: Final = 0.1
"""Seconds that a timer gains when the reader is hungry again, to read the replies that waited."""


class HistoryStart(NamedTuple):
    """The lowest number in the history."""

    first: int


class NoHistory(NamedTuple):
    """The failure to get the lowest number in the history, for this reason."""

    reason: LossReason


class FetchedRecord(NamedTuple):
    """A record from the history."""

    record: Record


class FetchFailure(NamedTuple):
    """Numbers that cannot be fetched, and the reason."""

    span: Span
    reason: LossReason


Outcome = HistoryStart | NoHistory | FetchedRecord | FetchFailure


_NUMBER: Final = SerialNumber(32)

_CONNECTED: Final = frozenset({FetchState.CALLING, FetchState.TALKING, FetchState.LAST})


@dataclass(frozen=True, slots=True)
class FetchStatistics:
    """A snapshot of a fetcher.

    It made ``requests``, also repeated ones, and received ``frames`` in reply. ``failures`` counts
    connections that were refused or lost. ``unasked`` frames belonged to no request, and
    ``malformed`` ones could not be decoded; both were dropped.
    """

    requests: int
    frames: int
    failures: int
    unasked: int
    malformed: int


class Fetcher:
    """Late join and off-transport recovery of one topic: fetches the numbers in ``wanted``.

    Other objects change that set, and ``update`` reads it. With ``late_join`` the fetcher first
    requests the bounds of the history. Times are in seconds.
    """

    def __init__(
        self,
        settings: StreamSettings,
        session: int,
        topic: int,
        wanted: RangeSet,
        *,
        late_join: bool = False,
    ) -> None:
        self.state = FETCH.initial
        self._settings = settings
        self._session = session
        self._topic = topic
        self._wanted = wanted
        self._late_join = late_join
        # The time since which the reader is not hungry, so that no timer runs.
        self._paused_at: float | None = None
        self._number = 0
        # The numbers of the requests on this connection for which neither END nor INFO has come.
        self._open = set[int]()
        self._window = FetchWindow(wanted, settings.fetch_window, settings.fetch_timeout)
        self._tries = 0
        # DUE, to repeat requests or to connect again, and EXHAUSTED, to give up.
        self._alarms = Alarms[FetchEvent]()
        self._frames = deque[bytes]()
        self._outcomes = deque[Outcome]()
        self._requests = self._came = self._failures = self._unasked = self._malformed = 0

    @property
    def wants_connection(self) -> bool:
        """True if the connection is needed. The shell may close one that is not needed."""
        return self.state in _CONNECTED

    def statistics(self) -> FetchStatistics:
        """Return the counts since the fetcher was made."""
        return FetchStatistics(
            self._requests, self._came, self._failures, self._unasked, self._malformed
        )

    # Inputs

    def update(self, now: float, *, is_hungry: bool = True) -> None:
        """Adapt to the set of wanted numbers; call it after every input and its outcomes.

        Unless the reader ``is_hungry``, the fetcher sends no requests for messages, and its timers
        stand still: replies wait in the connection, which the shell does not read meanwhile.
        """
        if not is_hungry:
            self._paused_at = now if self._paused_at is None else self._paused_at
        elif self._paused_at is not None:
            self._resume(now - self._paused_at + RESUME_TIME)
            self._paused_at = None
        is_wanting = self._wanted or self._late_join
        self._step(now, FetchEvent.WANTED if is_wanting else FetchEvent.SATISFIED)

    def end(self, now: float) -> None:
        """End the session. The fetcher continues only if it is connected, while replies come."""
        self._begin(NoHistory(LossReason.SESSION_END))
        self._step(now, FetchEvent.END)

    def handle_connected(self, now: float) -> None:
        """Note that the shell has opened the connection."""
        self._step(now, FetchEvent.CONNECTED)

    def handle_disconnected(self, now: float) -> None:
        """Note that the connection was refused, lost, or closed because it was not wanted."""
        self._failures += self.wants_connection
        self._frames.clear()
        self._open.clear()
        self._step(now, FetchEvent.DISCONNECTED)

    def handle_frame_untrusted(self, now: float, frame: bytes) -> None:
        """Take a frame from the connection. A malformed one is dropped and counted."""
        try:
            answer = decode_answer_untrusted(frame)
        except RemoteError:
            self._malformed += 1
            return
        if not self._is_asked(answer):
            self._unasked += 1
            return
        self._came += 1
        if isinstance(answer, EndAnswer):
            # Messages without a reply are not sent yet: they are requested again after an interval.
            self._open.discard(answer.request_key.number)
            return
        self._tries = 0
        self._alarms.move(FetchEvent.DUE, now + self._settings.fetch_interval)
        self._alarms.move(FetchEvent.EXHAUSTED, now + self._settings.fetch_timeout)
        match answer:
            case InfoAnswer():
                # It is the whole reply: no END follows.
                self._open.discard(answer.request_key.number)
                self._begin(HistoryStart(answer.low))
            case MessagesAnswer():
                self._outcomes.append(FetchedRecord(answer.record))
            case GoneAnswer():
                self._outcomes.append(FetchFailure(answer.span, LossReason.GONE))

    def handle_timeout(self, now: float) -> None:
        """Repeat requests without a reply, and report messages whose requests have expired."""
        if self._paused_at is not None:
            return
        while (event := self._alarms.take(now)) is not None:
            self._step(now, event)
        for span in self._window.expire(now):
            self._outcomes.append(FetchFailure(span, LossReason.FETCH_TIMEOUT))

    # Outputs

    def poll_transmit(self) -> bytes | None:
        """Return the next frame to send over the connection; None if none waits."""
        return self._frames.popleft() if self._frames else None

    def poll_outcome(self) -> Outcome | None:
        """Return the next outcome of a request; None if none waits."""
        return self._outcomes.popleft() if self._outcomes else None

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if no timer runs."""
        if self._paused_at is not None:
            return None
        return earliest(self._alarms.due, self._window.next_due)

    # Replies of the source

    def _is_asked(self, answer: Answer) -> bool:
        session, topic, number = answer.request_key
        is_ours = session == self._session and topic == self._topic
        return is_ours and number in self._open

    def _begin(self, beginning: HistoryStart | NoHistory) -> None:
        if self._late_join:
            self._late_join = False
            self._outcomes.append(beginning)

    # Actions of the table

    def _resume(self, seconds: float) -> None:
        for event in self._alarms.pending():
            self._alarms.postpone(event, seconds)
        self._window.postpone(seconds)

    def _step(self, now: float, event: FetchEvent) -> None:
        _RUNNER.step(self, event, now)

    def _start(self, now: float) -> None:
        self._tries = 0
        self._alarms.set(FetchEvent.EXHAUSTED, now + self._settings.fetch_timeout)

    def _ask(self, now: float) -> None:
        if not self._late_join:
            self._fetch(now)
        elif not self._open:
            self._frames.append(encode_ask(AskRequest(self._request_key())))
        if FetchEvent.DUE not in self._alarms.pending():
            self._alarms.set(FetchEvent.DUE, now + self._settings.fetch_interval)

    def _fetch(self, now: float) -> None:
        if self._paused_at is not None or len(self._open) >= MOST_REQUESTS:
            return
        if spans := self._window.fill(now):
            self._frames.append(encode_fetch(FetchRequest(self._request_key(), spans)))

    def _request_key(self) -> RequestKey:
        self._number = _NUMBER.wrap(self._number + 1)
        self._open.add(self._number)
        self._requests += 1
        return RequestKey(self._session, self._topic, self._number)

    def _ask_again(self, _: float) -> None:
        self._window.open()
        if self._late_join:
            self._open.clear()

    def _back_off(self, now: float) -> None:
        wait = self._settings.fetch_interval * min(2**self._tries, MOST_DOUBLED)
        self._alarms.set(FetchEvent.DUE, now + wait)
        self._tries += 1

    def _give_up(self, _: float) -> None:
        self._miss(LossReason.FETCH_TIMEOUT)

    def _forgo(self, _: float) -> None:
        self._miss(LossReason.SESSION_END)

    def _miss(self, reason: LossReason) -> None:
        self._begin(NoHistory(reason))
        self._outcomes.extend(FetchFailure(span, reason) for span in self._wanted)

    def _stop(self, _: float) -> None:
        self._alarms.clear()
        self._window.clear()

    @classmethod
    def runner(cls) -> Runner[FetchState, FetchEvent, FetchAction]:
        return Runner(
            FETCH,
            {
                FetchAction.START: cls._start,
                FetchAction.ASK: cls._ask,
                FetchAction.ASK_AGAIN: cls._ask_again,
                FetchAction.BACK_OFF: cls._back_off,
                FetchAction.GIVE_UP: cls._give_up,
                FetchAction.FORGO: cls._forgo,
                FetchAction.STOP: cls._stop,
            },
            ignored=FetchEvent,
        )


_RUNNER = Fetcher.runner()
