"""The base of the client and the server: a table, alarms, inputs and outputs.

A driver calls the ``handle_*`` methods with inputs, and with the present time as ``now``. After an
input, or a batch of messages, it takes the outputs until there are none: messages
(``poll_transmit``), connections (``poll_bus``), events (``poll_event``), and the time of the next
timer (``poll_timeout``).

Every message passes the same steps. The reader decodes its bytes into one object. The signature and
sender checks decide whether its sender is genuine. ``_handle`` does the work. Then the machine
records the connection of the message for its sender.

A process that did not run for a while (a laptop that was closed, a machine that swapped) must not
take this time for silence of others. So a machine whose timer is handled more than a heartbeat late
postpones every expiry by the delay.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.records import Holder
from sphtp.core.control.senders import (
    Pipe,
    SenderCheck,
    SenderConnections,
    SignatureProofs,
    SigningSession,
)
from sphtp.core.control.server_messages import AnyMessage, Known
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
        """The present state of the table."""
        self.alarms = Alarms[Signal]()
        self.counters = ControlCounters()
        self._final = table.final
        self._runner = runner
        self._entropy = entropy
        self._timers = timers
        self._events: deque[Event] = deque()
        self._now = float("-inf")

    def _open_inbound(
        self, known: Known, *, servers: Mapping[int, object], max_senders: int, for_client: bool
    ) -> None:
        """Make the reader and the checks of messages from the bus.

        ``known`` clients and ``servers`` are live mappings by id.
        """
        self._reader = MessageReader(self.counters, for_client=for_client, known=known)
        self._proofs = SignatureProofs(self.counters, servers)
        self._senders = SenderCheck(
            SenderConnections(self._timers.expiry / 2, max_senders),
            self.counters,
            servers=servers,
            clients={} if for_client else known,
        )

    def signal(self, now: float, event: Signal, *subject: object) -> None:
        """Step the table with a signal, and with the message that caused it if there is one.

        Raises ``StateError`` when the application caused the signal and the state refuses it.
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
        """Take one message from the bus. An unacceptable one is dropped and counted.

        ``pipe`` is the connection of the message, or None if the message itself proves its sender.
        ``session`` is the signer if servers have to sign. ``through`` is the connection in both
        cases, or None if it is unknown.
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
        """Send a heartbeat or an announcement, because a connection of the bus came up."""
        raise NotImplementedError

    def handle_disconnected(self, now: float, pipe: int) -> None:
        """Note that a connection has ended. Its senders may return through another one."""
        self._wake(now)
        for holder in self._senders.end(pipe):
            self._doubt(now, holder)

    def handle_timeout(self, now: float) -> None:
        """Expire silent members, and run the alarms that are due."""
        self._wake(now)
        if self.state not in self._final:
            self._expire(now)
            self._runner.handle_timeout(self, now)

    def poll_timeout(self) -> float | None:
        """Return the absolute time of the next ``handle_timeout``.

        None if no timer is set, and in a final state.
        """
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
        """Count a signal from the network that the present state refuses."""
        self.counters.add(Count.REFUSED_BY_STATE)

    # Implemented by ``ClientMachine`` and ``ServerMachine``

    def _own(self) -> Holder:
        """Return this machine's own id and nonce."""
        raise NotImplementedError

    def _handle(self, now: float, message: AnyMessage) -> None:
        """Handle a message whose sender has passed the checks."""
        raise NotImplementedError

    def _doubt(self, now: float, holder: Holder) -> None:
        """Note that the connection of a sender has ended."""

    def _expire(self, now: float) -> None:
        """Remove the servers, and at a server the clients, that were silent for ``expiry``
        seconds.
        """
        raise NotImplementedError

    def _postpone_expiries(self, lag: float) -> None:
        """Postpone every expiry by ``lag`` seconds."""
        raise NotImplementedError

    def _next_due(self) -> float | None:
        """Return the time of the next alarm or expiry."""
        raise NotImplementedError
