"""Messages that come in parts. A message of which one part is lost is lost as a whole."""

from bisect import bisect_left, insort

from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import Fragment


class Message:
    """The parts so far of the message whose first part has the number ``head``."""

    __slots__ = ("_parts", "size", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.size = 0
        # By part: how many there will be is only what someone said.
        self._parts: dict[int, bytes] = {}

    @property
    def count(self) -> int:
        """How many parts are here."""
        return len(self._parts)

    def add(self, fragment: Fragment) -> None:
        """Take a part that is not here."""
        self._parts[fragment.part] = fragment.payload
        self.size += len(fragment.payload)

    def join(self) -> bytes | None:
        """Return the whole message; None while parts are missing."""
        if len(self._parts) < self.span.size:
            return None
        return b"".join(map(self._parts.__getitem__, range(self.span.size)))


class Reassembly:
    """The messages of a topic that are not whole. No number is in two of them."""

    __slots__ = ("_heads", "_messages", "count", "size")

    def __init__(self) -> None:
        self._heads: list[int] = []
        self._messages: dict[int, Message] = {}
        self.count = 0
        self.size = 0

    def find(self, fragment: Fragment) -> Message | None:
        """Return the message that a part belongs to."""
        message = self._messages.get(fragment.first - fragment.part)
        is_same = message is not None and message.span.size == fragment.parts
        return message if is_same else None

    def within(self, first: int, last: int) -> list[Message]:
        """Return the messages that have parts from ``first`` to ``last``."""
        if not self._heads:
            return []
        place = bisect_left(self._heads, first)
        if place and self._messages[self._heads[place - 1]].span.last >= first:
            place -= 1
        end = bisect_left(self._heads, last + 1)
        return [self._messages[head] for head in self._heads[place:end]]

    def add(self, fragment: Fragment) -> Message:
        """Take a part that came for the first time; return its message."""
        message = self._messages.get(fragment.first - fragment.part)
        if message is None:
            message = self._messages[fragment.head] = Message(span_of(fragment))
            insort(self._heads, fragment.head)
        message.add(fragment)
        self.count += 1
        self.size += len(fragment.payload)
        return message

    def remove(self, message: Message) -> None:
        """Forget a message: it is whole, or lost."""
        head = message.span.first
        del self._messages[head]
        del self._heads[bisect_left(self._heads, head)]
        self.count -= message.count
        self.size -= message.size

    def break_up(self, first: int, last: int) -> Span:
        """Forget the messages that have a part in this loss; return how far it then reaches."""
        for message in self.within(first, last):
            self.remove(message)
            first, last = min(first, message.span.first), max(last, message.span.last)
        return Span(first, last)

    @property
    def end(self) -> int:
        """The highest number that any of the messages will have; there must be one."""
        return self._messages[self._heads[-1]].span.last

    def __len__(self) -> int:
        """How many messages."""
        return len(self._heads)


def span_of(fragment: Fragment) -> Span:
    """Return the numbers of all parts of a fragment's message."""
    return Span(fragment.head, fragment.head + fragment.parts - 1)
