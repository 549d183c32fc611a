"""One connection: the table of its life and its timers, around an opening and a transport."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from sphtp.core.alarms import Alarms, earliest
from sphtp.core.channel import endings
from sphtp.core.channel.events import Closed, CloseReason, ConnectionEvent, Opened
from sphtp.core.channel.frames import Close, Ping
from sphtp.core.channel.handshake import Accept, Connect, Refuse, TransportParameters
from sphtp.core.channel.lifecycle import LIFECYCLE, Action, Event, State
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.opening import Opening
from sphtp.core.channel.port import MessagePort
from sphtp.core.channel.receive_side import Heard, ReceiveSide
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import Counters
from sphtp.core.channel.timers import Timer
from sphtp.core.channel.voice import Voice
from sphtp.core.datagrams import MOST_BYTES, Address, Datagrams
from sphtp.errors import StateError

MOST_EXTENDED: Final = 4
"""How many times ``connect_timeout`` an opening may take, however well it comes on: a sealed one
has three flights, and one of them may have to be begun anew."""


class Connection:
    """One side of a channel. It ties its parts together and has no algorithm of its own.

    Inputs are the ``handle_*`` methods; commands ``close`` and ``abort``, and those of ``port``,
    where messages go in and out. After any of them poll ``poll_transmit`` until None,
    ``poll_event`` until None, and then ``poll_timeout``.
    """

    def __init__(
        self,
        now: float,
        settings: ChannelSettings,
        opening: Opening,
        state: State,
        node: NodeMemory | None = None,
    ) -> None:
        self.opening = opening
        self.state = state
        self.began_at = now
        self.peer_id = opening.wanted
        self.address: Address | None = None
        self.peer_key = b""
        self.closed: Closed | None = None
        self._refused: Closed | None = None
        self._began_at = now
        self._is_answered = False
        self._settings = settings
        self._node = node
        self._transport: ReceiveSide | None = None
        self._counters = Counters()
        self.port = MessagePort(self._counters, self._sending)
        self._alarms = Alarms[Timer]()
        self._voice = Voice()
        self._events: deque[ConnectionEvent] = deque()
        self._alarms.set(Timer.HANDSHAKE, now + settings.connect_timeout)

    # Getters

    @property
    def connection_id(self) -> int:
        """The id under which the peer sends to this side."""
        return self.opening.offer.connection_id

    @property
    def peer_name(self) -> str:
        """The peer as errors name it."""
        return endings.name_peer(self.peer_id, (self.address, *self.opening.candidates))

    # Inputs

    def handle_start(self, now: float) -> None:
        """Dial the peer."""
        self._step(now, Event.RETRY)

    def handle_connect(self, now: float, address: Address, connect: Connect) -> None:
        """Take the CONNECT that is answered here; an attempt of ours drops what it has beaten."""
        if self.opening.has_won or LIFECYCLE.find(self.state, Event.CONNECT_AGAIN) is None:
            return
        self.opening.grant(address, connect)
        if self._transport is None:
            self._meet(address, connect.offer)
        self._step(now, Event.CONNECT_AGAIN)

    def handle_crossed(self, now: float, answered: "Connection") -> None:
        """Go on with the peer's own attempt, which crossed this one and is heard."""
        answered.handle_joined(now)
        self._meet(*self.opening.give_way(answered.opening))
        self.peer_key = answered.peer_key
        self._step(now, Event.CROSSED)

    def handle_joined(self, now: float) -> None:
        """End: an attempt of ours goes on with what was answered here."""
        self._step(now, Event.JOINED)

    def handle_accept(self, now: float, address: Address, accept: Accept) -> None:
        """Take an answer to our CONNECT; a second candidate's comes too late."""
        if self.state is State.CONNECTING and self.opening.is_answered_by(accept):
            self.opening.accepted(address, accept)
            self._meet(address, accept.offer)
            self._step(now, Event.ACCEPTED)

    def handle_progress(self, now: float) -> None:
        """Take it that the handshake around this came a step further, and its next flight left."""
        self._step(now, Event.PROGRESS)

    def handle_hint(self, refuse: Refuse) -> None:
        """Take a refusal that nobody signed: should the attempt fail, it may tell why."""
        self._refused = endings.refused_by_peer(self.peer_name, refuse, self.opening.schema)

    def handle_refuse(self, now: float, address: Address, refuse: Refuse) -> None:
        """Take a refusal of our CONNECT, or of our ACCEPT to an attempt that is over."""
        event = self.opening.refusal(address, refuse)
        if event is not None:
            closed = endings.refused_by_peer(self.peer_name, refuse, self.opening.schema)
            self._step(now, event, closed)
        elif refuse.token == self.opening.token:
            # Should no other candidate answer, this is what to tell.
            self.handle_hint(refuse)

    def handle_data_untrusted(
        self, now: float, address: Address, data: bytes, size: int = 0
    ) -> None:
        """Take a DATA datagram, or with ``size`` several of that many bytes that are a run.

        What is malformed or from elsewhere is counted and dropped.
        """
        number = len(data) // size if size else 1
        if self._transport is None:
            self._counters.too_early += number
        elif address != self.address:
            self._counters.foreign_address += number
        elif size:
            for heard in self._transport.handle_run_untrusted(now, data, size):
                self._hear(now, heard)
        else:
            self._hear(now, self._transport.handle_data_untrusted(now, data))

    def handle_forgotten(self, now: float) -> None:
        """Take it that the peer knows nothing of this connection any more."""
        self._step(now, Event.FORGOTTEN, endings.forgotten_by_peer(self.peer_name))

    def handle_new_path(self, now: float, address: Address) -> None:
        """Send to another address of the peer from now on."""
        self.address = address
        if self._transport is not None:
            self._transport.send_side.handle_new_path(now)

    def handle_too_large(self, now: float, size: int) -> None:
        """Take it that a datagram of that size was too large to be sent."""
        if self._transport is not None:
            self._transport.send_side.handle_too_large(now, size)

    def handle_timeout(self, now: float) -> None:
        """Do what is due by now."""
        if self._transport is not None and self._transport.send_side.handle_timeout(now):
            self._voice.say(Ping())
        self._handle_events(now)
        while (timer := self._alarms.take(now)) is not None:
            self._handle_timer(now, timer)

    # Commands

    def close(self, now: float) -> None:
        """Drain, then close. Does nothing on a connection that is ending already."""
        self._step(now, Event.CLOSE, endings.CLOSED_HERE)
        self._check_drained(now)

    def abort(self, now: float, why: str = "aborted") -> None:
        """Close at once; messages not yet acked may be lost. ``why`` is told to the peer."""
        self._step(now, Event.ABORT, endings.aborted_here(why))

    # Outputs

    def poll_transmit(self, now: float, most: int = MOST_BYTES) -> Datagrams | None:
        """The next datagrams to send; up to ``most`` bytes leave before anything can come up."""
        if self._transport is not None and self._transport.send_side.events:
            self._handle_events(now)
        if (datagram := self._voice.take_datagram()) is not None:
            return datagram
        if self._transport is None or self.address is None or self.state is State.CLOSED:
            return None
        send_side = self._transport.send_side
        data, size = send_side.poll(now, self._voice.take_frames(), most)
        if not data and self.state is State.DRAINING:
            # No ack tells that messages which are sent once have left.
            self._check_drained(now)
            data, size = send_side.poll(now, self._voice.take_frames(), most)
        if not data:
            return None
        self._alarms.move(Timer.KEEPALIVE, now + self._settings.keepalive)
        return Datagrams(self.address, data, size)

    def poll_event(self) -> ConnectionEvent | None:
        """The next event; ``Closed`` comes exactly once, and last."""
        return self._events.popleft() if self._events else None

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` is due, and ``poll_transmit`` after it."""
        if self.state is State.CLOSED:
            return None
        sending = self._transport.send_side.poll_timeout() if self._transport else None
        return earliest(self._alarms.next_due(), sending)

    # Events

    def _hear(self, now: float, heard: Heard | None) -> None:
        if heard is None or self._transport is None:
            return
        self._alarms.move(Timer.IDLE, now + self._settings.timeout)
        if self.state is State.OPEN and heard.close is None:
            return
        self._step(now, Event.CONFIRMED)
        self._handle_events(now)
        if (close := heard.close) is not None:
            self._step(now, Event.CLOSE_HEARD, endings.closed_by_peer(self.peer_name, close))

    def _handle_events(self, now: float) -> None:
        """Do what acks and losses mean for the life of the connection."""
        if self._transport is None:
            return
        send_side = self._transport.send_side
        for event in send_side.poll_events():
            self._step(now, event, self._path_ending(event))
        if self.state is State.DRAINING:
            if send_side.poll_progress():
                # A drain may take long; what must not happen is that it makes no way.
                self._alarms.move(Timer.CLOSE, now + self._settings.close_timeout)
            self._check_drained(now)

    def _path_ending(self, event: Event) -> Closed | None:
        if event is not Event.PATH_TOO_SMALL or self._transport is None:
            return None
        mtu, envelope = self._transport.send_side.path.mtu, self._settings.envelope
        return endings.path_too_small(
            self.peer_name, mtu.vanishing + envelope, mtu.floor + envelope
        )

    def _check_drained(self, now: float) -> None:
        if (
            self.state is State.DRAINING
            and self._transport
            and self._transport.send_side.send_queue.idle
        ):
            self._step(now, Event.DRAINED)

    def _handle_timer(self, now: float, timer: Timer) -> None:
        if timer is Timer.KEEPALIVE:
            # Of two silent sides one asks and the other answers: two datagrams, not three.
            if self._transport is None or not self._transport.owes_ack:
                self._voice.say(Ping())
            self._alarms.set(Timer.KEEPALIVE, now + self._settings.keepalive)
            return
        after = now - self._began_at if self._is_answered else None
        what = endings.timed_out(timer, self.peer_name, self._settings, self._refused, after)
        self._step(now, *what)

    def _step(self, now: float, event: Event, closed: Closed | None = None) -> None:
        """Take the event's row, if the state has one: what it refuses came too late to matter."""
        row = LIFECYCLE.find(self.state, event)
        if row is None:
            return
        self.state = row.to
        for action in row.do:
            self._ACTIONS[action](self, now, closed or endings.CLOSED_HERE)
        if self.state is State.CLOSED and self._transport is not None:
            self._transport.receive_queue.leave_node()

    # Actions

    def _send_connect(self, _now: float, _: Closed) -> None:
        self._voice.send(self.opening.connects())

    def _send_accept(self, _now: float, _: Closed) -> None:
        self._voice.send(self.opening.accepts())

    def _arm_retry(self, now: float, _: Closed) -> None:
        self._alarms.set(Timer.RETRY, now + self.opening.timer.sent(now))

    def _next_flight(self, now: float, _: Closed) -> None:
        self._alarms.set(Timer.RETRY, now + self.opening.timer.answered(now))

    def _send_close(self, _now: float, closed: Closed) -> None:
        self._voice.say(Close(closed.reason, ""))

    def _arm_close(self, now: float, _: Closed) -> None:
        self._alarms.set(Timer.CLOSE, now + self._settings.close_timeout)

    def _send_last_word(self, now: float, closed: Closed) -> None:
        if self._transport is not None and self.address is not None:
            close = Close(CloseReason.ABORTED, closed.text)
            word = self._transport.send_side.encode_control(now, [close])
            self._voice.send([Datagrams.of(self.address, word)])

    def _open(self, now: float, _: Closed) -> None:
        self._alarms.stop(Timer.RETRY, Timer.HANDSHAKE)
        self._alarms.set(Timer.KEEPALIVE, now + self._settings.keepalive)
        self._alarms.set(Timer.IDLE, now + self._settings.timeout)
        # The answering side knows only by our first data that our address is real.
        self._voice.say(Ping())
        self._events.append(Opened())

    def _extend(self, now: float, _: Closed) -> None:
        self._is_answered = True
        patience = self._settings.connect_timeout
        over = min(now + patience, self._began_at + MOST_EXTENDED * patience)
        self._alarms.set(Timer.HANDSHAKE, over)

    def _linger(self, now: float, closed: Closed) -> None:
        self._report(now, closed)
        self._alarms.clear()
        self._voice.take_frames()
        self._alarms.set(Timer.LINGER, now + self._settings.linger)

    def _end(self, now: float, closed: Closed) -> None:
        self._report(now, closed)
        self._alarms.clear()

    def _finish(self, now: float, _: Closed) -> None:
        self._end(now, endings.CLOSED_HERE)

    # One table for all connections, for one in each takes 2 kB. By way of the instance, for those
    # that are watched have some of the methods of their own.
    _ACTIONS: ClassVar[Mapping[Action, Callable[["Connection", float, Closed], None]]] = {
        Action.SEND_CONNECT: lambda self, now, closed: self._send_connect(now, closed),
        Action.SEND_ACCEPT: lambda self, now, closed: self._send_accept(now, closed),
        Action.ARM_RETRY: lambda self, now, closed: self._arm_retry(now, closed),
        Action.NEXT_FLIGHT: lambda self, now, closed: self._next_flight(now, closed),
        Action.EXTEND: lambda self, now, closed: self._extend(now, closed),
        Action.SEND_CLOSE: lambda self, now, closed: self._send_close(now, closed),
        Action.SEND_LAST_WORD: lambda self, now, closed: self._send_last_word(now, closed),
        Action.OPEN: lambda self, now, closed: self._open(now, closed),
        Action.ARM_CLOSE: lambda self, now, closed: self._arm_close(now, closed),
        Action.LINGER: lambda self, now, closed: self._linger(now, closed),
        Action.END: lambda self, now, closed: self._end(now, closed),
        Action.FINISH: lambda self, now, closed: self._finish(now, closed),
    }

    def _report(self, now: float, closed: Closed) -> None:
        if self._transport is not None:
            self._transport.send_side.close(now, endings.outcome_of(closed))
        if self.closed is None:
            self.closed = closed
            self._events.append(closed)

    # Parts

    def _meet(self, address: Address, offer: TransportParameters) -> None:
        self.address = address
        self.peer_id = offer.peer_id
        self._transport = self.port.transport = self._make_transport(offer)

    def _make_transport(self, offer: TransportParameters) -> ReceiveSide:
        return ReceiveSide(self._settings, offer, self._counters, self._node)

    def _sending(self) -> ReceiveSide:
        if self._transport is None or self.state is not State.OPEN:
            raise StateError(f"nothing can be sent while the channel is {self.state.name}")
        return self._transport
