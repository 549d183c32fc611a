"""A receiver under test, with a source that does as it is told, and what has to hold always."""

from collections.abc import Iterable
from itertools import pairwise
from random import Random
from typing import Any

from sphtp.core.stream.events import Arrived, GivenUp, LossReason
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.receiver import REACH, Receiver, ReceiverState
from sphtp.core.stream.records import RunRecord, decode_records_untrusted, encode_run
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.statistics import UNRECOVERED
from sphtp.core.stream.wire import (
    FURTHER,
    MOST_RANGES,
    BodyFlag,
    Nak,
    Ncf,
    NcfReason,
    SessionMessage,
    StreamData,
    Window,
    decode_body_untrusted,
    decode_nak_untrusted,
    encode_data,
    encode_ncf,
    encode_session,
)
from sphtp.errors import RemoteError

ENDED = ReceiverState.ENDED


def payload(sqn: int) -> bytes:
    return encode_run(RunRecord(0, sqn, [b"datagram %020d" % sqn]))


class DrivenReceiver:
    """Times in seconds, from 0; the first datagram has the number ``start``.

    After every input all is polled, and compared with a model that knows sets and no timers.
    """

    def __init__(
        self, start: int = 0, *, seed: int = 1, is_told: bool = True, **changes: Any
    ) -> None:
        self.settings = StreamSettings(**changes)
        self.now = 0.0
        self.start = start
        # The source's.
        self.window = Window(start - 1, start)
        self.number = 0
        told = self.window if is_told else None
        self.receiver = Receiver(Random(seed), self.settings, self.now, told)
        self.said: list[bytes] = []
        self.arrived: list[Arrived] = []
        self.given_up: list[GivenUp] = []
        self.naks: list[tuple[float, list[Span]]] = []
        # The model.
        self.lead = start - 1
        self.missing = RangeSet()
        self.found: list[tuple[Span, float]] = []
        self.here = set[int]()
        self.asked: dict[int, int] = {}
        self.quiet: dict[int, float] = {}

    # What the source does

    def send(self, count: int = 1) -> None:
        """Send the next datagrams, and let them arrive."""
        for _ in range(count):
            self.lose()
            self.data(self.window.lead)

    def lose(self, count: int = 1) -> None:
        """Send the next datagrams, and let them be lost."""
        self.window = self.window._replace(lead=self.window.lead + count)

    def drop(self, trail: int) -> None:
        """Let the transmission window move on."""
        low, high = self.window.trail, self.window.lead + 1
        self.window = self.window._replace(trail=min(max(trail, low), high))

    def data(self, sqn: int, *, repair: bool = False, window: Window | None = None) -> None:
        self.hear(encode_data(sqn, window or self.window, payload(sqn), repair=repair))

    def repair(self, *sqns: int) -> None:
        for sqn in sqns:
            self.data(sqn, repair=True)

    def session(
        self, flags: BodyFlag = BodyFlag.NONE, tails: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.number += 1
        self.hear(encode_session(SessionMessage(flags, self.window, self.number, list(tails))))

    def ncf(self, reason: NcfReason, *spans: tuple[int, int], after: float = 0.0) -> None:
        named = [Span(*span) for span in spans]
        self.hear(encode_ncf(Ncf(self.window, reason, after, named)))

    # What the receiver sees

    def hear(self, body: bytes) -> None:
        self.said.append(body)
        is_over = self.receiver.state is ENDED
        self.receiver.handle_body_untrusted(self.now, body)
        if not is_over:
            self._imagine(body)
        self._collect()

    def wait(self, seconds: float) -> None:
        """Let time pass, and the receiver do what is due when it is."""
        self.wait_until(self.now + seconds)

    def wait_until(self, end: float) -> None:
        while (due := self.receiver.poll_timeout()) is not None and due <= end:
            self.now = max(self.now, due)
            self.receiver.handle_timeout(self.now)
            self._collect()
            later = self.receiver.poll_timeout()
            assert later is None or later > self.now, "it would be woken for nothing"
        self.now = end

    def wait_for_nak(self) -> list[Span]:
        """Let time pass until a NAK leaves; return what it names, nothing if all was given up."""
        before = len(self.naks)
        while len(self.naks) == before:
            due = self.receiver.poll_timeout()
            if due is None:
                assert not self.pending
                return []
            self.wait_until(due)
        return self.naks[-1][1]

    def gone(self) -> None:
        self.receiver.handle_gone(self.now)
        self._collect()

    @property
    def heard(self) -> list[int]:
        return [arrived.sqn for arrived in self.arrived]

    @property
    def pending(self) -> list[Span]:
        return list(self.missing)

    # The model

    def _imagine(self, body: bytes) -> None:
        try:
            said = decode_body_untrusted(body, self.lead)
            records = (
                decode_records_untrusted(bytes(said.records))
                if isinstance(said, StreamData)
                else []
            )
        except RemoteError:
            return
        lead, trail = said.window
        named = said.spans[-1].last if isinstance(said, Ncf) else lead
        if abs(lead - self.lead) > REACH or lead - trail > REACH or named > lead:
            return
        if isinstance(said, StreamData):
            assert records or not said.records
            self._find(said.sqn - 1)
            self.lead = max(self.lead, said.sqn)
            self.missing.discard(said.sqn, said.sqn)
        self._find(lead)
        if isinstance(said, Ncf):
            self._suppress(said)

    def _find(self, lead: int) -> None:
        if lead > self.lead:
            span = Span(self.lead + 1, lead)
            self.missing.add(*span)
            self.found.append((span, self.now))
            self.lead = lead

    def _suppress(self, ncf: Ncf) -> None:
        least = {
            NcfReason.NO_RETRY: 0.0,
            NcfReason.SHED: self.settings.suppress / 2,
            NcfReason.RX_DELAY: ncf.retry_after or self.settings.suppress,
            NcfReason.IGNORED: ncf.retry_after or self.settings.suppress,
        }[ncf.reason]
        for span in ncf.spans:
            for first, last in self.missing.within(*span):
                for sqn in range(first, last + 1):
                    self.quiet.setdefault(sqn, self.now + least)

    def _collect(self) -> None:
        while (arrived := self.receiver.poll_arrived()) is not None:
            assert arrived.records == decode_records_untrusted(payload(arrived.sqn))
            assert arrived.sqn not in self.here, f"{arrived.sqn} came twice"
            self.here.add(arrived.sqn)
            self.arrived.append(arrived)
        while (given_up := self.receiver.poll_given_up()) is not None:
            self.given_up.append(given_up)
            self._check_given_up(given_up)
        while (body := self.receiver.poll_transmit(self.now)) is not None:
            self._check_nak(decode_nak_untrusted(body, self.lead))
        self._check()

    # What has to hold

    def _check_given_up(self, given_up: GivenUp) -> None:
        span, reason = given_up
        assert self.missing.within(*span) == [span], f"{span} was here, or given up before"
        self.missing.discard(*span)
        if reason is LossReason.TIMEOUT:
            age = min(self.now - self._found_at(sqn) for sqn in span)
            assert age >= self.settings.generation - 1e-6
        elif reason is LossReason.WINDOW:
            assert span.last < self.window.trail

    def _check_nak(self, nak: Nak) -> None:
        spans, settings = nak.spans, self.settings
        if self.naks:
            assert self.now >= self.naks[-1][0] + settings.nak_spacing - 1e-9
        assert 1 <= len(spans) <= MOST_RANGES
        assert all(span.size <= FURTHER + 1 for span in spans)
        assert all(a.last < b.first for a, b in pairwise(spans))
        for span in spans:
            assert self.missing.within(*span) == [span], f"{span} is not missing"
            for sqn in range(span.first, min(span.last, span.first + 1000) + 1):
                self._check_named(sqn)
        self.naks.append((self.now, list(spans)))

    def _check_named(self, sqn: int) -> None:
        asked = self.asked[sqn] = self.asked.get(sqn, 0) + 1
        assert self.now >= self.quiet.pop(sqn, 0.0) - 1e-9, f"{sqn} was put off"
        age, backoff = self.now - self._found_at(sqn), self.settings.nak_backoff
        assert asked <= 1 + age / (0.5 * backoff) + 1e-6

    def _check(self) -> None:
        receiver, statistics = self.receiver, self.receiver.statistics()
        unrecovered = sum(getattr(statistics, name) for name in UNRECOVERED.values())
        settled = statistics.recovered + statistics.out_of_order + unrecovered
        assert statistics.lost == settled + statistics.pending
        assert statistics.pending == self.missing.total
        assert unrecovered == sum(given_up.span.size for given_up in self.given_up)
        if self.missing:
            due = receiver.poll_timeout()
            assert due is not None, "something is missing, and nothing will happen"
            assert due <= self._found_at(self.missing.first) + self.settings.generation
            assert receiver.missing.touches(self.missing.first, self.missing.first)
            assert receiver.settled == self.missing.first - 1
        else:
            assert not receiver.missing.touches(self.start, self.lead)
        if receiver.state is ENDED:
            assert receiver.poll_timeout() is None

    def _found_at(self, sqn: int) -> float:
        return next(at for span, at in reversed(self.found) if span.first <= sqn <= span.last)
