"""What comes to the gate unsealed: the handshake, and what strangers say."""

from collections.abc import Callable, Mapping

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.caller import Caller
from sphtp.core.channel.gate.host import Host
from sphtp.core.channel.gate.lodge import Lodge, is_proven
from sphtp.core.channel.gate.wire import decode_reset_untrusted, decode_stranger_untrusted
from sphtp.core.channel.handshake import (
    Refusal,
    Refuse,
    decode_connect_untrusted,
    encode_refuse,
)
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.front import VERSION, Kind, decode_front_untrusted
from sphtp.errors import RemoteError


class Porch:
    """Gives what is part of a handshake to caller and host, and lets nothing else pass."""

    def __init__(self, lodge: Lodge, endpoint: Endpoint, caller: Caller, host: Host) -> None:
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
