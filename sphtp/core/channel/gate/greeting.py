"""The side that dials: a GREET to every address, and what comes of it."""

from typing import Final

from sphtp.core.channel.gate.bond import Bond
from sphtp.core.channel.gate.tables import GREETING, Reply, Say
from sphtp.core.channel.gate.trust import Expectation
from sphtp.core.channel.gate.wire import (
    NO_COOKIE,
    SMALLEST_GREET,
    Confirm,
    Greet,
    encode_confirm,
    encode_greet,
)
from sphtp.core.datagrams import Address
from sphtp.core.entropy import Secrets
from sphtp.core.secure.identity import Identity
from sphtp.core.secure.noise.handshake import Handshake
from sphtp.core.secure.noise.patterns import IK, XX, XXPSK0, Pattern
from sphtp.core.wire import Writer

PATTERNS: Final[dict[int, Pattern]] = {1: IK, 2: XX, 3: XXPSK0}
NUMBERS: Final = {pattern.name: number for number, pattern in PATTERNS.items()}

# What a message without content is filled up with, so that no answer is longer.
PADDING: Final = bytes(SMALLEST_GREET)


def prologue(pattern: Pattern, opener: int, token: int) -> bytes:
    """What both sides have seen in the clear, and the handshake then proves to be the same."""
    return Writer().raw(b"SphTP 1").u8(NUMBERS[pattern.name]).u32(opener).u64(token).finish()


class Greeting:
    """An attempt to reach a peer: by IK where its key is known, else by XX.

    ``token`` is that of the endpoint's CONNECT, ``opener`` its connection id, and ``bond``
    what the last handshake gave that came so far.
    With a pre-shared key it is XXpsk0, whatever else is known.
    """

    def __init__(
        self, identity: Identity, secrets: Secrets, expectation: Expectation, psk: bytes | None
    ) -> None:
        self.state = GREETING.initial
        self.expectation = expectation
        self.token = 0
        self.opener = 0
        self._identity = identity
        self._secrets = secrets
        self._psk = psk
        self._pattern = XXPSK0 if psk else IK if expectation.key else XX
        self.bond: Bond | None = None
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

    def find(self, event: Reply) -> tuple[Say, ...]:
        """Go where the event leads; return what to do, nothing if the state refuses it."""
        row = GREETING.find(self.state, event)
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

    def keep_cookie(self, address: Address, cookie: bytes) -> Reply | None:
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
        return Reply.COOKIE if last == NO_COOKIE else Reply.NEW_COOKIE

    def was_asked(self, address: Address) -> bool:
        """Whether this address was greeted."""
        return address in self._cookies

    def renew(self) -> None:
        """Begin with new keys: those of an attempt that ended are not used again."""
        self.state = GREETING.initial
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
