"""The receive queue: messages that arrived out of order wait here for those before them."""

from collections import deque
from collections.abc import Iterable, Sequence

from sphtp.core.channel.fragments import Plan, Reassembly
from sphtp.core.channel.frames import Fragment, Frame, Messages, Unreliable
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.serial import SequenceBuffer, unwrap
from sphtp.errors import RemoteError


class Inbox:
    """Delivers each reliable message once, in the order of ids; unreliable ones as they come.

    Bounded in messages and bytes, read or not: what has no room is not accepted, its packet is not
    acked, and the sender offers it again.
    """

    def __init__(self, settings: ChannelSettings, first_id: int) -> None:
        self._settings = settings
        self._buffer: SequenceBuffer[bytes | Reassembly] = SequenceBuffer(
            settings.receive_buffer, first_id
        )
        self._next_id = first_id
        self._unread = 0
        self._bytes = 0
        # Over the limit, the largest message and the fullest window of small ones still fit.
        self._reserve = 2 * settings.max_message + settings.receive_buffer * settings.max_datagram
        self._ready: deque[tuple[bytes, bool]] = deque()
        self.unreliable_dropped = 0

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def held(self) -> int:
        """Bytes in memory, ready or not."""
        return self._bytes

    def admits(self, frames: Sequence[Frame]) -> bool:
        """Whether every message of a packet has room.

        Raises ``RemoteError`` when a message is over the limit, or fragments contradict one
        another.
        """
        plans: dict[int, Plan] = {}
        needs = [need for frame in frames for need in self._needs(frame, plans)]
        end = self._next_id - self._unread + self._settings.receive_buffer
        if any(message_id >= end for message_id, _ in needs):
            return False
        limit, total = self._settings.receive_buffer_bytes, self._bytes
        total += sum(cost for _, cost in needs)
        if needs and total > limit:
            # The message that all others wait for still gets in, or nothing ever would; and so does
            # what shares its packet, for packets are accepted whole.
            is_waited_for = any(message_id == self._next_id for message_id, _ in needs)
            return is_waited_for and not self._ready and total <= limit + self._reserve
        return True

    def insert(self, frame: Messages | Fragment | Unreliable) -> None:
        """Take in the messages of a frame that ``admits`` has seen."""
        if isinstance(frame, Unreliable):
            self._insert_unreliable(frame)
        elif isinstance(frame, Fragment):
            self._insert_fragment(frame)
        else:
            self._insert_messages(frame)
        self._release()

    def receive(self) -> bytes | None:
        """Take the next message, or None when there is none to take."""
        if not self._ready:
            return None
        payload, reliable = self._ready.popleft()
        self._unread -= reliable
        self._bytes -= len(payload)
        return payload

    def _needs(self, frame: Frame, plans: dict[int, Plan]) -> Iterable[tuple[int, int]]:
        """The id and the cost of each message that a frame would add."""
        if isinstance(frame, Messages):
            self._check_sizes(frame.payloads)
            first = self._restore(frame.first_id)
            return [
                (message_id, len(payload))
                for message_id, payload in enumerate(frame.payloads, first)
                if message_id >= self._next_id and message_id not in self._buffer
            ]
        if isinstance(frame, Fragment):
            return self._fragment_needs(frame, plans)
        if isinstance(frame, Unreliable):
            self._check_sizes(frame.payloads)
        return ()

    def _fragment_needs(self, frame: Fragment, plans: dict[int, Plan]) -> Iterable[tuple[int, int]]:
        message_id = self._restore(frame.message_id)
        entry = self._buffer.find(message_id)
        if message_id not in plans:
            known = entry if isinstance(entry, Reassembly) else None
            plans[message_id] = Plan(known, frame.count)
        cost = plans[message_id].add(frame, self._settings.max_message)
        is_over = message_id < self._next_id or isinstance(entry, bytes)
        return () if is_over or not cost else ((message_id, cost),)

    def _check_sizes(self, payloads: Sequence[bytes]) -> None:
        largest = max(map(len, payloads))
        if largest > self._settings.max_message:
            raise RemoteError(f"a message of {largest} bytes is over the limit")

    def _insert_messages(self, frame: Messages) -> None:
        first = self._restore(frame.first_id)
        for message_id, payload in enumerate(frame.payloads, first):
            if message_id >= self._next_id and message_id not in self._buffer:
                self._buffer.insert(message_id, payload)
                self._bytes += len(payload)

    def _insert_fragment(self, frame: Fragment) -> None:
        message_id = self._restore(frame.message_id)
        if message_id < self._next_id:
            return
        entry = self._buffer.find(message_id)
        if entry is None:
            entry = Reassembly(frame.count)
            self._buffer.insert(message_id, entry)
        if isinstance(entry, Reassembly):
            self._add_part(message_id, entry, frame)

    def _add_part(self, message_id: int, entry: Reassembly, frame: Fragment) -> None:
        self._bytes -= entry.held
        entry.add(frame.index, frame.payload)
        whole = entry.finish()
        if whole is None:
            self._bytes += entry.held
            return
        self._buffer.insert(message_id, whole)
        self._bytes += len(whole)

    def _insert_unreliable(self, frame: Unreliable) -> None:
        for payload in frame.payloads:
            if len(self._ready) - self._unread >= self._settings.unreliable_buffer:
                self.unreliable_dropped += 1
                continue
            self._ready.append((payload, False))
            self._bytes += len(payload)

    def _release(self) -> None:
        while isinstance(entry := self._buffer.find(self._next_id), bytes):
            self._buffer.remove(self._next_id)
            self._ready.append((entry, True))
            self._unread += 1
            self._next_id += 1

    def _restore(self, short: int) -> int:
        return unwrap(short, self._next_id)
