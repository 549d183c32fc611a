"""The initiator of a sealed handshake: it sends GREETs to a peer's addresses, and handles replies.

Each dialling connection owns an initiator. The connection's CONNECT travels inside the handshake.
So does the peer's answer, an ACCEPT or a REFUSE, which is therefore authentic. If both sides dial
at once, each has an initiator for its own attempt, and its responder replies to the GREETs of the
other side. The endpoint then keeps one of the two attempts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sphtp.core.channel.handshake import (
    Accept,
    Refuse,
    decode_accept_untrusted,
    decode_refuse_untrusted,
)
from sphtp.core.channel.noise import (
    NO_COOKIE,
    NUMBERS,
    PADDING,
    Confirm,
    Greet,
    SecurityContext,
    encode_confirm,
    encode_greet,
    prologue,
    read_payload_untrusted,
)
from sphtp.core.channel.protection import AesGcm
from sphtp.core.channel.security import PeerPin, Verdict
from sphtp.core.datagrams import Address, Datagrams, Kind, decode_front_untrusted
from sphtp.core.fsm import Machine, Name, Row, Runner
from sphtp.core.secure.noise_framework import IK, XX, XXPSK0, NoiseHandshake
from sphtp.errors import RemoteError


class InitiatorState(Name):
    """The states of the opener's side of a handshake."""

    GREETING = "the opener sends GREETs; no WELCOME has arrived"
    CONFIRMING = "the opener sent its identity in a CONFIRM; no answer has arrived"
    RENEWING = "the opener repeats the CONFIRM, and begins a new handshake beside it"
    SEALED = "both sides have the keys"


class InitiatorEvent(Name):
    """The events of the opener's side."""

    CONNECT = "the connection sends CONNECT, for the first time or again"
    CONFIRM_EXPIRED = "the connection sends CONNECT again; the peer may have ended the handshake"
    COOKIE = "the first cookie arrived from an address"
    NEW_COOKIE = "another cookie arrived from an address that had sent one"
    ASKED = "a WELCOME arrived that requests the identity of this side"
    ACCEPTED = "an authentic ACCEPT arrived"
    REFUSED = "an authentic REFUSE arrived"
    IMPOSTOR = "an answer of a peer that is not the wanted one, or is not accepted"


class InitiatorAction(Name):
    """The actions of the opener's side."""

    GREET = "send GREET, with the cookie if there is one"
    CONFIRM = "derive the keys, and send a CONFIRM"
    CONFIRM_AGAIN = "send the last CONFIRM again"
    PROGRESS = "report to the connection that the next flight leaves"
    BEGIN_ANEW = "begin another handshake, and keep the present keys until it gives new ones"
    SEAL = "seal all packets from now on"
    HAND_ON = "pass the answer to the connection"
    OBJECT = "report to the connection that the answer is from the wrong peer"
    RENEW = "discard the keys, and begin a new handshake for the next CONNECT"


S, E, A = InitiatorState, InitiatorEvent, InitiatorAction

INITIATOR = Machine(
    "Noise initiator",
    S.GREETING,
    (
        Row(
            S.GREETING,
            E.CONNECT,
            S.GREETING,
            (A.GREET,),
            "the first GREET is due, or GREET, COOKIE or WELCOME was lost",
        ),
        Row(S.GREETING, E.COOKIE, S.GREETING, (A.PROGRESS, A.GREET), "the address is proven"),
        Row(S.GREETING, E.NEW_COOKIE, S.GREETING, (A.GREET,), "the earlier cookie has expired"),
        Row(
            S.GREETING,
            E.ASKED,
            S.CONFIRMING,
            (A.PROGRESS, A.CONFIRM),
            "the pattern is XX or XXpsk0",
        ),
        Row(S.GREETING, E.ACCEPTED, S.SEALED, (A.SEAL, A.HAND_ON), "the pattern is IK"),
        Row(S.GREETING, E.REFUSED, S.GREETING, (A.RENEW, A.HAND_ON), "another address may accept"),
        Row(S.GREETING, E.IMPOSTOR, S.GREETING, (A.RENEW, A.OBJECT), "it counts as a refusal"),
        Row(
            S.CONFIRMING,
            E.CONNECT,
            S.CONFIRMING,
            (A.CONFIRM_AGAIN,),
            "CONFIRM or its answer was lost",
        ),
        Row(
            S.CONFIRMING,
            E.CONFIRM_EXPIRED,
            S.RENEWING,
            (A.CONFIRM_AGAIN, A.BEGIN_ANEW, A.GREET),
            "either the peer restarted, or the path loses datagrams",
        ),
        Row(S.CONFIRMING, E.ACCEPTED, S.SEALED, (A.SEAL, A.HAND_ON), "the peer has accepted"),
        Row(
            S.CONFIRMING, E.REFUSED, S.GREETING, (A.RENEW, A.HAND_ON), "another address may accept"
        ),
        Row(S.CONFIRMING, E.IMPOSTOR, S.GREETING, (A.RENEW, A.OBJECT), "it counts as a refusal"),
        Row(
            S.RENEWING,
            E.CONNECT,
            S.RENEWING,
            (A.CONFIRM_AGAIN, A.GREET),
            "the peer may continue either handshake",
        ),
        Row(S.RENEWING, E.COOKIE, S.RENEWING, (A.PROGRESS, A.GREET), "the address is proven"),
        Row(S.RENEWING, E.NEW_COOKIE, S.RENEWING, (A.GREET,), "the earlier cookie has expired"),
        Row(
            S.RENEWING,
            E.ASKED,
            S.CONFIRMING,
            (A.PROGRESS, A.CONFIRM),
            "the peer continues the new handshake",
        ),
        Row(S.RENEWING, E.ACCEPTED, S.SEALED, (A.SEAL, A.HAND_ON), "the path lost datagrams"),
        Row(S.RENEWING, E.REFUSED, S.GREETING, (A.RENEW, A.HAND_ON), "another address may accept"),
        Row(S.RENEWING, E.IMPOSTOR, S.GREETING, (A.RENEW, A.OBJECT), "it counts as a refusal"),
    ),
    events=InitiatorEvent,
    final=frozenset({S.SEALED}),
    refused={
        S.GREETING: frozenset({E.CONFIRM_EXPIRED}),
        S.CONFIRMING: frozenset({E.COOKIE, E.NEW_COOKIE, E.ASKED}),
        S.RENEWING: frozenset({E.CONFIRM_EXPIRED}),
        S.SEALED: frozenset(InitiatorEvent),
    },
)


@dataclass(frozen=True, slots=True)
class SealedAnswer:
    """An ACCEPT or REFUSE from the owner of the public key ``key``.

    ``proof`` is the proof that its RESETs will carry.
    """

    address: Address
    key: bytes
    proof: bytes = field(repr=False)
    message: Accept | Refuse


Actions = tuple[InitiatorAction, ...]


class Initiator:
    """One attempt to reach a peer: with IK if ``pin`` has the peer's key, else with XX.

    With a pre-shared key the pattern is always XXpsk0. ``opener`` is this connection's id, and
    ``token`` that of its CONNECT. ``renew_after`` is the number of seconds after a CONFIRM from
    which the peer may have ended the handshake. Inputs return the actions that the connection
    performs: PROGRESS, HAND_ON, OBJECT and SEAL. After each input, ``take_datagrams`` returns the
    datagrams to send, and ``protection`` has the keys of the last handshake that gave any, None
    before that and after a refusal.
    """

    def __init__(
        self, context: SecurityContext, pin: PeerPin, opener: int, token: int, renew_after: float
    ) -> None:
        self.state = INITIATOR.initial
        self.opener = opener
        self.token = token
        self.protection: AesGcm | None = None
        self._context = context
        self._pin = pin
        self._renew_after = renew_after
        self._pattern = XXPSK0 if context.psk else IK if pin.key else XX
        self._cookies: dict[Address, bytes] = {}
        # The addresses whose cookie caused a GREET since the last ``handle_connect`` for them.
        self._hurried: set[Address] = set()
        self._connect = b""
        # The Noise message of the present GREET; the last CONFIRM, its address, and its time.
        self._noise = b""
        self._confirm = b""
        self._confirmed_to: Address | None = None
        self._confirmed_at: float | None = None
        self._outgoing: list[Datagrams] = []
        self._reported: list[InitiatorAction] = []
        self._handshake = self._begin()

    # Inputs

    def handle_connect(self, now: float, address: Address, connect: bytes) -> Actions:
        """Send a GREET to an address, or the last CONFIRM if that went there, both, or neither.

        The connection's CONNECT travels in a GREET of the pattern IK, and otherwise in a CONFIRM.
        """
        self._cookies.setdefault(address, NO_COOKIE)
        self._hurried.discard(address)
        self._connect = self._context.payload(self.opener, connect)
        at = self._confirmed_at
        is_expired = at is not None and now >= at + self._renew_after
        event = InitiatorEvent.CONFIRM_EXPIRED if is_expired else InitiatorEvent.CONNECT
        return self._step(now, address, event)

    def handle_cookie(self, now: float, address: Address, cookie: bytes) -> Actions:
        """Handle a cookie, and send a GREET with it at once.

        Only the first cookie from an address after each ``handle_connect`` causes a GREET. A GREET
        is longer than a cookie, so forged cookies must not make this side send more than it
        received.
        """
        last = self._cookies.get(address)
        if last is None or len(cookie) != len(NO_COOKIE):
            return ()
        self._cookies[address] = cookie
        if address in self._hurried:
            return ()
        self._hurried.add(address)
        is_first = last == NO_COOKIE
        event = InitiatorEvent.COOKIE if is_first else InitiatorEvent.NEW_COOKIE
        return self._step(now, address, event)

    def handle_welcome_untrusted(
        self, now: float, address: Address, noise: bytes
    ) -> tuple[Actions, SealedAnswer | None]:
        """Handle the Noise message of a WELCOME; return the actions, and its answer or None.

        A WELCOME without an answer requests the identity of this side. Raises ``RemoteError`` if
        the message is invalid.
        """
        is_awaited = INITIATOR.find(self.state, InitiatorEvent.ASKED) is not None
        if not is_awaited or not self.was_asked(address):
            return (), None
        try:
            payload = self._handshake.read_untrusted(noise)
        except RemoteError:
            self._context.counters.forged += 1
            raise
        remote = self._handshake.remote
        assert remote is not None
        if self._handshake.is_finished:
            return (), self.read_answer_untrusted(address, remote, payload)
        if self._is_expected(remote):
            return self._step(now, address, InitiatorEvent.ASKED), None
        return self._refuse_impostor(now, address), None

    def read_answer_untrusted(self, address: Address, key: bytes, payload: bytes) -> SealedAnswer:
        """Decode the answer of the owner of a public key.

        Raises ``RemoteError`` if it is invalid, or not for this attempt.
        """
        proof, datagram = read_payload_untrusted(payload)
        kind, to = decode_front_untrusted(datagram)
        message: Accept | Refuse
        if kind is Kind.ACCEPT:
            message = decode_accept_untrusted(datagram)
        elif kind is Kind.REFUSE:
            message = decode_refuse_untrusted(datagram)
        else:
            raise RemoteError(f"{kind.name} is no answer to a GREET")
        # Otherwise the connection would accept it as the answer to this attempt.
        if (to, message.token) != (self.opener, self.token):
            raise RemoteError("an answer to another attempt")
        return SealedAnswer(address, key, proof, message)

    def handle_answer_untrusted(
        self, now: float, answer: SealedAnswer, *, is_free: bool, is_meant: bool
    ) -> Actions:
        """Handle an answer.

        ``is_free`` is True unless another peer has the connection id that the answer names.
        ``is_meant`` is True if the handshake accepts the answer: it has the right token and the
        wanted peer's id. Raises ``RemoteError`` if ``is_free`` is False and the answer is an ACCEPT
        of the wanted peer.
        """
        if isinstance(answer.message, Refuse):
            return self._step(now, answer.address, InitiatorEvent.REFUSED)
        offer = answer.message.offer
        judge = self._context.authenticator.judge
        is_known = is_meant and self._is_expected(answer.key)
        if not is_known or judge(answer.key, offer.peer_id) is not Verdict.ACCEPT:
            return self._refuse_impostor(now, answer.address)
        if not is_free:
            raise RemoteError("a connection id of another peer")
        actions = self._step(now, answer.address, InitiatorEvent.ACCEPTED)
        if self.protection is not None and InitiatorAction.SEAL in actions:
            self.protection.proof = answer.proof
            self.protection.name(self.opener, offer.connection_id)
        return actions

    # Getters

    def was_asked(self, address: Address) -> bool:
        """Return True if this attempt has dialled this address."""
        return address in self._cookies

    @property
    def confirmed_to(self) -> Address | None:
        """The address of the last CONFIRM; None if there was none since the last refusal."""
        return self._confirmed_to

    def take_datagrams(self) -> Iterable[Datagrams]:
        """Return the datagrams to send, and clear the list."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # Actions

    def _step(self, now: float, address: Address, event: InitiatorEvent) -> Actions:
        """Take an event; return the actions that the connection performs."""
        self._reported = []
        _RUNNER.step(self, event, now, address)
        return tuple(self._reported)

    def _do_greet(self, _: float, address: Address) -> None:
        self._send(address, self._greet(address))

    def _confirm_again(self, _: float, address: Address) -> None:
        if self._confirmed_to == address:
            self._send(address, self._confirm)

    def _begin_anew(self, *_: object) -> None:
        self._handshake = self._begin()

    def _seal(self, *_: object) -> None:
        # After a CONFIRM there are keys already: the peer has sealed its answer with them.
        self.protection = self.protection or self._make_protection()
        self._reported.append(InitiatorAction.SEAL)

    def _report_progress(self, *_: object) -> None:
        self._reported.append(InitiatorAction.PROGRESS)

    def _hand_on(self, *_: object) -> None:
        self._reported.append(InitiatorAction.HAND_ON)

    def _object(self, *_: object) -> None:
        self._reported.append(InitiatorAction.OBJECT)

    def _send(self, address: Address, datagram: bytes) -> None:
        self._outgoing.append(Datagrams.of(address, datagram))

    def _begin(self) -> NoiseHandshake:
        self._noise = b""
        self._confirmed_at = None
        # A cookie is valid only for the GREET that it answered.
        self._cookies = dict.fromkeys(self._cookies, NO_COOKIE)
        return NoiseHandshake(
            self._pattern,
            initiator=True,
            identity=self._context.identity,
            secrets=self._context.secrets,
            prologue=prologue(self._pattern, self.opener, self.token),
            remote=self._pin.key if self._pattern is IK else None,
            psk=self._context.psk,
        )

    def _renew(self, *_: object) -> None:
        """Discard the keys of the refused handshake, and begin a new one."""
        self.protection = None
        self._confirm, self._confirmed_to = b"", None
        self._handshake = self._begin()

    def _greet(self, address: Address) -> bytes:
        """Return the GREET to an address; only the cookie differs between addresses."""
        if not self._noise:
            is_known = self._pattern is IK
            self._noise = self._handshake.write(self._connect if is_known else PADDING)
        number, cookie = NUMBERS[self._pattern.name], self._cookies[address]
        return encode_greet(Greet(self.opener, self.token, number, cookie, self._noise))

    def _confirm_to(self, now: float, address: Address) -> None:
        """Send a CONFIRM with this side's identity and its CONNECT."""
        self._confirmed_at, self._confirmed_to = now, address
        noise = self._handshake.write(self._connect)
        self._confirm = encode_confirm(Confirm(self.opener, self.token, noise))
        # The peer seals its answer. Its connection id, 0 until then, is in the answer.
        self.protection = self._make_protection()
        self.protection.name(self.opener, 0)
        self._send(address, self._confirm)

    def _make_protection(self) -> AesGcm:
        keys, remote = self._handshake.split(), self._handshake.remote
        assert remote is not None
        return AesGcm(remote, keys, self._context.counters, key_log=self._context.key_log)

    # Authentication of the peer

    def _is_expected(self, remote: bytes) -> bool:
        if not self._pin.is_met_by(remote):
            return False
        # An attacker could reflect this side's messages to appear as a peer with the key.
        is_mirror = self._context.psk is not None and remote == self._context.identity.public
        return not is_mirror or self._pin.key == remote

    def _refuse_impostor(self, now: float, address: Address) -> Actions:
        """Handle an answer from the wrong peer like a refusal by the wanted peer."""
        self._context.counters.denied += 1
        return self._step(now, address, InitiatorEvent.IMPOSTOR)

    @classmethod
    def runner(cls) -> Runner[InitiatorState, InitiatorEvent, InitiatorAction]:
        return Runner(
            INITIATOR,
            {
                A.GREET: cls._do_greet,
                A.CONFIRM: cls._confirm_to,
                A.CONFIRM_AGAIN: cls._confirm_again,
                A.BEGIN_ANEW: cls._begin_anew,
                A.SEAL: cls._seal,
                A.RENEW: cls._renew,
                A.PROGRESS: cls._report_progress,
                A.HAND_ON: cls._hand_on,
                A.OBJECT: cls._object,
            },
            ignored=InitiatorEvent,
        )


_RUNNER = Initiator.runner()
