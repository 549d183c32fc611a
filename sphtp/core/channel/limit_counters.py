"""How often the bounds of channels were reached: of each channel until its node takes note."""

from dataclasses import dataclass


@dataclass(slots=True)
class BoundCounters:
    """What a bound held back, at one channel or at all of a node.

    ``over_...`` was dropped, because of the setting with the rest of the name: packets whose peer
    went beyond its credit, packets with messages that are too large, unreliable messages, and
    packets or unreliable messages for which the node was full.
    ``held_by_...`` counts how often sending had to wait until the peer, whose setting it is, read.
    """

    over_receive_buffer: int = 0
    over_receive_buffer_bytes: int = 0
    over_max_message: int = 0
    over_unreliable_buffer: int = 0
    over_node_buffer_bytes: int = 0
    held_by_receive_buffer: int = 0
    held_by_receive_buffer_bytes: int = 0


class LimitCounters:
    """What the bounds of one channel held back since somebody took note."""

    __slots__ = ("_news",)

    def __init__(self) -> None:
        # Most channels never need one.
        self._news: dict[str, int] | None = None

    @property
    def has_news(self) -> bool:
        """Whether anything was held back."""
        return bool(self._news)

    def count(self, name: str, number: int = 1) -> None:
        """Count one more, or ``number`` more, under a name of ``BoundCounters``."""
        news = self._news = self._news or {}
        news[name] = news.get(name, 0) + number

    def move_to(self, counters: BoundCounters) -> None:
        """Add what is new to the counters of all channels."""
        for name, number in (self._news or {}).items():
            setattr(counters, name, getattr(counters, name) + number)
        self._news = None
