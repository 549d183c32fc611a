"""What becomes of others' attempts: no memory before a cookie, no channel before a name."""

from collections.abc import Callable, Mapping
from typing import Final

from sphtp.core.channel.gate.bond import Bond
from sphtp.core.channel.gate.greeting import PATTERNS, prologue
from sphtp.core.channel.gate.lodge import Lodge, read_introduction_untrusted
from sphtp.core.channel.gate.recordings import Recordings
from sphtp.core.channel.gate.settings import GateSettings
from sphtp.core.channel.gate.tables import Knock, Respond, Visit
from sphtp.core.channel.gate.trust import Verdict
from sphtp.core.channel.gate.visitor import Visitor, Visitors
from sphtp.core.channel.gate.wire import (
    OPENER_SIZE,
    Answer,
    Greet,
    decode_confirm_untrusted,
    decode_greet_untrusted,
    encode_answer,
)
from sphtp.core.channel.handshake import (
    Refusal,
    Refuse,
    decode_accept_untrusted,
    decode_connect_untrusted,
    encode_refuse,
)
from sphtp.core.channel.opening import Origin
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.front import FRONT, Kind, decode_front_untrusted
from sphtp.core.secure.cookie import CookieJar
from sphtp.core.secure.noise.handshake import Handshake
from sphtp.core.token_bucket import TokenBucket
from sphtp.errors import RemoteError

MOST_SUSPECTS: Final = 256


class Host:
    """Visitors, from their first GREET to the first thing that they seal."""

    def __init__(self, lodge: Lodge, settings: GateSettings) -> None:
        self._lodge = lodge
        self._cookies = CookieJar(lodge.secrets, settings.cookie_lifetime)
        rate = settings.handshakes_per_second
        self._rates = {False: TokenBucket(rate), True: TokenBucket(rate)}
        self._suspects = Suspects(settings.handshake_timeout)
        self._visitors = Visitors(settings.half_open, settings.handshake_timeout)
        self._recordings = Recordings(self._visitors, lodge.bonds)
        self._respond: Mapping[Respond, Callable[[float, Visitor, bytes], None]] = {
            Respond.KEEP: self._keep,
            Respond.REPEAT: self._repeat,
            Respond.PRESENT: self._present,
            Respond.ANSWER: self._answer,
            Respond.FORGET: lambda _now, visitor, _: self._visitors.forget(visitor.origin),
        }

    def __len__(self) -> int:
        return len(self._visitors)

    def poll_timeout(self) -> float | None:
        """When the next visitor's time is over."""
        return self._visitors.next_due()

    def handle_timeout(self, now: float) -> None:
        """Forget those who took too long."""
        for visitor in self._visitors.take_late(now):
            self._step(now, visitor, Knock.LATE)

    # From the network

    def handle_greet_untrusted(self, now: float, address: Address, _: int, datagram: bytes) -> None:
        """Take a GREET: give it a cookie, or take in who brings one."""
        greet = decode_greet_untrusted(datagram)
        # It covers the noise, too: what was altered on its way is found out before it costs much.
        what = _name(address), datagram[FRONT.size : FRONT.size + OPENER_SIZE], greet.noise
        if not self._cookies.is_good(now, greet.cookie, *what):
            self._lodge.counters.cookies_sent += 1
            cookie = Answer(greet.token, self._cookies.make(now, *what))
            self._lodge.say(Datagrams.of(address, encode_answer(Kind.COOKIE, greet.opener, cookie)))
            return
        origin = address, greet.opener
        visitor = self._visitors.find(origin)
        if visitor is not None and visitor.greet == greet.noise:
            self._step(now, visitor, Knock.GREETED_AGAIN)
        elif visitor is not None and visitor.state is not Visit.ASKED:
            # Nobody says anything else in its own name: this is somebody else in its place.
            self._lodge.counters.denied += 1
        elif self._recordings.has_place(greet.noise, origin):
            self._lodge.counters.replayed += 1
        else:
            is_stranger = self._is_stranger(now, address, greet)
            if self._has_room(now, origin, is_stranger):
                self._lodge.counters.handshakes += 1
                self._receive(now, origin, greet, is_stranger)

    def handle_confirm_untrusted(
        self, now: float, address: Address, _: int, datagram: bytes
    ) -> None:
        """Take a CONFIRM: now the visitor has a name."""
        confirm = decode_confirm_untrusted(datagram)
        visitor = self._visitors.find((address, confirm.opener))
        if visitor is None or visitor.token != confirm.token:
            return
        if visitor.state is Visit.ASKED:
            if not self._has_time(now, visitor.is_stranger):
                return
            self._introduce(visitor, self._read(visitor.handshake, confirm.noise))
            # From now on answers are sealed.
            visitor.bond, visitor.answer = self._bond(visitor), None
            visitor.confirm = confirm.noise
        if confirm.noise == visitor.confirm:
            self._step(now, visitor, Knock.CONFIRMED)
        else:
            # Short enough, it would draw an answer that is longer.
            self._lodge.counters.forged += 1

    def handle_heard(self, now: float, bond: Bond) -> None:
        """Take it that a bond is used by its visitor, too."""
        visitor = self._visitors.find((bond.address, bond.peer))
        if visitor is not None and visitor.bond is bond:
            self._step(now, visitor, Knock.HEARD)

    def find(self, address: Address, opener: int) -> Visitor | None:
        """The visitor from there, as long as something of its handshake is needed."""
        return self._visitors.find((address, opener))

    # From the endpoint

    def answer(self, now: float, address: Address, datagram: bytes) -> bool:
        """Bring the endpoint's ACCEPT or REFUSE to the visitor; false if it is for none."""
        kind, opener = decode_front_untrusted(datagram)
        visitor = self._visitors.find((address, opener))
        if visitor is None:
            return False
        self._step(now, visitor, Knock.ACCEPTED if kind is Kind.ACCEPT else Knock.REFUSED, datagram)
        return True

    # Actions

    def _step(self, now: float, visitor: Visitor, event: Knock, datagram: bytes = b"") -> None:
        for action in visitor.find(event):
            self._respond[action](now, visitor, datagram)

    def _keep(self, now: float, visitor: Visitor, _: bytes) -> None:
        """Count its silence from now on: it would not ask if it had heard the answer."""
        if self._visitors.keep(now, visitor) and visitor.bond is not None and visitor.bond.own:
            self._lodge.progress(now, visitor.bond.own)

    def _repeat(self, _now: float, visitor: Visitor, _: bytes) -> None:
        if visitor.answer is not None:
            self._lodge.say(visitor.answer)

    def _present(self, now: float, visitor: Visitor, _: bytes) -> None:
        """Let those in that trust knows; the endpoint answers when it is polled."""
        remote, connect = visitor.handshake.remote, decode_connect_untrusted(visitor.connect)
        assert remote is not None
        verdict = self._lodge.trust.judge(remote, connect.offer.peer_id)
        if not self._lodge.bonds.is_open_to(remote, *visitor.origin):
            verdict = Verdict.DENIED
        if verdict is Verdict.WELCOME:
            self._lodge.present(now, visitor.origin[0], remote, visitor.connect)
        elif verdict is Verdict.DENIED:
            self._lodge.counters.denied += 1
            refuse = encode_refuse(visitor.origin[1], Refuse(visitor.token, Refusal.DENIED))
            self._step(now, visitor, Knock.REFUSED, refuse)
        else:
            # Introductions travel by way of the servers, and may come a moment after this.
            self._lodge.counters.strangers += 1
            self._visitors.forget(visitor.origin)

    def _answer(self, _now: float, visitor: Visitor, datagram: bytes) -> None:
        if visitor.answer is not None:
            self._lodge.say(visitor.answer)
            return
        kind, opener = decode_front_untrusted(datagram)
        own = decode_accept_untrusted(datagram).offer.connection_id if kind is Kind.ACCEPT else 0
        introduction = self._lodge.introduce(own, datagram)
        if visitor.bond is not None:
            self._settle(visitor.bond, own, opener)
            welcome = encode_answer(Kind.WELCOME, opener, Answer(visitor.token, introduction))
            self._lodge.say(visitor.bond.seal(welcome, len(welcome)))
            return
        visitor.answer = _welcome(visitor, visitor.handshake.write(introduction))
        visitor.bond = self._bond(visitor)
        self._settle(visitor.bond, own, opener)
        self._lodge.say(visitor.answer)

    def _settle(self, bond: Bond, own: int, opener: int) -> None:
        """Let a bond serve the connection that was granted, if one was."""
        if own:
            self._lodge.settle(bond, own, opener)
        else:
            bond.name(0, opener)

    # Taking somebody in

    def _is_stranger(self, now: float, address: Address, greet: Greet) -> bool:
        """Whether a GREET shows nothing of what only those know who were introduced.

        Who knows this side's key, or has the secret, was; unless such a GREET from the same host
        was found to be made up of late. Each kind has a budget of its own, so that strangers take
        neither the time nor the places of members.
        """
        pattern = PATTERNS.get(greet.pattern)
        is_introduced = pattern is not None and (pattern.responder_known or pattern.has_psk)
        return not is_introduced or self._suspects.has(now, address[0])

    def _has_room(self, now: float, origin: Origin, is_stranger: bool) -> bool:
        bond = self._lodge.bonds.towards(*origin)
        if bond is not None and bond.is_used:
            # An old GREET that somebody sends again must not shake a channel.
            return False
        if not self._has_time(now, is_stranger):
            return False
        if not self._visitors.is_full or self._visitors.find(origin) is not None:
            return True
        # Somebody goes without an answer: this one, or a stranger for it.
        self._lodge.counters.handshakes_over_limit += 1
        return self._visitors.make_room(origin[0][0], is_stranger)

    def _has_time(self, now: float, is_stranger: bool) -> bool:
        """Whether one more message may be computed, be it true or not."""
        if self._rates[is_stranger].take(now):
            return True
        self._lodge.counters.handshakes_over_rate += 1
        return False

    def _receive(self, now: float, origin: Origin, greet: Greet, is_stranger: bool) -> None:
        pattern = PATTERNS.get(greet.pattern)
        if pattern is None or pattern.has_psk != (self._lodge.psk is not None):
            self._hint(origin, greet, Refusal.DENIED)
            return
        handshake = Handshake(
            pattern,
            initiator=False,
            identity=self._lodge.identity,
            secrets=self._lodge.secrets,
            prologue=prologue(pattern, greet.opener, greet.token),
            psk=self._lodge.psk,
        )
        try:
            introduction = self._read(handshake, greet.noise)
        except RemoteError:
            # Meant for another key, or made with another secret, or garbage.
            self._suspects.note(now, origin[0][0])
            why = Refusal.DENIED if pattern.has_psk else Refusal.WRONG_PEER
            self._hint(origin, greet, why)
            return
        visitor = self._visitors.receive(now, origin, greet.token, greet.noise, handshake)
        visitor.is_stranger = is_stranger
        if pattern.responder_known:
            self._recordings.note(greet.noise, origin)
            self._introduce(visitor, introduction)
            self._present(now, visitor, b"")
        else:
            visitor.state = Visit.ASKED
            visitor.answer = _welcome(visitor, handshake.write(b""))
            self._lodge.say(visitor.answer)

    def _introduce(self, visitor: Visitor, introduction: bytes) -> None:
        """Take note of what a visitor wants; what contradicts its GREET is refused."""
        try:
            visitor.proof, visitor.connect = read_introduction_untrusted(introduction)
            kind, _ = decode_front_untrusted(visitor.connect)
            connect = decode_connect_untrusted(visitor.connect)
            says = kind, connect.offer.connection_id, connect.token
            if says != (Kind.CONNECT, visitor.origin[1], visitor.token):
                # The endpoint would take it for something that came from somebody else.
                raise RemoteError("no CONNECT, or that of somebody else")
        except RemoteError:
            self._visitors.forget(visitor.origin)
            raise

    def _read(self, handshake: Handshake, noise: bytes) -> bytes:
        try:
            return handshake.read_untrusted(noise)
        except RemoteError:
            self._lodge.counters.forged += 1
            raise

    def _bond(self, visitor: Visitor) -> Bond:
        keys, remote = visitor.handshake.split(), visitor.handshake.remote
        assert remote is not None
        bond = Bond(remote, keys, visitor.origin[0], self._lodge.counters)
        bond.proof = visitor.proof
        return bond

    def _hint(self, origin: Origin, greet: Greet, why: Refusal) -> None:
        address, opener = origin
        self._lodge.say(Datagrams.of(address, encode_refuse(opener, Refuse(greet.token, why))))


class Suspects:
    """Hosts from which something came that was made up, for ``patience`` seconds; 256 at most."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._until: dict[str, float] = {}

    def has(self, now: float, host: str) -> bool:
        """Whether this is one."""
        return self._until.get(host, now) > now

    def note(self, now: float, host: str) -> None:
        """Take note of one; the one that was noted longest ago may go for it."""
        self._until.pop(host, None)
        if len(self._until) >= MOST_SUSPECTS:
            del self._until[next(iter(self._until))]
        self._until[host] = now + self._patience


def _welcome(visitor: Visitor, noise: bytes) -> Datagrams:
    address, opener = visitor.origin
    return Datagrams.of(address, encode_answer(Kind.WELCOME, opener, Answer(visitor.token, noise)))


def _name(address: Address) -> bytes:
    host, port = address
    return f"{host} {port}".encode()
