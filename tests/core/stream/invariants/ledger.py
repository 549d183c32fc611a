"""What was sent: each message of each session and topic by its number, and when."""

from collections.abc import Sequence
from typing import NamedTuple

from sphtp.testing.publisher import Publisher


class Sent(NamedTuple):
    """A message that takes ``parts`` numbers."""

    at: float
    payload: bytes
    parts: int


class Ledger:
    """The messages of one source."""

    def __init__(self, publisher: Publisher, topics: int) -> None:
        self.messages = 0
        self._part = publisher.source.part
        self._topics: list[dict[int, Sent]] = [{} for _ in range(topics)]
        self.ends = [0] * topics
        """For each topic the number after its last message."""

    def add(self, now: float, topic: int, first: int, payloads: Sequence[bytes]) -> None:
        """Note what was sent, the first of which got the number ``first``."""
        assert first == self.ends[topic]
        for payload in payloads:
            parts = max(-(-len(payload) // self._part), 1)
            self._topics[topic][self.ends[topic]] = Sent(now, payload, parts)
            self.ends[topic] += parts
        self.messages += len(payloads)

    def find(self, topic: int, number: int) -> Sent | None:
        """The message with this number; None when there is none."""
        return self._topics[topic].get(number)

    def whole_from(self, topic: int, number: int) -> int:
        """The lowest number, from ``number`` on, with which a message begins, or none yet."""
        messages, end = self._topics[topic], self.ends[topic]
        return next((at for at in range(number, end) if at in messages), end)
