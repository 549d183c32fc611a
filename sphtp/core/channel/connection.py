"""One connection: one side of a channel, with its states, timers and parts.

A connection has a handshake and a packet protection, as in QUIC. In the clear these are a
``ClearHandshake`` and ``Plain``. In a sealed channel, the CONNECT and ACCEPT of the
``ClearHandshake`` travel inside Noise messages, and ``AesGcm`` seals the packets. An ``Initiator``
makes the Noise messages of the dialling side, and a ``ResponderHandshake`` those of the answering
side. When the peer's parameters have arrived, the connection makes a send side and a receive side.
The states are in the table of ``lifecycle``.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from sphtp.core.channel import endings
from sphtp.core.channel.flow_control import NodeMemory
from sphtp.core.channel.frames import Close, Frame, Ping
from sphtp.core.channel.handshake import (
    Accept,
    AnswerRejection,
    ClearHandshake,
    Connect,
    Refuse,
    TransportParameters,
)
from sphtp.core.channel.initiator import Actions, Initiator, InitiatorAction, SealedAnswer
from sphtp.core.channel.instrument import Drop, Instrument, WatchedChannel
from sphtp.core.channel.lifecycle import (
    LIFECYCLE,
    Action,
    Closed,
    CloseReason,
    ConnectionEvent,
    Event,
    Opened,
    State,
    Timer,
)
from sphtp.core.channel.message_port import MessagePort
from sphtp.core.channel.observer import ChannelObserver
from sphtp.core.channel.path_validation import PathValidation, encode_path
from sphtp.core.channel.protection import PLAIN, AesGcm, PacketProtection
from sphtp.core.channel.receive_queue import ReceiveQueue
from sphtp.core.channel.receive_side import ReceiveSide
from sphtp.core.channel.received_packets import AckTimer, ReceivedPackets
from sphtp.core.channel.responder import ResponderHandshake
from sphtp.core.channel.send_side import SendSide
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.shared_memory import Rendezvous
from sphtp.core.channel.statistics import BoundCounters, Counters
from sphtp.core.datagrams import MOST_BYTES, Address, Datagrams, Kind
from sphtp.core.entropy import Secrets
from sphtp.core.fsm import Alarms, Runner

MOST_EXTENDED: Final = 4
"""The longest opening, as a multiple of ``connect_timeout``, whatever its progress. A sealed
opening has up to three flights, and one of them may have to begin again."""

ANSWERER_WAITS: Final = 1.25
"""The keepalive interval of the answering side, as a multiple of the setting. In an idle channel,
usually only the dialling side sends PINGs then. The ack of a PING is a sign of life of the other
side, and the PING one of the dialling side: two datagrams for each interval instead of four."""

MOST_ANSWERS: Final = 64
"""The number of waiting datagrams from which on replies to a peer are dropped. A peer can repeat a
CONNECT or a CHALLENGE faster than the socket sends; an honest peer repeats its request later."""

KEEPALIVE_STEPS: Final = 16
"""The parts of the keepalive interval. A PING leaves at a multiple of one part, at most one part
early and never late, so that many idle channels share one turn of the event loop. A turn for one
PING costs more than the PING."""


class Connection:
    """One side of a channel.

    In a sealed channel, ``protection`` is None until there are keys. ``initiator`` is None except
    during a sealed attempt of this side, and ``responder`` except from the peer's sealed CONNECT
    until the peer uses the keys. ``observer`` is the instrument that observes the connection.

    Inputs are the ``handle_*`` methods. Commands are ``close`` and ``abort``, and those of
    ``port``, which sends and receives messages. After each of them call ``poll_transmit`` until it
    returns None, ``poll_event`` until it returns None, and then ``poll_timeout``. If ``has_more``
    returns False, ``poll_transmit`` would return None, and the caller can omit it.
    """

    def __init__(
        self,
        now: float,
        settings: ChannelSettings,
        handshake: ClearHandshake,
        state: State,
        node: NodeMemory | None = None,
        bounds: BoundCounters | None = None,
        *,
        initiator: Initiator | None = None,
        protection: PacketProtection | None = PLAIN,
        observer: Instrument | None = None,
    ) -> None:
        self.handshake = handshake
        # The id under which the peer sends to this side.
        self.connection_id = handshake.offer.connection_id
        self.state = state
        self.began_at = now
        self.peer_id = handshake.wanted
        self.known_as = ""
        """The peer's name in the cluster, as the servers announced it; empty if there is none."""
        self.address: Address | None = None
        self.peer_key = b""
        self.closed: Closed | None = None
        self.initiator = initiator
        self.protection = protection
        self.path_validation: PathValidation | None = None
        # An object of the shell, with the lifetime of this connection.
        self.attachment: object = None
        # The state at the last ``Openings.settle``, and the time for which the table has a timer.
        self.noted: State | None = None
        self.timer: float | None = None
        self.responder: ResponderHandshake | None = None
        self._refused: Closed | None = None
        self._is_answered = False
        self._settings = settings
        self._node = node
        self._send_side: SendSide | None = None
        self._receive_side: ReceiveSide | None = None
        self._counters = Counters(bounds=bounds or BoundCounters())
        self._observer = (
            ChannelObserver(observer, WatchedChannel(self)) if observer is not None else None
        )
        self.port = MessagePort(self._counters, state, self._observer)
        self._alarms = Alarms[Timer]()
        # Seconds without a sent packet after which this side sends a PING.
        self._keepalive = settings.keepalive_interval
        self._keepalive_step = self._keepalive / KEEPALIVE_STEPS
        # The time of the next keepalive, and that of the peer's last sign of life.
        self._keepalive_due = self._received_at = now
        # Datagrams that leave before packets: those of the handshake, of path validation and of an
        # abort. And control frames for the next packet.
        self._outgoing: deque[Datagrams] = deque()
        self._control: list[Frame] = []
        self.events: deque[ConnectionEvent] = deque()
        self._alarms.set(Timer.HANDSHAKE, now + settings.connect_timeout)
        if self._observer is not None:
            self._observer.instrument.channel_opening(now, self._observer.channel)

    # Getters

    @property
    def is_dialled(self) -> bool:
        """True if this side dialled. Both sides may have dialled at once."""
        return self.handshake.is_dialled

    @property
    def rendezvous(self) -> tuple[Rendezvous, Rendezvous] | None:
        """The rendezvous of this side and of the peer; None unless both use shared memory."""
        own, peer = self.handshake.rendezvous, self.handshake.peer_rendezvous
        return None if own is None or peer is None else (own, peer)

    @property
    def peer_name(self) -> str:
        """The peer's name, id and address for error messages."""
        return endings.name_peer(
            self.known_as, self.peer_id, (self.address, *self.handshake.candidates)
        )

    @property
    def received_at(self) -> float:
        """The time at which the last valid packet of the peer arrived, in seconds.

        Before the first one, it is the time at which the connection was made or opened.
        """
        return self._received_at

    @property
    def is_owed(self) -> bool:
        """True if this side waits for the ack of a packet."""
        side = self._send_side
        return side is not None and side.recovery.bytes_in_flight > 0

    # Inputs

    def handle_start(self, now: float) -> None:
        """Begin to dial the peer."""
        self._step(now, Event.RETRY)

    def handle_connect(
        self,
        now: float,
        address: Address,
        connect: Connect,
        responder: ResponderHandshake | None = None,
    ) -> None:
        """Accept a CONNECT.

        If it came sealed, ``responder`` is its handshake, which also carries the ACCEPT. This does
        nothing if the peer has accepted this side's own attempt, if the peer already uses the keys,
        or if the state refuses it.
        """
        if self.handshake.has_won or LIFECYCLE.find(self.state, Event.CONNECT_AGAIN) is None:
            return
        if isinstance(self.protection, AesGcm) and self.protection.is_used:
            # The handshake is over, so the CONNECT is a recorded one. It must not change the keys.
            return
        self.responder = responder
        self.handshake.grant(address, connect)
        if self._send_side is None:
            self._make_sides(address, connect.offer)
        self._step(now, Event.CONNECT_AGAIN)

    def handle_crossed(self, now: float, answered: "Connection") -> None:
        """Adopt the peer's own attempt, which crosses this one.

        ``answered`` is the connection that has accepted the peer's attempt, and for which a packet
        has arrived; it ends.
        """
        answered.handle_joined(now)
        self._make_sides(*self.handshake.give_way(answered.handshake))
        self.connection_id = answered.connection_id
        # The peer uses the connection already, so that neither handshake is needed any more.
        self._outgoing.clear()
        self.initiator = None
        self.protection, self.peer_key = answered.protection, answered.peer_key
        self.path_validation = answered.path_validation
        self._step(now, Event.CROSSED)

    def handle_candidate(self, now: float, address: Address, secrets: Secrets) -> None:
        """Handle a further address at which the peer may be reachable.

        An attempt dials it at once. A sealed channel that has keys validates the path to it.
        """
        if self.state is State.CONNECTING:
            if self.handshake.add_candidate(address):
                self._send_connects(now, self.handshake.connects_to([address]))
            return
        has_keys = isinstance(self.protection, AesGcm) and self.protection.peer
        if has_keys and self.state is not State.CLOSED and address != self.address:
            self.challenge(now, address, secrets)

    def handle_joined(self, now: float) -> None:
        """End, because an attempt of this side has adopted this connection."""
        self._step(now, Event.JOINED)

    def handle_accept(self, now: float, address: Address, accept: Accept) -> None:
        """Handle an ACCEPT: open the channel. A later ACCEPT from another candidate is ignored."""
        if self.state is State.CONNECTING and self.handshake.is_answered_by(accept):
            self.handshake.accepted(address, accept)
            self._make_sides(address, accept.offer)
            self._step(now, Event.ACCEPTED)

    def was_asked(self, address: Address) -> bool:
        """Return True if this attempt is sealed and has dialled an address."""
        return self.initiator is not None and self.initiator.was_asked(address)

    def handle_cookie(self, now: float, address: Address, cookie: bytes) -> None:
        """Handle the cookie of a COOKIE, the reply to a GREET."""
        if self.initiator is not None:
            self._apply(now, address, self.initiator.handle_cookie(now, address, cookie))

    def handle_welcome_untrusted(
        self, now: float, address: Address, noise: bytes
    ) -> SealedAnswer | None:
        """Handle the Noise message of a WELCOME; return the peer's answer if it contains one.

        Raises ``RemoteError`` if it is invalid.
        """
        assert self.initiator is not None
        actions, answer = self.initiator.handle_welcome_untrusted(now, address, noise)
        self._apply(now, address, actions)
        return answer

    def read_confirmed_untrusted(self, token: int, payload: bytes) -> SealedAnswer | None:
        """Read a sealed answer to a CONFIRM; return None if it belongs to another attempt.

        Its address is taken from the CONFIRM, because the source address of the answer proves
        nothing. Raises ``RemoteError`` if the answer is invalid.
        """
        initiator = self.initiator
        if initiator is None or initiator.token != token or initiator.protection is None:
            return None
        assert initiator.confirmed_to is not None
        key = initiator.protection.key
        return initiator.read_answer_untrusted(initiator.confirmed_to, key, payload)

    def handle_answer_untrusted(self, now: float, answer: SealedAnswer, *, is_free: bool) -> bool:
        """Handle a peer's answer; return True if the caller has to handle its ACCEPT or REFUSE.

        ``is_free`` is True unless another peer has the connection id that the answer names. Raises
        ``RemoteError`` if it is False, unless the answer is from the wrong peer.
        """
        assert self.initiator is not None
        message = answer.message
        # Without an initiator, CONNECT would leave in the clear. So the initiator must stay if the
        # handshake does not accept the ACCEPT.
        is_meant = isinstance(message, Refuse) or self.handshake.is_answered_by(message)
        actions = self.initiator.handle_answer_untrusted(
            now, answer, is_free=is_free, is_meant=is_meant
        )
        self._apply(now, answer.address, actions)
        if InitiatorAction.SEAL in actions:
            # The same handshake would give the same keys with a counter that starts at zero again.
            self.initiator, self.peer_key = None, answer.key
            self.handshake.keep_only(answer.address)
        return InitiatorAction.HAND_ON in actions

    def handle_progress(self, now: float) -> None:
        """Handle a sign that the peer continues its handshake."""
        self._step(now, Event.PROGRESS)

    def handle_hint(self, refuse: Refuse) -> None:
        """Record a REFUSE that ends nothing. It is the reason if the attempt times out."""
        self._refused = endings.refused_by_peer(self.peer_name, refuse, self.handshake.schema)

    def handle_refuse(self, now: float, address: Address, refuse: Refuse) -> None:
        """Handle a REFUSE of this side's CONNECT or ACCEPT."""
        event = self.handshake.refusal(address, refuse)
        if event is not None:
            closed = endings.refused_by_peer(self.peer_name, refuse, self.handshake.schema)
            self._step(now, event, closed)
        elif refuse.token == self.handshake.token:
            # This is the reason of the end if no other candidate accepts.
            self.handle_hint(refuse)

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        """Handle DATA datagrams in the clear.

        Datagrams that are malformed, from a wrong address or too early are dropped and counted.
        """
        address, data, size = datagrams
        if self._receive_side is not None and address != self.address:
            self._counters.foreign_address += self._drop(now, datagrams, Drop.FOREIGN_ADDRESS)
        else:
            self.handle_authentic_untrusted(now, address, data, size)

    def handle_authentic_untrusted(
        self, now: float, address: Address, data: bytes | Sequence[bytes], size: int = 0
    ) -> None:
        """Handle DATA datagrams of the peer, whatever their source address.

        ``data`` has them one behind the other, ``size`` bytes each; the last one may be shorter. A
        connection that knows the peer's parameters also accepts a list of datagrams of any sizes.
        """
        side = self._receive_side
        if side is None:
            assert isinstance(data, bytes)
            dropped = Datagrams(address, data, size)
            self._counters.too_early += self._drop(now, dropped, Drop.TOO_EARLY)
            return
        is_alive, close = side.handle_datagrams_untrusted(now, data, size)
        if is_alive:
            self._received_at = now
        if close is not None or (is_alive and self.state is not State.OPEN):
            self._handle_life(now, close)

    def challenge(self, now: float, address: Address, secrets: Secrets) -> bool:
        """Send a CHALLENGE to an address at which the peer may be from now on.

        Return False if the last challenge was too recent.
        """
        assert isinstance(self.protection, AesGcm)
        self.path_validation = self.path_validation or PathValidation()
        asks = self.path_validation.challenge(now, secrets, address, self.protection.peer)
        if asks is None:
            return False
        self._outgoing.append(self.protection.seal(address, asks, len(asks)))
        return True

    def handle_challenge(self, address: Address, nonce: int) -> None:
        """Send a RESPONSE to the address from which a CHALLENGE came."""
        if isinstance(self.protection, AesGcm) and self.protection.peer:
            response = encode_path(Kind.RESPONSE, self.protection.peer, nonce)
            self._answer(self.protection.seal(address, response, len(response)))

    def handle_forgotten(self, now: float) -> None:
        """End the connection, because the peer has sent a stateless reset."""
        self._step(now, Event.FORGOTTEN, endings.forgotten_by_peer(self.peer_name))

    def handle_new_path(self, now: float, address: Address) -> None:
        """Send to this new address of the peer from now on."""
        self.address = address
        if self._send_side is not None:
            self._send_side.handle_new_path(now)

    def handle_too_large(self, now: float, size: int) -> None:
        """Handle a datagram of ``size`` bytes that the socket refused as too large."""
        if self._send_side is not None:
            self._send_side.handle_too_large(now, size)

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due by now."""
        if self._send_side is not None and self._send_side.handle_timeout(now):
            self._add_control(Ping())
        self._handle_events(now)
        while (timer := self._alarms.take(now)) is not None:
            self._handle_timer(now, timer)

    # Commands

    def close(self, now: float) -> None:
        """Drain the channel, then close it.

        A connection that is not open yet ends at once. This does nothing on a connection that is
        already ending.
        """
        self._step(now, Event.CLOSE, endings.CLOSED_HERE)
        self._check_drained(now)

    def abort(self, now: float, why: str = "aborted") -> None:
        """End the connection at once; messages that are not acked may be lost.

        One CLOSE with the reason ``why`` leaves. It is not retransmitted, so the peer may not
        receive it. No CLOSE leaves while this side dials, or after either side has sent one.
        """
        self._step(now, Event.ABORT, endings.aborted_here(why))

    # Outputs

    def poll_transmit(self, now: float, most: int = MOST_BYTES) -> Datagrams | None:
        """Return the next datagrams to send; None if there are none.

        Datagrams with messages have at most ``most`` bytes together, before sealing; a single one
        may have more.
        """
        send_side = self._send_side
        if send_side is not None and send_side.events:
            self._handle_events(now)
        if self._outgoing:
            return self._outgoing.popleft()
        if send_side is None or self.address is None or self.state is State.CLOSED:
            return None
        control = self._take_control() if self._control else ()
        data, size = send_side.poll(now, control, most)
        if not data and self.state is State.DRAINING:
            # No ack reports that the last unreliable message has left, so it is checked here.
            self._check_drained(now)
            data, size = send_side.poll(now, self._take_control(), most)
        if not data:
            return None
        due = now + self._keepalive
        due -= due % self._keepalive_step
        if due != self._keepalive_due:
            self._keepalive_due = due
            self._alarms.move(Timer.KEEPALIVE, due)
        protection = self.protection
        assert protection is not None
        assert protection.sealer is not None
        return Datagrams(self.address, *protection.sealer.seal(data, size))

    def has_more(self, now: float) -> bool:
        """Return True if ``poll_transmit`` may return datagrams."""
        if self.state is not State.OPEN or self._outgoing or self._control:
            # Only ``poll_transmit`` detects the end of a drain.
            return True
        return self._send_side is not None and self._send_side.has_more(now)

    @property
    def has_outcome(self) -> bool:
        """True if ``poll_event`` has an event to return, or the port has a settled ticket."""
        side = self._send_side
        return bool(self.events) or (side is not None and bool(side.receipts.settled))

    def poll_event(self) -> ConnectionEvent | None:
        """Return the next event; None if there is none. ``Closed`` is the last one."""
        return self.events.popleft() if self.events else None

    def poll_timeout(self) -> float | None:
        """Return when to call ``handle_timeout``, and ``poll_transmit`` after it; None if never."""
        if self.state is State.CLOSED:
            return None
        due = self._alarms.due
        sending = self._send_side.poll_timeout() if self._send_side else None
        if sending is None or (due is not None and due < sending):
            return due
        return sending

    # Handshake

    def _apply(self, now: float, address: Address, actions: Actions) -> None:
        """Perform the actions that the initiator leaves to the connection."""
        assert self.initiator is not None
        self._outgoing.extend(self.initiator.take_datagrams())
        self.protection = self.initiator.protection
        if InitiatorAction.PROGRESS in actions:
            self._step(now, Event.PROGRESS)
        if InitiatorAction.OBJECT in actions:
            self.handle_refuse(now, address, Refuse(self.handshake.token, AnswerRejection.IMPOSTOR))

    # Events

    def _handle_life(self, now: float, close: Close | None) -> None:
        """Handle a packet of the peer in a state other than OPEN, or a CLOSE."""
        self._step(now, Event.CONFIRMED)
        self._handle_events(now)
        if close is not None:
            self._step(now, Event.CLOSE_RECEIVED, endings.closed_by_peer(self.peer_name, close))

    def _handle_events(self, now: float) -> None:
        """Handle the lifecycle events that acks and losses caused."""
        send_side = self._send_side
        if send_side is None:
            return
        for event in send_side.poll_events():
            self._step(now, event, self._path_ending(event))
        if self.state is State.DRAINING:
            if send_side.poll_progress():
                # A drain may take long, but must not stop: each ack of messages restarts the timer.
                self._alarms.move(Timer.CLOSE, now + self._settings.close_timeout)
            self._check_drained(now)

    def _path_ending(self, event: Event) -> Closed | None:
        if event is not Event.PATH_TOO_SMALL or self._send_side is None:
            return None
        mtu, envelope = self._send_side.path.mtu, self._settings.envelope
        return endings.path_too_small(
            self.peer_name, mtu.vanishing + envelope, mtu.floor + envelope
        )

    def _check_drained(self, now: float) -> None:
        if (
            self.state is State.DRAINING
            and self._send_side is not None
            and self._send_side.send_queue.idle
        ):
            self._step(now, Event.DRAINED)

    def _handle_timer(self, now: float, timer: Timer) -> None:
        if timer is Timer.KEEPALIVE:
            self._add_control(Ping())
            self._alarms.set(Timer.KEEPALIVE, now + self._keepalive)
            self._alarms.move(Timer.IDLE, self._received_at + self._settings.timeout)
            return
        if timer is Timer.IDLE and (due := self._received_at + self._settings.timeout) > now:
            # The packets that arrived have postponed the end. Checking here costs less than moving
            # the timer with each packet.
            self._alarms.set(Timer.IDLE, due)
            return
        after = now - self.began_at if self._is_answered else None
        what = endings.timed_out(timer, self.peer_name, self._settings, self._refused, after)
        self._step(now, *what)

    def _step(self, now: float, event: Event, closed: Closed | None = None) -> None:
        """Take an event; ``closed`` is the ending if the event ends the connection."""
        _RUNNER.step(self, event, now, closed or endings.CLOSED_HERE)
        self.port.state = self.state

    # Actions

    def _send_connect(self, now: float, _: Closed) -> None:
        self._send_connects(now, self.handshake.connects())

    def _send_connects(self, now: float, connects: Iterable[Datagrams]) -> None:
        for connect in connects:
            if self.initiator is None:
                self._outgoing.append(connect)
            else:
                address = connect.address
                actions = self.initiator.handle_connect(now, address, connect.data)
                self._apply(now, address, actions)

    def _send_accept(self, _now: float, _: Closed) -> None:
        for accept in self.handshake.accepts():
            if self.responder is None:
                self._answer(accept)
            elif (sealed := self.responder.accept(accept.data)) is not None:
                self._answer(sealed)
                self.protection, self.peer_key = self.responder.protection, self.responder.key

    def _answer(self, datagram: Datagrams) -> None:
        if len(self._outgoing) < MOST_ANSWERS:
            self._outgoing.append(datagram)

    def _arm_retry(self, now: float, _: Closed) -> None:
        self._alarms.set(Timer.RETRY, now + self.handshake.timer.sent(now))

    def _next_flight(self, now: float, _: Closed) -> None:
        self._alarms.set(Timer.RETRY, now + self.handshake.timer.answered(now))

    def _send_close(self, _now: float, closed: Closed) -> None:
        self._add_control(Close(closed.reason, ""))

    def _arm_close(self, now: float, _: Closed) -> None:
        self._alarms.set(Timer.CLOSE, now + self._settings.close_timeout)

    def _send_last_word(self, now: float, closed: Closed) -> None:
        if self._send_side is not None and self.address is not None:
            close = Close(CloseReason.ABORTED, closed.text)
            word = self._send_side.encode_control(now, [close])
            assert self.protection is not None
            self._outgoing.append(self.protection.seal(self.address, word, len(word)))

    def _open(self, now: float, _: Closed) -> None:
        self._alarms.stop(Timer.RETRY, Timer.HANDSHAKE)
        if not self.is_dialled:
            self._keepalive *= ANSWERER_WAITS
        self._received_at = now
        self._alarms.set(Timer.KEEPALIVE, now + self._keepalive)
        self._alarms.set(Timer.IDLE, now + self._settings.timeout)
        # The answering side opens when this DATA arrives, which proves this side's address.
        self._add_control(Ping())
        self.events.append(Opened())
        if self._observer is not None:
            self._observer.instrument.channel_opened(now, self._observer.channel)

    def _extend(self, now: float, _: Closed) -> None:
        self._is_answered = True
        timeout = self._settings.connect_timeout
        over = min(now + timeout, self.began_at + MOST_EXTENDED * timeout)
        self._alarms.set(Timer.HANDSHAKE, over)

    def _linger(self, now: float, closed: Closed) -> None:
        self._report(now, closed)
        self._alarms.clear()
        self._control.clear()
        self._alarms.set(Timer.LINGER, now + self._settings.linger)

    def _end(self, now: float, closed: Closed) -> None:
        self._report(now, closed)
        self._alarms.clear()
        if self._receive_side is not None:
            self._receive_side.receive_queue.leave_node()

    def _finish(self, now: float, _: Closed) -> None:
        self._end(now, endings.CLOSED_HERE)

    @classmethod
    def runner(cls) -> Runner[State, Event, Action]:
        return Runner(
            LIFECYCLE,
            {
                Action.SEND_CONNECT: cls._send_connect,
                Action.SEND_ACCEPT: cls._send_accept,
                Action.ARM_RETRY: cls._arm_retry,
                Action.NEXT_FLIGHT: cls._next_flight,
                Action.EXTEND: cls._extend,
                Action.SEND_CLOSE: cls._send_close,
                Action.SEND_LAST_WORD: cls._send_last_word,
                Action.OPEN: cls._open,
                Action.ARM_CLOSE: cls._arm_close,
                Action.LINGER: cls._linger,
                Action.END: cls._end,
                Action.FINISH: cls._finish,
            },
            # A refused event of the network or of a timer is too late to matter, as is a command
            # to a connection that is already ending.
            ignored=Event,
        )

    def _report(self, now: float, closed: Closed) -> None:
        self.initiator = self.responder = None
        if self._send_side is not None:
            self._send_side.close(now, endings.outcome_of(closed))
        if self.closed is None:
            self.closed = closed
            self.events.append(closed)
            if self._observer is not None:
                self._observer.instrument.channel_closed(now, self._observer.channel, closed)

    # Parts

    def _add_control(self, frame: Frame) -> None:
        """Put a frame into the next packet, unless an equal one is there already."""
        if frame not in self._control:
            self._control.append(frame)

    def _take_control(self) -> list[Frame]:
        frames, self._control = self._control, []
        return frames

    def _drop(self, now: float, dropped: Datagrams, why: Drop) -> int:
        """Report dropped datagrams to the observer; return how many there are."""
        if self._observer is not None:
            instrument, channel = self._observer.instrument, self._observer.channel
            for datagram in dropped.datagrams:
                instrument.datagram_dropped(now, channel, dropped.address, len(datagram), why)
        return dropped.number

    def _make_sides(self, address: Address, offer: TransportParameters) -> None:
        self.address = address
        self.peer_id = offer.peer_id
        settings, counters, observer = self._settings, self._counters, self._observer
        # The receive side records the packets that arrive; the send side sends their acks.
        received = ReceivedPackets(offer.first_sequence)
        ack_timer = AckTimer(settings.ack_every, settings.ack_delay)
        queue = ReceiveQueue(settings, offer.first_sequence, counters.bounds, self._node)
        send_side = SendSide(settings, offer, received, ack_timer, queue.credit, counters, observer)
        self._send_side = self.port.send_side = send_side
        self._receive_side = self.port.receive_side = ReceiveSide(
            settings, queue, received, ack_timer, send_side, counters, observer
        )


_RUNNER = Connection.runner()
