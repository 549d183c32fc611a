"""The way of a record: through the gate, put together if it is a part, then in its order."""

from collections.abc import Callable
from typing import Final

from sphtp.core.stream.delivery.gate import Gate
from sphtp.core.stream.delivery.order_map import Order
from sphtp.core.stream.delivery.reassembly import Message, Reassembly, span_of
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

    __slots__ = (
        "_first",
        "_order",
        "_reason",
        "_settings",
        "duplicates",
        "gate",
        "reassembly",
        "refused",
    )

    def __init__(self, settings: StreamSettings, gate: Gate, order: Order) -> None:
        self._settings = settings
        self._order = order
        self._first = 0
        self.gate = gate
        self.reassembly = Reassembly()
        self._reason = LossReason.WINDOW
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
        """Let the stream begin with ``first``; a message that began before that is not in it."""
        self._first = first
        self.gate.begin(first)
        for message in self.reassembly.within(0, first - 1):
            self.reassembly.remove(message)
            self._settle(Span(first, message.span.last), None)
        self._order.begin(first)

    @property
    def next(self) -> int:
        """The number of a record that may take the short way of ``take_next``; or none."""
        return self.gate.top if self.gate.is_settled else NONE

    def take_next(self, record: Record, sqn: int) -> bool:
        """Let a record pass that begins with ``next``; false when it has to take the long way.

        Nothing is missing and nothing waits, but for the parts of one message before its own.
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
        reassembly = self.reassembly
        message = reassembly.find(fragment) if len(reassembly) == 1 else None
        if message is None or message.size + len(fragment.payload) > self._settings.max_message:
            return False
        self.gate.advance(fragment.first + 1, sqn)
        reassembly.add(fragment)
        if (whole := message.join()) is not None:
            self._finish(message, whole, Origin.LIVE)
        return True

    def take(self, now: float, record: Record, sqn: int) -> None:
        """Let pass what is new of a record that came with datagram ``sqn``."""
        if self._is_plausible(record):
            new = self.gate.take(now, record.first, record.last, sqn)
            self._put(record, new, Origin.LIVE)

    def take_fetched(self, record: Record, origin: Origin) -> None:
        """Let pass what is missing of a record that was fetched."""
        if self._is_plausible(record):
            self._put(record, self.gate.take_known(record.first, record.last), origin)

    def leave(self, now: float, record: Record, sqn: int, give_up: GiveUp) -> int:
        """Give up a record that came and cannot be kept; return how many numbers that are."""
        if not self._is_plausible(record):
            return 0
        new = self.gate.take(now, record.first, record.last, sqn)
        for span in new:
            give_up(span, LossReason.OVERRUN)
        return sum(span.size for span in new)

    def lose(self, span: Span, reason: LossReason) -> None:
        """Let numbers that are missing pass as lost, and with them what they were parts of."""
        first, last = self.reassembly.break_up(*span)
        first = max(first, self.gate.bottom)
        self._settle(Span(first, last), Loss(first, last, reason))
        self._reason = reason

    def relieve(self) -> None:
        """While too much is held, do not wait for the oldest gap any longer."""
        while self.load > 1 and (oldest := self.gate.oldest) is not None:
            self.lose(oldest, LossReason.MAP_OVERFLOW)

    def _put(self, record: Record, new: list[Span], origin: Origin) -> None:
        self.duplicates += record.last - record.first + 1 - sum(span.size for span in new)
        if type(record) is Fragment and new:
            self._assemble(record, origin)
        elif type(record) is Run:
            for first, last in new:
                payloads = record.payloads
                if last - first + 1 < len(payloads):
                    payloads = payloads[first - record.first : last - record.first + 1]
                self._order.put(first, last, Batch(first, payloads, origin))

    def _assemble(self, fragment: Fragment, origin: Origin) -> None:
        if self.reassembly.find(fragment) is None and not self._is_hopeful(fragment):
            self._close(fragment)
            return
        message = self.reassembly.add(fragment)
        if message.size > self._settings.max_message:
            self.lose(message.span, LossReason.MAP_OVERFLOW)
        elif (whole := message.join()) is not None:
            self._finish(message, whole, origin)

    def _finish(self, message: Message, whole: bytes, origin: Origin) -> None:
        first, last = message.span
        self.reassembly.remove(message)
        self._order.put(first, last, Batch(first, [whole], origin))

    def _is_hopeful(self, fragment: Fragment) -> bool:
        """Whether all other parts may still come."""
        missing = self.gate.missing(*span_of(fragment))
        return sum(span.size for span in missing) == fragment.parts - 1

    def _close(self, fragment: Fragment) -> None:
        """Parts of this message are lost and were told, or it began before the stream did.

        Only now is it known how far it reaches. If some of it was told as lost, the rest is, too.
        """
        head, last = span_of(fragment)
        first = max(head, self._first)
        rest = sorted([*self.gate.missing(first, last), Span(fragment.first, fragment.first)])
        is_told = sum(span.size for span in rest) <= last - first
        for span in rest:
            if head < self._first and not is_told:
                self._settle(span, None)
            else:
                self.lose(span, self._reason)

    def _settle(self, span: Span, item: Loss | None) -> None:
        self.gate.settle(*span)
        self._order.put(*span, item)

    def _is_plausible(self, record: Record) -> bool:
        """Whether it can be true, after all that came before it."""
        if record.last >= MOST_NUMBER:
            is_plausible = False
        elif type(record) is Fragment:
            span = span_of(record)
            others = [m for m in self.reassembly.within(*span) if m.span != span]
            is_plausible = not others and span.size <= self._settings.max_message
        else:
            is_plausible = not self.reassembly.within(record.first, record.last)
        if is_plausible:
            return True
        self.refused += 1
        return False
