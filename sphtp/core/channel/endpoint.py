"""The endpoint: all channels of one socket, as in QUIC.

The endpoint passes each datagram to the connection whose id is in its front. It handles a datagram
without a connection itself. A CONNECT in the clear opens a connection, draws a REFUSE or, if this
side's own attempt wins, is ignored. A GREET begins a sealed handshake with the ``Responder``, which
passes the opener's CONNECT to the endpoint when the opener has proven its identity. A sealed
datagram for an unknown connection draws a stateless reset, up to a rate.

If an endpoint has ``Security``, all its channels are sealed; if it has none, all are in the clear.
In the clear it handles DATA, CONNECT, ACCEPT and REFUSE, and refuses a GREET. With security it
handles Noise handshakes, sealed datagrams, stateless resets, and a REFUSE in the clear as an
unauthenticated hint; it refuses a CONNECT in the clear. All other code serves both cases.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.connection_table import ConnectionTable
from sphtp.core.channel.flow_control import NodeMemory
from sphtp.core.channel.frames import DATA_FIRST, SEALED_FIRST
from sphtp.core.channel.handshake import (
    Accept,
    ClearHandshake,
    Refusal,
    Refuse,
    decode_accept_untrusted,
    decode_connect_untrusted,
    decode_refuse_untrusted,
)
from sphtp.core.channel.initiator import Initiator, SealedAnswer
from sphtp.core.channel.instrument import Drop, Instrument
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.noise import (
    SecurityContext,
    decode_answer_untrusted,
    decode_greet_untrusted,
    decode_stranger_untrusted,
)
from sphtp.core.channel.openings import ConnectRequest, Openings
from sphtp.core.channel.path_validation import decode_path_untrusted
from sphtp.core.channel.protection import PLAIN, SEAL_OVERHEAD, AesGcm, is_free
from sphtp.core.channel.responder import HandshakeProgress, Responder, ResponderHandshake
from sphtp.core.channel.security import HandshakeCounters, KeyLog, PeerPin, Security
from sphtp.core.channel.settings import ChannelSettings, Lane
from sphtp.core.channel.stateless_reset import (
    StatelessReset,
    decode_reset_untrusted,
    is_proven,
    reset_purpose,
)
from sphtp.core.channel.statistics import BoundCounters, EndpointCounters
from sphtp.core.datagrams import (
    FRONT,
    MOST_BYTES,
    MOST_DATAGRAMS,
    Address,
    Datagrams,
    Kind,
    decode_front_untrusted,
    split_by_front,
)
from sphtp.core.entropy import Secrets
from sphtp.core.schema import Schema
from sphtp.core.secure.identity import Identity
from sphtp.core.timers import INFINITY, earliest
from sphtp.errors import RemoteError, SettingsError, UnreachableError

TURN: Final = MOST_DATAGRAMS
TURN_BYTES: Final = MOST_BYTES
"""The packets and bytes that one connection sends before the next one has its turn: as much as one
system call sends."""

RENEW_AFTER: Final = 0.5
"""The share of ``connect_timeout`` for which an initiator waits for the answer to its CONFIRM, but
at most ``handshake_timeout``. It then begins a new handshake, for which the remaining time is left.
"""


class _Keys(NamedTuple):
    """The parts of an endpoint with security."""

    context: SecurityContext
    responder: Responder
    resets: StatelessReset
    renew_after: float


class Endpoint:
    """The channels of one socket: it opens and accepts them, and routes datagrams by connection id.

    After an input or a command, call ``poll_transmit`` until it returns None, or until
    ``poll_idle`` returns True. Then call ``poll_active`` until it returns None, and then
    ``poll_timeout``. After a command to a connection, call ``touch`` before these. ``idle_until``
    is a time before which no timer is due. Reading it costs nothing, but the first timer may be due
    later.

    ``peer_id`` is this side's id in the cluster, or 0. ``schema`` describes the application's
    messages, and must be equal on both sides. With ``security`` every channel is sealed. ``port``
    is then the port of the socket, 0 if there is none; the proofs of stateless resets depend on it.
    ``observer`` observes all channels. ``rendezvous`` is the number in the name of the Unix socket
    at which this node receives segments of shared memory, 0 if it receives none. ``key_log``
    records the keys of all channels. Raises ``SettingsError`` if ``settings`` leave no room for the
    bytes that sealing adds.
    """

    def __init__(
        self,
        secrets: Secrets,
        settings: ChannelSettings,
        peer_id: int = 0,
        schema: Schema | None = None,
        *,
        security: Security | None = None,
        port: int = 0,
        observer: Instrument | None = None,
        rendezvous: int = 0,
        key_log: KeyLog | None = None,
    ) -> None:
        self.counters = EndpointCounters()
        self.handshake_counters = HandshakeCounters()
        self.bounds = BoundCounters()
        self._secrets = secrets
        self._settings = settings.enveloped(SEAL_OVERHEAD) if security else settings
        # The settings for each schema whose channels have lanes of their own.
        self._settings_by_schema: dict[int, ChannelSettings] = {}
        self._observer = observer
        self._memory = NodeMemory(settings.node_buffer_bytes)
        self._table = ConnectionTable()
        # The connections that ``poll_active`` returns.
        self.active = self._table.active
        # The packets and bytes that the first ready connection has sent in its turn.
        self._turn_packets = self._turn_bytes = 0
        # A time before which no timer is due; ``poll_timeout`` makes it exact.
        self.idle_until = INFINITY
        # Datagrams that belong to no connection: refusals, resets and replies in handshakes.
        # Beyond ``backlog`` the oldest are dropped: strangers can cause them faster than the
        # socket sends, and an honest opener repeats its request.
        self._outgoing: deque[Datagrams] = deque(maxlen=settings.backlog)
        self._keys = self._make_keys(security, port, key_log) if security is not None else None
        self._openings = Openings(
            secrets,
            self._settings,
            schema or Schema(),
            self._table,
            self._outgoing,
            self.counters,
            peer_id=peer_id,
            responder=self._keys.responder if self._keys is not None else None,
            observer=observer,
            rendezvous=rendezvous,
        )
        self._accept_queues = self._openings.queues

    def _make_keys(self, security: Security, port: int, key_log: KeyLog | None) -> _Keys:
        identity = security.identity or Identity.draw(self._secrets)
        reset_key, limits = identity.derive(reset_purpose(port)), security.limits
        counters = self.handshake_counters
        context = SecurityContext(
            identity,
            self._secrets,
            security.authenticator,
            security.psk,
            reset_key,
            counters,
            key_log,
        )
        return _Keys(
            context,
            Responder(context, limits, self._table.peers, self._outgoing),
            StatelessReset(reset_key, limits.resets_per_second, counters),
            min(self._settings.connect_timeout * RENEW_AFTER, limits.handshake_timeout),
        )

    @property
    def peer_id(self) -> int:
        """The id of this side in the cluster, or 0."""
        return self._openings.peer_id

    @peer_id.setter
    def peer_id(self, value: int) -> None:
        self._openings.peer_id = value

    @property
    def is_sealed(self) -> bool:
        """True if the channels of this endpoint are sealed."""
        return self._keys is not None

    @property
    def half_open(self) -> int:
        """The number of sealed handshakes that peers have begun and not completed."""
        return 0 if self._keys is None else len(self._keys.responder)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """All connections in the table, in the order in which they were added.

        A connection that has ended leaves the table after its last datagrams have left.
        """
        return tuple(self._table)

    def find(self, connection_id: int) -> Connection | None:
        """Return the connection with an id and mark it ready and active; None if there is none."""
        return self._table.find(connection_id)

    @property
    def schema(self) -> Schema:
        """The schema of the application's messages."""
        return self._accept_queues.main

    @property
    def has_incoming(self) -> bool:
        """True if ``poll_incoming`` has a channel of the application's schema to return."""
        return self._accept_queues.queue(self._accept_queues.main).has_any

    # Commands

    def serve(self, schema: Schema, lanes: tuple[Lane, ...] = ()) -> None:
        """Accept channels of this schema, in addition to those of the application's schema.

        Channels of this schema have these ``lanes``, or those of the settings if there are none.
        """
        self._accept_queues.add(schema)
        if lanes:
            self._settings_by_schema[schema.schema_hash] = replace(self._settings, lanes=lanes)

    def stop_serving(self, schema: Schema) -> bool:
        """Refuse channels of this schema from now on. Accepted channels stay open.

        Return False, and change nothing, while a channel of this schema is half-open or waits to be
        accepted.
        """
        is_removed = self._accept_queues.remove(schema)
        if is_removed:
            self._settings_by_schema.pop(schema.schema_hash, None)
        return is_removed

    def dial(
        self,
        now: float,
        candidates: Sequence[Address],
        wanted: int = 0,
        pin: PeerPin | None = None,
        *,
        schema: Schema | None = None,
    ) -> Connection:
        """Open a channel to the first peer that accepts at one of the candidate addresses.

        ``wanted`` is the peer's id in the cluster, 0 for any peer. With security, the peer must
        have the key of ``pin``. By default this is the key that the authenticator has for the id
        ``wanted``. ``schema`` is by default that of the application.

        Raises ``SettingsError`` for a pin without security, and ``UnreachableError`` if the
        authenticator has an invalid key for ``wanted``.
        """
        keys, schema = self._keys, schema or self._accept_queues.main
        if keys is not None:
            pin = pin or self._pin(keys, wanted)
        elif pin is not None:
            raise SettingsError("a node in the clear cannot check a key")
        handshake = self._openings.make_dial(candidates, wanted, schema)
        initiator = None
        if keys is not None and pin is not None:
            opener, token = handshake.offer.connection_id, handshake.token
            initiator = Initiator(keys.context, pin, opener, token, keys.renew_after)
        connection = self._connection(now, handshake, State.CONNECTING, initiator)
        self._openings.add_dial(connection)
        connection.handle_start(now)
        return connection

    def touch(self, connection: Connection) -> None:
        """Mark a connection ready to be polled, after a command to it."""
        # The program may hold a connection that has left the table.
        if self._table.connections.get(connection.connection_id) is connection:
            self._table.ready[connection] = None

    def close(self, now: float, why: str) -> None:
        """Abort every channel with the reason ``why``, and refuse new ones from now on.

        Channels that the peer has closed linger until their linger time is over.
        """
        self._accept_queues.is_closed = True
        for connection in self.connections:
            if connection.state is not State.LINGERING:
                connection.abort(now, why)
            self.touch(connection)

    # Inputs

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        """Handle arriving datagrams.

        Datagrams that are malformed, forged or for no connection are dropped and counted.
        """
        keys, is_one = self._keys, len(datagrams.data) <= datagrams.size
        for alike in (datagrams,) if is_one else split_by_front(datagrams, FRONT.size):
            _, data, size = alike
            if keys is None:
                self._handle_clear_untrusted(now, alike)
            elif data[:1] == SEALED_FIRST and min(size, len(data)) >= SEAL_OVERHEAD:
                self._handle_sealed_untrusted(now, keys, (alike,))
            else:
                self._handle_unsealed_untrusted(now, keys, alike)

    def handle_rows_untrusted(self, now: float, rows: Sequence[Datagrams]) -> None:
        """Handle rows of datagrams in order, as ``handle_datagrams_untrusted`` does.

        Consecutive rows of one datagram each, from the peer of one open channel, are handled
        together, which costs less.
        """
        if len(rows) == 1:
            self.handle_datagrams_untrusted(now, rows[0])
            return
        for peer, group in groupby(rows, _peer_of_single):
            alike = list(group)
            if peer is None or len(alike) == 1 or not self._take_singles_untrusted(now, alike):
                for row in alike:
                    self.handle_datagrams_untrusted(now, row)

    def _take_singles_untrusted(self, now: float, rows: Sequence[Datagrams]) -> bool:
        """Handle rows with the same address and front; return False if none has been handled."""
        address, first, _ = rows[0]
        if min([len(row.data) for row in rows]) < SEAL_OVERHEAD:
            return False
        if self._keys is not None and first[:1] == SEALED_FIRST:
            self._handle_sealed_untrusted(now, self._keys, rows)
            return True
        if self._keys is not None or first[0] != DATA_FIRST:
            return False
        connection = self._table.find(FRONT.unpack_from(first)[1])
        if connection is None or connection.state is not State.OPEN:
            return False
        if connection.address != address:
            return False
        connection.handle_authentic_untrusted(now, address, [row.data for row in rows])
        return True

    def handle_too_large(self, now: float, address: Address, size: int) -> None:
        """Handle a datagram of ``size`` bytes to an address; the socket refused it as too large."""
        size -= 0 if self._keys is None else SEAL_OVERHEAD
        for connection in self.connections:
            if connection.address == address:
                connection.handle_too_large(now, size)
                self.touch(connection)

    def handle_timeout(self, now: float, *, is_blocked: bool = False) -> None:
        """Run the timers that are due by now.

        ``poll_transmit`` or ``poll_idle`` sets the timer of a connection when it has nothing to
        send. With ``is_blocked``, the timers of all ready connections are run as well: set it if a
        full socket keeps the caller from polling them.
        """
        if self._keys is not None:
            self._keys.responder.handle_timeout(now)
        if is_blocked:
            for connection in self._table.ready:
                connection.handle_timeout(now)
                # Its next turn to send, which would mark it active, may be far off.
                if connection.has_outcome or connection.state is State.CLOSED:
                    self.active[connection] = None
        for connection in self._table.take_due(now):
            connection.handle_timeout(now)

    def handle_candidate(self, now: float, connection: Connection, address: Address) -> None:
        """Handle a further address at which the peer of a connection may be reachable."""
        connection.handle_candidate(now, address, self._secrets)
        self.touch(connection)

    # Outputs

    def poll_transmit(self, now: float, most: int = MOST_BYTES) -> Datagrams | None:
        """Return the next datagrams to send; None if there are none.

        Datagrams with messages have at most ``most`` bytes together, before sealing; a single one
        may have more.
        """
        if self._outgoing:
            return self._outgoing.popleft()
        ready = self._table.ready
        while ready:
            connection = next(iter(ready))
            share = most // len(ready)
            if self._turn_bytes:
                share = min(share, TURN_BYTES - self._turn_bytes)
            transmit = connection.poll_transmit(now, share)
            if transmit is None:
                self._end_turn(connection)
                continue
            _, data, size = transmit
            self._turn_packets += -(-len(data) // size)
            self._turn_bytes += len(data)
            if self._turn_packets >= TURN or self._turn_bytes >= TURN_BYTES:
                self._turn_packets = self._turn_bytes = 0
                del ready[connection]
                ready[connection] = None
            return transmit
        return None

    def _end_turn(self, connection: Connection) -> None:
        """Set the timer of a connection that has nothing to send now, and process its state."""
        table = self._table
        self._turn_packets = self._turn_bytes = 0
        del table.ready[connection]
        due = connection.poll_timeout()
        if due != connection.timer:
            connection.timer = due
            table.timers.set(connection, due)
            if due is not None and due < self.idle_until:
                self.idle_until = due
        if connection not in self.active and connection.has_outcome:
            self.active[connection] = None
        if connection.state is not connection.noted or connection.state is State.CLOSED:
            self._openings.settle(connection)

    def poll_idle(self, now: float) -> bool:
        """Set the timers of the ready connections; return False if there may be datagrams to send.

        If it returns True, ``poll_transmit`` would return None, and the caller can omit that call,
        which costs more. This is the usual case after a connection has sent, and after most
        arriving packets: their ack waits for data to carry it, or for its timer.
        """
        for connection in tuple(self._table.ready):
            if connection.has_more(now):
                return False
            self._end_turn(connection)
        return not self._outgoing

    def poll_active(self) -> Connection | None:
        """Return the next connection that the application may be waiting for; None if none is left.

        Its send buffer, its received messages, its state or its tickets may have changed.
        """
        connection = next(iter(self.active), None)
        if connection is not None:
            del self.active[connection]
        return connection

    def poll_timeout(self) -> float | None:
        """Return when ``handle_timeout`` is next due; None if never."""
        due = self._table.timers.next_due()
        if self._keys is not None:
            due = earliest(due, self._keys.responder.poll_timeout())
        self.idle_until = INFINITY if due is None else due
        return due

    def poll_incoming(self, schema: Schema | None = None) -> Connection | None:
        """Return the next channel of a schema that a peer has opened; None if none waits.

        The schema is by default that of the application.
        """
        return self._accept_queues.queue(schema or self._accept_queues.main).take()

    # Datagrams in the clear

    def _handle_clear_untrusted(self, now: float, alike: Datagrams) -> None:
        """Handle datagrams with the same front: DATA of one connection, or handshake datagrams."""
        data = alike.data
        if len(data) >= FRONT.size and data[0] == DATA_FIRST:
            _, own = FRONT.unpack_from(data)
            self._handle_data_untrusted(now, alike, own)
            return
        for datagram in alike.datagrams:
            self._handle_opening_untrusted(now, alike.address, datagram)

    def _handle_opening_untrusted(self, now: float, address: Address, datagram: bytes) -> None:
        try:
            kind, own = decode_front_untrusted(datagram)
            if kind is Kind.CONNECT:
                self._handle_connect(
                    now, ConnectRequest(address, decode_connect_untrusted(datagram))
                )
            elif kind is Kind.ACCEPT:
                accept = decode_accept_untrusted(datagram)
                self._openings.handle_accept(now, address, own, accept)
            elif kind is Kind.REFUSE:
                refuse = decode_refuse_untrusted(datagram)
                if (connection := self._table.find(own)) is not None:
                    connection.handle_refuse(now, address, refuse)
                else:
                    self._count_unknown(now, Datagrams.of(address, datagram))
            elif kind is Kind.GREET:
                greet = decode_greet_untrusted(datagram)
                self._openings.refuse_greet(now, address, greet)
            else:
                raise RemoteError(f"{kind.name} is not for a side without keys")
        except RemoteError:
            self._count_malformed(now, address, datagram)

    def _handle_data_untrusted(self, now: float, data: Datagrams, own: int) -> None:
        connection = self._table.find(own)
        if connection is None or connection.state is State.CLOSED:
            self._count_unknown(now, data)
            return
        if connection.state is State.ANSWERING and data.address == connection.address:
            connection = self._openings.decide(now, connection)
        connection.handle_datagrams_untrusted(now, data)

    # Handshake datagrams of a node with keys

    def _handle_unsealed_untrusted(self, now: float, keys: _Keys, alike: Datagrams) -> None:
        for datagram in alike.datagrams:
            try:
                self._handle_handshake_untrusted(now, keys, alike.address, datagram)
            except RemoteError:
                self._count_malformed(now, alike.address, datagram)

    def _handle_handshake_untrusted(
        self, now: float, keys: _Keys, address: Address, datagram: bytes
    ) -> None:
        if (stranger := decode_stranger_untrusted(datagram)) is not None:
            self._openings.refuse_version(now, address, *stranger, datagram[0] >> 4)
            return
        kind, to = decode_front_untrusted(datagram)
        if kind is Kind.SEALED:
            raise RemoteError(f"a datagram of {len(datagram)} bytes cannot be sealed")
        if kind is Kind.GREET:
            greeted = keys.responder.handle_greet_untrusted(now, address, datagram)
            self._note_half_open(keys)
            self._handle_presented(now, greeted)
        elif kind is Kind.CONFIRM:
            confirmed = keys.responder.handle_confirm_untrusted(now, address, datagram)
            self._handle_presented(now, confirmed)
        elif kind is Kind.COOKIE:
            self._handle_cookie_untrusted(now, address, to, datagram)
        elif kind is Kind.WELCOME:
            self._handle_welcome_untrusted(now, keys, address, to, datagram)
        elif kind is Kind.REFUSE:
            self._handle_hint_untrusted(address, to, datagram)
        elif kind is Kind.RESET:
            self._handle_reset_untrusted(now, keys, address, to, datagram)
        else:
            self._refuse_clear_untrusted(address, kind, datagram)

    def _note_half_open(self, keys: _Keys) -> None:
        """Update ``idle_until`` with the time at which the next half-open handshake expires."""
        due = keys.responder.poll_timeout()
        if due is not None and due < self.idle_until:
            self.idle_until = due

    def _refuse_clear_untrusted(self, address: Address, kind: Kind, datagram: bytes) -> None:
        """Count a datagram in the clear, and refuse a CONNECT with the reason SEALED."""
        if kind is Kind.CONNECT:
            self._openings.refuse_in_the_clear(address, decode_connect_untrusted(datagram))
        self.handshake_counters.in_the_clear += 1

    def _handle_cookie_untrusted(
        self, now: float, address: Address, opener: int, datagram: bytes
    ) -> None:
        cookie = decode_answer_untrusted(datagram)
        if (connection := self._attempt(opener, cookie.token)) is not None:
            connection.handle_cookie(now, address, cookie.content)

    def _attempt(self, opener: int, token: int) -> Connection | None:
        """Return the dialling connection with this id and token, or None; mark it ready."""
        connection = self._table.connections.get(opener)
        if connection is None or connection.initiator is None:
            return None
        if connection.initiator.token != token:
            return None
        self.touch(connection)
        return connection

    def _handle_presented(
        self, now: float, output: ResponderHandshake | HandshakeProgress | None
    ) -> None:
        """Handle the responder's output: an opener's CONNECT, or progress of a connection."""
        if isinstance(output, ResponderHandshake):
            connect = decode_connect_untrusted(output.connect)
            self._handle_connect(now, ConnectRequest(output.origin[0], connect, output))
        elif output is not None and (connection := self.find(output.connection_id)) is not None:
            connection.handle_progress(now)

    def _handle_welcome_untrusted(
        self, now: float, keys: _Keys, address: Address, opener: int, datagram: bytes
    ) -> None:
        """Handle a WELCOME; reply to one for an unknown attempt with a stateless reset."""
        welcome = decode_answer_untrusted(datagram)
        connection = self._attempt(opener, welcome.token)
        if connection is None:
            self._answer_unknown(now, keys, address, opener, len(datagram))
            return
        answer = connection.handle_welcome_untrusted(now, address, welcome.content)
        if answer is not None:
            self._handle_answer_untrusted(now, connection, answer)

    def _handle_answer_untrusted(
        self, now: float, connection: Connection, answer: SealedAnswer
    ) -> None:
        """Handle an authentic ACCEPT or REFUSE."""
        message, there = answer.message, True
        if isinstance(message, Accept):
            remote = (answer.address, message.offer.connection_id)
            there = is_free(self._table.peers, answer.key, remote)
        if not connection.handle_answer_untrusted(now, answer, is_free=there):
            return
        if isinstance(message, Accept):
            self._openings.handle_accept(now, answer.address, connection.connection_id, message)
        else:
            connection.handle_refuse(now, answer.address, message)

    def _handle_hint_untrusted(self, address: Address, opener: int, datagram: bytes) -> None:
        """Record a REFUSE in the clear. It may explain a failure, but ends no attempt."""
        refuse = decode_refuse_untrusted(datagram)
        connection = self._attempt(opener, refuse.token)
        if connection is not None and connection.was_asked(address):
            connection.handle_hint(refuse)

    def _handle_reset_untrusted(
        self, now: float, keys: _Keys, address: Address, peer: int, datagram: bytes
    ) -> None:
        """Handle a RESET if it has the proof of the connection's peer; else count it as forged."""
        there = self._table.peers.get((address, peer))
        if there is None or not is_proven(decode_reset_untrusted(datagram), there.proof):
            self.handshake_counters.resets_forged += 1
            return
        self.handshake_counters.resets_taken += 1
        connection, half_open = self.find(there.own), keys.responder.find((address, peer))
        if connection is None:
            return
        if half_open is not None and not there.is_used:
            connection.handle_refuse(now, address, Refuse(half_open.token, Refusal.GONE))
        else:
            connection.handle_forgotten(now)

    def _answer_unknown(
        self, now: float, keys: _Keys, address: Address, unknown: int, size: int
    ) -> None:
        """Reply to a datagram of ``size`` bytes for an unknown connection with a RESET."""
        if unknown not in self._table.connections:
            reset = keys.resets.answer(now, address, unknown, size)
            if reset is not None:
                self._outgoing.append(reset)

    # Sealed datagrams

    def _handle_sealed_untrusted(self, now: float, keys: _Keys, rows: Sequence[Datagrams]) -> None:
        """Handle sealed datagrams of one connection: one row, or rows of one datagram each."""
        address, data, _ = rows[0]
        _, own = FRONT.unpack_from(data)
        connection = self._table.connections.get(own)
        protection = connection.protection if connection is not None else None
        if connection is None or not isinstance(protection, AesGcm):
            for unknown in rows:
                self._count_unknown(now, unknown)
                self._answer_unknown(now, keys, unknown.address, own, unknown.size)
            return
        is_elsewhere = address != connection.address
        newest = protection.unsealer.newest if is_elsewhere else 0
        opened: list[bytes] = []
        for row in rows:
            opened += protection.unsealer.open(row.data, row.size)
        if not opened:
            return
        # The opened datagrams are authentic. The connection has not changed before this point.
        self._table.ready[connection] = self.active[connection] = None
        if not protection.is_used:
            self._note_used(now, keys, connection, protection)
        if is_elsewhere and protection.unsealer.newest > newest:
            self._challenge(now, connection, protection, address)
        if connection.state is State.CLOSED:
            # The connection has ended, and its last datagrams have not left yet.
            for unknown in rows:
                self._count_unknown(now, unknown)
            return
        front, size = protection.data_front, len(opened[0])
        if len(opened) > 1 and all(plain.startswith(front) for plain in opened):
            if len(rows) > 1 and connection.state is State.OPEN:
                connection.handle_authentic_untrusted(now, address, opened)
                return
            if len(rows) == 1:
                opened = [b"".join(opened)]
        for plain in opened:
            if plain.startswith(front):
                if connection.state is State.ANSWERING:
                    connection = self._openings.decide(now, connection)
                size = size if len(opened) == 1 else len(plain)
                connection.handle_authentic_untrusted(now, address, plain, size)
                continue
            try:
                self._handle_opened_untrusted(now, connection, address, plain)
            except RemoteError:
                self._count_malformed(now, address, plain)

    def _note_used(
        self, now: float, keys: _Keys, connection: Connection, protection: AesGcm
    ) -> None:
        """Record that the peer uses the keys, and end its handshake."""
        protection.is_used = True
        connection.responder = None
        if connection.address is not None:
            keys.responder.handle_used(now, (connection.address, protection.peer), protection)

    def _challenge(
        self, now: float, connection: Connection, protection: AesGcm, address: Address
    ) -> None:
        """Validate a new address, from which the newest datagram of the peer came."""
        has_path = protection.peer and connection.address is not None
        if has_path and connection.challenge(now, address, self._secrets):
            self.handshake_counters.paths_tried += 1

    def _handle_opened_untrusted(
        self, now: float, connection: Connection, address: Address, datagram: bytes
    ) -> None:
        """Handle the content of a sealed datagram, other than DATA.

        Raises ``RemoteError`` if it is invalid.
        """
        kind, to = decode_front_untrusted(datagram)
        if to != connection.connection_id:
            raise RemoteError(f"{kind.name} is not sent to this connection")
        if kind is Kind.WELCOME:
            welcome = decode_answer_untrusted(datagram)
            answer = connection.read_confirmed_untrusted(welcome.token, welcome.content)
            if answer is not None:
                self._handle_answer_untrusted(now, connection, answer)
        elif kind is Kind.REFUSE:
            refuse = decode_refuse_untrusted(datagram)
            connection.handle_refuse(now, connection.address or address, refuse)
        elif kind is Kind.CHALLENGE:
            connection.handle_challenge(address, decode_path_untrusted(datagram))
        elif kind is Kind.RESPONSE:
            self._handle_response(now, connection, address, decode_path_untrusted(datagram))
        else:
            raise RemoteError(f"{kind.name} is not sent sealed")

    def _handle_response(
        self, now: float, connection: Connection, address: Address, nonce: int
    ) -> None:
        """Adopt a peer's new address after a valid RESPONSE from there."""
        protection, validation = connection.protection, connection.path_validation
        if validation is None or not isinstance(protection, AesGcm):
            return
        is_available = is_free(self._table.peers, protection.key, (address, protection.peer))
        if is_available and validation.take_response(address, nonce):
            self.handshake_counters.paths_changed += 1
            self._table.move(connection, now, address)

    # Connections

    def _handle_connect(self, now: float, request: ConnectRequest) -> None:
        """Handle a CONNECT that came in the clear or in a sealed handshake."""
        address, connect, responder = request
        connection = self._table.opened_from((address, connect.offer.connection_id))
        if connection is None:
            admission = self._openings.admit(now, request)
            if admission is None:
                return
            handshake, is_crossing = admission
            connection = self._connection(now, handshake, State.ANSWERING)
            self._openings.add_answered(connection, is_crossing=is_crossing)
        connection.handle_connect(now, address, connect, responder)
        self._table.index(connection)
        self.touch(connection)

    def _connection(
        self,
        now: float,
        handshake: ClearHandshake,
        state: State,
        initiator: Initiator | None = None,
    ) -> Connection:
        schema_hash = handshake.schema.schema_hash
        return Connection(
            now,
            self._settings_by_schema.get(schema_hash, self._settings),
            handshake,
            state,
            self._memory,
            self.bounds,
            initiator=initiator,
            protection=PLAIN if self._keys is None else None,
            observer=self._observer,
        )

    def _pin(self, keys: _Keys, wanted: int) -> PeerPin:
        try:
            return PeerPin(keys.context.authenticator.key_of(wanted))
        except SettingsError as error:
            text = f"peer {wanted:#010x} cannot be dialled: its {error}"
            raise UnreachableError(text) from error

    # Bookkeeping

    def _count_malformed(self, now: float, address: Address, datagram: bytes) -> None:
        self.counters.malformed += 1
        if self._observer is not None:
            size = len(datagram)
            self._observer.datagram_dropped(now, None, address, size, Drop.MALFORMED)

    def _count_unknown(self, now: float, row: Datagrams) -> None:
        self.counters.unknown += row.number
        if self._observer is not None:
            for datagram in row.datagrams:
                size = len(datagram)
                self._observer.datagram_dropped(now, None, row.address, size, Drop.UNKNOWN)


def _peer_of_single(row: Datagrams) -> tuple[Address, bytes] | None:
    """Return the address and the front of a row with one datagram; None for a longer row."""
    return (row.address, row.data[: FRONT.size]) if len(row.data) <= row.size else None
