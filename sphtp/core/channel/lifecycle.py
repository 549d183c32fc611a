"""The lifecycle of a connection, as a table.

The application ends an open channel by one of two commands. After ``Connection.close`` this side
drains the channel, and sends CLOSE when no message is left to send or to be acked. After
``Connection.abort`` it sends CLOSE at once. In both cases ``Connection.port`` still returns the
messages that arrived before the end. The calls of ``Channel`` that receive raise instead, if this
side closed or aborted the channel.

The idle timeout (RFC 9000, section 10.1) ends the channel of a peer that vanished without a CLOSE.
"""

from dataclasses import dataclass
from enum import IntEnum

from sphtp.core.fsm import Machine, Name, Row


class State(Name):
    """The states of a connection."""

    CONNECTING = "this side dials; the peer has not accepted yet"
    ANSWERING = "this side sent ACCEPT; no data has arrived"
    OPEN = "the handshake is complete, and messages flow"
    DRAINING = "closed by this side; messages still have to leave or to be acked"
    CLOSING = "no message is left; CLOSE is in flight"
    LINGERING = "the peer closed; its CLOSE may arrive again"
    CLOSED = "the connection has ended"


class Event(Name):
    """The events of a connection."""

    ACCEPTED = "ACCEPT arrived"
    CROSSED = "data arrived for the peer's own attempt, which this side has accepted"
    JOINED = "data arrived for this accepted connection, and an attempt of this side adopts it"
    CONNECT_AGAIN = "a CONNECT arrived for this connection, for the first time or again"
    CONFIRMED = "the first data arrived"
    REFUSED = "every address of the peer refused the CONNECT, or the wanted peer has another schema"
    DECLINED = "a REFUSE arrived for the ACCEPT: the peer's attempt is over"
    PROGRESS = "the handshake made progress, or the peer repeated a step of it"
    RETRY = "dialling begins, or the retransmission timer expired"
    HANDSHAKE_OVER = "the peer did not complete the handshake in time"
    CLOSE = "the application closes the channel"
    ABORT = "the application or the endpoint aborts the channel"
    DRAINED = "no message is left to send or to be acked"
    CLOSE_LOST = "the packet with CLOSE is lost, or unacked for a probe timeout"
    CLOSE_ACKED = "the packet with CLOSE is acked"
    CLOSE_RECEIVED = "the peer's CLOSE arrived"
    CLOSE_OVER = "draining or closing made no progress for the close timeout"
    SILENT = "no packet arrived for the idle timeout"
    FORGOTTEN = "a stateless reset arrived: the peer has no such channel"
    PATH_TOO_SMALL = "the path does not carry packets of the smallest size"
    LINGER_OVER = "the linger time is over"


class Action(Name):
    """The actions of a connection."""

    SEND_CONNECT = "queue CONNECT to the candidates of this try"
    SEND_ACCEPT = "queue ACCEPT"
    ARM_RETRY = "start the retransmission timer of the flight"
    NEXT_FLIGHT = "restart the retransmission timer, for the next flight"
    EXTEND = "restart the handshake timer, within the limit for the whole handshake"
    SEND_CLOSE = "put CLOSE into the next packet"
    SEND_LAST_WORD = "queue one CLOSE, which is not retransmitted"
    OPEN = "start the keepalive and idle timers, send a PING, and report that the channel is open"
    ARM_CLOSE = "start the close timer"
    LINGER = "report the end, and stop all timers except the linger timer"
    END = "report the end unless that is done, and stop all timers"
    FINISH = "report a clean end, because all messages were acked, and stop all timers"


S, E, A = State, Event, Action

ROWS: tuple[Row[State, Event, Action], ...] = (
    Row(
        S.CONNECTING,
        E.RETRY,
        S.CONNECTING,
        (A.SEND_CONNECT, A.ARM_RETRY),
        "the first CONNECT is due, or CONNECT or ACCEPT was lost",
    ),
    Row(
        S.CONNECTING,
        E.PROGRESS,
        S.CONNECTING,
        (A.NEXT_FLIGHT, A.EXTEND),
        "the peer responds: the timeout is for its silence, not for a long path",
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
    Row(S.CONNECTING, E.CLOSE, S.CLOSED, (A.END,), "no message has been sent"),
    Row(S.CONNECTING, E.ABORT, S.CLOSED, (A.END,), "no message has been sent"),
    Row(S.ANSWERING, E.CONNECT_AGAIN, S.ANSWERING, (A.SEND_ACCEPT, A.EXTEND), "ACCEPT is due"),
    Row(S.ANSWERING, E.PROGRESS, S.ANSWERING, (A.EXTEND,), "the opener continues its attempt"),
    Row(
        S.ANSWERING,
        E.CONFIRMED,
        S.OPEN,
        (A.OPEN,),
        "data with this side's connection id proves the opener's address",
    ),
    Row(S.ANSWERING, E.JOINED, S.CLOSED, (A.END,), "the two attempts become one channel"),
    Row(S.ANSWERING, E.DECLINED, S.CLOSED, (A.END,), "the opener has ended its attempt"),
    Row(
        S.ANSWERING,
        E.HANDSHAKE_OVER,
        S.CLOSED,
        (A.END,),
        "the opener vanished, or its CONNECT was forged",
    ),
    Row(S.ANSWERING, E.CLOSE, S.CLOSED, (A.SEND_LAST_WORD, A.END), "no message has been sent"),
    Row(
        S.ANSWERING,
        E.ABORT,
        S.CLOSED,
        (A.SEND_LAST_WORD, A.END),
        "the node closes, or another channel takes the place in the accept queue",
    ),
    Row(S.OPEN, E.CONNECT_AGAIN, S.OPEN, (A.SEND_ACCEPT,), "ACCEPT was lost"),
    Row(S.OPEN, E.CLOSE, S.DRAINING, (A.ARM_CLOSE,), "closing must not lose messages"),
    Row(S.OPEN, E.ABORT, S.CLOSED, (A.SEND_LAST_WORD, A.END), "an abort waits for no ack"),
    Row(S.OPEN, E.CLOSE_RECEIVED, S.LINGERING, (A.LINGER,), "the peer has closed the channel"),
    Row(S.OPEN, E.SILENT, S.CLOSED, (A.END,), "the peer vanished"),
    Row(S.OPEN, E.FORGOTTEN, S.CLOSED, (A.END,), "the peer restarted, or its CLOSE was lost"),
    Row(
        S.OPEN,
        E.PATH_TOO_SMALL,
        S.CLOSED,
        (A.SEND_LAST_WORD, A.END),
        "waiting messages would never arrive",
    ),
    Row(S.DRAINING, E.CONNECT_AGAIN, S.DRAINING, (A.SEND_ACCEPT,), "ACCEPT was lost"),
    Row(S.DRAINING, E.DRAINED, S.CLOSING, (A.SEND_CLOSE,), "no message is left"),
    Row(S.DRAINING, E.ABORT, S.CLOSED, (A.SEND_LAST_WORD, A.END), "the application aborts"),
    Row(S.DRAINING, E.CLOSE_RECEIVED, S.LINGERING, (A.LINGER,), "the peer accepts no messages"),
    Row(S.DRAINING, E.CLOSE_OVER, S.CLOSED, (A.SEND_LAST_WORD, A.END), "the drain is too slow"),
    Row(S.DRAINING, E.SILENT, S.CLOSED, (A.END,), "the peer vanished"),
    Row(S.DRAINING, E.FORGOTTEN, S.CLOSED, (A.END,), "the peer cannot ack the messages"),
    Row(S.DRAINING, E.PATH_TOO_SMALL, S.CLOSED, (A.SEND_LAST_WORD, A.END), "no message can leave"),
    Row(S.CLOSING, E.CLOSE_LOST, S.CLOSING, (A.SEND_CLOSE,), "the CLOSE has to arrive"),
    Row(S.CLOSING, E.CLOSE_ACKED, S.CLOSED, (A.FINISH,), "the peer has the CLOSE"),
    Row(S.CLOSING, E.CLOSE_RECEIVED, S.LINGERING, (A.LINGER,), "both sides closed at once"),
    Row(S.CLOSING, E.ABORT, S.CLOSED, (A.END,), "the CLOSE is in flight already"),
    Row(S.CLOSING, E.CLOSE_OVER, S.CLOSED, (A.FINISH,), "all messages were acked"),
    Row(S.CLOSING, E.SILENT, S.CLOSED, (A.FINISH,), "all messages were acked"),
    Row(S.CLOSING, E.FORGOTTEN, S.CLOSED, (A.FINISH,), "all messages were acked"),
    Row(S.LINGERING, E.FORGOTTEN, S.CLOSED, (A.END,), "no CLOSE will come again"),
    Row(S.LINGERING, E.CLOSE_RECEIVED, S.LINGERING, (), "the ack was lost; it leaves again"),
    Row(S.LINGERING, E.CLOSE, S.LINGERING, (), "the peer closed first"),
    Row(S.LINGERING, E.ABORT, S.CLOSED, (A.END,), "an abort does not wait"),
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
    # The connection of an answering side starts in ANSWERING.
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
    HANDSHAKE = "end the attempt, because the peer did not complete the handshake in time"
    KEEPALIVE = "send a PING, because no packet has left for this time"
    IDLE = "end the channel, because no packet arrived for this time (the idle timeout)"
    CLOSE = "end the channel, because draining or closing made no progress for this time"
    LINGER = "stop acking the peer's CLOSE"


class CloseReason(IntEnum):
    """The reason why a channel ended. Only the numbers below 16 travel in CLOSE."""

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
    """The event that the channel is open: the handshake of this side is complete."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The event that the channel has ended, the last one.

    ``text`` is the reason in words. ``by_peer`` is true if the peer caused the end.
    """

    reason: CloseReason
    text: str
    by_peer: bool
    refusal: str = ""
    """The name of the peer's ``Refusal`` in lower case; empty if the channel ended otherwise.

    It is ``impostor`` for an answer with another key than the wanted one, and ``reason`` with a
    number for a reason that this version does not define.
    """


ConnectionEvent = Opened | Closed
