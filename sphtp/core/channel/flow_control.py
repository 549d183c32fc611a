"""Flow control: how much the receiver allows to be sent, in messages and in bytes.

Both count from the opening of the channel and over all lanes, and count a message once however
often it is sent; a repeat or a loss of the frame that carries them changes nothing. A message in
fragments counts whole when the first of them leaves: what was begun can be finished, and so be
read. Else messages begun in several lanes would wait for one another's credit.
"""

from typing import Final

from sphtp.core.serial import SerialNumber

MESSAGES: Final = SerialNumber(32)
"""Messages are told modulo 2^32."""


class SendCredit:
    """The send window: what the peer allows, and what of it was used (RFC 9000, section 4)."""

    __slots__ = (
        "_bytes_allowed",
        "_bytes_used",
        "_messages_allowed",
        "_messages_used",
        "_noticed",
        "left",
    )

    def __init__(self, messages: int, size: int) -> None:
        self._messages_allowed = messages
        self._bytes_allowed = size
        self._messages_used = 0
        self._bytes_used = 0
        self._noticed: tuple[int, int] | None = None
        # Messages that the send window still takes. Bytes may be overdrawn by one packet, so that a
        # message larger than all credit still goes.
        self.left = messages if size > 0 else 0

    def packets_of(self, size: int) -> int:
        """The packets with so many bytes of messages that may leave; the last one may overdraw.

        No more: a receiver has room for one packet beyond its credit. Were it full of what came
        behind a packet that is lost, that one could never be taken in.
        """
        return -(-(self._bytes_allowed - self._bytes_used) // size)

    def spend(self, messages: int, size: int) -> None:
        """Count what leaves for the first time."""
        self._messages_used += messages
        self._bytes_used += size
        has_bytes = self._bytes_used < self._bytes_allowed
        self.left = self._messages_allowed - self._messages_used if has_bytes else 0

    def new_shortage(self) -> str | None:
        """The peer's setting that holds sending up; None if none does, or if it was told before."""
        allowed = (self._messages_allowed, self._bytes_allowed)
        if self.left > 0 or allowed == self._noticed:
            return None
        self._noticed = allowed
        is_bytes = self._bytes_used >= self._bytes_allowed
        return "receive_buffer_bytes" if is_bytes else "receive_buffer"

    def raise_to(self, messages: int, size: int) -> None:
        """Take in the peer's word; an older one arriving later changes nothing."""
        self._messages_allowed += max(MESSAGES.ahead(messages, self._messages_allowed), 0)
        self._bytes_allowed = max(self._bytes_allowed, size)
        # Nothing is spent, but more is left.
        self.spend(0, 0)


class ReceiveCredit:
    """The credit that this side gives: the bytes read, and a buffer on top of them.

    Another CREDIT ``is_due`` when a quarter of a buffer was read since the last one.
    """

    __slots__ = ("_bytes", "_bytes_read", "_due_at", "_messages", "_messages_read",
                 "is_due")  # fmt: skip

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self._bytes = size
        self._messages_read = 0
        self._bytes_read = 0
        self._advertise(0, 0)

    @property
    def allowed(self) -> tuple[int, int]:
        """Messages and bytes that the peer may have sent in all."""
        return self._messages_read + self._messages, self._bytes_read + self._bytes

    def read(self, messages: int, size: int) -> None:
        """Count what the application took, or will never get."""
        self._messages_read += messages
        self._bytes_read += size
        due = self._due_at
        self.is_due = self._messages_read >= due[0] or self._bytes_read >= due[1]

    def tell(self) -> tuple[int, int]:
        """Return what CREDIT advertises, and take it as sent."""
        self._advertise(self._messages_read, self._bytes_read)
        messages, size = self.allowed
        return MESSAGES.wrap(messages), size

    def forget(self) -> None:
        """The packet with the last CREDIT is lost: another is due."""
        self._advertise(-self._messages, -self._bytes)

    def _advertise(self, messages: int, size: int) -> None:
        """The peer knows what was allowed when so much was read."""
        self._due_at = (messages + max(1, self._messages // 4), size + max(1, self._bytes // 4))
        # Nothing more is read, but it may be due.
        self.read(0, 0)


# What is held of messages that nobody has read: of each channel, and of all channels of a node.
#
# A message counts from when any of it is here until it is read, whole or not, in its turn or
# ahead of it, and with all the bytes that it will have: just as credit counts it, so that a peer
# that keeps to its credit always finds room.


COST: Final = 256
"""Memory that a message takes beside its bytes."""


class NodeMemory:
    """The bytes that all channels of a node hold together, and their limit.

    Beyond the limit a channel takes in nothing new that has its share, which is the limit divided
    by how many there are; what has begun to arrive may be finished all the same, for else it could
    never be read.
    """

    __slots__ = ("channels", "held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.channels = 0

    @property
    def share(self) -> int:
        """The bytes that a channel may hold although the node is full."""
        return self.limit // max(self.channels, 1)
