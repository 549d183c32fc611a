"""What becomes of our own attempts: GREET out, WELCOME in, and a bond at the end."""

from collections.abc import Callable, Mapping

from sphtp.core.channel.gate.bond import Bond
from sphtp.core.channel.gate.greeting import Greeting
from sphtp.core.channel.gate.lodge import Lodge, read_introduction_untrusted
from sphtp.core.channel.gate.resets import Resets
from sphtp.core.channel.gate.tables import GREETING, Reply, Say
from sphtp.core.channel.gate.trust import Expectation, Verdict
from sphtp.core.channel.gate.wire import Answer, decode_answer_untrusted
from sphtp.core.channel.handshake import (
    Objection,
    Refuse,
    decode_accept_untrusted,
    decode_connect_untrusted,
    decode_refuse_untrusted,
)
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.front import Kind, decode_front_untrusted
from sphtp.errors import RemoteError


class Caller:
    """Attempts by the token of their CONNECT, until there are keys.

    ``patience`` is how long, in seconds, the other side is taken to remember whom it asked for a
    name.
    """

    def __init__(self, lodge: Lodge, resets: Resets, patience: float) -> None:
        self._lodge = lodge
        self._patience = patience
        self._resets = resets
        self._greetings: dict[int, Greeting] = {}
        self._say: Mapping[Say, Callable[[float, Address, Greeting, bytes], None]] = {
            Say.GREET: self._greet,
            Say.CONFIRM: self._confirm,
            Say.CONFIRM_AGAIN: self._confirm_again,
            Say.PROGRESS: self._progress,
            Say.BEGIN_ANEW: lambda _now, _address, greeting, _: greeting.begin_anew(),
            Say.SEAL: self._seal,
            Say.HAND_ON: self._hand_on,
            Say.OBJECT: self._object,
            Say.RENEW: self._renew,
        }

    def __len__(self) -> int:
        return len(self._greetings)

    def find(self, token: int) -> Greeting | None:
        """The attempt with this token."""
        return self._greetings.get(token)

    def expect(self, token: int, expectation: Expectation) -> None:
        """Begin an attempt; whoever answers must be the one expected."""
        lodge = self._lodge
        greeting = Greeting(lodge.identity, lodge.secrets, expectation, lodge.psk)
        self._greetings[token] = greeting

    def forget(self, token: int) -> None:
        """End an attempt."""
        self._greetings.pop(token, None)

    # From the endpoint

    def connect(self, now: float, address: Address, datagram: bytes) -> None:
        """Bring a CONNECT of the endpoint on its way."""
        connect = decode_connect_untrusted(datagram)
        greeting = self._greetings.get(connect.token)
        if greeting is None:
            return
        opener = connect.offer.connection_id
        introduction = self._lodge.introduce(opener, datagram)
        greeting.connect(address, opener, connect.token, introduction)
        is_unheard = greeting.is_unheard(now, self._patience)
        self._step(now, address, greeting, Reply.UNHEARD if is_unheard else Reply.CONNECT)

    # From the network

    def handle_cookie_untrusted(
        self, now: float, address: Address, opener: int, datagram: bytes
    ) -> None:
        """Take a cookie, and greet again at once: this is the first of two round trips."""
        answer = decode_answer_untrusted(datagram)
        greeting = self._greeting(opener, answer)
        if greeting is None:
            return
        if (cookie := greeting.keep_cookie(address, answer.content)) is not None:
            self._step(now, address, greeting, cookie)

    def handle_welcome_untrusted(
        self, now: float, address: Address, opener: int, datagram: bytes
    ) -> None:
        """Take an answer to a GREET, or tell its sender that nobody here remembers asking."""
        answer = decode_answer_untrusted(datagram)
        greeting = self._greeting(opener, answer)
        if greeting is None:
            self._resets.answer(now, address, opener, len(datagram))
            return
        is_awaited = GREETING.find(greeting.state, Reply.ASKED) is not None
        if not is_awaited or not greeting.was_asked(address):
            return
        payload = self._read(greeting, answer.content)
        remote = greeting.handshake.remote
        assert remote is not None
        if greeting.handshake.is_finished:
            self.handle_answer_untrusted(now, address, greeting, remote, payload)
        elif self._is_expected(greeting, remote):
            self._step(now, address, greeting, Reply.ASKED)
        else:
            self._refuse_impostor(now, address, greeting)

    def handle_hint_untrusted(
        self, address: Address, opener: int, datagram: bytes
    ) -> Refuse | None:
        """Take a REFUSE that nobody signed: it may explain, and decides nothing."""
        refuse = decode_refuse_untrusted(datagram)
        greeting = self._greeting(opener, Answer(refuse.token, b""))
        return refuse if greeting is not None and greeting.was_asked(address) else None

    def handle_answer_untrusted(
        self, now: float, address: Address, greeting: Greeting, remote: bytes, introduction: bytes
    ) -> None:
        """Take an ACCEPT or REFUSE of whoever has the key ``remote``, with what it has to know."""
        _, datagram = read_introduction_untrusted(introduction)
        kind, to = decode_front_untrusted(datagram)
        if to != greeting.opener:
            raise RemoteError("an answer to somebody else")
        if kind is Kind.REFUSE:
            _require_same(greeting, decode_refuse_untrusted(datagram).token)
            self._step(now, address, greeting, Reply.REFUSED, introduction)
        elif kind is Kind.ACCEPT:
            self._handle_accept_untrusted(now, address, greeting, remote, introduction)
        else:
            raise RemoteError(f"{kind.name} is no answer to a GREET")

    def _handle_accept_untrusted(
        self, now: float, address: Address, greeting: Greeting, remote: bytes, introduction: bytes
    ) -> None:
        _, datagram = read_introduction_untrusted(introduction)
        accept = decode_accept_untrusted(datagram)
        _require_same(greeting, accept.token)
        if not self._is_introduced(greeting, remote, accept.offer.peer_id):
            self._refuse_impostor(now, address, greeting)
        elif self._lodge.bonds.is_open_to(remote, address, accept.offer.connection_id):
            self._step(now, address, greeting, Reply.ACCEPTED, introduction)
        else:
            raise RemoteError("a connection id that is somebody else's")

    # Actions

    def _step(
        self,
        now: float,
        address: Address,
        greeting: Greeting,
        event: Reply,
        introduction: bytes = b"",
    ) -> None:
        for action in greeting.find(event):
            self._say[action](now, address, greeting, introduction)

    def _greet(self, _now: float, address: Address, greeting: Greeting, _: bytes) -> None:
        self._lodge.say(Datagrams.of(address, greeting.greet(address)))

    def _confirm(self, now: float, address: Address, greeting: Greeting, _: bytes) -> None:
        confirm = greeting.confirm(now)
        # What the peer answers is sealed; which connection of its own it means, it says there.
        greeting.bond = self._bond(address, greeting)
        self._lodge.bonds.add(greeting.bond, greeting.opener, 0)
        self._lodge.say(Datagrams.of(address, confirm))

    def _confirm_again(self, _now: float, address: Address, greeting: Greeting, _: bytes) -> None:
        if greeting.bond is not None and greeting.bond.address == address:
            self._lodge.say(Datagrams.of(address, greeting.last_confirm))

    def _progress(self, now: float, _address: Address, greeting: Greeting, _: bytes) -> None:
        self._lodge.progress(now, greeting.opener)

    def _seal(self, _now: float, address: Address, greeting: Greeting, introduction: bytes) -> None:
        proof, datagram = read_introduction_untrusted(introduction)
        peer = decode_accept_untrusted(datagram).offer.connection_id
        bond = greeting.bond = greeting.bond or self._bond(address, greeting)
        bond.proof = proof
        self._lodge.settle(bond, greeting.opener, peer)
        # A handshake gives the same keys again, as long as there is one.
        self.forget(greeting.token)

    def _hand_on(
        self, now: float, address: Address, _greeting: Greeting, introduction: bytes
    ) -> None:
        self._lodge.pass_on(now, address, read_introduction_untrusted(introduction)[1])

    def _renew(self, _now: float, _address: Address, greeting: Greeting, _: bytes) -> None:
        if greeting.bond is not None:
            self._lodge.bonds.remove(greeting.opener)
        greeting.renew()

    def _object(self, now: float, address: Address, greeting: Greeting, _: bytes) -> None:
        refuse = Refuse(greeting.token, Objection.IMPOSTOR)
        self._lodge.object(now, address, greeting.opener, refuse)

    # Whom we speak with

    def _greeting(self, opener: int, answer: Answer) -> Greeting | None:
        greeting = self._greetings.get(answer.token)
        return greeting if greeting is not None and greeting.opener == opener else None

    def _read(self, greeting: Greeting, noise: bytes) -> bytes:
        try:
            return greeting.handshake.read_untrusted(noise)
        except RemoteError:
            self._lodge.counters.forged += 1
            raise

    def _is_expected(self, greeting: Greeting, remote: bytes) -> bool:
        expectation = greeting.expectation
        if not expectation.is_met_by(remote):
            return False
        # Of those who share a secret nobody may stand for another by sending us back our own words.
        is_mirror = self._lodge.psk is not None and remote == self._lodge.identity.public
        return not is_mirror or expectation.key == remote

    def _is_introduced(self, greeting: Greeting, remote: bytes, peer_id: int) -> bool:
        """Whether who answered is expected, and may have the id that it says it has."""
        if not self._is_expected(greeting, remote):
            return False
        return self._lodge.trust.judge(remote, peer_id) is Verdict.WELCOME

    def _refuse_impostor(self, now: float, address: Address, greeting: Greeting) -> None:
        """End the attempt at this address: it is as if the peer meant had refused."""
        self._lodge.counters.denied += 1
        self._step(now, address, greeting, Reply.IMPOSTOR)

    def _bond(self, address: Address, greeting: Greeting) -> Bond:
        keys, remote = greeting.handshake.split(), greeting.handshake.remote
        assert remote is not None
        return Bond(remote, keys, address, self._lodge.counters)


def _require_same(greeting: Greeting, token: int) -> None:
    """Refuse to hand on what the endpoint would take for the answer to another attempt."""
    if token != greeting.token:
        raise RemoteError("an answer to another attempt")
