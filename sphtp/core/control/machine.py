"""What a client and a server have in common: a table, alarms, and the way in and out.

A machine is driven from outside. It is given time and messages by ``handle_*``, each with the
present as ``now``, and asked afterwards, until there is nothing more, what it has to send
(``poll_transmit``), whom to connect to (``poll_bus``), what it tells the application
(``poll_event``) and when it wants to be given time again (``poll_timeout``).

A message goes one way. The reader makes one object of its bytes; the proofs and the senders say
whether it may be from whom it names; ``_handle`` does what it means; then the connection that it
came through is kept for its sender.

A process that did not run for a while (a laptop that was closed, a machine that swapped) must not
blame others for it. Whoever is given time later than asked for by more than a heartbeat postpones
every expiry by as much.
"""

from collections import deque
from typing import Any, Generic, TypeVar

from sphtp.core.control.codec import Holder
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.inbound import (
    AnyMessage,
    MessageReader,
    Pipe,
    SenderCheck,
    SignatureProofs,
    SigningSession,
)
from sphtp.core.control.settings import ControlTimers
from sphtp.core.entropy import Entropy
from sphtp.core.fsm import Alarms, Machine, Name, Runner

State = TypeVar("State", bound=Name)
Signal = TypeVar("Signal", bound=Name)
Event = TypeVar("Event")


class ControlMachine(Generic[State, Signal, Event]):
    """The base of ``ClientMachine`` and ``ServerMachine``, which have the tables."""

    _reader: MessageReader
    _proofs: SignatureProofs
    _senders: SenderCheck

    def __init__(
        self,
        table: Machine[State, Signal, Any],
        runner: Runner[State, Signal, Any],
        entropy: Entropy,
        timers: ControlTimers,
    ) -> None:
        self.state: State = table.initial
        """Where it is in its table."""
        self.alarms = Alarms[Signal]()
        self.counters = ControlCounters()
        self._final = table.final
        self._runner = runner
        self._entropy = entropy
        self._timers = timers
        self._events: deque[Event] = deque()
        self._now = float("-inf")

    def signal(self, now: float, event: Signal, *subject: object) -> None:
        """Take an event of the table, with the message that it came by if one did.

        Raises ``StateError`` when the application caused it and the state refuses it.
        """
        self._runner.step(self, event, now, *subject)

    def handle_message(
        self,
        now: float,
        data: bytes,
        pipe: Pipe = None,
        session: SigningSession | None = None,
        *,
        through: Pipe = None,
    ) -> None:
        """Take one message from the bus; what nobody should send is dropped and counted.

        ``pipe`` is the connection that it came through, unless the message proves its sender, and
        ``session`` who has signed it, where servers have to sign; ``through`` is the connection in
        any case.
        """
        self._wake(now)
        if self.state in self._final:
            self.count_refused()
            return
        message = self._reader.take(data)
        if message is None:
            return
        if session is not None and not self._proofs.admits(message, session, self._own()):
            return
        if self._senders.admits(now, message, pipe):
            self._handle(now, message)
            self._senders.note(now, message, pipe, through)

    def handle_connected(self, now: float) -> None:
        """Say hello: a connection of the bus came up."""
        raise NotImplementedError

    def handle_disconnected(self, now: float, pipe: int) -> None:
        """Take it that a connection has ended: who spoke through it may come through another."""
        self._wake(now)
        for holder in self._senders.end(pipe):
            self._doubt(now, holder)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        self._wake(now)
        if self.state not in self._final:
            self._expire(now)
            self._runner.handle_timeout(self, now)

    def poll_timeout(self) -> float | None:
        """Return the absolute time of the next ``handle_timeout``; None once it is over."""
        return None if self.state in self._final else self._next_due()

    def poll_event(self) -> Event | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def _wake(self, now: float) -> None:
        awake, self._now = self._now, now
        if now - awake <= self._timers.heartbeat:
            return
        due = self.poll_timeout()
        lag = 0.0 if due is None else now - max(due, awake)
        if lag > self._timers.heartbeat:
            self.counters.add(Count.OVERSLEPT)
            self._senders.postpone_expiries(lag)
            self._postpone_expiries(lag)

    def count_refused(self) -> None:
        """Count what the network caused, and the state refuses."""
        self.counters.add(Count.REFUSED_BY_STATE)

    # What each of both does in its own way

    def _own(self) -> Holder:
        """Its id and nonce."""
        raise NotImplementedError

    def _handle(self, now: float, message: AnyMessage) -> None:
        """Do what a message means, whose sender is believed."""
        raise NotImplementedError

    def _doubt(self, now: float, holder: Holder) -> None:
        """The connection of a sender has ended."""

    def _expire(self, now: float) -> None:
        """Drop those that were silent for too long."""
        raise NotImplementedError

    def _postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by so many seconds."""
        raise NotImplementedError

    def _next_due(self) -> float | None:
        """The time at which an alarm rings, or somebody expires."""
        raise NotImplementedError
