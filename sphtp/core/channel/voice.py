"""What a connection itself has to say, beside its messages."""

from collections import deque
from collections.abc import Iterable

from sphtp.core.channel.frames import Frame
from sphtp.core.datagrams import Datagrams


class Voice:
    """Datagrams of its opening and its end, and frames that go by themselves."""

    def __init__(self) -> None:
        self._datagrams: deque[Datagrams] = deque()
        self._frames: list[Frame] = []

    def send(self, datagrams: Iterable[Datagrams]) -> None:
        """Let datagrams leave before all else."""
        self._datagrams.extend(datagrams)

    def say(self, frame: Frame) -> None:
        """Put a frame into the next packet, once."""
        if frame not in self._frames:
            self._frames.append(frame)

    def take_datagram(self) -> Datagrams | None:
        """The next datagram."""
        return self._datagrams.popleft() if self._datagrams else None

    def take_frames(self) -> list[Frame]:
        """All frames for the next packet."""
        frames, self._frames = self._frames, []
        return frames
