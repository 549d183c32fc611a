"""Messages that come in parts. A message of which one part is lost is lost as a whole."""

from sphtp.core.stream.records import Fragment


class Message:
    """The parts that came of a message; there are ``parts`` of them."""

    __slots__ = ("_parts", "parts", "size")

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.size = 0
        # By part: how many there will be is only what someone said.
        self._parts: dict[int, bytes] = {}

    @property
    def count(self) -> int:
        """How many parts are here."""
        return len(self._parts)

    def add(self, fragment: Fragment) -> bool:
        """Take a part; false when it is here already."""
        if fragment.part in self._parts:
            return False
        self._parts[fragment.part] = fragment.payload
        self.size += len(fragment.payload)
        return True

    def join(self) -> bytes | None:
        """Return the whole message; None while parts are missing."""
        if len(self._parts) < self.parts:
            return None
        return b"".join(map(self._parts.__getitem__, range(self.parts)))


class Reassembly:
    """The messages of a topic that are not whole, by their numbers."""

    __slots__ = ("_messages", "count", "size")

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}
        self.count = 0
        self.size = 0

    def find(self, number: int) -> Message | None:
        """Return the message with this number, if parts of it are here."""
        return self._messages.get(number)

    def within(self, first: int, last: int) -> list[int]:
        """Return the numbers, from ``first`` to ``last``, of which parts are here."""
        messages = self._messages
        if last - first < len(messages):
            return [number for number in range(first, last + 1) if number in messages]
        return [number for number in messages if first <= number <= last]

    def add(self, fragment: Fragment) -> Message | None:
        """Take a part; return its message, or None when that part is here already."""
        message = self._messages.get(fragment.first)
        if message is None:
            message = self._messages[fragment.first] = Message(fragment.parts)
        if not message.add(fragment):
            return None
        self.count += 1
        self.size += len(fragment.payload)
        return message

    def remove(self, number: int) -> None:
        """Forget a message: it is whole, or lost."""
        message = self._messages.pop(number)
        self.count -= message.count
        self.size -= message.size

    def __len__(self) -> int:
        """How many messages."""
        return len(self._messages)
