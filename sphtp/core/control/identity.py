"""The id and nonce that a client announces or holds, and the subscriptions that go with them."""

from collections import deque
from collections.abc import Callable, Iterator

from sphtp.core.control.fields import Holder
from sphtp.core.control.ids import EVERYBODY, NO_NONCE, draw_client_id, draw_nonce
from sphtp.core.control.outputs import Subscribe, Unsubscribe, topic
from sphtp.core.entropy import Entropy, Secrets


class Identity:
    """Draws ids (seed, step 4); the given ones come first."""

    def __init__(self, entropy: Entropy, secrets: Secrets, ids: Iterator[int]) -> None:
        self.id = 0
        self.nonce = NO_NONCE
        self._entropy = entropy
        self._secrets = secrets
        self._ids = ids
        self._queue: deque[Subscribe | Unsubscribe] = deque((Subscribe(topic(EVERYBODY)),))

    @property
    def holder(self) -> Holder:
        """Id and nonce."""
        return Holder(self.id, self.nonce)

    def draw(self, is_taken: Callable[[int], bool]) -> None:
        """Take another id and nonce; subscribe to the new id before leaving the old one."""
        old, self.id = self.id, next(self._ids, None) or self._draw_free(is_taken)
        self.nonce = draw_nonce(self._secrets)
        if old != self.id:
            self._queue.append(Subscribe(topic(self.id)))
            if old:
                self._queue.append(Unsubscribe(topic(old)))

    def give_up(self) -> None:
        """Hold no id; answers to the old one find no nonce any more."""
        self.nonce = NO_NONCE

    def poll_bus(self) -> Subscribe | Unsubscribe | None:
        """Return the next change of subscriptions, or None."""
        return self._queue.popleft() if self._queue else None

    def _draw_free(self, is_taken: Callable[[int], bool]) -> int:
        while True:
            number = draw_client_id(self._entropy)
            if not is_taken(number):
                return number
