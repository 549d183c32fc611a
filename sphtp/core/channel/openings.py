"""Openings: the attempts of an endpoint and its replies to CONNECTs, until a channel is open.

This side accepts a CONNECT with a new connection, refuses it with a REFUSE, or ignores it. It
refuses a CONNECT if it is closing, is not the wanted peer, has another schema, or has no room. A
REFUSE of a CONNECT is never longer than the CONNECT, or than ``base_datagram``.

Two peers may dial each other at once. Both sides see both tokens, and the attempt with the lower
token wins. The side whose attempt has the higher token accepts the peer's CONNECT by a second
connection, whose id is the answering id of its own attempt. Since its application holds the
attempt, the attempt adopts the second connection when the first packet arrives for that.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sphtp.core.channel.accept_queue import AcceptQueue, AcceptQueues, opener_of
from sphtp.core.channel.connection_table import ConnectionTable
from sphtp.core.channel.handshake import (
    Accept,
    ClearHandshake,
    Connect,
    Refusal,
    Refuse,
    TransportParameters,
    answering_id,
    encode_refuse,
    make_dial,
    make_offer,
)
from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.noise import GREET_OVERHEAD, Greet
from sphtp.core.channel.protection import AesGcm
from sphtp.core.channel.responder import Responder, ResponderHandshake
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.shared_memory import draw_rendezvous
from sphtp.core.channel.statistics import EndpointCounters
from sphtp.core.datagrams import Address, Datagrams, Kind
from sphtp.core.entropy import Secrets
from sphtp.core.schema import Mismatch, Schema

if TYPE_CHECKING:
    from sphtp.core.channel.connection import Connection


class ConnectRequest(NamedTuple):
    """A CONNECT that arrived from ``address``, with its handshake if it came sealed."""

    address: Address
    connect: Connect
    responder: ResponderHandshake | None = None


class Admission(NamedTuple):
    """The handshake with which this side accepts a CONNECT."""

    handshake: ClearHandshake
    is_crossing: bool
    """True if the CONNECT crossed an attempt of this side."""


class SimultaneousOpen:
    """The attempts of this side, and the accepted connections that cross them.

    A connection that crosses an attempt has the answering id of the attempt's id. The attempt
    continues until a packet of the peer arrives for that connection, because the crossing CONNECT
    may have been forged or recorded.
    """

    def __init__(self) -> None:
        self._dials: dict[int, Connection] = {}
        self._crossings: dict[int, Connection] = {}

    def __len__(self) -> int:
        return len(self._dials) + len(self._crossings)

    def add(self, dial: "Connection") -> None:
        """Add an attempt of this side."""
        self._dials[dial.connection_id] = dial

    def cross(self, answered: "Connection") -> None:
        """Add a connection that accepts a crossing CONNECT with an attempt's answering id."""
        self._crossings[answered.connection_id] = answered

    def discard(self, connection_id: int) -> None:
        """Remove the attempt or the crossing connection with this id, if there is one."""
        self._dials.pop(connection_id, None)
        self._crossings.pop(connection_id, None)

    def settle(self, connection: "Connection") -> "Connection | None":
        """Remove an attempt that has ended or is open; return the connection that crossed it.

        The caller handles the returned connection like any other accepted one. Return None if there
        is none, or if ``connection`` is no such attempt.
        """
        is_undecided = connection.state is State.CONNECTING
        if is_undecided or self._dials.pop(connection.connection_id, None) is None:
            return None
        return self._crossings.pop(answering_id(connection.connection_id), None)

    def is_crossing(self, connection_id: int) -> bool:
        """Return True if the accepted connection with this id crosses an attempt."""
        return connection_id in self._crossings

    def decide(self, answered: "Connection") -> "Connection | None":
        """Separate an accepted connection from the attempt that it crossed.

        Return the attempt if it still continues, else None.
        """
        del self._crossings[answered.connection_id]
        dial = self._dials.get(answering_id(answered.connection_id))
        return dial if dial is not None and dial.state is State.CONNECTING else None

    def crossed_by(self, address: Address, connect: Connect) -> "list[Connection]":
        """Return the attempts to reach the peer that sent this CONNECT.

        There are none if the CONNECT is that of an attempt of this side.
        """
        dials = [dial for dial in self._dials.values() if dial.state is State.CONNECTING]
        if any(dial.handshake.token == connect.token for dial in dials):
            return []
        return [dial for dial in dials if dial.handshake.is_from(address, connect)]

    def free_id(self, rivals: "Sequence[Connection]") -> int:
        """Return the answering id of the first attempt that no connection crosses; 0 if none."""
        ids = (answering_id(rival.connection_id) for rival in rivals)
        return next((it for it in ids if not self.is_crossing(it)), 0)


class Openings:
    """The openings of one endpoint: attempts, accepted CONNECTs, refusals, simultaneous opens.

    ``responder`` seals refusals; it is None for an endpoint in the clear. Datagrams to send are
    appended to ``outgoing``.
    """

    def __init__(
        self,
        secrets: Secrets,
        settings: ChannelSettings,
        schema: Schema,
        table: ConnectionTable,
        outgoing: deque[Datagrams],
        counters: EndpointCounters,
        *,
        peer_id: int = 0,
        responder: Responder | None = None,
        observer: Instrument | None = None,
        rendezvous: int = 0,
    ) -> None:
        self.queues = AcceptQueues(schema, settings.backlog, settings.timeout)
        self.peer_id = peer_id
        self._secrets = secrets
        self._settings = settings
        self._table = table
        self._outgoing = outgoing
        self._counters = counters
        self._responder = responder
        self._observer = observer
        self._rendezvous = rendezvous
        self._dials = SimultaneousOpen()

    # Attempts of this side

    def make_dial(
        self, candidates: Sequence[Address], wanted: int, schema: Schema
    ) -> ClearHandshake:
        """Return the handshake of a new attempt to reach the peer at the candidate addresses."""
        offer, token = self._offer(schema), self._secrets.getrandbits(64)
        # A sealed CONNECT travels inside a GREET.
        overhead = GREET_OVERHEAD if self._responder is not None else 0
        rendezvous = draw_rendezvous(self._rendezvous, self._secrets)
        return make_dial(
            self._settings, offer, token, candidates, wanted, schema, overhead, rendezvous
        )

    def add_dial(self, connection: "Connection") -> None:
        """Add a connection that dials."""
        self._table.add(connection)
        # In other schemas the two sides have different roles, so that two channels that cross stay
        # two.
        if connection.handshake.schema is self.queues.main:
            self._dials.add(connection)

    def handle_accept(self, now: float, address: Address, own: int, accept: Accept) -> None:
        """Handle an ACCEPT for the attempt with the id ``own``."""
        connection = self._table.find(own)
        if connection is None:
            self._counters.unknown += 1
            self._decline(address, accept, Refusal.GONE)
        elif connection.state is State.CONNECTING and connection.handshake.is_misread(accept):
            # Send a REFUSE to the peer, which waits for data, and end as if the peer had refused.
            self._decline(address, accept, Refusal.SCHEMA, connection)
            mismatch = Mismatch(accept.offer.schema_hash)
            refuse = Refuse(accept.token, Refusal.SCHEMA, mismatch)
            connection.handle_refuse(now, address, refuse)
        else:
            connection.handle_accept(now, address, accept)
            self._table.index(connection)

    # Attempts of peers

    def admit(self, now: float, request: ConnectRequest) -> Admission | None:
        """Return the handshake that accepts a new CONNECT; None if it is refused or ignored."""
        address, connect, _ = request
        if (why := self.queues.objection_to(connect, self.peer_id)) is not None:
            self._refuse(now, request, why)
            return None
        rivals = self._dials.crossed_by(address, connect)
        # Both sides dialled at once. If the attempt of this side has the lower token, it wins.
        if any(rival.handshake.token < connect.token for rival in rivals):
            return None
        own = self._dials.free_id(rivals)
        schema = self.queues.find(connect.offer.schema_hash) or self.queues.main
        queue = self.queues.queue(schema)
        # A CONNECT that crosses an attempt of this side needs no place in the accept queue.
        if not own and not self._has_room(now, queue, request):
            if queue.is_full:
                self._counters.over_backlog += 1
            else:
                self._counters.over_max_channels += 1
            self._refuse(now, request, Refusal.FULL)
            return None
        handshake = ClearHandshake(
            self._offer(schema, own),
            connect.token,
            schema=schema,
            rendezvous=draw_rendezvous(self._rendezvous, self._secrets),
        )
        return Admission(handshake, is_crossing=bool(own))

    def add_answered(self, connection: "Connection", *, is_crossing: bool) -> None:
        """Add a connection that accepts a CONNECT."""
        self._table.add(connection)
        if is_crossing:
            self._dials.cross(connection)
        else:
            self.queues.expect(connection)

    def _has_room(self, now: float, queue: AcceptQueue, request: ConnectRequest) -> bool:
        if len(self._table) >= self._settings.max_channels:
            return False
        if not queue.is_full:
            return True
        key = request.responder.key if request.responder is not None else b""
        loser = queue.make_room(now, opener_of(key, request.address))
        if loser is None:
            return False
        self._counters.over_backlog += 1
        loser.abort(now, "no task accepted the channel, and others wait")
        self._table.ready[loser] = None
        return True

    def _offer(self, schema: Schema, own: int = 0) -> TransportParameters:
        own = own or self._table.new_id(self._secrets)
        return make_offer(self._settings, own, self.peer_id, schema.schema_hash)

    # Decisions

    def decide(self, now: float, answered: "Connection") -> "Connection":
        """Return the connection that handles the packets for an accepted one from now on.

        Call it when the first packet arrives for ``answered``. If that crossed an attempt of this
        side that still continues, the attempt adopts it, because the application holds the attempt.
        """
        if not self._dials.is_crossing(answered.connection_id):
            return answered
        dial = self._dials.decide(answered)
        if dial is None:
            self.queues.expect(answered)
            return answered
        self._remove(dial)
        self._table.remove(answered)
        dial.handle_crossed(now, answered)
        self._table.add(dial)
        return dial

    def settle(self, connection: "Connection") -> None:
        """Update the queues after a connection has changed state and has nothing left to send."""
        connection.noted = connection.state
        if (crossing := self._dials.settle(connection)) is not None:
            self.queues.expect(crossing)
        self.queues.settle(connection)
        if connection.state is State.CLOSED:
            self._remove(connection)

    def _remove(self, connection: "Connection") -> None:
        self._table.remove(connection)
        self._dials.discard(connection.connection_id)

    # Refusals

    def refuse_greet(self, now: float, address: Address, greet: Greet) -> None:
        """Refuse a GREET, because this side has no keys."""
        self._count_refusal(now, address, Refusal.CLEAR)
        refuse = Refuse(greet.token, Refusal.CLEAR)
        self._send(address, encode_refuse(greet.opener, refuse))

    def refuse_in_the_clear(self, address: Address, connect: Connect) -> None:
        """Refuse a CONNECT in the clear, because this side has keys."""
        refuse = Refuse(connect.token, Refusal.SEALED)
        self._send(address, encode_refuse(connect.offer.connection_id, refuse))

    def refuse_version(
        self, now: float, address: Address, opener: int, token: int, version: int
    ) -> None:
        """Refuse a GREET of another protocol version."""
        self._count_refusal(now, address, Refusal.VERSION)
        refuse = encode_refuse(opener, Refuse(token, Refusal.VERSION))
        # The refusal has the opener's version, because the opener decodes no other.
        first = bytes([version << 4 | Kind.REFUSE])
        self._send(address, first + refuse[1:])

    def _refuse(self, now: float, request: ConnectRequest, why: Refusal) -> None:
        """Refuse a CONNECT, sealed if it came in a sealed handshake."""
        address, connect, responder = request
        self._count_refusal(now, address, why)
        schema = self.queues.main
        mismatch = schema.compare(connect.digests) if why is Refusal.SCHEMA else None
        room = min(connect.size, self._settings.base_datagram)
        refuse = Refuse(connect.token, why, mismatch)
        datagram = encode_refuse(connect.offer.connection_id, refuse, room)
        if responder is None or self._responder is None:
            self._send(address, datagram)
        else:
            self._responder.refuse(responder, datagram)

    def _decline(
        self, address: Address, accept: Accept, why: Refusal, connection: "Connection | None" = None
    ) -> None:
        """Refuse an ACCEPT: sealed if there are keys for it, in the clear if this side has none."""
        schema_hash = self.queues.main.schema_hash
        mismatch = Mismatch(schema_hash) if why is Refusal.SCHEMA else None
        refuse = Refuse(accept.token, why, mismatch)
        datagram = encode_refuse(accept.offer.connection_id, refuse)
        protection = connection.protection if connection is not None else None
        if isinstance(protection, AesGcm):
            self._outgoing.append(protection.seal(address, datagram, len(datagram)))
        elif self._responder is None:
            self._send(address, datagram)

    def _send(self, address: Address, datagram: bytes) -> None:
        self._outgoing.append(Datagrams.of(address, datagram))

    def _count_refusal(self, now: float, address: Address, why: Refusal) -> None:
        match why:
            case Refusal.FULL:
                self._counters.refused_full += 1
            case Refusal.WRONG_PEER:
                self._counters.refused_wrong_peer += 1
            case Refusal.GONE:
                self._counters.refused_closed += 1
            case Refusal.SCHEMA:
                self._counters.refused_schema += 1
            case Refusal.CLEAR:
                self._counters.refused_sealed += 1
            case Refusal.VERSION:
                self._counters.refused_version += 1
        if self._observer is not None:
            self._observer.channel_refused(now, address, why)
