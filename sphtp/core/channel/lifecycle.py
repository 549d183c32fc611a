"""The lifecycle of a connection, as a table.

Two rules are outside the table. The application chooses whether to drain before the close:
``close`` drains, ``abort`` does not. Messages that arrived before the end can be received after it.

The idle timeout (RFC 9000, section 10.1) ends the channel of a peer that vanished without a CLOSE.
"""

from dataclasses import dataclass
from enum import IntEnum

from sphtp.core.fsm import Machine, Name, Row


class State(Name):
    """The states of a connection."""

    CONNECTING = "sent CONNECT; no answer has come"
    ANSWERING = "sent ACCEPT; no data has come"
    OPEN = "the handshake is complete; messages flow"
    DRAINING = "closed by this side; messages are still unacked"
    CLOSING = "all messages are acked; CLOSE is in flight"
    LINGERING = "the peer closed; its CLOSE may come again"
    CLOSED = "the connection has ended"


class Event(Name):
    """The events of a connection."""

    ACCEPTED = "ACCEPT came"
    CROSSED = "data confirmed the peer's own attempt, which this attempt now adopts"
    JOINED = "data confirmed this answered connection, and an attempt of this side adopts it"
    CONNECT_AGAIN = "the CONNECT that opened this connection came again"
    CONFIRMED = "the first data came"
    REFUSED = "REFUSE came"
    DECLINED = "a REFUSE came for the ACCEPT: the peer's attempt is over"
    PROGRESS = "the handshake made progress, or the peer repeated a step of it"
    RETRY = "no answer came before the retransmission timer expired"
    HANDSHAKE_OVER = "no answer in time"
    CLOSE = "the application closes"
    ABORT = "the application aborts, or the node ends the connection at once"
    DRAINED = "every message is acked"
    CLOSE_LOST = "the packet with CLOSE is lost"
    CLOSE_ACKED = "the packet with CLOSE is acked"
    CLOSE_RECEIVED = "the peer's CLOSE came"
    CLOSE_OVER = "draining made no progress, or closing took too long"
    SILENT = "no packet came for the idle timeout"
    FORGOTTEN = "a stateless reset came: the peer does not have the channel"
    PATH_TOO_SMALL = "the path does not carry packets of the smallest size"
    LINGER_OVER = "the time for late CLOSEs of the peer is over"


class Action(Name):
    """The actions of a connection."""

    SEND_CONNECT = "queue CONNECT to every candidate"
    SEND_ACCEPT = "queue ACCEPT"
    ARM_RETRY = "start the retransmission timer of the flight"
    NEXT_FLIGHT = "restart the retransmission timer, for the next flight"
    EXTEND = "restart the timer of silence, within the limit for the whole handshake"
    SEND_CLOSE = "put CLOSE into the next packet"
    SEND_LAST_WORD = "queue one CLOSE, which gets no ack"
    OPEN = "start the keepalive and idle timers, and report that the channel is open"
    ARM_CLOSE = "start the timer of draining"
    LINGER = "stop all timers except that of lingering, and report the end"
    END = "stop all timers, and report the end once"
    FINISH = "stop all timers, and report a clean end, because all messages were acked"


S, E, A = State, Event, Action

ROWS: tuple[Row[State, Event, Action], ...] = (
    Row(
        S.CONNECTING,
        E.RETRY,
        S.CONNECTING,
        (A.SEND_CONNECT, A.ARM_RETRY),
        "CONNECT or ACCEPT was lost",
    ),
    Row(
        S.CONNECTING,
        E.PROGRESS,
        S.CONNECTING,
        (A.NEXT_FLIGHT, A.EXTEND),
        "the peer is present: the timeout counts its silence, not the length of the handshake",
    ),
    Row(S.CONNECTING, E.ACCEPTED, S.OPEN, (A.OPEN,), "the peer accepted the channel"),
    Row(
        S.CONNECTING,
        E.CROSSED,
        S.ANSWERING,
        (A.EXTEND,),
        "both sides dialled at once: the attempt with the lower token is kept",
    ),
    Row(S.CONNECTING, E.REFUSED, S.CLOSED, (A.END,), "the peer refused the channel"),
    Row(S.CONNECTING, E.HANDSHAKE_OVER, S.CLOSED, (A.END,), "the peer is not reachable"),
    Row(S.CONNECTING, E.CLOSE, S.CLOSED, (A.END,), "no message was sent"),
    Row(S.CONNECTING, E.ABORT, S.CLOSED, (A.END,), "the same as CLOSE"),
    Row(S.ANSWERING, E.CONNECT_AGAIN, S.ANSWERING, (A.SEND_ACCEPT, A.EXTEND), "ACCEPT was lost"),
    Row(S.ANSWERING, E.PROGRESS, S.ANSWERING, (A.EXTEND,), "the opener continues its attempt"),
    Row(
        S.ANSWERING,
        E.CONFIRMED,
        S.OPEN,
        (A.OPEN,),
        "data with this side's id proves the address of the opener",
    ),
    Row(S.ANSWERING, E.JOINED, S.CLOSED, (A.END,), "the two attempts become one channel"),
    Row(S.ANSWERING, E.DECLINED, S.CLOSED, (A.END,), "the opener refused the ACCEPT"),
    Row(S.ANSWERING, E.HANDSHAKE_OVER, S.CLOSED, (A.END,), "the opener is gone, or was forged"),
    Row(S.ANSWERING, E.CLOSE, S.CLOSED, (A.SEND_LAST_WORD, A.END), "the node shuts down"),
    Row(
        S.ANSWERING,
        E.ABORT,
        S.CLOSED,
        (A.SEND_LAST_WORD, A.END),
        "the node shuts down, or the accept queue needs the place",
    ),
    Row(S.OPEN, E.CONNECT_AGAIN, S.OPEN, (A.SEND_ACCEPT,), "ACCEPT was lost"),
    Row(S.OPEN, E.CLOSE, S.DRAINING, (A.ARM_CLOSE,), "closing must not lose messages"),
    Row(S.OPEN, E.ABORT, S.CLOSED, (A.SEND_LAST_WORD, A.END), "the CLOSE leaves once"),
    Row(S.OPEN, E.CLOSE_RECEIVED, S.LINGERING, (A.LINGER,), "the peer has closed the channel"),
    Row(S.OPEN, E.SILENT, S.CLOSED, (A.END,), "the peer vanished"),
    Row(S.OPEN, E.FORGOTTEN, S.CLOSED, (A.END,), "the peer restarted, or its CLOSE was lost"),
    Row(
        S.OPEN,
        E.PATH_TOO_SMALL,
        S.CLOSED,
        (A.SEND_LAST_WORD, A.END),
        "waiting messages would never arrive, so the channel ends with an error",
    ),
    Row(S.DRAINING, E.CONNECT_AGAIN, S.DRAINING, (A.SEND_ACCEPT,), "ACCEPT was lost"),
    Row(S.DRAINING, E.DRAINED, S.CLOSING, (A.SEND_CLOSE,), "all messages have arrived"),
    Row(S.DRAINING, E.ABORT, S.CLOSED, (A.SEND_LAST_WORD, A.END), "the application aborts"),
    Row(S.DRAINING, E.CLOSE_RECEIVED, S.LINGERING, (A.LINGER,), "the peer reads no more"),
    Row(S.DRAINING, E.CLOSE_OVER, S.CLOSED, (A.SEND_LAST_WORD, A.END), "the peer reads too slowly"),
    Row(S.DRAINING, E.SILENT, S.CLOSED, (A.END,), "the peer vanished"),
    Row(S.DRAINING, E.FORGOTTEN, S.CLOSED, (A.END,), "no peer is left"),
    Row(S.DRAINING, E.PATH_TOO_SMALL, S.CLOSED, (A.SEND_LAST_WORD, A.END), "no message can leave"),
    Row(S.CLOSING, E.CLOSE_LOST, S.CLOSING, (A.SEND_CLOSE,), "the CLOSE has to arrive"),
    Row(S.CLOSING, E.CLOSE_ACKED, S.CLOSED, (A.FINISH,), "the peer has received CLOSE"),
    Row(S.CLOSING, E.CLOSE_RECEIVED, S.LINGERING, (A.LINGER,), "both sides closed at once"),
    Row(S.CLOSING, E.ABORT, S.CLOSED, (A.END,), "the CLOSE is in flight already"),
    Row(S.CLOSING, E.CLOSE_OVER, S.CLOSED, (A.FINISH,), "all messages were acked"),
    Row(S.CLOSING, E.SILENT, S.CLOSED, (A.FINISH,), "all messages were acked"),
    Row(S.CLOSING, E.FORGOTTEN, S.CLOSED, (A.FINISH,), "all messages were acked"),
    Row(S.LINGERING, E.FORGOTTEN, S.CLOSED, (A.END,), "no CLOSE will come again"),
    Row(S.LINGERING, E.CLOSE_RECEIVED, S.LINGERING, (), "the ack was lost; it leaves again"),
    Row(S.LINGERING, E.CLOSE, S.LINGERING, (), "the peer closed first"),
    Row(S.LINGERING, E.ABORT, S.CLOSED, (A.END,), "the application aborts"),
    Row(S.LINGERING, E.LINGER_OVER, S.CLOSED, (A.END,), "no CLOSE will come again"),
)

OPENING = frozenset(
    {
        E.ACCEPTED,
        E.CROSSED,
        E.CONFIRMED,
        E.REFUSED,
        E.DECLINED,
        E.JOINED,
        E.PROGRESS,
        E.RETRY,
        E.HANDSHAKE_OVER,
    }
)
CLOSING = frozenset({E.DRAINED, E.CLOSE_LOST, E.CLOSE_ACKED, E.CLOSE_OVER})

LIFECYCLE = Machine(
    "Channel lifecycle",
    S.CONNECTING,
    ROWS,
    events=Event,
    # The answering side starts in ANSWERING, not in CONNECTING.
    entries=frozenset({S.ANSWERING}),
    final=frozenset({S.CLOSED}),
    refused={
        S.CONNECTING: CLOSING
        | {
            E.CONFIRMED,
            E.CONNECT_AGAIN,
            E.DECLINED,
            E.JOINED,
            E.CLOSE_RECEIVED,
            E.SILENT,
            E.FORGOTTEN,
            E.PATH_TOO_SMALL,
            E.LINGER_OVER,
        },
        S.ANSWERING: CLOSING
        | {
            E.ACCEPTED,
            E.CROSSED,
            E.REFUSED,
            E.RETRY,
            E.CLOSE_RECEIVED,
            E.SILENT,
            E.FORGOTTEN,
            E.PATH_TOO_SMALL,
            E.LINGER_OVER,
        },
        S.OPEN: OPENING | CLOSING | {E.LINGER_OVER},
        S.DRAINING: OPENING | {E.CLOSE, E.CLOSE_LOST, E.CLOSE_ACKED, E.LINGER_OVER},
        S.CLOSING: OPENING | {E.CONNECT_AGAIN, E.CLOSE, E.DRAINED, E.PATH_TOO_SMALL, E.LINGER_OVER},
        S.LINGERING: OPENING | CLOSING | {E.CONNECT_AGAIN, E.SILENT, E.PATH_TOO_SMALL},
        S.CLOSED: frozenset(Event),
    },
)


class Timer(Name):
    """The timers of a connection."""

    RETRY = "send CONNECT again"
    HANDSHAKE = "end the attempt to open"
    KEEPALIVE = "send a PING, because no packet has left for this time"
    IDLE = "the idle timeout: no packet came for this time"
    CLOSE = "end draining or closing without further acks"
    LINGER = "stop acking CLOSEs of the peer"


class CloseReason(IntEnum):
    """The reason why a channel ended. Numbers below 16 travel in CLOSE; the others do not."""

    DONE = 0
    ABORTED = 1
    REFUSED = 16
    UNREACHABLE = 17
    VANISHED = 18
    DRAIN_TIMEOUT = 19
    SCHEMA = 20
    PATH_TOO_SMALL = 21


@dataclass(frozen=True, slots=True)
class Opened:
    """The channel is open: the handshake is complete, and messages flow."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The last event of a channel: the reason of its end, as a number and in words.

    ``by_peer`` is true if the peer caused the end.
    """

    reason: CloseReason
    text: str
    by_peer: bool
    refusal: str = ""
    """The reason of a refusal, in one word; empty for any other end."""


ConnectionEvent = Opened | Closed
