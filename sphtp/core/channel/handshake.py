"""The handshake in the clear: CONNECT, ACCEPT and REFUSE, and the timer that retransmits them.

The dialling side sends CONNECT to the addresses of the peer, and the peer replies with ACCEPT or
REFUSE. CONNECT and ACCEPT carry the transport parameters of their sender (RFC 9000, section 18). A
CONNECT is padded so that no reply is longer: an attacker gains nothing by a forged source address.
A reply repeats the opener's token, a random number that identifies the attempt. In a sealed channel
the same three messages travel inside Noise messages: see ``noise``.

``HandshakeTimer`` decides when a flight is retransmitted, like a probe timeout (RFC 9002, 6.2). A
flight is the datagrams that one side sends until the next step of the other side arrives. In the
clear there is one, CONNECT. In a sealed channel there are up to three: GREET, GREET with the
cookie, and CONFIRM. Each flight starts with a fresh timer, because a reply shows that the path and
the peer work, however long it took.

While the round trip is unknown, the waits begin with 0.1 s and grow by a quarter, up to 0.2 s. That
makes 27 tries in the 5 s of silence after which an attempt ends. If half of the datagrams are lost
each way, three of four tries fail, and all 27 fail with a probability of 0.75 ** 27, which is
0.04 %.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sphtp.core.channel.lifecycle import Event
from sphtp.core.channel.path_mtu import FLOOR
from sphtp.core.channel.settings import SMALLEST_DATAGRAM, ChannelSettings
from sphtp.core.channel.shared_memory import (
    RENDEZVOUS_SIZE,
    Rendezvous,
    encode_rendezvous,
    take_rendezvous_untrusted,
)
from sphtp.core.datagrams import FRONT, Address, Datagrams, Kind, encode_front
from sphtp.core.schema import Mismatch, Schema
from sphtp.core.serial import wrap
from sphtp.core.wire import Reader, Writer
from sphtp.errors import RemoteError, untrusted

CONNECT_SIZE = 64
# Bytes before the digests of a CONNECT, and before the line of a REFUSE.
CONNECT_HEAD = 48
REFUSE_HEAD = 26
MOST_DIGESTS = 255
CUT = b"..."


class Refusal(IntEnum):
    """The reason to refuse a CONNECT, a GREET or an ACCEPT.

    GONE refuses an ACCEPT for an attempt that has ended, and a CONNECT to a node that is closing.
    SCHEMA refuses a CONNECT or an ACCEPT of a peer with another schema. The others refuse no
    ACCEPT.
    """

    FULL = 1
    WRONG_PEER = 2
    GONE = 3
    SCHEMA = 4
    VERSION = 5
    SEALED = 6
    CLEAR = 7
    DENIED = 8


class AnswerRejection(IntEnum):
    """The reason why a dialling side rejects an answer. Its numbers do not travel in a REFUSE."""

    IMPOSTOR = 256


@dataclass(frozen=True, slots=True)
class TransportParameters:
    """The parameters that each side sends when a channel opens.

    ``connection_id`` is the id to which the other side sends from then on. ``peer_id`` is the
    sender's id in the cluster, 0 if it has none. ``first_sequence`` is its first packet sequence,
    and its first id of reliable messages in each lane, cut to 16 bits. ``receive_buffer`` and
    ``receive_buffer_bytes`` are its receive window, in messages and in bytes. ``max_datagram`` and
    ``max_message`` are the largest sizes that it accepts, in bytes. ``schema_hash`` identifies the
    types of its messages, 0 for none.
    """

    connection_id: int
    peer_id: int
    first_sequence: int
    receive_buffer: int
    receive_buffer_bytes: int
    max_datagram: int
    max_message: int
    schema_hash: int = 0


@dataclass(frozen=True, slots=True)
class Connect:
    """A request to open a channel.

    ``wanted`` is the cluster id of the peer to open it with, 0 for any peer. Each of the
    ``digests`` identifies one type of message. ``size`` is the size of the datagram in bytes, which
    a reply must not exceed. ``rendezvous`` is None unless the opener can receive messages through
    shared memory.
    """

    token: int
    wanted: int
    offer: TransportParameters
    digests: tuple[int, ...] = ()
    size: int = CONNECT_SIZE
    rendezvous: Rendezvous | None = None


@dataclass(frozen=True, slots=True)
class Accept:
    """The reply that opens a channel; ``token`` is that of the CONNECT.

    It has a ``rendezvous`` only if the CONNECT had one.
    """

    token: int
    offer: TransportParameters
    rendezvous: Rendezvous | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The refusal of a CONNECT, a GREET or an ACCEPT; ``token`` is that of the attempt.

    ``reason`` is the number of a ``Refusal``, or a number that this version does not define. With
    SCHEMA, ``mismatch`` describes how the schemas differ.
    """

    token: int
    reason: int
    mismatch: Mismatch | None = None


def encode_connect(connect: Connect) -> bytes:
    """Encode a CONNECT to connection id 0, because that of the peer is not known yet.

    It carries as many digests as fit into ``connect.size`` bytes, ``MOST_DIGESTS`` at most, and is
    padded to that size.
    """
    writer = Writer().raw(encode_front(Kind.CONNECT, 0)).u64(connect.token).u32(connect.wanted)
    _write_offer(writer, connect.offer)
    room = connect.size - CONNECT_HEAD - (RENDEZVOUS_SIZE if connect.rendezvous else 0)
    digests = connect.digests[: min(MOST_DIGESTS, room // 4)]
    writer.u8(len(digests))
    for digest in digests:
        writer.u32(digest)
    writer.raw(encode_rendezvous(connect.rendezvous))
    return writer.finish().ljust(connect.size, b"\0")


@untrusted
def decode_connect_untrusted(datagram: bytes) -> Connect:
    """Decode a CONNECT.

    Raises ``RemoteError`` if it is malformed, or so short that a reply could be longer.
    """
    if len(datagram) < CONNECT_SIZE:
        raise RemoteError(f"a CONNECT of {len(datagram)} bytes is not padded")
    reader = _body(datagram)
    token, wanted, offer = reader.u64(), reader.u32(), _read_offer(reader)
    digests = tuple(reader.u32() for _ in range(reader.u8()))
    rendezvous = take_rendezvous_untrusted(reader)
    return Connect(token, wanted, offer, digests, len(datagram), rendezvous)


def encode_accept(to: int, accept: Accept) -> bytes:
    """Encode an ACCEPT to the opener's connection id."""
    writer = Writer().raw(encode_front(Kind.ACCEPT, to)).u64(accept.token)
    _write_offer(writer, accept.offer)
    return writer.raw(encode_rendezvous(accept.rendezvous)).finish()


@untrusted
def decode_accept_untrusted(datagram: bytes) -> Accept:
    """Decode an ACCEPT; raise ``RemoteError`` if it is malformed."""
    reader = _body(datagram)
    accept = Accept(reader.u64(), _read_offer(reader), take_rendezvous_untrusted(reader))
    reader.finish()
    return accept


def encode_refuse(to: int, refuse: Refuse, room: int = CONNECT_SIZE) -> bytes:
    """Encode a REFUSE of at most ``room`` bytes to the connection id of the refused side."""
    writer = Writer().raw(encode_front(Kind.REFUSE, to)).u64(refuse.token).u8(refuse.reason)
    if refuse.mismatch is not None:
        mismatch = refuse.mismatch
        writer.u64(mismatch.schema_hash).u32(mismatch.digest)
        writer.raw(_cut(mismatch.line.encode(), room - REFUSE_HEAD))
    return writer.finish()


@untrusted
def decode_refuse_untrusted(datagram: bytes) -> Refuse:
    """Decode a REFUSE; raise ``RemoteError`` if it is malformed."""
    reader = _body(datagram)
    token, reason = reader.u64(), reader.u8()
    mismatch = _read_mismatch(reader) if reason == Refusal.SCHEMA else None
    reader.finish()
    return Refuse(token, reason, mismatch)


def _body(datagram: bytes) -> Reader:
    return Reader(memoryview(datagram)[FRONT.size :])


def _write_offer(writer: Writer, offer: TransportParameters) -> None:
    writer.u32(offer.connection_id).u32(offer.peer_id).u16(offer.first_sequence)
    writer.u16(offer.receive_buffer).u32(offer.receive_buffer_bytes)
    writer.u16(offer.max_datagram).u32(offer.max_message).u64(offer.schema_hash)


def _read_offer(reader: Reader) -> TransportParameters:
    offer = TransportParameters(
        connection_id=reader.u32(),
        peer_id=reader.u32(),
        first_sequence=reader.u16(),
        receive_buffer=reader.u16(),
        receive_buffer_bytes=reader.u32(),
        max_datagram=reader.u16(),
        max_message=reader.u32(),
        schema_hash=reader.u64(),
    )
    if not (offer.connection_id and offer.receive_buffer and offer.max_message):
        raise RemoteError("an offer with a 0 that is not allowed")
    if offer.max_datagram < SMALLEST_DATAGRAM:
        raise RemoteError(f"datagrams of {offer.max_datagram} bytes are too small")
    return offer


def _cut(line: bytes, room: int) -> bytes:
    return line if len(line) <= room else line[: room - len(CUT)] + CUT


def _read_mismatch(reader: Reader) -> Mismatch:
    # The line may have been cut within a character.
    return Mismatch(reader.u64(), reader.u32(), reader.rest().decode("utf-8", "replace"))


INITIAL: Final = 0.1
"""The first wait for a reply in seconds, while the round trip is unknown: Fiedler's resend time."""
SHORTEST: Final = 0.05
LONGEST: Final = 0.2
GROWTH: Final = 1.25
ROUND_TRIPS: Final = 1.5
"""The first wait of a flight, in round trips, if the previous flight was sent only once. The reply
to that gave a sample. The wait is the sample and one deviation, which is half of a first sample
(RFC 6298, section 2.2)."""


class HandshakeTimer:
    """The retransmission timer of one attempt; times in seconds."""

    __slots__ = ("_sent_at", "_times", "_wait")

    def __init__(self) -> None:
        self._wait = INITIAL
        self._sent_at = 0.0
        self._times = 0

    def sent(self, now: float) -> float:
        """Record that the present flight leaves, for the first time or again.

        Return the seconds to wait for a reply.
        """
        if self._times:
            self._wait = min(GROWTH * self._wait, LONGEST)
        self._times += 1
        self._sent_at = now
        return self._wait

    def answered(self, now: float) -> float:
        """Record the reply to the present flight and the departure of the next one.

        Return the seconds to wait for a reply. A flight that left more than once gives no sample of
        the round trip (Karn's algorithm).
        """
        is_sample = self._times == 1
        wait = ROUND_TRIPS * (now - self._sent_at) if is_sample else INITIAL
        self._wait = min(max(wait, SHORTEST), LONGEST)
        self._times = 0
        return self.sent(now)


# The opener of a channel: its address and its connection id.
Origin = tuple[Address, int]


def answering_id(connection_id: int) -> int:
    """Return the id with which a dialling side accepts a CONNECT that crosses its own attempt.

    ``connection_id`` is the id of that attempt.
    """
    return connection_id ^ 1


CANDIDATES_PER_TRY: Final = 2
"""The candidates that each try dials in addition to those of the try before. A try leaves every
0.1 s at first, so this is one candidate in 50 ms, as in ICE (RFC 8445, section 14.2: Ta)."""

MOST_CANDIDATES: Final = 16
"""The number of candidates up to which an attempt adds those that are found while it goes on."""


class ClearHandshake:
    """The handshake of one connection; its states are in the table of ``lifecycle``.

    ``candidates`` are the addresses of the peer, the best one first; the answering side has none.
    Each try dials ``CANDIDATES_PER_TRY`` more of them, and the connection uses the first one that
    accepts. ``wanted`` is the peer's id in the cluster, 0 for any peer. ``connect_size`` is the
    size of a CONNECT in bytes. ``timer`` decides when this side retransmits. This side receives
    segments of shared memory at ``rendezvous``, and the peer at ``peer_rendezvous``.

    ``granted`` is the CONNECT that this side has accepted, None before that. ``origin`` is the
    address and connection id of that CONNECT. If the peer has accepted this side's CONNECT instead,
    ``origin`` is the address and connection id that a crossing CONNECT of the peer would have.
    Before either it is None.
    """

    def __init__(
        self,
        offer: TransportParameters,
        token: int,
        candidates: Sequence[Address] = (),
        wanted: int = 0,
        schema: Schema | None = None,
        connect_size: int = CONNECT_SIZE,
        rendezvous: Rendezvous | None = None,
    ) -> None:
        self.offer = offer
        self.rendezvous = rendezvous
        self.peer_rendezvous: Rendezvous | None = None
        self.token = token
        self.candidates = tuple(candidates)
        self.wanted = wanted
        self.schema = schema or Schema()
        self.timer = HandshakeTimer()
        self._connect_size = connect_size
        self.origin: Origin | None = None
        self.granted: Connect | None = None
        self._silent = set(self.candidates)
        self._tries = 0
        self._grant: Datagrams | None = None

    @property
    def is_dialled(self) -> bool:
        """True if this side dialled. Both sides may have dialled at once."""
        return bool(self.candidates)

    @property
    def has_won(self) -> bool:
        """True if the peer accepted this attempt. This side then ignores the peer's own CONNECT."""
        return self.origin is not None and self.granted is None

    def is_from(self, address: Address, connect: Connect) -> bool:
        """Return True if a CONNECT is from the peer that this side dials, with the same schema."""
        if connect.offer.schema_hash != self.schema.schema_hash:
            return False
        if self.wanted:
            return connect.offer.peer_id == self.wanted
        return address in self.candidates

    def is_misread(self, accept: Accept) -> bool:
        """Return True if an ACCEPT is for this attempt, but its sender has another schema."""
        is_alike = accept.offer.schema_hash == self.schema.schema_hash
        return self.is_answered_by(accept) and not is_alike

    def is_answered_by(self, accept: Accept) -> bool:
        """Return True if an ACCEPT is for this attempt and has the id of the wanted peer."""
        return accept.token == self.token and self.wanted in (0, accept.offer.peer_id)

    def keep_only(self, address: Address) -> None:
        """Dial only this address from now on, because the peer has proven that it is there."""
        self._silent.intersection_update({address})

    def add_candidate(self, address: Address) -> bool:
        """Add another address to dial.

        Return False if it is a candidate already, or there are too many.
        """
        if address in self.candidates or len(self.candidates) >= MOST_CANDIDATES:
            return False
        # It goes before the candidates that no try has dialled: a datagram came from it, or the
        # peer has announced it only now.
        dialled = self._tries * CANDIDATES_PER_TRY
        self.candidates = (*self.candidates[:dialled], address, *self.candidates[dialled:])
        self._silent.add(address)
        return True

    def connects(self) -> Iterator[Datagrams]:
        """Begin a try; return a CONNECT to each of its candidates that has not refused."""
        self._tries += 1
        return self.connects_to(self.candidates[: self._tries * CANDIDATES_PER_TRY])

    def connects_to(self, addresses: Sequence[Address]) -> Iterator[Datagrams]:
        """Return a CONNECT to each of these candidates that has not refused."""
        digests, size = self.schema.digests, self._connect_size
        connect = Connect(self.token, self.wanted, self.offer, digests, size, self.rendezvous)
        datagram = encode_connect(connect)
        return (Datagrams.of(address, datagram) for address in addresses if address in self._silent)

    def give_way(self, answered: "ClearHandshake") -> tuple[Address, TransportParameters]:
        """Replace this attempt by the peer's own one, which ``answered`` has accepted.

        Return the peer's address and transport parameters.
        """
        assert answered.origin is not None
        assert answered.granted is not None
        self.offer, self.rendezvous = answered.offer, answered.rendezvous
        self.grant(answered.origin[0], answered.granted)
        return answered.origin[0], answered.granted.offer

    def accepted(self, address: Address, accept: Accept) -> None:
        """Record the peer's ACCEPT, and the origin that an attempt of the peer would have."""
        self.origin = (address, answering_id(accept.offer.connection_id))
        self.peer_rendezvous = accept.rendezvous

    def grant(self, address: Address, connect: Connect) -> None:
        """Accept a CONNECT: prepare the ACCEPT that replies to it and to its repetitions."""
        self.peer_rendezvous = connect.rendezvous
        own = self.rendezvous if connect.rendezvous else None
        accept = Accept(connect.token, self.offer, own)
        self._grant = Datagrams.of(address, encode_accept(connect.offer.connection_id, accept))
        self.granted = connect
        self.origin = (address, connect.offer.connection_id)

    def accepts(self) -> Iterator[Datagrams]:
        """Yield the ACCEPT for the CONNECT that this side has accepted."""
        if self._grant is not None:
            yield self._grant

    def refusal(self, address: Address, refuse: Refuse) -> Event | None:
        """Return the event that a REFUSE causes; None if it causes none.

        On the dialling side, the attempt ends when every candidate has refused. If the wanted peer
        refuses because of its schema, the attempt ends at once. On the answering side, a REFUSE of
        the ACCEPT ends the connection, because the peer's attempt is over.
        """
        if self.granted is not None and self.origin is not None:
            is_ours = (address, refuse.token) == (self.origin[0], self.granted.token)
            return Event.DECLINED if is_ours else None
        if refuse.token != self.token:
            return None
        self._silent.discard(address)
        if self.wanted and refuse.reason == Refusal.SCHEMA:
            # Only the wanted peer compares schemas, and it has the same schema at each address.
            self._silent.clear()
        return None if self._silent else Event.REFUSED


def make_dial(
    settings: ChannelSettings,
    offer: TransportParameters,
    token: int,
    candidates: Sequence[Address],
    wanted: int,
    schema: Schema,
    overhead: int = 0,
    rendezvous: Rendezvous | None = None,
) -> ClearHandshake:
    """Return the handshake of a side that dials with these settings."""
    size = connect_size(settings, schema, overhead)
    return ClearHandshake(offer, token, candidates, wanted, schema, size, rendezvous)


def connect_size(settings: ChannelSettings, schema: Schema, overhead: int) -> int:
    """Return the size of a CONNECT in bytes; ``overhead`` is the size of the GREET around it.

    A CONNECT with the digests of a schema makes a datagram as large as the floor of the MTU search,
    which nearly every path carries, or as ``base_datagram``, if that is smaller. It must not be
    larger, because nothing would report that a CONNECT was lost because of its size.
    """
    if not schema.lines:
        return CONNECT_SIZE
    size = min(settings.base_datagram + settings.envelope, FLOOR)
    return max(size - overhead, CONNECT_SIZE)


def make_offer(
    settings: ChannelSettings, connection_id: int, peer_id: int, schema_hash: int
) -> TransportParameters:
    """Return the transport parameters of a side with these settings."""
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
