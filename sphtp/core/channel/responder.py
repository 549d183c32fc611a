"""The responder of sealed handshakes.

An endpoint owns the responder, because no connection exists yet when a GREET arrives. When an
opener has proven its identity, the responder passes the opener's CONNECT to the endpoint. The
endpoint replies with a connection's ACCEPT or with a REFUSE, which travel inside the handshake. The
responder keeps an accepted handshake until the opener has used the keys or has timed out, because
the opener may repeat its messages until then.

A Noise message costs some 0.3 ms to compute, and a half-open handshake costs memory, so both are
limited. An opener counts as a stranger if its GREET uses neither this node's key nor its pre-shared
key, or if its host has sent an invalid GREET shortly before. Strangers have a budget of their own,
so that they cannot use up the time and the places of others.
"""

from collections import Counter, deque
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.constant_time import bytes_eq
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from sphtp.core.channel.handshake import (
    Origin,
    Refusal,
    Refuse,
    decode_accept_untrusted,
    decode_connect_untrusted,
    encode_refuse,
)
from sphtp.core.channel.noise import (
    COOKIE_SIZE,
    OPENER_SIZE,
    PATTERNS,
    Answer,
    Greet,
    SecurityContext,
    decode_confirm_untrusted,
    decode_greet_untrusted,
    encode_answer,
    prologue,
    read_payload_untrusted,
)
from sphtp.core.channel.protection import AesGcm, Peers, is_free
from sphtp.core.channel.security import HandshakeLimits, Verdict
from sphtp.core.datagrams import FRONT, Address, Datagrams, Kind, decode_front_untrusted
from sphtp.core.entropy import Secrets
from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.secure.identity import KEY_SIZE
from sphtp.core.secure.noise_framework import NoiseHandshake
from sphtp.core.token_bucket import TokenBucket
from sphtp.errors import RemoteError, SettingsError


class ResponderState(Name):
    """The states of the answering side of a handshake."""

    ASKED = "this side has requested the opener's identity with a WELCOME"
    PRESENTED = "the opener has proven its identity, and the endpoint has its CONNECT"
    WELCOMED = "the endpoint accepted the opener, which has not used the keys yet"
    SETTLED = "the keys are in use, the opener was refused, or the handshake took too long"


class ResponderEvent(Name):
    """The events of the answering side."""

    GREETED_AGAIN = "the opener's GREET arrived again"
    CONFIRMED = "the opener's CONFIRM arrived"
    ACCEPTED = "the endpoint accepts the opener"
    REFUSED = "the endpoint or the authenticator refuses the opener"
    KEYS_USED = "a datagram arrived that the opener has sealed"
    LATE = "the timeout of the handshake expired"


class ResponderAction(Name):
    """The actions of the answering side."""

    KEEP = "restart the timeout, within the limit for the whole handshake"
    REPEAT = "send the last WELCOME again"
    PRESENT = "pass the opener's CONNECT to the endpoint, if the authenticator accepts the opener"
    ANSWER = "send ACCEPT or REFUSE: in a WELCOME, which is sealed if the opener has the keys"
    FORGET = "remove the handshake from the half-open ones"


S, E, A = ResponderState, ResponderEvent, ResponderAction

RESPONDER = Machine(
    "Noise responder",
    S.PRESENTED,
    (
        Row(S.ASKED, E.GREETED_AGAIN, S.ASKED, (A.KEEP, A.REPEAT), "WELCOME was lost"),
        Row(S.ASKED, E.CONFIRMED, S.PRESENTED, (A.KEEP, A.PRESENT), "the identity is proven"),
        Row(S.ASKED, E.LATE, S.SETTLED, (A.FORGET,), "the opener vanished"),
        Row(S.PRESENTED, E.ACCEPTED, S.WELCOMED, (A.ANSWER,), "the endpoint has room"),
        Row(S.PRESENTED, E.REFUSED, S.SETTLED, (A.ANSWER, A.FORGET), "a refusal ends it"),
        Row(S.PRESENTED, E.LATE, S.SETTLED, (A.FORGET,), "the endpoint kept its own attempt"),
        Row(S.WELCOMED, E.GREETED_AGAIN, S.WELCOMED, (A.KEEP, A.REPEAT), "WELCOME was lost"),
        Row(S.WELCOMED, E.CONFIRMED, S.WELCOMED, (A.KEEP, A.PRESENT), "the answer was lost"),
        Row(S.WELCOMED, E.ACCEPTED, S.WELCOMED, (A.ANSWER,), "the opener repeated its CONNECT"),
        Row(
            S.WELCOMED, E.REFUSED, S.SETTLED, (A.ANSWER, A.FORGET), "the endpoint refuses it later"
        ),
        Row(S.WELCOMED, E.KEYS_USED, S.SETTLED, (A.FORGET,), "both sides have the keys"),
        Row(S.WELCOMED, E.LATE, S.SETTLED, (A.FORGET,), "the opener vanished, or was replayed"),
    ),
    events=ResponderEvent,
    # A handshake with XX or XXpsk0 starts in ASKED.
    entries=frozenset({S.ASKED}),
    final=frozenset({S.SETTLED}),
    refused={
        S.ASKED: frozenset({E.ACCEPTED, E.REFUSED, E.KEYS_USED}),
        S.PRESENTED: frozenset({E.GREETED_AGAIN, E.CONFIRMED, E.KEYS_USED}),
        S.WELCOMED: frozenset(),
        S.SETTLED: frozenset(ResponderEvent),
    },
)


class ResponderHandshake:
    """One handshake of an opener whose address is proven.

    ``greet`` is the Noise message of the opener's GREET; it identifies a repeated GREET.
    ``connect`` is the opener's CONNECT, empty before the opener has proven its identity.
    ``protection`` has the keys, None before they are derived.
    """

    __slots__ = ("_context", "_responder", "answer", "came", "confirm", "connect", "due", "greet",
                 "handshake", "is_stranger", "origin", "proof", "protection", "state",
                 "token")  # fmt: skip

    def __init__(
        self,
        responder: "Responder",
        context: SecurityContext,
        origin: Origin,
        token: int,
        greet: bytes,
        handshake: NoiseHandshake,
        came: float,
        *,
        is_stranger: bool,
    ) -> None:
        self.state = RESPONDER.initial
        self.origin = origin
        self.token = token
        self.greet = greet
        # True if its GREET counts against the budget of strangers.
        self.is_stranger = is_stranger
        self.handshake = handshake
        self.came = self.due = came
        self.connect = b""
        # The Noise message of the opener's CONFIRM; the proof that the opener's RESETs will carry;
        # the last WELCOME, for a repeated GREET.
        self.confirm = b""
        self.proof = b""
        self.answer: Datagrams | None = None
        self.protection: AesGcm | None = None
        self._context = context
        self._responder = responder

    @property
    def key(self) -> bytes:
        """The public key of the opener, which the handshake has proven."""
        remote = self.handshake.remote
        assert remote is not None
        return remote

    def accept(self, accept: bytes) -> Datagrams | None:
        """Return the datagram that carries a connection's ACCEPT; None if the state refuses it.

        From then on the connection uses ``protection``, too.
        """
        return self._responder.accept(self, accept)

    def carry(self, datagram: bytes) -> Datagrams:
        """Return the WELCOME that carries an ACCEPT or a REFUSE, sealed if there are keys.

        Once it was sent unsealed, return the same WELCOME again.
        """
        if self.answer is not None:
            return self.answer
        kind, opener = decode_front_untrusted(datagram)
        own = decode_accept_untrusted(datagram).offer.connection_id if kind is Kind.ACCEPT else 0
        payload = self._context.payload(own, datagram)
        if self.protection is None:
            self.answer = self.welcome(payload)
            self.make_protection().name(own, opener)
            return self.answer
        self.protection.name(own, opener)
        welcome = encode_answer(Kind.WELCOME, opener, Answer(self.token, payload))
        return self.protection.seal(self.origin[0], welcome, len(welcome))

    def welcome(self, payload: bytes) -> Datagrams:
        """Return a WELCOME with the next Noise message."""
        address, opener = self.origin
        answer = Answer(self.token, self.handshake.write(payload))
        return Datagrams.of(address, encode_answer(Kind.WELCOME, opener, answer))

    def make_protection(self) -> AesGcm:
        """Make the packet protection from the keys of the finished handshake."""
        keys = self.handshake.split()
        self.protection = AesGcm(
            self.key, keys, self._context.counters, self.proof, key_log=self._context.key_log
        )
        return self.protection


MOST_KEPT: Final = 4
"""The longest life of a handshake as a multiple of its timeout, which a repetition restarts."""


class HalfOpenTable:
    """The half-open handshakes, at most ``limit``.

    Each ends after ``timeout`` seconds without a datagram of its opener, and after ``MOST_KEPT``
    times as long in any case.
    """

    def __init__(self, limit: int, timeout: float) -> None:
        self._limit = limit
        self._timeout = timeout
        self._handshakes: dict[Origin, ResponderHandshake] = {}

    def __len__(self) -> int:
        return len(self._handshakes)

    @property
    def is_full(self) -> bool:
        """True if no place is free."""
        return len(self._handshakes) >= self._limit

    def find(self, origin: Origin) -> ResponderHandshake | None:
        """Return the handshake of an opener; None if there is none."""
        return self._handshakes.get(origin)

    def make_room(self, host: str, is_stranger: bool) -> bool:
        """Return True if there is room for an opener from this host; make room if necessary.

        If the table is full, the newest handshake of a stranger that has not proven its identity is
        removed, at the host with the most of these. An opener that is a stranger itself replaces it
        only if that host has at least two more of these handshakes than the opener's host. Since
        addresses are proven, an attacker cannot appear as many hosts.
        """
        if not self.is_full:
            return True
        asked = [
            it
            for it in self._handshakes.values()
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

    def add(self, now: float, handshake: ResponderHandshake) -> None:
        """Add a handshake, and start its timeout."""
        handshake.due = now + self._timeout
        self._handshakes.pop(handshake.origin, None)
        self._handshakes[handshake.origin] = handshake

    def keep(self, now: float, handshake: ResponderHandshake) -> bool:
        """Restart the timeout of a handshake; return False if it has lived too long."""
        if now > handshake.came + (MOST_KEPT - 1) * self._timeout:
            return False
        handshake.due = now + self._timeout
        if self._handshakes.pop(handshake.origin, None) is not None:
            self._handshakes[handshake.origin] = handshake
        return True

    def forget(self, origin: Origin) -> None:
        """Remove the handshake of an opener if there is one."""
        self._handshakes.pop(origin, None)

    def take_late(self, now: float) -> ResponderHandshake | None:
        """Remove a handshake that has timed out, and return it; None if there is none."""
        # A handshake whose timeout is restarted moves to the end, so that the first is due first.
        first = next(iter(self._handshakes.values()), None)
        return None if first is None or first.due > now else self._handshakes.pop(first.origin)

    def next_due(self) -> float | None:
        """Return when the next handshake times out; None if there is none."""
        return next(iter(self._handshakes.values())).due if self._handshakes else None


FEWEST_SWEPT: Final = 64


class HandshakeReplayFilter:
    """The origins of IK GREETs, each valid as long as its handshake or connection exists.

    An attacker can record the Noise message of an IK GREET and send it from its own address with a
    valid cookie. The message begins with an ephemeral public key, which is different in every
    handshake. So the filter stores the first origin of each such key, and the responder rejects a
    GREET with the same key from another origin.
    """

    def __init__(self, half_open: HalfOpenTable, peers: Peers) -> None:
        self._half_open = half_open
        self._peers = peers
        self._places: dict[bytes, Origin] = {}
        self._sweep_at = FEWEST_SWEPT

    def __len__(self) -> int:
        return len(self._places)

    def has_place(self, noise: bytes, origin: Origin) -> bool:
        """Return True if the same GREET was received from another origin."""
        place = self._places.get(noise[:KEY_SIZE])
        return place is not None and place != origin and self._is_kept(place)

    def note(self, noise: bytes, origin: Origin) -> None:
        """Record the origin of a GREET."""
        if len(self._places) >= self._sweep_at:
            kept = {key: place for key, place in self._places.items() if self._is_kept(place)}
            self._places, self._sweep_at = kept, max(FEWEST_SWEPT, 2 * len(kept))
        self._places[noise[:KEY_SIZE]] = origin

    def _is_kept(self, place: Origin) -> bool:
        return self._half_open.find(place) is not None or place in self._peers


MOST_SUSPECTS: Final = 256


class Suspects:
    """The hosts that sent an invalid GREET within the last ``timeout`` seconds; at most 256."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._until: dict[str, float] = {}

    def has(self, now: float, host: str) -> bool:
        """Return True if this host is a suspect."""
        return self._until.get(host, now) > now

    def note(self, now: float, host: str) -> None:
        """Add a host, and remove the oldest one if there are too many."""
        self._until.pop(host, None)
        if len(self._until) >= MOST_SUSPECTS:
            del self._until[next(iter(self._until))]
        self._until[host] = now + self._timeout


class HandshakeProgress(NamedTuple):
    """A sign that the opener of the connection with this id continues its handshake."""

    connection_id: int


class Responder:
    """The handshakes that peers began, from their first GREET to their first sealed datagram.

    Inputs return a handshake whose ``connect`` the endpoint has to handle, or
    ``HandshakeProgress``, or None. Datagrams to send are appended to ``outgoing``. ``peers`` are
    the keys of the endpoint's connections.
    """

    def __init__(
        self,
        context: SecurityContext,
        limits: HandshakeLimits,
        peers: Peers,
        outgoing: deque[Datagrams],
    ) -> None:
        self._context = context
        self._counters = context.counters
        self._peers = peers
        self._outgoing = outgoing
        self._cookies = CookieJar(context.secrets, limits.cookie_lifetime)
        rate = limits.handshakes_per_second
        self._rates = {False: TokenBucket(rate), True: TokenBucket(rate)}
        self._suspects = Suspects(limits.handshake_timeout)
        self._half_open = HalfOpenTable(limits.half_open, limits.handshake_timeout)
        self._replays = HandshakeReplayFilter(self._half_open, peers)
        self._output: ResponderHandshake | HandshakeProgress | None = None
        self._answer: Datagrams | None = None

    def __len__(self) -> int:
        return len(self._half_open)

    def poll_timeout(self) -> float | None:
        """Return when the next handshake times out; None if there is none."""
        return self._half_open.next_due()

    def handle_timeout(self, now: float) -> None:
        """Remove the handshakes that have timed out."""
        while (late := self._half_open.take_late(now)) is not None:
            self._step(now, late, ResponderEvent.LATE)

    def find(self, origin: Origin) -> ResponderHandshake | None:
        """Return the handshake with this origin, or None."""
        return self._half_open.find(origin)

    # From the network

    def handle_greet_untrusted(
        self, now: float, address: Address, datagram: bytes
    ) -> ResponderHandshake | HandshakeProgress | None:
        """Handle a GREET: begin or continue a handshake; without a valid cookie, send one.

        Raises ``RemoteError`` if the GREET is malformed, or the CONNECT in it invalid.
        """
        greet = decode_greet_untrusted(datagram)
        # The cookie covers the Noise message, too, so that an altered GREET costs little.
        what = _name(address), datagram[FRONT.size : FRONT.size + OPENER_SIZE], greet.noise
        if not self._cookies.is_good(now, greet.cookie, *what):
            self._counters.cookies_sent += 1
            cookie = Answer(greet.token, self._cookies.make(now, *what))
            answer = encode_answer(Kind.COOKIE, greet.opener, cookie)
            self._outgoing.append(Datagrams.of(address, answer))
            return None
        origin = address, greet.opener
        handshake = self._half_open.find(origin)
        if handshake is not None and handshake.greet == greet.noise:
            return self._step(now, handshake, ResponderEvent.GREETED_AGAIN)
        if handshake is not None and handshake.state is not ResponderState.ASKED:
            # The opener has proven its identity, and repeats that GREET or its CONFIRM until it has
            # the answer. This other GREET may be forged.
            self._counters.denied += 1
            return None
        if self._replays.has_place(greet.noise, origin):
            self._counters.replayed += 1
            return None
        is_stranger = self._is_stranger(now, address, greet)
        if not self._has_room(now, origin, is_stranger=is_stranger):
            return None
        self._counters.handshakes += 1
        return self._begin(now, origin, greet, is_stranger=is_stranger)

    def handle_confirm_untrusted(
        self, now: float, address: Address, datagram: bytes
    ) -> ResponderHandshake | HandshakeProgress | None:
        """Handle a CONFIRM, which proves the identity of the opener.

        Raises ``RemoteError`` if it is malformed, or if it is the first one and invalid.
        """
        confirm = decode_confirm_untrusted(datagram)
        handshake = self._half_open.find((address, confirm.opener))
        if handshake is None or handshake.token != confirm.token:
            return None
        if handshake.state is ResponderState.ASKED:
            if not self._has_time(now, is_stranger=handshake.is_stranger):
                return None
            self._identify(handshake, self._read(handshake.handshake, confirm.noise))
            # From now on answers are sealed.
            handshake.make_protection()
            handshake.answer, handshake.confirm = None, confirm.noise
        if confirm.noise == handshake.confirm:
            return self._step(now, handshake, ResponderEvent.CONFIRMED)
        # Another CONFIRM is forged. A reply could be longer than it is.
        self._counters.forged += 1
        return None

    def handle_used(self, now: float, origin: Origin, protection: AesGcm) -> None:
        """End a handshake, because the opener has used its keys."""
        handshake = self._half_open.find(origin)
        if handshake is not None and handshake.protection is protection:
            self._step(now, handshake, ResponderEvent.KEYS_USED)

    # From the endpoint

    def accept(self, handshake: ResponderHandshake, accept: bytes) -> Datagrams | None:
        """Return the datagram that carries an ACCEPT; None if the handshake's state refuses it."""
        self._answer = None
        self._step(handshake.came, handshake, ResponderEvent.ACCEPTED, accept)
        return self._answer

    def refuse(self, handshake: ResponderHandshake, refuse: bytes) -> None:
        """Send a REFUSE to the opener, and end its handshake."""
        self._answer = None
        self._step(handshake.came, handshake, ResponderEvent.REFUSED, refuse)
        if self._answer is not None:
            self._outgoing.append(self._answer)

    def _step(
        self,
        now: float,
        handshake: ResponderHandshake,
        event: ResponderEvent,
        datagram: bytes = b"",
    ) -> ResponderHandshake | HandshakeProgress | None:
        """Take an event; return the output for the endpoint."""
        self._output = None
        _RUNNER.step_of(handshake, self, event, now, datagram)
        return self._output

    # Actions

    def _keep(self, handshake: ResponderHandshake, now: float, _: bytes) -> None:
        # The opener repeats its message because the reply was lost: restart its timeout.
        is_kept, keys = self._half_open.keep(now, handshake), handshake.protection
        if is_kept and keys is not None and keys.own:
            self._output = HandshakeProgress(keys.own)

    def _repeat(self, handshake: ResponderHandshake, _: float, __: bytes) -> None:
        if handshake.answer is not None:
            self._outgoing.append(handshake.answer)

    def _present(self, handshake: ResponderHandshake, _: float, __: bytes) -> None:
        """Pass the handshake to the endpoint if the authenticator accepts the opener."""
        connect = decode_connect_untrusted(handshake.connect)
        verdict = self._context.authenticator.judge(handshake.key, connect.offer.peer_id)
        if not is_free(self._peers, handshake.key, handshake.origin):
            verdict = Verdict.REJECT
        if verdict is Verdict.REJECT:
            self._counters.denied += 1
            refuse = Refuse(handshake.token, Refusal.DENIED)
            self.refuse(handshake, encode_refuse(handshake.origin[1], refuse))
        elif verdict is not Verdict.ACCEPT:
            # The servers may introduce the opener a moment later, and it repeats its GREET.
            self._counters.strangers += 1
            self._half_open.forget(handshake.origin)
        self._output = handshake if verdict is Verdict.ACCEPT else None

    def _carry(self, handshake: ResponderHandshake, _: float, datagram: bytes) -> None:
        self._answer = handshake.carry(datagram)

    def _forget(self, handshake: ResponderHandshake, _: float, __: bytes) -> None:
        self._half_open.forget(handshake.origin)

    @classmethod
    def runner(cls) -> Runner[ResponderState, ResponderEvent, ResponderAction]:
        return Runner(
            RESPONDER,
            {
                A.KEEP: cls._keep,
                A.REPEAT: cls._repeat,
                A.PRESENT: cls._present,
                A.ANSWER: cls._carry,
                A.FORGET: cls._forget,
            },
            # Datagrams arrive late or twice, and the endpoint may accept or refuse a handshake that
            # has timed out.
            ignored=ResponderEvent,
        )

    # Limits, and new handshakes

    def _is_stranger(self, now: float, address: Address, greet: Greet) -> bool:
        """Return True if the opener of a GREET counts as a stranger.

        It is assumed to be no stranger if the pattern of the GREET needs this side's key or the
        pre-shared key. The number of the pattern alone proves nothing, so an opener whose host
        recently sent an invalid GREET counts as a stranger, too.
        """
        pattern = PATTERNS.get(greet.pattern)
        is_introduced = pattern is not None and (pattern.responder_known or pattern.has_psk)
        return not is_introduced or self._suspects.has(now, address[0])

    def _has_room(self, now: float, origin: Origin, *, is_stranger: bool) -> bool:
        there = self._peers.get(origin)
        if there is not None and there.is_used:
            # The GREET was recorded: its opener has completed a handshake. The channel stays.
            return False
        if not self._has_time(now, is_stranger=is_stranger):
            return False
        if not self._half_open.is_full or self._half_open.find(origin) is not None:
            return True
        # Either this GREET is ignored, or a stranger's handshake is removed for it.
        self._counters.handshakes_over_limit += 1
        return self._half_open.make_room(origin[0][0], is_stranger)

    def _has_time(self, now: float, *, is_stranger: bool) -> bool:
        """Return True if the rate limit allows one more Noise message to be computed."""
        if self._rates[is_stranger].take(now):
            return True
        self._counters.handshakes_over_rate += 1
        return False

    def _begin(
        self, now: float, origin: Origin, greet: Greet, *, is_stranger: bool
    ) -> ResponderHandshake | None:
        pattern, context = PATTERNS.get(greet.pattern), self._context
        if pattern is None or pattern.has_psk != (context.psk is not None):
            self._hint(origin, greet, Refusal.DENIED)
            return None
        noise = NoiseHandshake(
            pattern,
            initiator=False,
            identity=context.identity,
            secrets=context.secrets,
            prologue=prologue(pattern, greet.opener, greet.token),
            psk=context.psk,
        )
        try:
            payload = self._read(noise, greet.noise)
        except RemoteError:
            # The GREET was made for another key or with another pre-shared key, or is malformed.
            self._suspects.note(now, origin[0][0])
            self._hint(origin, greet, Refusal.DENIED if pattern.has_psk else Refusal.WRONG_PEER)
            return None
        handshake = ResponderHandshake(
            self, context, origin, greet.token, greet.noise, noise, now, is_stranger=is_stranger
        )
        self._half_open.add(now, handshake)
        if pattern.responder_known:
            self._replays.note(greet.noise, origin)
            self._identify(handshake, payload)
            self._present(handshake, now, b"")
            return handshake if self._output is handshake else None
        handshake.state = ResponderState.ASKED
        handshake.answer = handshake.welcome(b"")
        self._outgoing.append(handshake.answer)
        return None

    def _identify(self, handshake: ResponderHandshake, payload: bytes) -> None:
        """Read the opener's CONNECT.

        Raises ``RemoteError`` if it is invalid or contradicts the GREET; the handshake ends then.
        """
        try:
            handshake.proof, handshake.connect = read_payload_untrusted(payload)
            kind, _ = decode_front_untrusted(handshake.connect)
            connect = decode_connect_untrusted(handshake.connect)
            repeated = kind, connect.offer.connection_id, connect.token
            if repeated != (Kind.CONNECT, handshake.origin[1], handshake.token):
                # Otherwise the endpoint would handle it as the CONNECT of another opener.
                raise RemoteError("no CONNECT, or that of somebody else")
        except RemoteError:
            self._half_open.forget(handshake.origin)
            raise

    def _read(self, noise: NoiseHandshake, message: bytes) -> bytes:
        try:
            return noise.read_untrusted(message)
        except RemoteError:
            self._counters.forged += 1
            raise

    def _hint(self, origin: Origin, greet: Greet, why: Refusal) -> None:
        address, opener = origin
        refuse = encode_refuse(opener, Refuse(greet.token, why))
        self._outgoing.append(Datagrams.of(address, refuse))


_RUNNER = Responder.runner()


def _name(address: Address) -> bytes:
    host, port = address
    return f"{host} {port}".encode()


# A cookie proves that an opener receives datagrams at its address, without stored state on this
# side. It is a MAC over the address, the attempt and the Noise message. When a GREET returns the
# cookie, this side computes the MAC again and compares.

SECRET_SIZE: Final = 32

# One secret for the present lifetime, and one for the previous lifetime.
SECRETS: Final = 2


class CookieJar:
    """The maker and checker of cookies, with two secrets for any number of openers.

    A cookie is valid for at least ``lifetime`` seconds, and for at most twice as long. Raises
    ``SettingsError`` if ``lifetime`` is not positive.
    """

    __slots__ = ("_lifetime", "_number", "_secrets", "_source")

    def __init__(self, secrets: Secrets, lifetime: float = 60.0) -> None:
        if not lifetime > 0:
            raise SettingsError(f"a cookie's lifetime of {lifetime} s; it must be positive")
        self._source = secrets
        self._lifetime = lifetime
        self._number = 0
        self._secrets = [self._draw() for _ in range(SECRETS)]

    def make(self, now: float, *what: bytes) -> bytes:
        """Return the cookie for the fields ``what``: ``COOKIE_SIZE`` bytes."""
        self._rotate(now)
        return _mac(self._secrets[0], what)

    def is_good(self, now: float, cookie: bytes, *what: bytes) -> bool:
        """Return True if ``make`` made the cookie for ``what`` in this or the last lifetime."""
        self._rotate(now)
        matches = [bytes_eq(_mac(secret, what), cookie) for secret in self._secrets]
        return any(matches)

    def _rotate(self, now: float) -> None:
        number = int(now // self._lifetime)
        for _ in range(min(number - self._number, SECRETS)):
            self._secrets = [self._draw(), *self._secrets[:-1]]
        self._number = max(number, self._number)

    def _draw(self) -> bytes:
        return self._source.getrandbits(8 * SECRET_SIZE).to_bytes(SECRET_SIZE, "little")


def _mac(secret: bytes, what: tuple[bytes, ...]) -> bytes:
    mac = HMAC(secret, SHA256())
    for part in what:
        # Each part follows its length, so that different sequences of parts give different bytes.
        mac.update(len(part).to_bytes(4, "little") + part)
    return mac.finalize()[:COOKIE_SIZE]
