"""Flow control: the receiver limits the reliable messages and bytes that the sender may send.

Both limits count from the opening of the channel, over all lanes. A message counts once, however
often it is sent. A repeated CREDIT frame changes nothing, and the next one replaces a lost one. A
fragmented message counts in full when its first fragment leaves, so that every message that was
begun can be finished and read. Otherwise messages begun in several lanes would wait for one
another's credit.
"""

from typing import Final

from sphtp.core.serial import SerialNumber

MESSAGES: Final = SerialNumber(32)
"""Message counts travel modulo 2^32."""


class SendCredit:
    """The send window: the peer's limits, and the used part of them (RFC 9000, section 4)."""

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
        # Messages that the send window still takes. One packet may overdraw the bytes, so that a
        # message larger than all credit can leave.
        self.left = messages if size > 0 else 0

    def packets_of(self, size: int) -> int:
        """Return the number of packets of ``size`` message bytes that the limit of bytes allows.

        The last one may overdraw, because the receiver has room for one packet beyond its credit.
        If packets behind a lost one filled that room, the content of the lost one could never be
        accepted.
        """
        return -(-(self._bytes_allowed - self._bytes_used) // size)

    def spend(self, messages: int, size: int) -> None:
        """Count messages, and the bytes in them, that leave for the first time."""
        self._messages_used += messages
        self._bytes_used += size
        has_bytes = self._bytes_used < self._bytes_allowed
        self.left = self._messages_allowed - self._messages_used if has_bytes else 0

    def new_shortage(self) -> str | None:
        """Return the setting of the peer that limits the credit that is now used up.

        Return None if none does, or if it was returned before for the same limits.
        """
        allowed = (self._messages_allowed, self._bytes_allowed)
        if self.left > 0 or allowed == self._noticed:
            return None
        self._noticed = allowed
        is_bytes = self._bytes_used >= self._bytes_allowed
        return "receive_buffer_bytes" if is_bytes else "receive_buffer"

    def raise_to(self, messages: int, size: int) -> None:
        """Adopt the limits of a CREDIT frame. An older frame that arrives late changes nothing."""
        self._messages_allowed += max(MESSAGES.ahead(messages, self._messages_allowed), 0)
        self._bytes_allowed = max(self._bytes_allowed, size)
        # This spends nothing, but updates ``left``.
        self.spend(0, 0)


class ReceiveCredit:
    """The credit that this side grants: the messages and bytes read so far, plus one buffer.

    ``is_due`` is true when a quarter of the buffer was read since the last CREDIT left, in messages
    or in bytes, or when that CREDIT may be lost.
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
        """The total of messages and of bytes that the peer may have sent."""
        return self._messages_read + self._messages, self._bytes_read + self._bytes

    def read(self, messages: int, size: int) -> None:
        """Count messages that the application has read, or that the sender gave up."""
        self._messages_read += messages
        self._bytes_read += size
        due = self._due_at
        self.is_due = self._messages_read >= due[0] or self._bytes_read >= due[1]

    def poll_credit(self) -> tuple[int, int]:
        """Return the limits for a CREDIT frame that leaves now; messages are cut to 32 bits."""
        self._advertise(self._messages_read, self._bytes_read)
        messages, size = self.allowed
        return MESSAGES.wrap(messages), size

    def forget(self) -> None:
        """Make another CREDIT due, because the packet with the last one may be lost."""
        self._advertise(-self._messages, -self._bytes)

    def _advertise(self, messages: int, size: int) -> None:
        """Set the reading position at which the next CREDIT is due, from that of the last one."""
        self._due_at = (messages + max(1, self._messages // 4), size + max(1, self._bytes // 4))
        # This reads nothing, but updates ``is_due``.
        self.read(0, 0)


# The memory for unread messages, of one channel and of all channels of a node.
#
# A message counts with its full size from the arrival of its first byte until it is read, whether
# it is complete or not, and in order or not. Credit counts reliable messages in the same way, so
# that a peer that keeps to its credit always finds room in its channel.


COST: Final = 256
"""Bytes that a message counts as in memory besides its payload."""


class NodeMemory:
    """The bytes that all channels of a node hold together, and their limit.

    Above the limit, a channel that holds more than its share (the limit divided by the number of
    channels) refuses reliable messages in packets, except those that help its reader: parts of
    messages that have begun to arrive and, if nothing can be read, the next message of a lane.
    Otherwise messages could never be completed and read, and no memory would become free. Of its
    unreliable messages it drops the oldest. Messages by shared memory are not refused.
    """

    __slots__ = ("channels", "held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.channels = 0

    @property
    def share(self) -> int:
        """The bytes that each channel may hold although the node is full."""
        return self.limit // max(self.channels, 1)
