"""A history of one topic that keeps what a test tells it to keep."""

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.retention import HistoryLookup, KeptMessages
from tests.core.stream.topics import Script


class Shelf:
    """All messages of a script that have numbers from ``low`` on, each for itself."""

    def __init__(self, script: Script, low: int | None = None) -> None:
        self.script = script
        self.low = script.first if low is None else low

    def bounds(self, now: float, topic: int) -> tuple[int, int]:
        return self.low, self.script.number - 1

    def find(self, now: float, topic: int, first: int, last: int) -> HistoryLookup:
        kept = [
            KeptMessages(sent.first, sent.parts, [sent.payload])
            for sent in self.script.sent
            if max(self.low, first) <= sent.first <= last
        ]
        gone = Span(first, min(last, self.low - 1))
        return HistoryLookup(kept, gone if gone.size > 0 else None)
