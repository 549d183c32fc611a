"""Late join and off-transport recovery at the receiver: asks the source's history for messages.

Oldest first, a window ahead, over a connection that the shell makes and that carries the frames of
``sphtp.core.stream.fetch.wire``.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sphtp.core.fsm import Alarms, Runner
from sphtp.core.serial import SerialNumber
from sphtp.core.stream.events import LossReason
from sphtp.core.stream.fetch.table import FETCH, Do, Fetched, Fetching
from sphtp.core.stream.fetch.window import FetchWindow
from sphtp.core.stream.fetch.wire import (
    MOST_REQUESTS,
    Answer,
    Ask,
    Done,
    Fetch,
    Gone,
    Info,
    Msg,
    Question,
    decode_answer_untrusted,
    encode_ask,
    encode_fetch,
)
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.records import Record
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.timers import earliest
from sphtp.errors import RemoteError

MOST_DOUBLED: Final = 10
"""How many intervals the longest wait takes."""


class Known(NamedTuple):
    """The history begins at ``first``; None when nobody told."""

    first: int | None


class Came(NamedTuple):
    """Messages of the history."""

    record: Record


class Missed(NamedTuple):
    """What of these is wanted cannot be fetched."""

    span: Span
    reason: LossReason


Outcome = Known | Came | Missed


_NUMBER: Final = SerialNumber(32)

_CONNECTED: Final = frozenset({Fetching.CALLING, Fetching.TALKING, Fetching.LAST})


@dataclass(frozen=True, slots=True)
class FetchStatistics:
    """``requests`` went out, and ``frames`` came that answer them.

    ``failures`` are connections refused or lost. ``unasked`` frames answer nothing that was asked,
    ``malformed`` ones make no sense.
    """

    requests: int
    frames: int
    failures: int
    unasked: int
    malformed: int


class Fetcher:
    """Fetches what is ``wanted``, a set that others change and that is looked at in ``update``.

    After a ``late_join`` it first asks what there is. Times in seconds.
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
        self._is_hungry = True
        self._number = 0
        # The numbers of the questions of this connection that have no END yet.
        self._open = set[int]()
        self._window = FetchWindow(wanted, settings.fetch_window, settings.fetch_timeout)
        self._tries = 0
        # Two: DUE, to ask again, and EXHAUSTED, to give up.
        self._alarms = Alarms[Fetched]()
        self._frames = deque[bytes]()
        self._outcomes = deque[Outcome]()
        self._requests = self._came = self._failures = self._unasked = self._malformed = 0
        self._hear: Mapping[type, Callable[[Any], None]] = {
            Info: self._hear_info,
            Msg: self._hear_msg,
            Gone: self._hear_gone,
        }

    @property
    def wants_connection(self) -> bool:
        """Whether there should be a connection; one that is not wanted may be closed."""
        return self.state in _CONNECTED

    def statistics(self) -> FetchStatistics:
        """Return the counts so far."""
        return FetchStatistics(
            self._requests, self._came, self._failures, self._unasked, self._malformed
        )

    # Inputs

    def update(self, now: float, *, is_hungry: bool = True) -> None:
        """Look at what is wanted; due after every input, when its outcomes have been heeded.

        Nothing more is asked for, and nothing gets too old, unless the reader ``is_hungry``.
        """
        self._is_hungry = is_hungry
        is_wanting = self._wanted or self._late_join
        self._step(now, Fetched.WANTED if is_wanting else Fetched.SATISFIED)

    def end(self, now: float) -> None:
        """The session is over: go on only where answers are coming."""
        self._know(None)
        self._step(now, Fetched.END)

    def handle_connected(self, now: float) -> None:
        """The shell has made the connection that was wanted."""
        self._step(now, Fetched.CONNECTED)

    def handle_disconnected(self, now: float) -> None:
        """The connection was refused, lost, or closed because it was not wanted."""
        self._failures += self.wants_connection
        self._frames.clear()
        self._open.clear()
        self._step(now, Fetched.DISCONNECTED)

    def handle_frame_untrusted(self, now: float, frame: bytes) -> None:
        """Take a frame that came over the connection; one that makes no sense is counted."""
        try:
            answer = decode_answer_untrusted(frame)
        except RemoteError:
            self._malformed += 1
            return
        if not self._is_asked(answer):
            self._unasked += 1
            return
        self._came += 1
        if isinstance(answer, Done):
            # What did not come was yet to be sent: it is asked for again after an interval.
            self._open.discard(answer.question.number)
            return
        self._tries = 0
        self._alarms.move(Fetched.DUE, now + self._settings.fetch_interval)
        self._alarms.move(Fetched.EXHAUSTED, now + self._settings.fetch_timeout)
        self._hear[type(answer)](answer)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        while (event := self._alarms.take(now)) is not None:
            if self._is_hungry:
                self._step(now, event)
            else:
                self._alarms.set(event, now + self._settings.fetch_interval)
        for span in self._window.expire(now):
            self._outcomes.append(Missed(span, LossReason.FETCH_TIMEOUT))

    # Outputs

    def poll_transmit(self) -> bytes | None:
        """Return the next frame to send over the connection; None when there is none."""
        return self._frames.popleft() if self._frames else None

    def poll_outcome(self) -> Outcome | None:
        """Return what became of what was wanted; None when there is no news."""
        return self._outcomes.popleft() if self._outcomes else None

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` has something to do."""
        return earliest(self._alarms.next_due(), self._window.next_due)

    # What the source answers

    def _is_asked(self, answer: Answer) -> bool:
        session, topic, number = answer.question
        is_ours = session == self._session and topic == self._topic
        return is_ours and number in self._open

    def _hear_info(self, info: Info) -> None:
        self._know(info.low)

    def _hear_msg(self, msg: Msg) -> None:
        self._outcomes.append(Came(msg.record))

    def _hear_gone(self, gone: Gone) -> None:
        self._outcomes.append(Missed(gone.span, LossReason.GONE))

    def _know(self, first: int | None) -> None:
        if self._late_join:
            self._late_join = False
            self._outcomes.append(Known(first))

    # What the table does

    def _step(self, now: float, event: Fetched) -> None:
        self._RUNNER.step(self, event, now)

    def _start(self, now: float) -> None:
        self._tries = 0
        self._alarms.set(Fetched.EXHAUSTED, now + self._settings.fetch_timeout)

    def _ask(self, now: float) -> None:
        if not self._late_join:
            self._fetch(now)
        elif not self._open:
            self._frames.append(encode_ask(Ask(self._question())))
        if Fetched.DUE not in self._alarms.pending():
            self._alarms.set(Fetched.DUE, now + self._settings.fetch_interval)

    def _fetch(self, now: float) -> None:
        if not self._is_hungry or len(self._open) >= MOST_REQUESTS:
            return
        if spans := self._window.fill(now):
            self._frames.append(encode_fetch(Fetch(self._question(), spans)))

    def _question(self) -> Question:
        self._number = _NUMBER.wrap(self._number + 1)
        self._open.add(self._number)
        self._requests += 1
        return Question(self._session, self._topic, self._number)

    def _ask_again(self, _: float) -> None:
        self._window.open()
        if self._late_join:
            self._open.clear()

    def _back_off(self, now: float) -> None:
        wait = self._settings.fetch_interval * min(2**self._tries, MOST_DOUBLED)
        self._alarms.set(Fetched.DUE, now + wait)
        self._tries += 1

    def _give_up(self, _: float) -> None:
        self._miss(LossReason.FETCH_TIMEOUT)

    def _forgo(self, _: float) -> None:
        self._miss(LossReason.SESSION_END)

    def _miss(self, reason: LossReason) -> None:
        self._know(None)
        self._outcomes.extend(Missed(span, reason) for span in self._wanted)

    def _stop(self, _: float) -> None:
        self._alarms.clear()
        self._window.clear()

    _RUNNER = Runner(
        FETCH,
        {
            Do.START: _start,
            Do.ASK: _ask,
            Do.ASK_AGAIN: _ask_again,
            Do.BACK_OFF: _back_off,
            Do.GIVE_UP: _give_up,
            Do.FORGO: _forgo,
            Do.STOP: _stop,
        },
        ignored=Fetched,
    )
