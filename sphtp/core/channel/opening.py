"""What one side knows while a channel opens: who it offers to be, and where the peer may be."""

from collections.abc import Iterator, Sequence

from sphtp.core.channel.gate.wire import GREET_OVERHEAD
from sphtp.core.channel.handshake import (
    CONNECT_SIZE,
    Accept,
    Connect,
    Refusal,
    Refuse,
    TransportParameters,
    encode_accept,
    encode_connect,
)
from sphtp.core.channel.handshake_timer import HandshakeTimer
from sphtp.core.channel.lifecycle import Event
from sphtp.core.channel.path_mtu import FLOOR
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.schema import Schema
from sphtp.core.serial import wrap

# Who began a channel: its address and its connection id.
Origin = tuple[Address, int]


def sibling(connection_id: int) -> int:
    """The id under which the side that dials with this one answers what crosses its attempt."""
    return connection_id ^ 1


class Opening:
    """The handshake's data; its states are in ``lifecycle``.

    ``candidates`` are the addresses at which the peer is dialled, all at once; the first to answer
    is used. ``wanted`` is the peer's id in the cluster, 0 for whoever is there. ``connect_size`` is
    that of a CONNECT, in bytes. ``timer`` says when what this side sends goes again.
    """

    def __init__(
        self,
        offer: TransportParameters,
        token: int,
        candidates: Sequence[Address] = (),
        wanted: int = 0,
        schema: Schema | None = None,
        connect_size: int = CONNECT_SIZE,
    ) -> None:
        self.offer = offer
        self.token = token
        self.candidates = tuple(candidates)
        self.wanted = wanted
        self.schema = schema or Schema()
        self.timer = HandshakeTimer()
        self._connect_size = connect_size
        self.origin: Origin | None = None
        self.granted: Connect | None = None
        self._silent = set(self.candidates)
        self._grant: Datagrams | None = None

    @property
    def is_dialled(self) -> bool:
        """Whether this side wanted the channel first."""
        return bool(self.candidates)

    @property
    def has_won(self) -> bool:
        """Whether the peer accepted this attempt, so that one of its own is not answered."""
        return self.origin is not None and self.granted is None

    def is_from(self, address: Address, connect: Connect) -> bool:
        """Whether a CONNECT comes from the very peer that is being dialled here, for the same."""
        if connect.offer.schema_hash != self.schema.schema_hash:
            return False
        if self.wanted:
            return connect.offer.peer_id == self.wanted
        return address in self.candidates

    def is_misread(self, accept: Accept) -> bool:
        """Whether an ACCEPT is meant for this attempt, by a peer whose messages are others."""
        is_alike = accept.offer.schema_hash == self.schema.schema_hash
        return self.is_answered_by(accept) and not is_alike

    def is_answered_by(self, accept: Accept) -> bool:
        """Whether an ACCEPT is meant for this attempt, and comes from the peer meant by it."""
        return accept.token == self.token and self.wanted in (0, accept.offer.peer_id)

    def connects(self) -> Iterator[Datagrams]:
        """CONNECT to every candidate."""
        digests, size = self.schema.digests, self._connect_size
        datagram = encode_connect(Connect(self.token, self.wanted, self.offer, digests, size))
        return (
            Datagrams.of(address, datagram)
            for address in self.candidates
            if address in self._silent
        )

    def give_way(self, answered: "Opening") -> tuple[Address, TransportParameters]:
        """Go on with the peer's attempt as it was answered; return its address and its offer."""
        assert answered.origin is not None
        assert answered.granted is not None
        self.offer = answered.offer
        self.grant(answered.origin[0], answered.granted)
        return answered.origin[0], answered.granted.offer

    def accepted(self, address: Address, accept: Accept) -> None:
        """Take note of where the peer's own attempt comes from, should it have crossed this."""
        self.origin = (address, sibling(accept.offer.connection_id))

    def grant(self, address: Address, connect: Connect) -> None:
        """Remember how to answer this CONNECT, as often as it comes."""
        accept = encode_accept(connect.offer.connection_id, Accept(connect.token, self.offer))
        self._grant = Datagrams.of(address, accept)
        self.granted = connect
        self.origin = (address, connect.offer.connection_id)

    def accepts(self) -> Iterator[Datagrams]:
        """ACCEPT to the peer whose CONNECT was granted."""
        if self._grant is not None:
            yield self._grant

    def refusal(self, address: Address, refuse: Refuse) -> Event | None:
        """What a REFUSE means.

        It ends the attempt here when no candidate is left that may still accept. Or it declines
        the ACCEPT that was sent, because the peer's attempt is over.
        """
        if self.granted is not None and self.origin is not None:
            is_ours = (address, refuse.token) == (self.origin[0], self.granted.token)
            return Event.DECLINED if is_ours else None
        if refuse.token != self.token:
            return None
        self._silent.discard(address)
        if self.wanted and refuse.reason == Refusal.SCHEMA:
            # Only the peer meant compares messages, and it does not change at another address.
            self._silent.clear()
        return None if self._silent else Event.REFUSED


def make_dial(
    settings: ChannelSettings,
    offer: TransportParameters,
    token: int,
    candidates: Sequence[Address],
    wanted: int,
    schema: Schema,
) -> Opening:
    """What a side with these settings begins with when it dials."""
    return Opening(offer, token, candidates, wanted, schema, connect_size(settings, schema))


def connect_size(settings: ChannelSettings, schema: Schema) -> int:
    """How large a CONNECT is: with the digests of a schema as large as any path takes.

    That is the floor and not the base: what does not arrive cannot say so.
    """
    if not schema.lines:
        return CONNECT_SIZE
    envelope = settings.envelope
    size = min(settings.base_datagram + envelope, FLOOR)
    # What is put into an envelope later starts in a GREET.
    return max(size - GREET_OVERHEAD if envelope else size, CONNECT_SIZE)


def make_offer(
    settings: ChannelSettings, connection_id: int, peer_id: int, schema_hash: int
) -> TransportParameters:
    """What a side with these settings says of itself."""
    return TransportParameters(
        connection_id=connection_id,
        peer_id=peer_id,
        first_sequence=wrap(settings.first_sequence),
        receive_buffer=settings.receive_buffer,
        receive_buffer_bytes=settings.receive_buffer_bytes,
        max_datagram=settings.max_datagram,
        max_message=settings.max_message,
        schema_hash=schema_hash,
    )
