"""What a receiver has heard: a model of its knowledge, made of sets, without timers."""

from functools import lru_cache
from typing import Final

from sphtp.core.stream.records import decode_records_untrusted
from sphtp.core.stream.wire import Body, BodyFlag, StreamData, Window, decode_body_untrusted
from sphtp.errors import RemoteError

FARTHEST: Final = 1 << 16
"""How far no schedule lets a lead go."""


@lru_cache(maxsize=4096)
def read(body: bytes, first: int) -> Body | None:
    """Return what a body of a session says that began with ``first``; None when it is not whole."""
    try:
        said = decode_body_untrusted(body, first)
        if isinstance(said, StreamData):
            decode_records_untrusted(bytes(said.records))
    except RemoteError:
        return None
    return said


class Reception:
    """What came to one receiver, which joined when its source was at ``lead``. Times in seconds."""

    def __init__(self, lead: int) -> None:
        self.start = lead + 1
        self.lead = lead
        self.trail = 0
        self.bodies = 0
        self.here = set[int]()
        self.found: dict[int, float] = {}
        """When each that was missing came to light."""
        self.recovered = set[int]()
        """Those of them that came as repairs."""

    def hear(self, now: float, said: Body) -> None:
        """Take a body."""
        if isinstance(said, StreamData) and said.sqn >= self.start:
            self._find(now, said.sqn - 1)
            self._take(said.sqn, is_repair=BodyFlag.REPAIR in said.flags)
        self.learn(now, said.window)

    def learn(self, now: float, window: Window) -> None:
        """Take what is said of the window, be it over the channel."""
        self._find(now, window.lead)
        self.trail = max(self.trail, window.trail)

    def _take(self, sqn: int, *, is_repair: bool) -> None:
        if is_repair and sqn in self.found and sqn not in self.here:
            self.recovered.add(sqn)
        self.here.add(sqn)
        self.lead = max(self.lead, sqn)

    def _find(self, now: float, lead: int) -> None:
        assert lead - self.lead < FARTHEST, f"the lead jumps from {self.lead} to {lead}"
        for sqn in range(self.lead + 1, lead + 1):
            self.found[sqn] = now
        self.lead = max(self.lead, lead)
