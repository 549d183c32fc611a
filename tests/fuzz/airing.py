"""A source and receivers on a bad network, all of them honest, and noise from strangers.

Whatever happens, each receiver is told each message once and as it was sent, or its loss, and in
order if it wants that; and then the end.
"""

from collections.abc import Callable, Mapping
from typing import Final

from sphtp.core.stream.events import Batch, Loss, StreamEnd
from sphtp.core.stream.ranges import RangeSet
from sphtp.core.stream.settings import StreamSettings
from sphtp.errors import LocalError
from sphtp.testing import Broadcast, Faults
from sphtp.testing.stream import Subscriber, SubscriberTerms
from tests.fuzz.choices import Choices
from tests.fuzz.speaker import FIRST

SETTINGS: Final = StreamSettings(
    generation=0.4, activity_timeout=1.5, session_max=0.5, fetch_timeout=1.0, fetch_interval=0.1
)
WELL: Final = Faults(delay=0.002)
NETWORKS: Final = (
    WELL,
    Faults(delay=0.002, loss=0.2),
    Faults(delay=0.002, duplicate=0.2, reorder=0.2),
    Faults(delay=0.002, jitter=0.01, loss=0.05),
    Faults(delay=0.002, blocked=True),
)
STRANGER: Final = ("10.9.9.9", 9)
HISTORIES: Final = (0, 3, 1 << 40)
WAITS: Final = (0.0, 0.001, 0.01, 0.1, 0.5)
MOST_RECEIVERS: Final = 4


class Airing:
    """A broadcast; ``step`` does one thing out of all that may happen, ``finish`` sees it out."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._broadcast = Broadcast(
            choices.below(4), 1, WELL, SETTINGS, shared=choices.below(3) == 0, first=FIRST
        )
        self._staying = list(self._broadcast.subscribers)
        self._sent = 0

    def step(self) -> None:
        """Let one thing happen."""
        self._choices.pick(HAPPENINGS)(self)

    def finish(self) -> None:
        """Let the network be well again, and the source close."""
        broadcast = self._broadcast
        broadcast.network.set_default(WELL)
        for subscriber in self._staying:
            subscriber.is_reading = True
            broadcast.touch(subscriber)
        broadcast.close()
        broadcast.run(20)
        for subscriber in self._staying:
            self._check(subscriber)

    # What may happen

    def send(self) -> None:
        """The source sends messages, each of which holds its number."""
        count, size = 1 + self._choices.below(8), self._choices.pick((1, 1, 100))
        numbers = range(self._sent, self._sent + count)
        try:
            self._broadcast.send([number.to_bytes(8, "little") * size for number in numbers])
        except LocalError:
            return
        self._sent += count

    def wait(self) -> None:
        """Time passes."""
        self._broadcast.run(self._choices.pick(WAITS))

    def join(self) -> None:
        """A receiver comes."""
        if len(self._staying) < MOST_RECEIVERS:
            choices = self._choices
            terms = SubscriberTerms(
                ordered=choices.below(3) > 0,
                late_join=choices.pick(HISTORIES),
                recover=choices.below(2) > 0,
            )
            self._staying.append(self._broadcast.join(terms=terms))

    def leave(self) -> None:
        """A receiver goes, and its source knows or not."""
        if len(self._staying) > 1:
            subscriber = self._staying.pop(self._choices.below(len(self._staying)))
            if self._choices.below(2):
                self._broadcast.leave(subscriber)
            else:
                self._broadcast.vanish(subscriber)

    def change_network(self) -> None:
        """The network gets worse, or better."""
        self._broadcast.network.set_default(self._choices.pick(NETWORKS))

    def stop_reading(self) -> None:
        """A reader stands still, or goes on."""
        subscriber = self._choices.pick(self._staying)
        subscriber.is_reading = not subscriber.is_reading
        self._broadcast.touch(subscriber)

    def make_noise(self) -> None:
        """Somebody sends bytes that are of no session here."""
        choices, broadcast = self._choices, self._broadcast
        noise = bytes([choices.pick((0x1C, 0x1D, 0x10))]) + bytes(4) + choices.some_bytes(60)
        for place in (broadcast.publisher.address, choices.pick(self._staying).address):
            broadcast.network.send(broadcast.now, STRANGER, place, noise)

    # What must be so

    def _check(self, subscriber: Subscriber) -> None:
        *items, end = subscriber.items
        assert isinstance(end, StreamEnd), f"{end} at the end"
        known, last = RangeSet(), -1
        for item in items:
            assert not isinstance(item, StreamEnd), "an end before the end"
            payloads = item.payloads if isinstance(item, Batch) else ()
            top = item.last if isinstance(item, Loss) else item.first + len(payloads) - 1
            assert not known.within(item.first, top), f"{item} told twice"
            assert item.first > last or not subscriber.terms.ordered, f"{item} after {last}"
            known.add(item.first, top)
            last = top
            for number, payload in enumerate(payloads, item.first):
                assert payload[:8] == number.to_bytes(8, "little"), f"{number} is not as sent"
        assert len(known) <= 1, f"neither told nor lost: between {list(known)}"
        assert not known or known.last < self._sent


_SHARES: Final[Mapping[Callable[[Airing], None], int]] = {
    Airing.send: 5,
    Airing.wait: 6,
    Airing.join: 2,
    Airing.leave: 1,
    Airing.change_network: 2,
    Airing.stop_reading: 1,
    Airing.make_noise: 1,
}

HAPPENINGS: Final = tuple(it for it, share in _SHARES.items() for _ in range(share))
