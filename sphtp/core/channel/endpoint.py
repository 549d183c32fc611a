"""All channels behind one socket: finds the connection that a datagram belongs to."""

from collections.abc import Callable, Sequence

from sphtp.core.channel.accept_queue import AcceptQueue, opener_of
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.connection_table import ConnectionTable
from sphtp.core.channel.frames import DATA_FIRST
from sphtp.core.channel.gate.wire import decode_greet_untrusted
from sphtp.core.channel.handshake import (
    Connect,
    Refusal,
    TransportParameters,
    decode_accept_untrusted,
    decode_connect_untrusted,
    decode_refuse_untrusted,
)
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.memory import NodeMemory
from sphtp.core.channel.opening import Opening, make_dial, make_offer
from sphtp.core.channel.origins import Origins
from sphtp.core.channel.refusals import Refusals
from sphtp.core.channel.services import Services
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.simultaneous_open import SimultaneousOpen
from sphtp.core.channel.statistics import EndpointCounters
from sphtp.core.datagrams import MOST_BYTES, Address, Datagrams, divide
from sphtp.core.entropy import Secrets
from sphtp.core.front import FRONT, Kind, decode_front_untrusted
from sphtp.core.schema import Schema
from sphtp.errors import RemoteError


class Endpoint:
    """Opens and answers channels, and passes datagrams on by connection id.

    After an input, a command, or a command to a connection that ``touch`` then tells of, poll
    ``poll_transmit`` until None, ``poll_active`` until None for connections of which something may
    have changed, and ``poll_timeout``. ``peer_id`` is this side's id in the cluster, or 0;
    ``schema`` what messages must have alike on both sides.
    """

    def __init__(
        self,
        secrets: Secrets,
        settings: ChannelSettings,
        peer_id: int = 0,
        schema: Schema | None = None,
    ) -> None:
        self.peer_id = peer_id
        self.counters = EndpointCounters()
        self._secrets = secrets
        self._settings = settings
        self._make: Callable[..., Connection] = Connection
        self._memory = NodeMemory(settings.node_buffer_bytes)
        self._services = Services(schema or Schema(), settings.backlog, settings.timeout)
        self._refusals = Refusals(settings, self._services.main, self.counters)
        self._turns = ConnectionTable(self._settle)
        self._answered = Origins()
        self._dials = SimultaneousOpen()
        # The key that was proven by whoever sent what is being handled.
        self._asking = b""
        self._removed: Callable[[Connection], None] = lambda _: None
        self._handlers: dict[Kind, Callable[[float, Address, int, bytes], None]] = {
            Kind.CONNECT: self._handle_connect_untrusted,
            Kind.ACCEPT: self._handle_accept_untrusted,
            Kind.REFUSE: self._handle_refuse_untrusted,
            Kind.GREET: self._handle_greet_untrusted,
        }

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Every connection that has not ended, in the order of opening."""
        return tuple(self._turns)

    def find(self, connection_id: int) -> Connection | None:
        """The connection to which the peer sends under this id; it has a turn, being told of."""
        return self._turns.find(connection_id)

    @property
    def has_incoming(self) -> bool:
        """Whether ``poll_incoming`` has a channel to give."""
        return self._services.backlog(self._services.main).has_any

    # Commands

    def serve(self, schema: Schema) -> None:
        """Let in channels of this schema beside those of the application's."""
        self._services.add(schema)

    def dial(
        self,
        now: float,
        candidates: Sequence[Address],
        wanted: int = 0,
        *,
        schema: Schema | None = None,
    ) -> Connection:
        """Open a channel of a schema to the peer that answers at one of its addresses."""
        schema = schema or self._services.main
        offer, token = self._offer(schema), self._secrets.getrandbits(64)
        opening = make_dial(self._settings, offer, token, candidates, wanted, schema)
        connection = self._turns.add(self._connection(now, opening, State.CONNECTING))
        # Channels of other services have a direction: two that cross are two.
        if schema is self._services.main:
            self._dials.add(connection)
        connection.handle_start(now)
        return connection

    def observe(self, removed: Callable[[Connection], None]) -> None:
        """Call this with each connection that ended, or that gives up the id that it still has."""
        self._removed = removed

    def touch(self, connection: Connection) -> None:
        """Say that a command was given to a connection, so that it is polled."""
        self._turns.touch(connection)

    def close(self, now: float, why: str) -> None:
        """Abort every channel, and refuse new ones from now on.

        Channels that the peer has closed are left to linger.
        """
        self._services.is_closed = True
        for connection in self.connections:
            if connection.state is not State.LINGERING:
                connection.abort(now, why)
            self.touch(connection)

    # Inputs

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        """Take any datagrams; what is malformed or meant for nobody is counted and dropped."""
        is_one = len(datagrams.data) <= datagrams.size
        for alike in (datagrams,) if is_one else divide(datagrams, FRONT.size):
            data = alike.data
            if len(data) >= FRONT.size and data[0] == DATA_FIRST:
                _, connection_id = FRONT.unpack_from(data)
                connection = self._turns.find(connection_id)
                if connection is None:
                    self.counters.unknown += alike.number
                    continue
                if connection.state is State.ANSWERING:
                    connection = self._chosen(now, alike.address, connection)
                connection.handle_datagrams_untrusted(now, alike)
                continue
            for datagram in alike.datagrams:
                self._handle_other_untrusted(now, alike.address, datagram)

    def handle_row_untrusted(self, now: float, row: Datagrams) -> None:
        """Take datagrams that came together."""
        self.handle_datagrams_untrusted(now, row)

    def handle_datagram_untrusted(self, now: float, address: Address, datagram: bytes) -> None:
        """Take a datagram that came alone."""
        self.handle_datagrams_untrusted(now, Datagrams.of(address, datagram))

    def handle_introduced_untrusted(
        self, now: float, address: Address, key: bytes, datagram: bytes
    ) -> None:
        """Take a datagram from whoever has proven to have this key."""
        self._asking = key
        try:
            self.handle_datagram_untrusted(now, address, datagram)
        finally:
            self._asking = b""

    def handle_too_large(self, now: float, address: Address, size: int) -> None:
        """Take it that the host sends no datagram of that size to an address."""
        for connection in self.connections:
            if connection.address == address:
                connection.handle_too_large(now, size)
                self.touch(connection)

    def handle_timeout(self, now: float) -> None:
        """Do what is due by now."""
        for connection in self._turns.take_due(now):
            connection.handle_timeout(now)

    # Outputs

    def poll_transmit(self, now: float, most: int = MOST_BYTES) -> Datagrams | None:
        """The next datagrams to send; up to ``most`` bytes leave before anything can come up."""
        return self._refusals.poll_transmit() or self._turns.poll_transmit(now, most)

    def poll_active(self) -> Connection | None:
        """A connection of which something may have changed: room, messages, state."""
        return self._turns.poll_active()

    def poll_incoming(self, schema: Schema | None = None) -> Connection | None:
        """The next channel that another peer opened, for the application or of another schema."""
        return self._services.backlog(schema or self._services.main).take()

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` is due."""
        return self._turns.next_due()

    # Datagrams by kind

    def _handle_other_untrusted(self, now: float, address: Address, datagram: bytes) -> None:
        """Take a datagram that is no DATA."""
        try:
            kind, connection_id = decode_front_untrusted(datagram)
            handle = self._handlers.get(kind)
            if handle is None:
                raise RemoteError(f"{kind.name} is not for a side without keys")
            handle(now, address, connection_id, datagram)
        except RemoteError:
            self.counters.malformed += 1

    def _handle_accept_untrusted(
        self, now: float, address: Address, connection_id: int, datagram: bytes
    ) -> None:
        accept = decode_accept_untrusted(datagram)
        connection = self._find(connection_id)
        if connection is None:
            self._refusals.decline(address, accept, Refusal.GONE)
        elif connection.state is State.CONNECTING and connection.opening.is_misread(accept):
            connection.handle_refuse(now, address, self._refusals.decline_schema(address, accept))
        else:
            connection.handle_accept(now, address, accept)
            self._answered.note(connection)

    def _handle_refuse_untrusted(
        self, now: float, address: Address, connection_id: int, datagram: bytes
    ) -> None:
        refuse = decode_refuse_untrusted(datagram)
        connection = self._find(connection_id)
        if connection is not None:
            connection.handle_refuse(now, address, refuse)

    def _handle_connect_untrusted(
        self, now: float, address: Address, _: int, datagram: bytes
    ) -> None:
        connect = decode_connect_untrusted(datagram)
        origin = (address, connect.offer.connection_id)
        connection = self._answered.get(origin) or self._opened_by(now, address, connect)
        if connection is not None:
            connection.handle_connect(now, address, connect)
            self._answered.note(connection)
            self.touch(connection)

    def _handle_greet_untrusted(self, _now: float, address: Address, _: int, data: bytes) -> None:
        greet = decode_greet_untrusted(data)
        self._refusals.refuse_sealed(address, greet.opener, greet.token)

    # Openings

    def _opened_by(self, now: float, address: Address, connect: Connect) -> Connection | None:
        """Find or make the connection that a new CONNECT means."""
        if (why := self._services.objection_to(connect, self.peer_id)) is not None:
            self._refusals.refuse(address, connect, why)
            return None
        rivals = self._dials.crossed_by(address, connect)
        # Both dialled at once. The lowest token wins, which both sides can tell without a word.
        if any(rival.opening.token < connect.token for rival in rivals):
            return None
        return self._answer(now, address, connect, self._dials.free_id(rivals))

    def _answer(
        self, now: float, address: Address, connect: Connect, own: int
    ) -> Connection | None:
        schema = self._services.find(connect.offer.schema_hash) or self._services.main
        backlog = self._services.backlog(schema)
        # What crosses an attempt of ours may take its place.
        if not own and not self._has_room(now, backlog, address):
            self._refusals.refuse_full(address, connect, backlog)
            return None
        opening = Opening(self._offer(schema, own), connect.token, schema=schema)
        connection = self._turns.add(self._connection(now, opening, State.ANSWERING))
        (self._dials.cross if own else backlog.expect)(connection)
        return connection

    def _has_room(self, now: float, backlog: AcceptQueue, address: Address) -> bool:
        if len(self._turns) >= self._settings.max_channels:
            return False
        if not backlog.is_full:
            return True
        loser = backlog.make_room(now, opener_of(self._asking, address))
        if loser is None:
            return False
        self.counters.over_backlog += 1
        loser.abort(now, "nobody took the channel, and others wait")
        self.touch(loser)
        return True

    def _give_way(self, now: float, answered: Connection) -> Connection:
        """What crossed an attempt of ours is heard: return the connection that goes on."""
        dial = self._dials.decide(answered)
        if dial is None:
            self._services.expect(answered)
            return answered
        self._remove(dial)
        self._turns.remove(answered)
        self._answered.forget(answered)
        dial.handle_crossed(now, answered)
        self._answered.note(dial)
        return self._turns.add(dial)

    def _connection(self, now: float, opening: Opening, state: State) -> Connection:
        return self._make(now, self._settings, opening, state, self._memory)

    def _offer(self, schema: Schema, own: int = 0) -> TransportParameters:
        own = own or self._turns.new_id(self._secrets)
        return make_offer(self._settings, own, self.peer_id, schema.schema_hash)

    # Bookkeeping

    def _chosen(self, now: float, address: Address, answered: Connection) -> Connection:
        """The connection that goes on when DATA comes for one that was answered here."""
        is_crossing = self._dials.is_crossing(answered.connection_id)
        is_heard = is_crossing and address == answered.address
        return self._give_way(now, answered) if is_heard else answered

    def _find(self, connection_id: int) -> Connection | None:
        connection = self._turns.find(connection_id)
        if connection is None:
            self.counters.unknown += 1
        return connection

    def _settle(self, connection: Connection) -> None:
        """Nothing left to send: note whether the connection opened or ended."""
        if (crossing := self._dials.settle(connection)) is not None:
            self._services.expect(crossing)
        self._services.settle(connection)
        if connection.state is State.CLOSED:
            self._remove(connection)

    def _remove(self, connection: Connection) -> None:
        self._removed(connection)
        self._turns.remove(connection)
        self._dials.discard(connection.connection_id)
        self._answered.forget(connection)
