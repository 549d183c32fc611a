"""The way of a record: through the gate, put together if it is a part, then in its order."""

from collections.abc import Callable
from typing import Final

from sphtp.core.stream.delivery.gate import Gate
from sphtp.core.stream.delivery.order_map import Order
from sphtp.core.stream.delivery.reassembly import Reassembly
from sphtp.core.stream.events import Batch, Loss, LossReason, Origin
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import Fragment, Record, Run
from sphtp.core.stream.settings import StreamSettings

GiveUp = Callable[[Span, LossReason], None]
"""What becomes of numbers that do not come: they are lost, or wanted from the history."""

MOST_NUMBER: Final = 1 << 63
"""No source gets so far; half of what the wire carries leaves room to add."""

NONE: Final = -1
"""No number."""


class Passage:
    """Lets each number pass once, as a message or as lost. Holds no more than the settings allow.

    ``duplicates`` counts messages and parts that had passed or been lost, ``refused`` records that
    contradict what is known.
    """

    __slots__ = ("_order", "_settings", "duplicates", "gate", "reassembly", "refused")

    def __init__(self, settings: StreamSettings, gate: Gate, order: Order) -> None:
        self._settings = settings
        self._order = order
        self.gate = gate
        self.reassembly = Reassembly()
        self.duplicates = 0
        self.refused = 0

    @property
    def load(self) -> float:
        """How much is held, as a share of what the settings allow: by number, or by bytes."""
        gate = self.gate
        count = self._order.count + self.reassembly.count + len(gate.gaps) + len(gate.wanted)
        size = self._order.size + self.reassembly.size
        return max(count / self._settings.order_map, size / self._settings.order_map_bytes)

    def begin(self, first: int) -> None:
        """Let the stream begin with ``first``."""
        self.gate.begin(first)
        self._order.begin(first)

    @property
    def next(self) -> int:
        """The number of a record that may take the short way of ``take_next``; or none."""
        return self.gate.top if self.gate.is_settled else NONE

    def take_next(self, record: Record, sqn: int) -> bool:
        """Let a record pass that begins with ``next``; false when it has to take the long way.

        Nothing is missing and nothing waits, but for the parts of that very message.
        """
        if isinstance(record, Fragment):
            return self._take_next_part(record, sqn)
        if self.reassembly:
            return False
        _, first, payloads = record
        top = first + len(payloads)
        self.gate.advance(top, sqn)
        self._order.put(first, top - 1, Batch(first, payloads, Origin.LIVE))
        return True

    def _take_next_part(self, fragment: Fragment, sqn: int) -> bool:
        message = self.reassembly.find(fragment.first)
        if message is None or message.parts != fragment.parts:
            return False
        if message.size + len(fragment.payload) > self._settings.max_message:
            return False
        if self.reassembly.add(fragment) is None:
            self.duplicates += 1
        elif (whole := message.join()) is not None:
            self.gate.advance(fragment.first + 1, sqn)
            self._finish(fragment.first, whole, Origin.LIVE)
        return True

    def take(self, now: float, record: Record, sqn: int) -> None:
        """Let pass what is new of a record that came with datagram ``sqn``."""
        if not self._is_plausible(record):
            return
        if type(record) is Run:
            self._put(record, self.gate.take(now, record.first, record.last, sqn), Origin.LIVE)
        elif type(record) is Fragment:
            self._take_part(now, record, sqn)

    def _take_part(self, now: float, fragment: Fragment, sqn: int) -> None:
        gate, number = self.gate, fragment.first
        # The message itself is on its way, and missing only when something follows it.
        gate.expect(now, number, sqn)
        if number < gate.top:
            if not gate.is_missing(number):
                self.duplicates += 1
                return
            gate.narrow(number, sqn)
        if (whole := self._assemble(fragment)) is not None:
            gate.take(now, number, number, sqn)
            self._finish(number, whole, Origin.LIVE)

    def take_fetched(self, record: Record, origin: Origin) -> None:
        """Let pass what is missing of a record that was fetched."""
        if not self._is_plausible(record):
            return
        if type(record) is Run:
            self._put(record, self.gate.take_known(record.first, record.last), origin)
        elif type(record) is Fragment:
            if not self.gate.is_missing(record.first):
                self.duplicates += 1
            elif (whole := self._assemble(record)) is not None:
                self.gate.take_known(record.first, record.first)
                self._finish(record.first, whole, origin)

    def leave(self, now: float, record: Record, sqn: int, give_up: GiveUp) -> int:
        """Give up a record that came and cannot be kept; return how many numbers that are."""
        if not self._is_plausible(record):
            return 0
        new = self.gate.take(now, record.first, record.last, sqn)
        for span in new:
            give_up(span, LossReason.OVERRUN)
        return sum(span.size for span in new)

    def lose(self, span: Span, reason: LossReason) -> None:
        """Let numbers that are missing pass as lost, whatever parts of them came."""
        for number in self.reassembly.within(*span):
            self.reassembly.remove(number)
        self.gate.settle(*span)
        self._order.put(*span, Loss(*span, reason))

    def relieve(self) -> None:
        """While too much is held, do not wait for the oldest gap any longer."""
        while self.load > 1 and (oldest := self.gate.oldest) is not None:
            self.lose(oldest, LossReason.MAP_OVERFLOW)

    def _put(self, run: Run, new: list[Span], origin: Origin) -> None:
        _, start, payloads = run
        self.duplicates += len(payloads) - sum(span.size for span in new)
        for first, last in new:
            some = payloads
            if last - first + 1 < len(payloads):
                some = payloads[first - start : last - start + 1]
            self._order.put(first, last, Batch(first, some, origin))

    def _assemble(self, fragment: Fragment) -> bytes | None:
        """Take a part; return the message when it is whole."""
        message = self.reassembly.add(fragment)
        if message is None:
            self.duplicates += 1
            return None
        if message.size > self._settings.max_message:
            self.lose(Span(fragment.first, fragment.first), LossReason.MAP_OVERFLOW)
            return None
        return message.join()

    def _finish(self, number: int, whole: bytes, origin: Origin) -> None:
        self.reassembly.remove(number)
        self._order.put(number, number, Batch(number, [whole], origin))

    def _is_plausible(self, record: Record) -> bool:
        """Whether it can be true, after all that came before it."""
        if record.last >= MOST_NUMBER:
            is_plausible = False
        elif type(record) is Fragment:
            message = self.reassembly.find(record.first)
            is_same = message is None or message.parts == record.parts
            is_plausible = is_same and record.parts <= self._settings.max_message
        else:
            is_plausible = not self.reassembly.within(record.first, record.last)
        if is_plausible:
            return True
        self.refused += 1
        return False
