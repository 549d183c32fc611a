"""The numbers on the wire: commands, parameters, reasons, states (SphTP, "Message structure")."""

from collections.abc import Container, Iterable
from enum import IntEnum

from sphtp.core.entropy import Entropy, Secrets
from sphtp.errors import StateError

VERSION = 1
"""The protocol version in announcements and server heartbeats."""

FEATURES = 0
"""The feature bits of a program without any of the features below. Readers ignore unknown bits."""

RESTRICTED = 1
"""The feature bit of a client that does not subscribe to ``EVERYBODY``."""

STUN = 2
"""The feature bit of a server that answers STUN at the UDP port with the number of its ``pub``
port.
"""

SHARDED = 4
"""The feature bit of a client that subscribes to the topic of its shard."""

USER_COMMANDS = 0x0100
"""The first command of the application; lower ones belong to the protocol."""

USER_PARAMETERS = 0x0100
"""The first parameter of the application's commands; lower ones belong to the protocol."""

MAX_NUMBER = (1 << 16) - 1
"""The highest number of a command or a parameter."""


class Command(IntEnum):
    """The command of a message. An even sender is a server, an odd one a client."""

    HEARTBEAT = 0x01
    ANNOUNCE = 0x02
    ACK = 0x03
    NACK = 0x04
    LEAVE = 0x05
    DATA = 0x06
    LOOKUP = 0x10
    PEERS = 0x11
    PEER_LEFT = 0x12
    CHECK = 0x13
    STATUS_REQUEST = 0x18
    STATUS = 0x19
    TIME = 0x1A
    REGISTERED = 0x20
    RELEASED = 0x21
    SNAPSHOT_REQUEST = 0x22
    SNAPSHOT = 0x23


class DataId(IntEnum):
    """The type of a parameter. A reader skips unknown ids."""

    VERSION = 0x01
    FEATURES = 0x02
    NONCE = 0x03
    CANDIDATE = 0x04
    STATE = 0x05
    VIEW = 0x06
    MEMBER = 0x07
    ROSTER = 0x08
    REASON = 0x09
    REVISION = 0x0A
    BLOB = 0x0B
    PEER = 0x0C
    ACKED = 0x0D
    PART = 0x0E
    TEXT = 0x0F
    PEER_ID = 0x10
    GONE = 0x11
    TARGET = 0x12
    KEY = 0x13
    PEER_KEY = 0x14
    VOUCHER = 0x15
    TOPICS = 0x16
    PEER_TOPICS = 0x17
    SIGNATURE = 0x18
    NAME = 0x19
    PEER_NAME = 0x1A
    GROUPS = 0x1B
    PEER_GROUPS = 0x1C
    WATCH = 0x1D
    TIME = 0x1E
    TIME_REQUEST = 0x1F
    ORIGIN = 0x20
    TOKEN = 0x21


class Reason(IntEnum):
    """The reason of a refusal or a departure.

    A reader decodes unknown reasons as OTHER, which no program sends.
    """

    OTHER = 0
    CONFLICT = 1
    FULL = 2
    DENIED = 4
    UNKNOWN = 5
    VERSION = 6
    STALE_DATA = 7
    LEFT = 8
    EXPIRED = 9


class MemberState(IntEnum):
    """The state of a server in its heartbeats.

    A JOINING server does not register ids that are new to it. A reader decodes unknown states as
    JOINING.
    """

    JOINING = 1
    ACTIVE = 2


EVERYBODY = 0
"""The simulation id of server heartbeats and of other messages for all clients."""

WITHOUT_PRESENCE = 1
"""The simulation id of messages, mostly copies, for clients that do not subscribe to ``EVERYBODY``.
"""

SHARDS = 8
"""The number of shards of the client ids.

One message has room for 3,840 acknowledgements. If ids are random, a shard has 1,792 of the 14,336
clients that a server can have. Of four shards, each would have 3,584, nearly a full message. If
applications choose ids, a shard may have more than fit: then ``divide`` makes several messages.
"""

FIRST_GROUP_TOPIC = 2 * SHARDS + 2
"""The lowest topic of a group, after those of the shards."""

NO_NONCE = 0
"""The nonce of programs with plain SphTP, the original protocol, which has no nonces; never drawn.
"""


def draw_server_id(entropy: Entropy) -> int:
    """Draw a server id: even, and not 0."""
    return _draw(entropy, 0, ())


def draw_client_id(entropy: Entropy, taken: Container[int] = ()) -> int:
    """Draw a client id: odd, not 1, and not in ``taken``."""
    return _draw(entropy, 1, taken)


def draw_nonce(secrets: Secrets) -> int:
    """Draw a nonce: 64 bits, not all zero."""
    while True:
        nonce = secrets.getrandbits(64)
        if nonce != NO_NONCE:
            return nonce


def is_server_id(number: int) -> bool:
    """Return True if ``number`` can be a server's id: even, and not 0."""
    return number > 1 and number & 1 == 0


def is_client_id(number: int) -> bool:
    """Return True if ``number`` can be a client's id: odd, and not 1."""
    return number > 1 and number & 1 == 1


def shard_topic(client: int) -> int:
    """Return the simulation id of messages for a client's shard: an even number from 2 to 16."""
    return client % (2 * SHARDS) + 1


def client_topics(client: int) -> frozenset[int]:
    """Return the topics that depend on a client's id: the id, and that of its shard. 0 has none."""
    return frozenset((client, shard_topic(client)) if client else ())


def _draw(entropy: Entropy, parity: int, taken: Container[int]) -> int:
    while True:
        number = (int(entropy.random() * (1 << 32)) & ~1) | parity
        if number > 1 and number not in taken:
            return number


def check_user_numbers(command: int, parameters: Iterable[int]) -> None:
    """Raise ``StateError`` if a command of the application uses wrong numbers.

    These are the numbers of the protocol, and numbers over ``MAX_NUMBER``.
    """
    _check_number("command", command, USER_COMMANDS)
    for parameter in parameters:
        _check_number("parameter", parameter, USER_PARAMETERS)


def _check_number(what: str, number: int, lowest: int) -> None:
    if number < lowest:
        raise StateError(f"{what} {number:#06x} belongs to the protocol")
    if number > MAX_NUMBER:
        raise StateError(f"{what} {number:#x} is over {MAX_NUMBER:#06x}")
