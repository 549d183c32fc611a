"""The gate itself: what leaves is sealed, what comes in is opened and handed on."""

from collections import deque
from collections.abc import Callable, Mapping

from sphtp.core.alarms import earliest
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.frames import SEALED_FIRST
from sphtp.core.channel.gate.bonds import Bonds
from sphtp.core.channel.gate.caller import Caller
from sphtp.core.channel.gate.counters import GateCounters
from sphtp.core.channel.gate.host import Host
from sphtp.core.channel.gate.lodge import Lodge, reset_purpose
from sphtp.core.channel.gate.parlour import Parlour
from sphtp.core.channel.gate.porch import Porch
from sphtp.core.channel.gate.resets import Resets
from sphtp.core.channel.gate.security import Security
from sphtp.core.channel.gate.wire import SEAL_OVERHEAD
from sphtp.core.channel.handshake import Refuse
from sphtp.core.datagrams import MOST_BYTES, Address, Datagrams, divide
from sphtp.core.entropy import Secrets
from sphtp.core.front import FRONT, Kind
from sphtp.core.secure.identity import Identity
from sphtp.errors import RemoteError


class Gate:
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
        self.counters = GateCounters()
        self._endpoint = endpoint
        self._outgoing: deque[Datagrams] = deque()
        self._bonds = Bonds()
        self._lodge = Lodge(
            identity,
            secrets,
            security.judge,
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
        self._resets = Resets(self._lodge, endpoint, limits.resets_per_second)
        self.caller = Caller(self._lodge, self._resets, min(patience, limits.handshake_timeout))
        self._host = Host(self._lodge, limits)
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
