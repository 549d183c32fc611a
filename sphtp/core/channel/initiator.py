"""The initiator of a sealed handshake: GREET to every address, and what comes of it."""

from collections.abc import Callable, Mapping

from sphtp.core.channel.handshake import (
    Objection,
    Refuse,
    decode_accept_untrusted,
    decode_connect_untrusted,
    decode_refuse_untrusted,
)
from sphtp.core.channel.noise import (
    NO_COOKIE,
    NUMBERS,
    PADDING,
    Answer,
    Confirm,
    Greet,
    SecurityContext,
    decode_answer_untrusted,
    encode_confirm,
    encode_greet,
    prologue,
    read_introduction_untrusted,
)
from sphtp.core.channel.protection import SecureSession
from sphtp.core.channel.security import PeerPin, Verdict
from sphtp.core.channel.stateless_reset import StatelessReset
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.entropy import Secrets
from sphtp.core.front import Kind, decode_front_untrusted
from sphtp.core.machine import Machine, Name, Row
from sphtp.core.secure.identity import Identity
from sphtp.core.secure.noise.handshake import Handshake
from sphtp.core.secure.noise.patterns import IK, XX, XXPSK0
from sphtp.errors import RemoteError


class InitiatorState(Name):
    """Where a greeting is."""

    GREETING = "sent GREET, was not welcomed"
    CONFIRMING = "told who this side is, heard no answer to that"
    RENEWING = "the same, and greets anew meanwhile"
    SEALED = "both sides have the keys"


class InitiatorEvent(Name):
    """What happens to a greeting."""

    CONNECT = "the endpoint wants to connect, or asks again"
    UNHEARD = "it asks again, so late that the peer may have forgotten whom it asked"
    COOKIE = "the first cookie came"
    NEW_COOKIE = "another one came, from an address that had given one"
    ASKED = "WELCOME came and asks who this side is"
    ACCEPTED = "an ACCEPT came that nobody else can have written"
    REFUSED = "a REFUSE came that nobody else can have written"
    IMPOSTOR = "an answer came from somebody else than the peer wanted"


class InitiatorAction(Name):
    """What it then does."""

    GREET = "send GREET, with the cookie if there is one"
    CONFIRM = "make keys, and a CONFIRM, and send that"
    CONFIRM_AGAIN = "send the last CONFIRM again"
    PROGRESS = "tell the endpoint that the peer is there, and the next flight leaves"
    BEGIN_ANEW = "begin another handshake, and keep the keys of this one until that gave others"
    SEAL = "seal all that leaves from now on"
    HAND_ON = "hand the answer to the endpoint"
    OBJECT = "tell the endpoint who is not there"
    RENEW = "begin anew should the endpoint ask again"


G, R, S = InitiatorState, InitiatorEvent, InitiatorAction

INITIATOR = Machine(
    "Greeting",
    G.GREETING,
    (
        Row(G.GREETING, R.CONNECT, G.GREETING, (S.GREET,), "GREET, COOKIE or WELCOME was lost"),
        Row(G.GREETING, R.COOKIE, G.GREETING, (S.PROGRESS, S.GREET), "this address is real"),
        Row(G.GREETING, R.NEW_COOKIE, G.GREETING, (S.GREET,), "the one it gave before is too old"),
        Row(
            G.GREETING,
            R.ASKED,
            G.CONFIRMING,
            (S.PROGRESS, S.CONFIRM),
            "the key was not known beforehand",
        ),
        Row(G.GREETING, R.ACCEPTED, G.SEALED, (S.SEAL, S.HAND_ON), "the peer knows who asks"),
        Row(G.GREETING, R.REFUSED, G.GREETING, (S.RENEW, S.HAND_ON), "another address may accept"),
        Row(G.GREETING, R.IMPOSTOR, G.GREETING, (S.RENEW, S.OBJECT), "as good as a refusal"),
        Row(
            G.CONFIRMING,
            R.CONNECT,
            G.CONFIRMING,
            (S.CONFIRM_AGAIN,),
            "CONFIRM or its answer was lost",
        ),
        Row(
            G.CONFIRMING,
            R.UNHEARD,
            G.RENEWING,
            (S.CONFIRM_AGAIN, S.BEGIN_ANEW, S.GREET),
            "the peer restarted, or the path is bad: which of them, only an answer tells",
        ),
        Row(G.CONFIRMING, R.ACCEPTED, G.SEALED, (S.SEAL, S.HAND_ON), "the peer knows who asks"),
        Row(G.CONFIRMING, R.REFUSED, G.GREETING, (S.RENEW, S.HAND_ON), "another one may accept"),
        Row(G.CONFIRMING, R.IMPOSTOR, G.GREETING, (S.RENEW, S.OBJECT), "as good as a refusal"),
        Row(
            G.RENEWING,
            R.CONNECT,
            G.RENEWING,
            (S.CONFIRM_AGAIN, S.GREET),
            "either may be answered",
        ),
        Row(G.RENEWING, R.COOKIE, G.RENEWING, (S.PROGRESS, S.GREET), "this address is real"),
        Row(G.RENEWING, R.NEW_COOKIE, G.RENEWING, (S.GREET,), "the one it gave before is too old"),
        Row(
            G.RENEWING,
            R.ASKED,
            G.CONFIRMING,
            (S.PROGRESS, S.CONFIRM),
            "the peer has forgotten whom it asked",
        ),
        Row(G.RENEWING, R.ACCEPTED, G.SEALED, (S.SEAL, S.HAND_ON), "it was the path"),
        Row(G.RENEWING, R.REFUSED, G.GREETING, (S.RENEW, S.HAND_ON), "another one may accept"),
        Row(G.RENEWING, R.IMPOSTOR, G.GREETING, (S.RENEW, S.OBJECT), "as good as a refusal"),
    ),
    events=InitiatorEvent,
    final=frozenset({G.SEALED}),
    refused={
        G.GREETING: frozenset({R.UNHEARD}),
        G.CONFIRMING: frozenset({R.COOKIE, R.NEW_COOKIE, R.ASKED}),
        G.RENEWING: frozenset({R.UNHEARD}),
        G.SEALED: frozenset(InitiatorEvent),
    },
)


class InitiatorHandshake:
    """An attempt to reach a peer: by IK where its key is known, else by XX.

    ``token`` is that of the endpoint's CONNECT, ``opener`` its connection id, and ``bond``
    what the last handshake gave that came so far.
    With a pre-shared key it is XXpsk0, whatever else is known.
    """

    def __init__(
        self, identity: Identity, secrets: Secrets, expectation: PeerPin, psk: bytes | None
    ) -> None:
        self.state = INITIATOR.initial
        self.expectation = expectation
        self.token = 0
        self.opener = 0
        self._identity = identity
        self._secrets = secrets
        self._psk = psk
        self._pattern = XXPSK0 if psk else IK if expectation.key else XX
        self.bond: SecureSession | None = None
        self._cookies: dict[Address, bytes] = {}
        # Those whose cookie led to one more GREET since the endpoint asked last.
        self._hurried: set[Address] = set()
        self._connect = b""
        self._noise = b""
        self._confirm = b""
        self._confirmed_at: float | None = None
        self.handshake = self._begin()

    def _begin(self) -> Handshake:
        remote = self.expectation.key if self._pattern is IK else None
        front = prologue(self._pattern, self.opener, self.token)
        self._noise = b""
        self._confirmed_at = None
        # A cookie is good for the GREET that it was given for.
        self._cookies = dict.fromkeys(self._cookies, NO_COOKIE)
        return Handshake(
            self._pattern,
            initiator=True,
            identity=self._identity,
            secrets=self._secrets,
            prologue=front,
            remote=remote,
            psk=self._psk,
        )

    def find(self, event: InitiatorEvent) -> tuple[InitiatorAction, ...]:
        """Go where the event leads; return what to do, nothing if the state refuses it."""
        row = INITIATOR.find(self.state, event)
        if row is None:
            return ()
        self.state = row.to
        return row.do

    def connect(self, address: Address, opener: int, token: int, introduction: bytes) -> None:
        """Take over whom the endpoint wants to reach, as whom, and what it wants to say there."""
        self._cookies.setdefault(address, NO_COOKIE)
        self._hurried.discard(address)
        self._connect = introduction
        if (opener, token) != (self.opener, self.token):
            self.opener, self.token = opener, token
            self.renew()

    def keep_cookie(self, address: Address, cookie: bytes) -> InitiatorEvent | None:
        """Keep what proves our address to one that was greeted; None if it is not used at once.

        It is once for each time that the endpoint asks: a GREET is longer than the cookie, and
        who makes cookies up must not make this side talk.
        """
        last = self._cookies.get(address)
        if last is None or len(cookie) != len(NO_COOKIE):
            return None
        self._cookies[address] = cookie
        if address in self._hurried:
            return None
        self._hurried.add(address)
        return InitiatorEvent.COOKIE if last == NO_COOKIE else InitiatorEvent.NEW_COOKIE

    def was_asked(self, address: Address) -> bool:
        """Whether this address was greeted."""
        return address in self._cookies

    def renew(self) -> None:
        """Begin with new keys: those of an attempt that ended are not used again."""
        self.state = INITIATOR.initial
        self.bond = None
        self._confirm = b""
        self.handshake = self._begin()

    def begin_anew(self) -> None:
        """Begin another handshake beside the one that was confirmed, whose answer may come yet."""
        self.handshake = self._begin()

    def greet(self, address: Address) -> bytes:
        """The GREET to an address; the same for all but for the cookie."""
        if not self._noise:
            is_known = self._pattern is IK
            self._noise = self.handshake.write(self._connect if is_known else PADDING)
        number, cookie = NUMBERS[self._pattern.name], self._cookies[address]
        return encode_greet(Greet(self.opener, self.token, number, cookie, self._noise))

    def is_unheard(self, now: float, patience: float) -> bool:
        """Whether the first CONFIRM is that many seconds old."""
        return self._confirmed_at is not None and now >= self._confirmed_at + patience

    def confirm(self, now: float) -> bytes:
        """Make the CONFIRM that tells who this side is, and what it wants."""
        self._confirmed_at = now
        noise = self.handshake.write(self._connect)
        self._confirm = encode_confirm(Confirm(self.opener, self.token, noise))
        return self._confirm

    @property
    def last_confirm(self) -> bytes:
        """The last CONFIRM, the same bytes again."""
        return self._confirm


class Initiator:
    """Attempts by the token of their CONNECT, until there are keys.

    ``patience`` is how long, in seconds, the other side is taken to remember whom it asked for a
    name.
    """

    def __init__(self, lodge: SecurityContext, resets: StatelessReset, patience: float) -> None:
        self._lodge = lodge
        self._patience = patience
        self._resets = resets
        self._greetings: dict[int, InitiatorHandshake] = {}
        self._say: Mapping[
            InitiatorAction, Callable[[float, Address, InitiatorHandshake, bytes], None]
        ] = {
            InitiatorAction.GREET: self._greet,
            InitiatorAction.CONFIRM: self._confirm,
            InitiatorAction.CONFIRM_AGAIN: self._confirm_again,
            InitiatorAction.PROGRESS: self._progress,
            InitiatorAction.BEGIN_ANEW: lambda _now, _address, greeting, _: greeting.begin_anew(),
            InitiatorAction.SEAL: self._seal,
            InitiatorAction.HAND_ON: self._hand_on,
            InitiatorAction.OBJECT: self._object,
            InitiatorAction.RENEW: self._renew,
        }

    def __len__(self) -> int:
        return len(self._greetings)

    def find(self, token: int) -> InitiatorHandshake | None:
        """The attempt with this token."""
        return self._greetings.get(token)

    def expect(self, token: int, expectation: PeerPin) -> None:
        """Begin an attempt; whoever answers must be the one expected."""
        lodge = self._lodge
        greeting = InitiatorHandshake(lodge.identity, lodge.secrets, expectation, lodge.psk)
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
        self._step(
            now, address, greeting, InitiatorEvent.UNHEARD if is_unheard else InitiatorEvent.CONNECT
        )

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
        is_awaited = INITIATOR.find(greeting.state, InitiatorEvent.ASKED) is not None
        if not is_awaited or not greeting.was_asked(address):
            return
        payload = self._read(greeting, answer.content)
        remote = greeting.handshake.remote
        assert remote is not None
        if greeting.handshake.is_finished:
            self.handle_answer_untrusted(now, address, greeting, remote, payload)
        elif self._is_expected(greeting, remote):
            self._step(now, address, greeting, InitiatorEvent.ASKED)
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
        self,
        now: float,
        address: Address,
        greeting: InitiatorHandshake,
        remote: bytes,
        introduction: bytes,
    ) -> None:
        """Take an ACCEPT or REFUSE of whoever has the key ``remote``, with what it has to know."""
        _, datagram = read_introduction_untrusted(introduction)
        kind, to = decode_front_untrusted(datagram)
        if to != greeting.opener:
            raise RemoteError("an answer to somebody else")
        if kind is Kind.REFUSE:
            _require_same(greeting, decode_refuse_untrusted(datagram).token)
            self._step(now, address, greeting, InitiatorEvent.REFUSED, introduction)
        elif kind is Kind.ACCEPT:
            self._handle_accept_untrusted(now, address, greeting, remote, introduction)
        else:
            raise RemoteError(f"{kind.name} is no answer to a GREET")

    def _handle_accept_untrusted(
        self,
        now: float,
        address: Address,
        greeting: InitiatorHandshake,
        remote: bytes,
        introduction: bytes,
    ) -> None:
        _, datagram = read_introduction_untrusted(introduction)
        accept = decode_accept_untrusted(datagram)
        _require_same(greeting, accept.token)
        if not self._is_introduced(greeting, remote, accept.offer.peer_id):
            self._refuse_impostor(now, address, greeting)
        elif self._lodge.bonds.is_open_to(remote, address, accept.offer.connection_id):
            self._step(now, address, greeting, InitiatorEvent.ACCEPTED, introduction)
        else:
            raise RemoteError("a connection id that is somebody else's")

    # Actions

    def _step(
        self,
        now: float,
        address: Address,
        greeting: InitiatorHandshake,
        event: InitiatorEvent,
        introduction: bytes = b"",
    ) -> None:
        for action in greeting.find(event):
            self._say[action](now, address, greeting, introduction)

    def _greet(self, _now: float, address: Address, greeting: InitiatorHandshake, _: bytes) -> None:
        self._lodge.say(Datagrams.of(address, greeting.greet(address)))

    def _confirm(
        self, now: float, address: Address, greeting: InitiatorHandshake, _: bytes
    ) -> None:
        confirm = greeting.confirm(now)
        # What the peer answers is sealed; which connection of its own it means, it says there.
        greeting.bond = self._bond(address, greeting)
        self._lodge.bonds.add(greeting.bond, greeting.opener, 0)
        self._lodge.say(Datagrams.of(address, confirm))

    def _confirm_again(
        self, _now: float, address: Address, greeting: InitiatorHandshake, _: bytes
    ) -> None:
        if greeting.bond is not None and greeting.bond.address == address:
            self._lodge.say(Datagrams.of(address, greeting.last_confirm))

    def _progress(
        self, now: float, _address: Address, greeting: InitiatorHandshake, _: bytes
    ) -> None:
        self._lodge.progress(now, greeting.opener)

    def _seal(
        self, _now: float, address: Address, greeting: InitiatorHandshake, introduction: bytes
    ) -> None:
        proof, datagram = read_introduction_untrusted(introduction)
        peer = decode_accept_untrusted(datagram).offer.connection_id
        bond = greeting.bond = greeting.bond or self._bond(address, greeting)
        bond.proof = proof
        self._lodge.settle(bond, greeting.opener, peer)
        # A handshake gives the same keys again, as long as there is one.
        self.forget(greeting.token)

    def _hand_on(
        self, now: float, address: Address, _greeting: InitiatorHandshake, introduction: bytes
    ) -> None:
        self._lodge.pass_on(now, address, read_introduction_untrusted(introduction)[1])

    def _renew(
        self, _now: float, _address: Address, greeting: InitiatorHandshake, _: bytes
    ) -> None:
        if greeting.bond is not None:
            self._lodge.bonds.remove(greeting.opener)
        greeting.renew()

    def _object(self, now: float, address: Address, greeting: InitiatorHandshake, _: bytes) -> None:
        refuse = Refuse(greeting.token, Objection.IMPOSTOR)
        self._lodge.object(now, address, greeting.opener, refuse)

    # Whom we speak with

    def _greeting(self, opener: int, answer: Answer) -> InitiatorHandshake | None:
        greeting = self._greetings.get(answer.token)
        return greeting if greeting is not None and greeting.opener == opener else None

    def _read(self, greeting: InitiatorHandshake, noise: bytes) -> bytes:
        try:
            return greeting.handshake.read_untrusted(noise)
        except RemoteError:
            self._lodge.counters.forged += 1
            raise

    def _is_expected(self, greeting: InitiatorHandshake, remote: bytes) -> bool:
        expectation = greeting.expectation
        if not expectation.is_met_by(remote):
            return False
        # Of those who share a secret nobody may stand for another by sending us back our own words.
        is_mirror = self._lodge.psk is not None and remote == self._lodge.identity.public
        return not is_mirror or expectation.key == remote

    def _is_introduced(self, greeting: InitiatorHandshake, remote: bytes, peer_id: int) -> bool:
        """Whether who answered is expected, and may have the id that it says it has."""
        if not self._is_expected(greeting, remote):
            return False
        return self._lodge.trust.judge(remote, peer_id) is Verdict.ACCEPT

    def _refuse_impostor(self, now: float, address: Address, greeting: InitiatorHandshake) -> None:
        """End the attempt at this address: it is as if the peer meant had refused."""
        self._lodge.counters.denied += 1
        self._step(now, address, greeting, InitiatorEvent.IMPOSTOR)

    def _bond(self, address: Address, greeting: InitiatorHandshake) -> SecureSession:
        keys, remote = greeting.handshake.split(), greeting.handshake.remote
        assert remote is not None
        return SecureSession(remote, keys, address, self._lodge.counters)


def _require_same(greeting: InitiatorHandshake, token: int) -> None:
    """Refuse to hand on what the endpoint would take for the answer to another attempt."""
    if token != greeting.token:
        raise RemoteError("an answer to another attempt")
