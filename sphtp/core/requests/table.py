"""The requests of both sides on one channel, and the end of the channel.

Theory of operation. Both sides of a channel send requests on it. Each request holds its number
until its one answer, REPLY or ERROR, has arrived. A caller that stops waiting sends a CANCEL, and
drops the answer when it comes: the request keeps its place until then. So both sides agree on the
number of open requests, ``MOST_REQUESTS`` at most in each direction. A caller waits for a place
before it sends, and the channel of a peer that sends more is aborted. On the serving side, a
request is open until its answer has left. So a peer that sends REQUEST and CANCEL by turns, and
reads no answer, has no more requests open than a peer that sends only REQUEST.

A channel that was idle for ``IDLE`` seconds is closed by a handshake, since either side may be
about to use it again. If both sides opened a channel at once, one of the two is closed in the same
way, as soon as no request is open on it (``retire``). The sender of a GOODBYE sends no more
requests on the channel. Its receiver sends its own GOODBYE as soon as all its requests have an
answer. After both GOODBYEs and the last answer, either side may close. A request that crosses a
GOODBYE is handled like any other; the next one takes a new channel.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.requests.wire import (
    CancelMessage,
    ErrorMessage,
    ErrorReason,
    GoodbyeMessage,
    Message,
    ReplyMessage,
    RequestMessage,
    decode_message_untrusted,
    encode_message,
    lane_for,
)
from sphtp.errors import RemoteError, StateError

MOST_REQUESTS: Final = 1024
"""The most open requests of one side on one channel. Both sides count them."""

IDLE: Final = 30.0
"""Seconds without an open request, in either direction, after which a side sends GOODBYE."""


@dataclass(slots=True)
class RequestStatistics:
    """Counts of requests since the start, of this side and of its peers."""

    sent: int = 0
    """Requests that left."""
    replies: int = 0
    """Replies to requests of this side that came while the caller waited."""
    errors: int = 0
    """Errors that came in place of a reply while the caller waited."""
    cancelled: int = 0
    """Requests whose caller stopped waiting."""
    late: int = 0
    """Answers to cancelled requests, which were dropped."""
    lost: int = 0
    """Requests whose channel ended while the caller waited."""
    received: int = 0
    """Requests that came from peers."""
    answered: int = 0
    """Replies and errors that left for peers."""
    refused: int = 0
    """Errors to peers whose requests were not handled."""
    crashed: int = 0
    """Errors to peers because the handler raised an error other than ``RequestError``, or because
    its result, or the data of its ``RequestError``, could not be sent."""
    malformed: int = 0
    """Messages that are not allowed; each of them aborted its channel."""


class ChannelLost(NamedTuple):
    """Outcome: the channel ended before the answer. The peer may have handled the request."""

    text: str


class RequestArrived(NamedTuple):
    """Event: a peer's request. The owner answers it with ``reply``, or with ``fail``."""

    number: int
    name: str
    value: bytes
    time_left: float | None


class RequestCancelled(NamedTuple):
    """Event: a peer no longer needs the answer to a request, or its channel has ended.

    While the channel is open, the owner still has to answer the request.
    """

    number: int


class RequestSettled(NamedTuple):
    """Event: a request of this side has its answer, or its channel has ended.

    The event comes for cancelled requests, too.
    """

    number: int
    outcome: ReplyMessage | ErrorMessage | ChannelLost


Event = RequestArrived | RequestCancelled | RequestSettled


class Outgoing(NamedTuple):
    """A message that leaves in a lane; ``answers`` is the number of the request that it answers."""

    data: bytes
    lane: int
    answers: int | None = None


class ChannelUse(Name):
    """The states of a channel for requests."""

    OPEN = "both sides may send requests"
    LEAVING = "this side has sent GOODBYE"
    LEFT = "the peer has sent GOODBYE"
    DRAINING = "both sides have sent GOODBYE; open requests still get their answers"
    ENDED = "the channel has ended"


class UseEvent(Name):
    """The inputs of the table of a channel's use."""

    IDLE = "no request was open for a while; on a retired channel, no request is open"
    GOODBYE = "the peer sent GOODBYE"
    ANSWERED = "no request of this side is open"
    END = "the channel ended"


class UseAction(Name):
    """The actions of the table of a channel's use."""

    SEND_GOODBYE = "send GOODBYE"
    SETTLE_ALL = "settle this side's requests, and cancel the peer's"


_O, _E, _A = ChannelUse, UseEvent, UseAction

USE: Final = Machine(
    "requests on a channel",
    _O.OPEN,
    [
        Row(_O.OPEN, _E.IDLE, _O.LEAVING, (_A.SEND_GOODBYE,), "a channel costs both sides memory"),
        Row(_O.OPEN, _E.GOODBYE, _O.LEFT, (), "requests of this side may be open"),
        Row(_O.OPEN, _E.END, _O.ENDED, (_A.SETTLE_ALL,), "no answer comes"),
        Row(_O.LEAVING, _E.GOODBYE, _O.DRAINING, (), "neither side sends more requests"),
        Row(_O.LEAVING, _E.END, _O.ENDED, (_A.SETTLE_ALL,), "no answer comes"),
        Row(_O.LEFT, _E.ANSWERED, _O.DRAINING, (_A.SEND_GOODBYE,), "the peer waits for GOODBYE"),
        Row(_O.LEFT, _E.END, _O.ENDED, (_A.SETTLE_ALL,), "no answer comes"),
        Row(_O.DRAINING, _E.END, _O.ENDED, (_A.SETTLE_ALL,), "no answer comes"),
    ],
    events=UseEvent,
    final=frozenset({_O.ENDED}),
    refused={
        _O.OPEN: frozenset({_E.ANSWERED}),
        _O.LEAVING: frozenset({_E.IDLE, _E.ANSWERED}),
        _O.LEFT: frozenset({_E.IDLE, _E.GOODBYE}),
        _O.DRAINING: frozenset({_E.IDLE, _E.GOODBYE, _E.ANSWERED}),
        _O.ENDED: frozenset(UseEvent),
    },
)


@dataclass(slots=True)
class _Asked:
    """A request of this side."""

    lane: int
    is_awaited: bool = True


class RequestTable:
    """The requests of both sides on one channel. Times in seconds.

    After an input or a command, call ``poll_event`` and ``poll_transmit`` until they return None,
    and then ``poll_timeout``. Report each message of ``poll_transmit`` to ``handle_sent`` after it
    has left. The channel may be closed when ``is_over`` is True.
    """

    def __init__(self, now: float, counters: RequestStatistics, *, idle: float = IDLE) -> None:
        self.state = ChannelUse.OPEN
        self._counters = counters
        self._idle = idle
        self._used_at = now
        self._next = 0
        self._asked: dict[int, _Asked] = {}
        # The peer's requests: True if the owner still has to answer the request.
        self._received: dict[int, bool] = {}
        self._outgoing = deque[Outgoing]()
        self._events = deque[Event]()

    @property
    def asked(self) -> int:
        """The number of this side's requests without an answer, including cancelled ones."""
        return len(self._asked)

    @property
    def received(self) -> int:
        """The number of the peer's requests whose answer has not left."""
        return len(self._received)

    @property
    def is_open(self) -> bool:
        """True if this side may send requests."""
        return self.state is ChannelUse.OPEN

    @property
    def has_room(self) -> bool:
        """True if this side may send one more request."""
        return self.is_open and len(self._asked) < MOST_REQUESTS

    @property
    def has_outgoing(self) -> bool:
        """True if ``poll_transmit`` has a message to return."""
        return bool(self._outgoing)

    @property
    def is_over(self) -> bool:
        """True if no more messages come or leave, so that the channel may be closed."""
        if self.state is ChannelUse.ENDED:
            return True
        is_quiet = not (self._asked or self._received or self._outgoing)
        return self.state is ChannelUse.DRAINING and is_quiet

    # Requests of this side

    def ask(
        self, now: float, name: str, value: bytes, time_left: float | None
    ) -> tuple[int, Outgoing]:
        """Make a request; return its number, and the message that the owner has to send.

        If the message cannot be sent, call ``withdraw``. Raises ``StateError`` if there is no room
        for a request, and ``WireError`` if the name is too long.
        """
        if not self.has_room:
            raise StateError("there is no room for another request")
        number = self._free_number()
        data = encode_message(RequestMessage(number, name, value, time_left))
        lane = lane_for(len(data))
        self._asked[number] = _Asked(lane)
        self._used_at = now
        self._counters.sent += 1
        return number, Outgoing(data, lane)

    def withdraw(self, now: float, number: int) -> bool:
        """Remove a request that did not leave. Return False if it was settled meanwhile."""
        if self._asked.pop(number, None) is None:
            return False
        self._counters.sent -= 1
        self._note_answered(now)
        return True

    def cancel(self, number: int) -> None:
        """Send CANCEL for a request; its answer counts as late.

        No effect if the request has an answer, or was cancelled before.
        """
        asked = self._asked.get(number)
        if asked is None or not asked.is_awaited:
            return
        asked.is_awaited = False
        self._counters.cancelled += 1
        self._outgoing.append(Outgoing(encode_message(CancelMessage(number)), asked.lane))

    def retire(self) -> None:
        """Make GOODBYE due as soon as no request is open, instead of ``IDLE`` seconds later."""
        self._idle = 0.0

    # Requests of the peer

    def reply(self, number: int, value: bytes) -> Outgoing | None:
        """Return the reply to a request, for the owner to send; None if it has an answer already.

        Call ``handle_sent`` afterwards, or ``fail`` if the reply cannot be sent.
        """
        if not self._received.get(number, False):
            return None
        data = encode_message(ReplyMessage(number, value))
        return Outgoing(data, lane_for(len(data)), number)

    def fail(self, error: ErrorMessage) -> None:
        """Answer a request with an error. No effect if the request has an answer already."""
        if not self._received.get(error.number, False):
            return
        self._received[error.number] = False
        self._counters.refused += error.reason in _NOT_HANDLED
        self._counters.crashed += error.reason is ErrorReason.CRASHED
        data = encode_message(error)
        self._outgoing.append(Outgoing(data, lane_for(len(data)), error.number))

    def handle_sent(self, now: float, sent: Outgoing) -> None:
        """Handle the departure of a message."""
        if sent.answers is not None and self._received.pop(sent.answers, None) is not None:
            self._counters.answered += 1
            self._used_at = now

    # Inputs

    def handle_message_untrusted(self, now: float, data: bytes) -> None:
        """Handle a message of the peer. Raises ``RemoteError`` if it is not allowed."""
        try:
            self._handle(now, decode_message_untrusted(data))
        except RemoteError:
            self._counters.malformed += 1
            raise

    def handle_ended(self, now: float, text: str) -> None:
        """Handle the end of the channel, whose reason is ``text``."""
        _RUNNER.step(self, UseEvent.END, now, text)

    def handle_timeout(self, now: float) -> None:
        """Send GOODBYE if the channel has been idle for long enough."""
        due = self.poll_timeout()
        if due is not None and now >= due:
            _RUNNER.step(self, UseEvent.IDLE, now, "")

    # Outputs

    def poll_event(self) -> Event | None:
        """Return the next event; None if there is none."""
        return self._events.popleft() if self._events else None

    def poll_transmit(self) -> Outgoing | None:
        """Return the next CANCEL, ERROR or GOODBYE to send; None if there is none."""
        return self._outgoing.popleft() if self._outgoing else None

    def poll_timeout(self) -> float | None:
        """Return the time at which GOODBYE is due.

        None while a request is open, and after the GOODBYE of either side or the channel's end.
        """
        if self.state is not ChannelUse.OPEN or self._asked or self._received:
            return None
        return self._used_at + self._idle

    # Inside

    def _handle(self, now: float, message: Message) -> None:
        match message:
            case RequestMessage():
                self._handle_request(now, message)
            case CancelMessage(number):
                # A CANCEL that crossed the answer has no effect.
                if self._received.get(number, False):
                    self._events.append(RequestCancelled(number))
            case ReplyMessage() | ErrorMessage():
                self._handle_answer(now, message)
            case GoodbyeMessage():
                if self.state not in (ChannelUse.OPEN, ChannelUse.LEAVING):
                    raise RemoteError("a second GOODBYE")
                _RUNNER.step(self, UseEvent.GOODBYE, now, "")
                self._note_answered(now)

    def _handle_request(self, now: float, message: RequestMessage) -> None:
        if self.state not in (ChannelUse.OPEN, ChannelUse.LEAVING):
            raise RemoteError("a request behind a GOODBYE")
        if message.number in self._received:
            raise RemoteError(f"two requests with the number {message.number}")
        if len(self._received) >= MOST_REQUESTS:
            raise RemoteError(f"more than {MOST_REQUESTS} requests at once")
        self._received[message.number] = True
        self._used_at = now
        self._counters.received += 1
        number, name, value, time_left = message
        self._events.append(RequestArrived(number, name, value, time_left))

    def _handle_answer(self, now: float, answer: ReplyMessage | ErrorMessage) -> None:
        asked = self._asked.pop(answer.number, None)
        if asked is None:
            raise RemoteError(f"an answer to {answer.number}, which is no open request")
        if not asked.is_awaited:
            self._counters.late += 1
        else:
            is_reply = isinstance(answer, ReplyMessage)
            self._counters.replies += is_reply
            self._counters.errors += not is_reply
        self._events.append(RequestSettled(answer.number, answer))
        self._used_at = now
        self._note_answered(now)

    def _note_answered(self, now: float) -> None:
        if not self._asked:
            _RUNNER.step(self, UseEvent.ANSWERED, now, "")

    def _send_goodbye(self, _now: float, _text: str) -> None:
        data = encode_message(GoodbyeMessage())
        self._outgoing.append(Outgoing(data, lane_for(len(data))))

    def _settle_all(self, _now: float, text: str) -> None:
        self._counters.lost += sum(asked.is_awaited for asked in self._asked.values())
        lost = ChannelLost(text)
        self._events += [RequestSettled(number, lost) for number in self._asked]
        self._events += [
            RequestCancelled(number) for number, is_open in self._received.items() if is_open
        ]
        self._asked.clear()
        self._received.clear()
        self._outgoing.clear()

    def _free_number(self) -> int:
        while self._next in self._asked:
            self._next = (self._next + 1) % 2**32
        number = self._next
        self._next = (number + 1) % 2**32
        return number

    @classmethod
    def runner(cls) -> "Runner[ChannelUse, UseEvent, UseAction]":
        return Runner(
            USE,
            {UseAction.SEND_GOODBYE: cls._send_goodbye, UseAction.SETTLE_ALL: cls._settle_all},
            ignored=UseEvent,
        )


_NOT_HANDLED: Final = frozenset({ErrorReason.UNKNOWN, ErrorReason.BUSY, ErrorReason.MALFORMED})
_RUNNER: Final = RequestTable.runner()
