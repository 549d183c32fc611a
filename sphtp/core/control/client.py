"""The client of the control plane: runs the table, and tells its parts what servers say."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sphtp.core.control import events
from sphtp.core.control.client_ear import ClientEar
from sphtp.core.control.client_table import (
    CLIENT,
    NACKS,
    ClientAction,
    ClientSignal,
    ClientState,
)
from sphtp.core.control.client_voice import ClientVoice
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.directory import Directory
from sphtp.core.control.doorkeeper import Doorkeeper, Pipe
from sphtp.core.control.identity import Identity
from sphtp.core.control.intake import Intake
from sphtp.core.control.limits import ClientLimits
from sphtp.core.control.liveness import SleepWatch
from sphtp.core.control.origins import Origins
from sphtp.core.control.outputs import BusCommand
from sphtp.core.control.proofs import Proofs, Session
from sphtp.core.control.records import (
    MAX_MEMBERS,
    Candidate,
    ClusterView,
    Member,
    PeerRecord,
    ServerAddress,
)
from sphtp.core.control.timers import ControlTimers
from sphtp.core.control.vocabulary import Reason
from sphtp.core.entropy import Entropy, Secrets
from sphtp.core.fsm import Alarms, Runner
from sphtp.core.timers import earliest
from sphtp.errors import StateError

_DEFAULT_LIMITS = ClientLimits()

_S, _E, _A = ClientState, ClientSignal, ClientAction


class ClientMachine:
    """One client: finds an id that every server acknowledges, keeps it, and knows its peers.

    ``entropy`` decides, ``secrets`` makes nonces; ``key`` is its public key, which peers learn;
    ``ids`` makes it announce these ids before it draws any. Raises ``SettingsError`` and
    ``MessageTooLargeError``.
    """

    def __init__(
        self,
        entropy: Entropy,
        timers: ControlTimers,
        *,
        secrets: Secrets,
        servers: Sequence[ServerAddress],
        candidates: Sequence[Candidate],
        data: bytes = b"",
        key: bytes = b"",
        ids: Iterator[int] | None = None,
        limits: ClientLimits = _DEFAULT_LIMITS,
    ) -> None:
        self.state = CLIENT.initial
        """Where the client is on its way."""
        self.alarms = Alarms[ClientSignal]()
        self.counters = Counters()
        self._entropy = entropy
        self._timers = timers
        self._events: deque[events.ClientEvent] = deque()
        self._identity = Identity(entropy, secrets, ids or iter(()))
        self._voice = ClientVoice(self._identity, candidates, data, key)
        self._directory = Directory(
            timers, servers, self.counters, self._events.append, limits.max_peers
        )
        self._intake = Intake(self.counters, for_client=True, known=self._directory.roster.records)
        self._doors = Doorkeeper(
            Origins(timers.expiry / 2, MAX_MEMBERS),
            self.counters,
            is_server=self._directory.is_heard,
        )
        self._proofs = Proofs(
            self.counters,
            own=lambda: self._identity.holder,
            is_server=self._directory.is_heard,
        )
        self._sleep = SleepWatch(timers.heartbeat, self.counters)
        self._ear = ClientEar(
            self._identity,
            self._directory,
            self._voice,
            self,
            self.counters,
            self._events.append,
        )

    @property
    def id(self) -> int:
        """The id announced or held; 0 before the first one was drawn."""
        return self._identity.id

    @property
    def nonce(self) -> int:
        """What tells this holder of the id from others; 0 while no id is announced or held."""
        return self._identity.nonce

    @property
    def last_refusal(self) -> Reason | None:
        """What the last NACK said; None when there was none."""
        return self._ear.refusals.last

    @property
    def peers(self) -> Mapping[int, PeerRecord]:
        """The other clients by id."""
        return self._directory.roster.peers

    @property
    def servers(self) -> Mapping[int, Member]:
        """The living servers by id."""
        return self._directory.servers

    @property
    def view(self) -> ClusterView:
        """The servers that have to acknowledge."""
        return self._directory.view

    def signal(self, now: float, event: ClientSignal) -> None:
        """Take an event of the table. Raises ``StateError`` when it is to leave and cannot."""
        self._RUNNER.step(self, event, now)

    def handle_start(self, now: float) -> None:
        """Connect to the servers (seed, step 2)."""
        self._wake(now)
        self._directory.start()

    def handle_connected(self, now: float) -> None:
        """Say hello at once: a bus connection came up."""
        self._wake(now)
        self.signal(now, _E.CONNECTED)

    def handle_message(
        self,
        now: float,
        data: bytes,
        pipe: Pipe = None,
        session: Session | None = None,
        *,
        through: Pipe = None,
    ) -> None:
        """Take one message from the bus; what nobody should send is dropped and counted.

        ``pipe`` is the connection that it came through, unless the message proves its sender, and
        ``session`` who has signed it, where servers have to sign; ``through`` is the connection in
        any case.
        """
        self._wake(now)
        if self._is_over:
            self.counters.add(Count.REFUSED_BY_STATE)
            return
        message = self._intake.take(data, skips_lists=not self._directory.needs_lists)
        if message is None or not self._proofs.admits(message, session):
            return
        if self._doors.admits(now, message, pipe):
            self._ear.hear(now, message)
            self._doors.note(now, message, pipe)

    def handle_disconnected(self, _: float, pipe: int) -> None:
        """Take it that a connection has ended: who spoke through it may come through another."""
        self._doors.end(pipe)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        self._wake(now)
        self._directory.handle_timeout(now)
        self._ear.look_around(now)
        self._RUNNER.handle_timeout(self, now)

    def lookup(self, now: float, peer_id: int) -> None:
        """Ask servers for one peer; it comes as an event, and so does it when all know nobody.

        A client that is not established asks as soon as it is.
        """
        self._wake(now)
        self._directory.search(peer_id)
        if self.state is _S.ESTABLISHED:
            self._voice.lookup(peer=peer_id)

    def set_data(self, now: float, data: bytes) -> None:
        """Replace the initial simulation data. Raises ``MessageTooLargeError``."""
        self._wake(now)
        self._voice.set_data(data)
        self.signal(now, _E.REVISED)

    def set_topics(self, now: float, topics: Iterable[str]) -> None:
        """Replace the topics that this client's sources have. Raises ``SettingsError``."""
        self._wake(now)
        self._voice.set_topics(topics)
        self.signal(now, _E.REVISED)

    def publish(self, now: float, command: int, parameters: Sequence[Parameter]) -> None:
        """Send a command of the application to all servers. Raises ``StateError``."""
        self._wake(now)
        if self.state is not _S.ESTABLISHED:
            raise StateError(f"a client that is {self.state.value} holds no id")
        self._voice.publish(command, parameters)

    def leave(self, now: float) -> None:
        """Give the id up and stop. Raises ``StateError`` when that has happened already."""
        self.signal(now, _E.LEAVE)

    def poll_timeout(self) -> float | None:
        """Return the absolute time of the next ``handle_timeout``."""
        if self._is_over:
            return None
        return earliest(self.alarms.next_due(), self._directory.next_due())

    def poll_transmit(self) -> bytes | None:
        """Return the next message to publish, or None."""
        return self._voice.poll()

    def poll_bus(self) -> BusCommand | None:
        """Return the next change of subscriptions or connections, or None."""
        return self._identity.poll_bus() or self._directory.poll_bus()

    def poll_event(self) -> events.ClientEvent | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def _wake(self, now: float) -> None:
        if self._sleep.is_awake(now):
            return
        lag = self._sleep.overslept(now, self.poll_timeout())
        if lag:
            self._directory.forgive(lag)
            self._doors.forgive(lag)
            self.alarms.postpone(_E.DEADLINE, lag)

    @property
    def _is_over(self) -> bool:
        return self.state in CLIENT.final

    # What the table does

    def _draw_id(self, _: float) -> None:
        self._identity.draw(self._directory.roster.__contains__)
        self._directory.roster.ignore(self._identity.holder)
        self._directory.forget_answers()

    def _lookup(self, _: float) -> None:
        self._voice.lookup()
        for peer in self._directory.search_again():
            self._voice.lookup(peer=peer)

    def _announce(self, now: float) -> None:
        self._voice.announce()
        self.alarms.set(_E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _confirm(self, now: float) -> None:
        if not self._directory.is_unanimous:
            self._announce(now)

    def _heartbeat(self, now: float) -> None:
        self._voice.heartbeat()
        self.alarms.set(_E.HEARTBEAT_DUE, now + self._timers.next_heartbeat(self._entropy))

    def _await_answers(self, now: float) -> None:
        self.alarms.set(_E.DEADLINE, now + self._timers.announce_deadline)

    def _pause(self, now: float) -> None:
        self.alarms.set(_E.BACKED_OFF, now + self._timers.next_backoff(self._entropy))

    def _send_data(self, _: float) -> None:
        self._voice.send_data()

    def _forget_answers(self, _: float) -> None:
        self._directory.forget_answers()

    def _withdraw(self, _: float) -> None:
        self._voice.withdraw()

    def _keep_peers(self, now: float) -> None:
        self._directory.keep_peers(now)

    def _tell_established(self, _: float) -> None:
        self._events.append(events.Established(self.id, resumed=False))

    def _tell_resumed(self, _: float) -> None:
        self._events.append(events.Established(self.id, resumed=True))

    def _tell_suspended(self, _: float) -> None:
        self._events.append(events.Suspended())

    def _tell_id_lost(self, _: float) -> None:
        self._events.append(events.IdLost(self.id, self._ear.refusals.why))

    def _tell_refused(self, _: float) -> None:
        self._events.append(events.Refused(self._ear.refusals.why))

    def _tell_left(self, _: float) -> None:
        self._events.append(events.Left())

    def _count_refused(self) -> None:
        self.counters.add(Count.REFUSED_BY_STATE)

    _RUNNER = Runner(
        CLIENT,
        {
            _A.DRAW_ID: _draw_id,
            _A.ANNOUNCE: _announce,
            _A.CONFIRM: _confirm,
            _A.HEARTBEAT: _heartbeat,
            _A.SEND_DATA: _send_data,
            _A.LOOKUP: _lookup,
            _A.AWAIT_ANSWERS: _await_answers,
            _A.PAUSE: _pause,
            _A.FORGET_ANSWERS: _forget_answers,
            _A.WITHDRAW: _withdraw,
            _A.KEEP_PEERS: _keep_peers,
            _A.TELL_ESTABLISHED: _tell_established,
            _A.TELL_RESUMED: _tell_resumed,
            _A.TELL_SUSPENDED: _tell_suspended,
            _A.TELL_ID_LOST: _tell_id_lost,
            _A.TELL_REFUSED: _tell_refused,
            _A.TELL_LEFT: _tell_left,
        },
        raised={_E.LEAVE},
        counted=NACKS,
        ignored=set(_E) - NACKS - {_E.LEAVE},
        count=_count_refused,
        timed=True,
    )
