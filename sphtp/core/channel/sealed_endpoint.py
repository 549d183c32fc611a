"""An endpoint whose channels are sealed: what leaves is sealed, what comes in is opened."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sphtp.core.alarms import earliest
from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.handshake import (
    Refusal,
    Refuse,
    decode_connect_untrusted,
    encode_refuse,
)
from sphtp.core.channel.header import SEALED_FIRST
from sphtp.core.channel.initiator import Initiator
from sphtp.core.channel.noise import (
    SEAL_OVERHEAD,
    SecurityContext,
    decode_answer_untrusted,
    decode_path_untrusted,
    decode_reset_untrusted,
    decode_stranger_untrusted,
    is_proven,
    reset_purpose,
)
from sphtp.core.channel.path_validation import PathValidation
from sphtp.core.channel.protection import SecureSession, SessionTable
from sphtp.core.channel.responder import Responder
from sphtp.core.channel.security import HandshakeCounters, PeerPin, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.stateless_reset import StatelessReset
from sphtp.core.channel.statistics import EndpointCounters
from sphtp.core.channel.watch.endpoint import make_endpoint
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.datagrams import MOST_BYTES, Address, Datagrams, divide
from sphtp.core.entropy import Secrets
from sphtp.core.front import FRONT, VERSION, Kind, decode_front_untrusted
from sphtp.core.schema import Schema
from sphtp.core.secure.identity import Identity
from sphtp.errors import RemoteError, SettingsError, UnreachableError


class Porch:
    """Gives what is part of a handshake to caller and host, and lets nothing else pass."""

    def __init__(
        self, lodge: SecurityContext, endpoint: Endpoint, caller: Initiator, host: Responder
    ) -> None:
        self._lodge = lodge
        self._endpoint = endpoint
        self._caller = caller
        self._host = host
        self._handle: Mapping[Kind, Callable[[float, Address, int, bytes], None]] = {
            Kind.GREET: host.handle_greet_untrusted,
            Kind.COOKIE: caller.handle_cookie_untrusted,
            Kind.WELCOME: caller.handle_welcome_untrusted,
            Kind.CONFIRM: host.handle_confirm_untrusted,
            Kind.RESET: self._handle_reset_untrusted,
            Kind.REFUSE: self._handle_hint_untrusted,
            Kind.CONNECT: self._handle_connect_untrusted,
        }

    def handle_datagram_untrusted(self, now: float, address: Address, datagram: bytes) -> None:
        """Take a datagram that is not sealed; raises ``RemoteError`` when it makes no sense."""
        if (stranger := decode_stranger_untrusted(datagram)) is not None:
            self._refuse(address, *stranger, Refusal.VERSION, datagram[0] >> 4)
            return
        kind, to = decode_front_untrusted(datagram)
        if kind is Kind.SEALED:
            raise RemoteError(f"a datagram of {len(datagram)} bytes cannot be sealed")
        handle = self._handle.get(kind)
        if handle is None:
            self._lodge.counters.in_the_clear += 1
        else:
            handle(now, address, to, datagram)

    def _handle_connect_untrusted(
        self, _now: float, address: Address, _: int, datagram: bytes
    ) -> None:
        connect = decode_connect_untrusted(datagram)
        self._lodge.counters.in_the_clear += 1
        self._refuse(address, connect.offer.connection_id, connect.token, Refusal.SEALED)

    def _handle_hint_untrusted(
        self, _now: float, address: Address, opener: int, datagram: bytes
    ) -> None:
        hint = self._caller.handle_hint_untrusted(address, opener, datagram)
        connection = self._endpoint.find(opener)
        if hint is not None and connection is not None:
            connection.handle_hint(hint)

    def _handle_reset_untrusted(
        self, now: float, address: Address, peer: int, datagram: bytes
    ) -> None:
        """Take it from a peer that it knows nothing of its connection, if it was ever a peer."""
        bond = self._lodge.bonds.towards(address, peer)
        if bond is None or not is_proven(decode_reset_untrusted(datagram), bond.proof):
            self._lodge.counters.resets_forged += 1
            return
        self._lodge.counters.resets_taken += 1
        visitor = self._host.find(address, peer)
        if visitor is not None and not bond.is_used:
            gone = encode_refuse(bond.own, Refuse(visitor.token, Refusal.GONE))
            self._lodge.pass_on(now, address, gone)
        elif (connection := self._endpoint.find(bond.own)) is not None:
            connection.handle_forgotten(now)

    def _refuse(
        self, address: Address, opener: int, token: int, why: Refusal, version: int = VERSION
    ) -> None:
        refuse = encode_refuse(opener, Refuse(token, why))
        # In the asker's own version, for it reads no other.
        self._lodge.say(Datagrams.of(address, bytes([version << 4 | Kind.REFUSE]) + refuse[1:]))


class Parlour:
    """Speaks with those who have keys."""

    def __init__(self, lodge: SecurityContext, endpoint: Endpoint, caller: Initiator) -> None:
        self._lodge = lodge
        self._endpoint = endpoint
        self._caller = caller
        self._paths = PathValidation(lodge.secrets)
        self._handle: Mapping[Kind, Callable[[float, Address, SecureSession, bytes], None]] = {
            Kind.WELCOME: self._handle_answer_untrusted,
            Kind.REFUSE: self._handle_refuse_untrusted,
            Kind.CHALLENGE: self._handle_challenge_untrusted,
            Kind.RESPONSE: self._handle_response_untrusted,
        }

    def handle_datagram_untrusted(
        self, now: float, address: Address, bond: SecureSession, datagram: bytes
    ) -> None:
        """Take what a peer has sealed; raises ``RemoteError`` when it makes no sense."""
        kind, to = decode_front_untrusted(datagram)
        handle = self._handle.get(kind)
        if handle is None or to != bond.own:
            raise RemoteError(f"{kind.name} is not sent sealed, or not to this connection")
        handle(now, address, bond, datagram)

    def handle_moved(self, now: float, bond: SecureSession, address: Address) -> None:
        """Take it that something new came from another address: see whether the peer is there."""
        challenge = self._paths.challenge(now, bond, address)
        if challenge is not None:
            self._lodge.counters.paths_tried += 1
            self._lodge.say(challenge)

    def _handle_answer_untrusted(
        self, now: float, _: Address, bond: SecureSession, datagram: bytes
    ) -> None:
        """Take the answer to a CONFIRM; where it came from is no proof that the peer is there."""
        answer = decode_answer_untrusted(datagram)
        greeting = self._caller.find(answer.token)
        if greeting is not None and greeting.bond is bond:
            content = answer.content
            self._caller.handle_answer_untrusted(now, bond.address, greeting, bond.key, content)

    def _handle_refuse_untrusted(
        self, now: float, _: Address, bond: SecureSession, datagram: bytes
    ) -> None:
        self._lodge.pass_on(now, bond.address, datagram)

    def _handle_challenge_untrusted(
        self, _now: float, address: Address, bond: SecureSession, datagram: bytes
    ) -> None:
        nonce = decode_path_untrusted(datagram)
        if bond.peer:
            self._lodge.say(self._paths.respond(bond, address, nonce))

    def _handle_response_untrusted(
        self, now: float, address: Address, bond: SecureSession, datagram: bytes
    ) -> None:
        nonce = decode_path_untrusted(datagram)
        is_open = self._lodge.bonds.is_open_to(bond.key, address, bond.peer)
        if not is_open or not self._paths.is_proven(bond, address, nonce):
            return
        self._lodge.counters.paths_changed += 1
        self._lodge.bonds.move(bond, address)
        connection = self._endpoint.find(bond.own)
        if connection is not None:
            connection.handle_new_path(now, address)


class SecureLayer:
    """Seals what an endpoint sends, and hands it what is authentic of what comes.

    ``patience`` is how long, in seconds, nothing may come of a CONFIRM until another handshake is
    begun; ``port`` that of the socket, 0 if there is none.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        secrets: Secrets,
        identity: Identity,
        security: Security,
        patience: float,
        port: int = 0,
    ) -> None:
        self.counters = HandshakeCounters()
        self._endpoint = endpoint
        self._outgoing: deque[Datagrams] = deque()
        self._bonds = SessionTable()
        self._lodge = SecurityContext(
            identity,
            secrets,
            security.peer_authenticator,
            security.psk,
            self.counters,
            self._bonds,
            say=self._outgoing.append,
            pass_on=endpoint.handle_datagram_untrusted,
            present=endpoint.handle_introduced_untrusted,
            introduce_peer=self._introduce,
            object=self._object,
            progress=self._progress,
            reset_key=identity.derive(reset_purpose(port)),
        )
        limits = security.limits
        self._resets = StatelessReset(self._lodge, endpoint, limits.resets_per_second)
        self.caller = Initiator(self._lodge, self._resets, min(patience, limits.handshake_timeout))
        self._host = Responder(self._lodge, limits)
        self._porch = Porch(self._lodge, endpoint, self.caller, self._host)
        self._parlour = Parlour(self._lodge, endpoint, self.caller)
        self._wrap: Mapping[int, Callable[[float, Datagrams], None]] = {
            Kind.CONNECT: self._wrap_connect,
            Kind.ACCEPT: self._wrap_answer,
            Kind.REFUSE: self._wrap_answer,
        }

    def forget(self, own: int) -> None:
        """Keep no keys of a connection."""
        self._bonds.remove(own)

    # Outputs

    def poll_transmit(self, now: float, most: int = MOST_BYTES) -> Datagrams | None:
        """The next datagrams to send; see ``Endpoint``."""
        while not self._outgoing:
            row = self._endpoint.poll_transmit(now, most)
            if row is None:
                return None
            wrap = self._wrap.get(row.data[0] & 0x0F)
            if wrap is not None:
                wrap(now, row)
            elif (sealed := self._sealed(row)) is not None:
                return sealed
        return self._outgoing.popleft()

    def poll_timeout(self) -> float | None:
        """When ``handle_timeout`` is due."""
        return earliest(self._host.poll_timeout(), self._endpoint.poll_timeout())

    def _sealed(self, row: Datagrams) -> Datagrams | None:
        """Seal what is for somebody who has keys; None if he was forgotten a moment ago."""
        _, peer = FRONT.unpack_from(row.data)
        bond = self._bonds.towards(row.address, peer)
        return None if bond is None else bond.seal(row.data, row.size)

    def _wrap_connect(self, now: float, row: Datagrams) -> None:
        self.caller.connect(now, row.address, row.data)

    def _wrap_answer(self, now: float, row: Datagrams) -> None:
        # What is for no visitor is for one who has keys: a REFUSE of what it has accepted.
        is_answered = self._host.answer(now, row.address, row.data)
        if not is_answered and (sealed := self._sealed(row)) is not None:
            self._outgoing.append(sealed)

    # Inputs

    def handle_timeout(self, now: float) -> None:
        """Do what is due by now."""
        self._host.handle_timeout(now)
        self._endpoint.handle_timeout(now)

    def handle_too_large(self, now: float, address: Address, size: int) -> None:
        """Take it that the host sends no datagram of that size to an address."""
        self._endpoint.handle_too_large(now, address, size - SEAL_OVERHEAD)

    def handle_datagram_untrusted(self, now: float, address: Address, datagram: bytes) -> None:
        """Take any datagram; what is not authentic is counted and dropped."""
        self.handle_row_untrusted(now, Datagrams.of(address, datagram))

    def handle_row_untrusted(self, now: float, row: Datagrams) -> None:
        """Take datagrams that came together; as ``handle_datagram_untrusted`` for each."""
        is_one = len(row.data) <= row.size
        for part in (row,) if is_one else divide(row, FRONT.size):
            if part.data[:1] == SEALED_FIRST and min(part.size, len(part.data)) >= SEAL_OVERHEAD:
                self._handle_sealed_untrusted(now, part)
                continue
            for datagram in part.datagrams:
                try:
                    self._porch.handle_datagram_untrusted(now, part.address, datagram)
                except RemoteError:
                    self._endpoint.counters.malformed += 1

    def _handle_sealed_untrusted(self, now: float, row: Datagrams) -> None:
        """Take datagrams that are all sealed for one connection."""
        _, own = FRONT.unpack_from(row.data)
        bond = self._bonds.find(own)
        if bond is None:
            self._endpoint.counters.unknown += row.number
            self._resets.answer(now, row.address, own, row.size)
            return
        newest = bond.opener.newest
        opened = bond.opener.open(row.data, row.size)
        if not opened:
            return
        if not bond.is_used:
            bond.is_used = True
            self._host.handle_heard(now, bond)
        if row.address != bond.address and bond.opener.newest > newest and bond.peer:
            self._parlour.handle_moved(now, bond, row.address)
        front = bond.data_front
        if len(opened) > 1 and all(plain.startswith(front) for plain in opened):
            data = b"".join(opened)
            self._endpoint.handle_row_untrusted(now, Datagrams(bond.address, data, len(opened[0])))
            return
        for plain in opened:
            if plain.startswith(front):
                self._endpoint.handle_datagram_untrusted(now, bond.address, plain)
                continue
            try:
                self._parlour.handle_datagram_untrusted(now, row.address, bond, plain)
            except RemoteError:
                self._endpoint.counters.malformed += 1

    def _object(self, now: float, address: Address, own: int, refuse: Refuse) -> None:
        connection = self._endpoint.find(own)
        if connection is not None:
            connection.handle_refuse(now, address, refuse)

    def _progress(self, now: float, own: int) -> None:
        connection = self._endpoint.find(own)
        if connection is not None:
            connection.handle_progress(now)

    def _introduce(self, own: int, key: bytes) -> None:
        connection = self._endpoint.find(own)
        if connection is not None:
            connection.peer_key = key


PATIENCE: Final = 0.5
"""How much of the silence that ends an attempt passes until one that was asked for its name begins
anew: the other half has to do for that."""


class SealedEndpoint:
    """All sealed channels behind one socket; inputs, commands and outputs are ``Endpoint``'s."""

    def __init__(
        self,
        endpoint: Endpoint,
        secrets: Secrets,
        security: Security,
        settings: ChannelSettings | None = None,
        port: int = 0,
    ) -> None:
        self._trust = security.peer_authenticator
        self._endpoint = endpoint
        identity = security.identity or Identity.draw(secrets)
        patience = (settings or ChannelSettings()).connect_timeout * PATIENCE
        self._gate = SecureLayer(endpoint, secrets, identity, security, patience, port)
        endpoint.observe(self._forget)
        # What the gate is not in the way of is the endpoint's own.
        self.poll_active = endpoint.poll_active
        self.poll_incoming = endpoint.poll_incoming
        self.serve = endpoint.serve
        self.touch = endpoint.touch
        self.close = endpoint.close
        self.handle_row_untrusted = self._gate.handle_row_untrusted
        self.handle_datagram_untrusted = self._gate.handle_datagram_untrusted
        self.handle_too_large = self._gate.handle_too_large
        self.handle_timeout = self._gate.handle_timeout
        self.poll_transmit = self._gate.poll_transmit
        self.poll_timeout = self._gate.poll_timeout

    @property
    def peer_id(self) -> int:
        """This side's id in the cluster, or 0."""
        return self._endpoint.peer_id

    @peer_id.setter
    def peer_id(self, value: int) -> None:
        self._endpoint.peer_id = value

    @property
    def counters(self) -> EndpointCounters:
        """What reached no connection, and what was refused."""
        return self._endpoint.counters

    @property
    def handshake_counters(self) -> HandshakeCounters:
        """What came to the gate, and was not let in."""
        return self._gate.counters

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Every connection that has not ended, in the order of opening."""
        return self._endpoint.connections

    @property
    def has_incoming(self) -> bool:
        """Whether ``poll_incoming`` has a channel to give."""
        return self._endpoint.has_incoming

    def dial(
        self,
        now: float,
        candidates: Sequence[Address],
        wanted: int = 0,
        expectation: PeerPin | None = None,
        *,
        schema: Schema | None = None,
    ) -> Connection:
        """Open a channel to the peer that answers at one of its addresses.

        It must be the one expected: by default the one that trust knows by the id ``wanted``.
        Raises ``UnreachableError`` when what that one is known by is no key.
        """
        expected = expectation or self._expect(wanted)
        connection = self._endpoint.dial(now, candidates, wanted, schema=schema)
        self._gate.caller.expect(connection.handshake.token, expected)
        return connection

    def _expect(self, wanted: int) -> PeerPin:
        try:
            return PeerPin(self._trust.key_of(wanted))
        except SettingsError as error:
            text = f"peer {wanted:#010x} cannot be spoken with: its {error}"
            raise UnreachableError(text) from error

    def _forget(self, connection: Connection) -> None:
        self._gate.forget(connection.connection_id)
        if connection.handshake.is_dialled:
            self._gate.caller.forget(connection.handshake.token)


def sealed_settings(settings: ChannelSettings) -> ChannelSettings:
    """What an endpoint behind a gate is told of its sizes. Raises ``SettingsError``."""
    return settings.enveloped(SEAL_OVERHEAD)


def make_gated(
    secrets: Secrets,
    settings: ChannelSettings,
    peer_id: int = 0,
    schema: Schema | None = None,
    instrument: Instrument | None = None,
    security: Security | None = None,
    port: int = 0,
) -> Endpoint | SealedEndpoint:
    """Make an endpoint, behind a gate if there is security; raises ``SettingsError``.

    ``port`` is that of its socket, if it has one; its resets are good for channels there only.
    """
    if security is None:
        return make_endpoint(secrets, settings, peer_id, schema, instrument)
    endpoint = make_endpoint(secrets, sealed_settings(settings), peer_id, schema, instrument)
    return SealedEndpoint(endpoint, secrets, security, settings, port)
