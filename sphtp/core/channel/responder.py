"""The responder of sealed handshakes: no memory before a cookie, no channel before a name."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from sphtp.core.channel.handshake import (
    Origin,
    Refusal,
    Refuse,
    decode_accept_untrusted,
    decode_connect_untrusted,
    encode_refuse,
)
from sphtp.core.channel.noise import (
    OPENER_SIZE,
    PATTERNS,
    Answer,
    Greet,
    SecurityContext,
    decode_confirm_untrusted,
    decode_greet_untrusted,
    encode_answer,
    prologue,
    read_introduction_untrusted,
)
from sphtp.core.channel.protection import SecureSession, SessionTable
from sphtp.core.channel.security import HandshakeLimits, Verdict
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.front import FRONT, Kind, decode_front_untrusted
from sphtp.core.machine import Machine, Name, Row
from sphtp.core.rate import RateLimit
from sphtp.core.secure.cookie import CookieJar
from sphtp.core.secure.identity import KEY_SIZE
from sphtp.core.secure.noise.handshake import Handshake
from sphtp.errors import RemoteError


class ResponderState(Name):
    """Where a visitor is."""

    ASKED = "was asked who it is"
    PRESENTED = "is known, and the endpoint has its CONNECT"
    WELCOMED = "was accepted, and has not used the keys yet"
    SETTLED = "has used the keys, or was refused: nothing of the handshake is needed any more"


class ResponderEvent(Name):
    """What happens to a visitor."""

    GREETED_AGAIN = "its GREET came again"
    CONFIRMED = "its CONFIRM came"
    ACCEPTED = "the endpoint accepts it"
    REFUSED = "the endpoint, or trust, refuses it"
    HEARD = "something came that only it can have sealed"
    LATE = "it took too long"


class ResponderAction(Name):
    """What is then done."""

    KEEP = "give it as much time again, within what the whole may take"
    REPEAT = "send the last answer again"
    PRESENT = "hand its CONNECT to the endpoint"
    ANSWER = "send the answer: in a WELCOME, or sealed if it has the keys"
    FORGET = "forget the handshake"


V, K, D = ResponderState, ResponderEvent, ResponderAction

RESPONDER = Machine(
    "Visitor",
    V.PRESENTED,
    (
        Row(V.ASKED, K.GREETED_AGAIN, V.ASKED, (D.KEEP, D.REPEAT), "WELCOME was lost"),
        Row(V.ASKED, K.CONFIRMED, V.PRESENTED, (D.KEEP, D.PRESENT), "now it is known"),
        Row(V.ASKED, K.LATE, V.SETTLED, (D.FORGET,), "it went, or never was"),
        Row(V.PRESENTED, K.ACCEPTED, V.WELCOMED, (D.ANSWER,), "the endpoint has room"),
        Row(
            V.PRESENTED, K.REFUSED, V.SETTLED, (D.ANSWER, D.FORGET), "told so, by this side itself"
        ),
        Row(V.PRESENTED, K.LATE, V.SETTLED, (D.FORGET,), "this side's own attempt was kept"),
        Row(V.WELCOMED, K.GREETED_AGAIN, V.WELCOMED, (D.KEEP, D.REPEAT), "WELCOME was lost"),
        Row(V.WELCOMED, K.CONFIRMED, V.WELCOMED, (D.KEEP, D.PRESENT), "the answer to it was lost"),
        Row(V.WELCOMED, K.ACCEPTED, V.WELCOMED, (D.ANSWER,), "the endpoint asks again"),
        Row(
            V.WELCOMED, K.REFUSED, V.SETTLED, (D.ANSWER, D.FORGET), "the endpoint changed its mind"
        ),
        Row(V.WELCOMED, K.HEARD, V.SETTLED, (D.FORGET,), "both sides have the keys"),
        Row(V.WELCOMED, K.LATE, V.SETTLED, (D.FORGET,), "it went, or never was"),
    ),
    events=ResponderEvent,
    # One that has to tell who it is starts by being asked.
    entries=frozenset({V.ASKED}),
    final=frozenset({V.SETTLED}),
    refused={
        V.ASKED: frozenset({K.ACCEPTED, K.REFUSED, K.HEARD}),
        V.PRESENTED: frozenset({K.GREETED_AGAIN, K.CONFIRMED, K.HEARD}),
        V.WELCOMED: frozenset(),
        V.SETTLED: frozenset(ResponderEvent),
    },
)


class ResponderHandshake:
    """Somebody whose address is proven. ``greet`` is the noise of its GREET, to know it again."""

    __slots__ = ("answer", "bond", "came", "confirm", "connect", "due", "greet", "handshake",
                 "is_stranger", "origin", "proof", "state", "token")  # fmt: skip

    def __init__(
        self,
        origin: Origin,
        token: int,
        greet: bytes,
        handshake: Handshake,
        came: float,
        due: float,
    ) -> None:
        self.origin = origin
        self.token = token
        self.greet = greet
        # Whether it has shown nothing of what only those know who were introduced.
        self.is_stranger = False
        self.handshake = handshake
        self.came = came
        self.due = due
        self.state = RESPONDER.initial
        # What it wants, the CONFIRM by which it said so, what its RESETs will show, what it was
        # last told in the handshake, and the keys once there are any.
        self.connect = b""
        self.confirm = b""
        self.proof = b""
        self.answer: Datagrams | None = None
        self.bond: SecureSession | None = None

    def find(self, event: ResponderEvent) -> tuple[ResponderAction, ...]:
        """Go where the event leads; return what to do, nothing if the state refuses it."""
        row = RESPONDER.find(self.state, event)
        if row is None:
            return ()
        self.state = row.to
        return row.do


MOST_KEPT: Final = 4
"""How many times ``patience`` a visitor stays at most, however often it comes again."""


class HalfOpenTable:
    """At most ``limit`` of them at a time, each until it was silent for ``patience`` seconds."""

    def __init__(self, limit: int, patience: float) -> None:
        self._limit = limit
        self._patience = patience
        self._visitors: dict[Origin, ResponderHandshake] = {}

    def __len__(self) -> int:
        return len(self._visitors)

    @property
    def is_full(self) -> bool:
        """Whether one more would be too many."""
        return len(self._visitors) >= self._limit

    def find(self, origin: Origin) -> ResponderHandshake | None:
        """The one who knocks from there."""
        return self._visitors.get(origin)

    def make_room(self, host: str, is_stranger: bool) -> bool:
        """Whether one more, from this host, is not too many; a stranger may have to go for it.

        That is the newest one of the host that has most. For another stranger one goes only where
        that host has two more than its own: an address is proven, so nobody has many.
        """
        if not self.is_full:
            return True
        asked = [
            it
            for it in self._visitors.values()
            if it.is_stranger and it.state is ResponderState.ASKED
        ]
        counts = Counter(it.origin[0][0] for it in asked)
        if not counts:
            return False
        most, number = counts.most_common(1)[0]
        if is_stranger and number < counts[host] + 2:
            return False
        of_host = [it for it in reversed(asked) if it.origin[0][0] == most]
        newest = max(of_host, key=lambda it: it.came)
        self.forget(newest.origin)
        return True

    def receive(
        self, now: float, origin: Origin, token: int, greet: bytes, handshake: Handshake
    ) -> ResponderHandshake:
        """Take somebody in."""
        visitor = ResponderHandshake(origin, token, greet, handshake, now, now + self._patience)
        self._visitors.pop(origin, None)
        self._visitors[origin] = visitor
        return visitor

    def keep(self, now: float, visitor: ResponderHandshake) -> bool:
        """Give somebody who goes on as much time again; false if it has had enough."""
        if now > visitor.came + (MOST_KEPT - 1) * self._patience:
            return False
        visitor.due = now + self._patience
        if self._visitors.pop(visitor.origin, None) is not None:
            self._visitors[visitor.origin] = visitor
        return True

    def forget(self, origin: Origin) -> None:
        """Keep nothing of somebody."""
        self._visitors.pop(origin, None)

    def take_late(self, now: float) -> Iterator[ResponderHandshake]:
        """Yield those whose time is over, and keep nothing of them."""
        while self._visitors:
            # Who is given time goes to the end, so they are in the order of their time.
            origin, visitor = next(iter(self._visitors.items()))
            if visitor.due > now:
                return
            del self._visitors[origin]
            if visitor.state is not ResponderState.SETTLED:
                visitor.find(ResponderEvent.LATE)
                yield visitor

    def next_due(self) -> float | None:
        """When the next one's time is over."""
        return next(iter(self._visitors.values())).due if self._visitors else None


FEWEST: Final = 64


class HandshakeReplayFilter:
    """Where GREETs came from that say by themselves who sends them, as long as they have a place.

    Such a one can be sent again by anybody, word by word, and nothing in it tells when it was made.
    Its first bytes, a key drawn for it alone, tell it from every other.
    """

    def __init__(self, visitors: HalfOpenTable, bonds: SessionTable) -> None:
        self._visitors = visitors
        self._bonds = bonds
        self._places: dict[bytes, Origin] = {}
        self._sweep_at = FEWEST

    def __len__(self) -> int:
        return len(self._places)

    def has_place(self, noise: bytes, origin: Origin) -> bool:
        """Whether a GREET has a place already, with another origin than this one."""
        place = self._places.get(noise[:KEY_SIZE])
        return place is not None and place != origin and self._is_kept(place)

    def note(self, noise: bytes, origin: Origin) -> None:
        """Take note of a GREET that gets a place."""
        if len(self._places) >= self._sweep_at:
            kept = {key: place for key, place in self._places.items() if self._is_kept(place)}
            self._places, self._sweep_at = kept, max(FEWEST, 2 * len(kept))
        self._places[noise[:KEY_SIZE]] = origin

    def _is_kept(self, place: Origin) -> bool:
        return self._visitors.find(place) is not None or self._bonds.towards(*place) is not None


MOST_SUSPECTS: Final = 256


class Responder:
    """Visitors, from their first GREET to the first thing that they seal."""

    def __init__(self, lodge: SecurityContext, settings: HandshakeLimits) -> None:
        self._lodge = lodge
        self._cookies = CookieJar(lodge.secrets, settings.cookie_lifetime)
        rate = settings.handshakes_per_second
        self._rates = {False: RateLimit(rate), True: RateLimit(rate)}
        self._suspects = Suspects(settings.handshake_timeout)
        self._visitors = HalfOpenTable(settings.half_open, settings.handshake_timeout)
        self._recordings = HandshakeReplayFilter(self._visitors, lodge.bonds)
        self._respond: Mapping[
            ResponderAction, Callable[[float, ResponderHandshake, bytes], None]
        ] = {
            ResponderAction.KEEP: self._keep,
            ResponderAction.REPEAT: self._repeat,
            ResponderAction.PRESENT: self._present,
            ResponderAction.ANSWER: self._answer,
            ResponderAction.FORGET: lambda _now, visitor, _: self._visitors.forget(visitor.origin),
        }

    def __len__(self) -> int:
        return len(self._visitors)

    def poll_timeout(self) -> float | None:
        """When the next visitor's time is over."""
        return self._visitors.next_due()

    def handle_timeout(self, now: float) -> None:
        """Forget those who took too long."""
        for visitor in self._visitors.take_late(now):
            self._step(now, visitor, ResponderEvent.LATE)

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
            self._step(now, visitor, ResponderEvent.GREETED_AGAIN)
        elif visitor is not None and visitor.state is not ResponderState.ASKED:
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
        if visitor.state is ResponderState.ASKED:
            if not self._has_time(now, visitor.is_stranger):
                return
            self._introduce(visitor, self._read(visitor.handshake, confirm.noise))
            # From now on answers are sealed.
            visitor.bond, visitor.answer = self._bond(visitor), None
            visitor.confirm = confirm.noise
        if confirm.noise == visitor.confirm:
            self._step(now, visitor, ResponderEvent.CONFIRMED)
        else:
            # Short enough, it would draw an answer that is longer.
            self._lodge.counters.forged += 1

    def handle_heard(self, now: float, bond: SecureSession) -> None:
        """Take it that a bond is used by its visitor, too."""
        visitor = self._visitors.find((bond.address, bond.peer))
        if visitor is not None and visitor.bond is bond:
            self._step(now, visitor, ResponderEvent.HEARD)

    def find(self, address: Address, opener: int) -> ResponderHandshake | None:
        """The visitor from there, as long as something of its handshake is needed."""
        return self._visitors.find((address, opener))

    # From the endpoint

    def answer(self, now: float, address: Address, datagram: bytes) -> bool:
        """Bring the endpoint's ACCEPT or REFUSE to the visitor; false if it is for none."""
        kind, opener = decode_front_untrusted(datagram)
        visitor = self._visitors.find((address, opener))
        if visitor is None:
            return False
        self._step(
            now,
            visitor,
            ResponderEvent.ACCEPTED if kind is Kind.ACCEPT else ResponderEvent.REFUSED,
            datagram,
        )
        return True

    # Actions

    def _step(
        self, now: float, visitor: ResponderHandshake, event: ResponderEvent, datagram: bytes = b""
    ) -> None:
        for action in visitor.find(event):
            self._respond[action](now, visitor, datagram)

    def _keep(self, now: float, visitor: ResponderHandshake, _: bytes) -> None:
        """Count its silence from now on: it would not ask if it had heard the answer."""
        if self._visitors.keep(now, visitor) and visitor.bond is not None and visitor.bond.own:
            self._lodge.progress(now, visitor.bond.own)

    def _repeat(self, _now: float, visitor: ResponderHandshake, _: bytes) -> None:
        if visitor.answer is not None:
            self._lodge.say(visitor.answer)

    def _present(self, now: float, visitor: ResponderHandshake, _: bytes) -> None:
        """Let those in that trust knows; the endpoint answers when it is polled."""
        remote, connect = visitor.handshake.remote, decode_connect_untrusted(visitor.connect)
        assert remote is not None
        verdict = self._lodge.trust.judge(remote, connect.offer.peer_id)
        if not self._lodge.bonds.is_open_to(remote, *visitor.origin):
            verdict = Verdict.REJECT
        if verdict is Verdict.ACCEPT:
            self._lodge.present(now, visitor.origin[0], remote, visitor.connect)
        elif verdict is Verdict.REJECT:
            self._lodge.counters.denied += 1
            refuse = encode_refuse(visitor.origin[1], Refuse(visitor.token, Refusal.DENIED))
            self._step(now, visitor, ResponderEvent.REFUSED, refuse)
        else:
            # Introductions travel by way of the servers, and may come a moment after this.
            self._lodge.counters.strangers += 1
            self._visitors.forget(visitor.origin)

    def _answer(self, _now: float, visitor: ResponderHandshake, datagram: bytes) -> None:
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

    def _settle(self, bond: SecureSession, own: int, opener: int) -> None:
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
            visitor.state = ResponderState.ASKED
            visitor.answer = _welcome(visitor, handshake.write(b""))
            self._lodge.say(visitor.answer)

    def _introduce(self, visitor: ResponderHandshake, introduction: bytes) -> None:
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

    def _bond(self, visitor: ResponderHandshake) -> SecureSession:
        keys, remote = visitor.handshake.split(), visitor.handshake.remote
        assert remote is not None
        bond = SecureSession(remote, keys, visitor.origin[0], self._lodge.counters)
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


def _welcome(visitor: ResponderHandshake, noise: bytes) -> Datagrams:
    address, opener = visitor.origin
    return Datagrams.of(address, encode_answer(Kind.WELCOME, opener, Answer(visitor.token, noise)))


def _name(address: Address) -> bytes:
    host, port = address
    return f"{host} {port}".encode()
