"""What was sent: each message of each session and topic by its number, and when."""

from collections.abc import Sequence
from typing import NamedTuple


class Sent(NamedTuple):
    """A message, and when it was sent."""

    at: float
    payload: bytes


class Ledger:
    """The messages of one source."""

    def __init__(self, topics: int) -> None:
        self.messages = 0
        self._topics: list[dict[int, Sent]] = [{} for _ in range(topics)]
        self.ends = [0] * topics
        """For each topic the number after its last message."""

    def add(self, now: float, topic: int, first: int, payloads: Sequence[bytes]) -> None:
        """Note what was sent, the first of which got the number ``first``."""
        assert first == self.ends[topic]
        for payload in payloads:
            self._topics[topic][self.ends[topic]] = Sent(now, payload)
            self.ends[topic] += 1
        self.messages += len(payloads)

    def find(self, topic: int, number: int) -> Sent | None:
        """The message with this number; None when there is none."""
        return self._topics[topic].get(number)
