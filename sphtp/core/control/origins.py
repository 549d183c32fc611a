"""Through which connection each sender speaks, so that nobody else speaks for it.

Nonces are told to everybody in lists of peers, and so they prove little. What tells a holder from
somebody who read its nonce is the connection: that of the first message stays the only one until
it ends, or until nothing has come through it for a while.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from sphtp.core.control.fields import Holder


@dataclass(slots=True)
class _Voice:
    pipe: int
    heard: float


@dataclass(slots=True)
class Origins:
    """Senders and their connections, ``capacity`` at most: the longest silent one is forgotten.

    ``patience`` is how many seconds of silence free a sender for another connection.
    """

    patience: float
    capacity: int
    _voices: OrderedDict[Holder, _Voice] = field(default_factory=OrderedDict)
    _by_pipe: dict[int, set[Holder]] = field(default_factory=dict)

    def admits(self, now: float, holder: Holder, pipe: int) -> bool:
        """Tell whether this connection may speak for a sender; if so, it is the sender's."""
        voice = self._voices.get(holder)
        if voice is not None and voice.pipe != pipe and now - voice.heard <= self.patience:
            return False
        self.note(now, holder, pipe)
        return True

    def note(self, now: float, holder: Holder, pipe: int) -> None:
        """Take it that a sender, who has proved that it is the sender, speaks through this one."""
        voice = self._voices.get(holder)
        if voice is None or voice.pipe != pipe:
            self.forget(holder)
            self._by_pipe.setdefault(pipe, set()).add(holder)
        self._voices[holder] = _Voice(pipe, now)
        self._voices.move_to_end(holder)
        if len(self._voices) > self.capacity:
            self.forget(next(iter(self._voices)))

    def forget(self, holder: Holder) -> None:
        """Let any connection speak for a sender: nobody holds that id any more."""
        voice = self._voices.pop(holder, None)
        if voice is not None:
            shared = self._by_pipe[voice.pipe]
            shared.discard(holder)
            if not shared:
                del self._by_pipe[voice.pipe]

    def end(self, pipe: int) -> set[Holder]:
        """Note that a connection has ended; return the senders that spoke through it last."""
        ended = self._by_pipe.pop(pipe, set())
        for holder in ended:
            del self._voices[holder]
        return ended

    def forgive(self, lag: float) -> None:
        """Do not count these seconds as silence: this process was not listening."""
        for voice in self._voices.values():
            voice.heard += lag

    def __len__(self) -> int:
        return len(self._voices)
