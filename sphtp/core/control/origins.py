"""Through which connection each sender speaks, so that nobody else speaks for it.

Nonces are told to everybody in lists of peers, and so they prove little. What tells a holder from
somebody who read its nonce is the connection: that of the first message stays the only one until
it ends, or until nothing has come through it for a while.
"""

from dataclasses import dataclass, field

from sphtp.core.control.fields import Holder
from sphtp.core.timers import ExpiringDict


@dataclass(slots=True)
class Origins:
    """Senders and their connections, ``capacity`` at most: the longest silent one is forgotten.

    ``patience`` is how many seconds of silence free a sender for another connection.
    """

    patience: float
    capacity: int
    _pipes: ExpiringDict[Holder, int] = field(default_factory=ExpiringDict)
    _by_pipe: dict[int, set[Holder]] = field(default_factory=dict)

    def admits(self, now: float, holder: Holder, pipe: int) -> bool:
        """Tell whether this connection may speak for a sender; if so, it is the sender's."""
        known = self._pipes.get(holder)
        if known == pipe:
            self._pipes.put(holder, pipe, now + self.patience)
            return True
        free_at = self._pipes.due(holder)
        if free_at is not None and now <= free_at:
            return False
        self.note(now, holder, pipe)
        return True

    def note(self, now: float, holder: Holder, pipe: int) -> None:
        """Take it that a sender, who has proved that it is the sender, speaks through this one."""
        known = self._pipes.get(holder)
        if known != pipe:
            if known is not None:
                self.forget(holder)
            self._by_pipe.setdefault(pipe, set()).add(holder)
        self._pipes.put(holder, pipe, now + self.patience)
        if len(self._pipes) > self.capacity:
            self.forget(next(iter(self._pipes)))

    def forget(self, holder: Holder) -> None:
        """Let any connection speak for a sender: nobody holds that id any more."""
        pipe = self._pipes.pop(holder)
        if pipe is not None:
            shared = self._by_pipe[pipe]
            shared.discard(holder)
            if not shared:
                del self._by_pipe[pipe]

    def end(self, pipe: int) -> set[Holder]:
        """Note that a connection has ended; return the senders that spoke through it last."""
        ended = self._by_pipe.pop(pipe, set())
        for holder in ended:
            self._pipes.pop(holder)
        return ended

    def forgive(self, lag: float) -> None:
        """Do not count these seconds as silence: this process was not listening."""
        self._pipes.postpone(lag)

    def __len__(self) -> int:
        return len(self._pipes)
