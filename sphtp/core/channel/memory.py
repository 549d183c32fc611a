"""What is held of messages that nobody has read: of each channel, and of all channels of a node.

A message counts from when any of it is here until it is read, whole or not, in its turn or ahead of
it, and with all the bytes that it will have: just as credit counts it, so that a peer that keeps to
its credit always finds room.
"""

from typing import Final

COST: Final = 256
"""Memory that a message takes beside its bytes."""


class NodeMemory:
    """What all channels of a node hold, and how much that may be, in bytes.

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
        """What a channel may hold although the node is full."""
        return self.limit // max(self.channels, 1)
