"""What comes sealed and is not DATA: answers, refusals, and peers that have moved."""

from collections.abc import Callable, Mapping

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.bond import Bond
from sphtp.core.channel.gate.caller import Caller
from sphtp.core.channel.gate.lodge import Lodge
from sphtp.core.channel.gate.paths import Paths
from sphtp.core.channel.gate.wire import decode_answer_untrusted, decode_path_untrusted
from sphtp.core.datagrams import Address
from sphtp.core.front import Kind, decode_front_untrusted
from sphtp.errors import RemoteError


class Parlour:
    """Speaks with those who have keys."""

    def __init__(self, lodge: Lodge, endpoint: Endpoint, caller: Caller) -> None:
        self._lodge = lodge
        self._endpoint = endpoint
        self._caller = caller
        self._paths = Paths(lodge.secrets)
        self._handle: Mapping[Kind, Callable[[float, Address, Bond, bytes], None]] = {
            Kind.WELCOME: self._handle_answer_untrusted,
            Kind.REFUSE: self._handle_refuse_untrusted,
            Kind.CHALLENGE: self._handle_challenge_untrusted,
            Kind.RESPONSE: self._handle_response_untrusted,
        }

    def handle_datagram_untrusted(
        self, now: float, address: Address, bond: Bond, datagram: bytes
    ) -> None:
        """Take what a peer has sealed; raises ``RemoteError`` when it makes no sense."""
        kind, to = decode_front_untrusted(datagram)
        handle = self._handle.get(kind)
        if handle is None or to != bond.own:
            raise RemoteError(f"{kind.name} is not sent sealed, or not to this connection")
        handle(now, address, bond, datagram)

    def handle_moved(self, now: float, bond: Bond, address: Address) -> None:
        """Take it that something new came from another address: see whether the peer is there."""
        challenge = self._paths.challenge(now, bond, address)
        if challenge is not None:
            self._lodge.counters.paths_tried += 1
            self._lodge.say(challenge)

    def _handle_answer_untrusted(self, now: float, _: Address, bond: Bond, datagram: bytes) -> None:
        """Take the answer to a CONFIRM; where it came from is no proof that the peer is there."""
        answer = decode_answer_untrusted(datagram)
        greeting = self._caller.find(answer.token)
        if greeting is not None and greeting.bond is bond:
            content = answer.content
            self._caller.handle_answer_untrusted(now, bond.address, greeting, bond.key, content)

    def _handle_refuse_untrusted(self, now: float, _: Address, bond: Bond, datagram: bytes) -> None:
        self._lodge.pass_on(now, bond.address, datagram)

    def _handle_challenge_untrusted(
        self, _now: float, address: Address, bond: Bond, datagram: bytes
    ) -> None:
        nonce = decode_path_untrusted(datagram)
        if bond.peer:
            self._lodge.say(self._paths.respond(bond, address, nonce))

    def _handle_response_untrusted(
        self, now: float, address: Address, bond: Bond, datagram: bytes
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
