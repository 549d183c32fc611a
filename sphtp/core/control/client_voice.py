"""What a client says, and as whom."""

from collections import deque
from collections.abc import Iterable, Sequence

from sphtp.core.control.client_messages import (
    Announce,
    ClientUser,
    Data,
    Heartbeat,
    Leave,
    Lookup,
)
from sphtp.core.control.codec import Parameter, check_user_message
from sphtp.core.control.identity import Identity
from sphtp.core.control.ids import NO_NONCE
from sphtp.core.control.records import (
    KEY_SIZE,
    MAX_CANDIDATES,
    MAX_DATA,
    Candidate,
    next_revision,
)
from sphtp.core.control.topics import check_topics
from sphtp.errors import MessageTooLargeError, SettingsError


class ClientVoice:
    """Builds a client's messages; every one carries the present id and nonce."""

    def __init__(
        self, identity: Identity, candidates: Sequence[Candidate], data: bytes, key: bytes = b""
    ) -> None:
        if len(candidates) > MAX_CANDIDATES:
            raise SettingsError(f"{len(candidates)} candidates are over {MAX_CANDIDATES}")
        if len(key) not in (0, KEY_SIZE):
            raise SettingsError(f"a public key of {len(key)} bytes; allowed is {KEY_SIZE}")
        self._key = key
        self._identity = identity
        self._candidates = tuple(candidates)
        self._data = _checked(data)
        self._topics: tuple[str, ...] = ()
        self._revision = 1 if data else 0
        self._queue: deque[bytes] = deque()

    def announce(self) -> None:
        """Ask for the id (seed, step 5)."""
        self._say(Announce(*self._identity.holder, self._candidates, key=self._key))

    def heartbeat(self) -> None:
        """Say that the holder of the id is alive."""
        self._say(Heartbeat(*self._identity.holder, self._revision))

    def send_data(self) -> None:
        """Send the initial simulation data (seed, step 10) and the topics, if there are any."""
        if self._revision:
            self._say(Data(*self._identity.holder, self._revision, self._data, self._topics))

    def lookup(self, *, peer: int | None = None, server: int | None = None) -> None:
        """Ask for one peer or all, one server or all."""
        self._say(Lookup(*self._identity.holder, peer, server))

    def withdraw(self) -> None:
        """Give the id up, if one is announced or held."""
        if self._identity.nonce != NO_NONCE:
            self._say(Leave(*self._identity.holder))
        self._identity.give_up()

    def publish(self, command: int, parameters: Sequence[Parameter]) -> None:
        """Send a command of the application. Raises ``StateError``, ``MessageTooLargeError``."""
        check_user_message(command, parameters)
        self._say(ClientUser(*self._identity.holder, command, tuple(parameters)))

    def set_data(self, data: bytes) -> None:
        """Replace the initial simulation data. Raises ``MessageTooLargeError``."""
        self._data = _checked(data)
        self._revision = next_revision(self._revision)

    def set_topics(self, topics: Iterable[str]) -> None:
        """Replace the topics. Raises ``SettingsError``."""
        self._topics = check_topics(topics)
        self._revision = next_revision(self._revision)

    def poll(self) -> bytes | None:
        """Return the next message, or None."""
        return self._queue.popleft() if self._queue else None

    def _say(self, message: Announce | Heartbeat | Data | Lookup | Leave | ClientUser) -> None:
        self._queue.append(message.encode())


def _checked(data: bytes) -> bytes:
    if len(data) > MAX_DATA:
        raise MessageTooLargeError(f"{len(data)} bytes of data are over {MAX_DATA}")
    return data
