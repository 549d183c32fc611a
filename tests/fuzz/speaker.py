"""The source of a stream, told whatever its receivers may say, be it NAKs or questions.

Whatever comes, it raises nothing, comes to an end with what it says, is woken for nothing never,
and holds no more than its settings allow.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from sphtp.core.stream.events import ALL_RECEIVERS
from sphtp.core.stream.late_join_wire import (
    AskRequest,
    FetchRequest,
    RequestKey,
    encode_ask,
    encode_fetch,
)
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceState, SourceTransport
from sphtp.core.stream.wire import (
    MOST_RANGES,
    Nak,
    StatusMessage,
    cut,
    decode_body_untrusted,
    encode_nak,
    encode_status,
)
from sphtp.errors import LocalError, RemoteError
from tests.fuzz.choices import Choices
from tests.fuzz.mutations import EDGES, mutate

SETTINGS: Final = StreamSettings(
    max_datagram=1024,
    max_message=20_000,
    order_map=64,
    order_map_bytes=50_000,
    receive_buffer=65_536,
    loss_map=16,
    flow_window=20_000,
    window=65_536,
    window_age=5.0,
    repair_queue=4,
    repair_rate=3000.0,
    nak_budget=30.0,
    retention=50_000,
    retention_age=20.0,
    retention_count=60,
    fetch_window=20,
    caching_proximity=20,
)
"""Limits so small that they are met."""

TOPICS: Final = 3
FIRST: Final = 2**32 - 20
"""The first datagram's number: 32 bits end soon after it."""

WAITS: Final = (0.0, 0.001, 0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 20.0)
SIZES: Final = (0, 1, 1, 10, 10, 100, 900, 3000, 20_000)
MOST_SAID: Final = 4096
RECEIVERS: Final = (1, 2, 3, 4)
NEAR: Final = 40


class Speaker:
    """A source, and what it is told; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices) -> None:
        self.now = 100.0
        self._is_shared = choices.below(2) > 0
        self.source = SourceTransport(
            Random(1), SETTINGS, now=self.now, topics=TOPICS, first=FIRST, shared=self._is_shared
        )
        self._choices = choices
        self._present = set(RECEIVERS[1:])
        self._heard: list[bytes] = []
        self._server = self._new_server()
        for receiver in RECEIVERS[1:]:
            self.source.handle_joined(self.now, receiver)
        self._settle()

    def step(self) -> None:
        """Let one thing happen, and see that the source is well."""
        self._choices.pick(HAPPENINGS)(self)
        self._settle()

    # What may happen

    def send(self) -> None:
        """The application sends messages; it is told so if that cannot be."""
        choices = self._choices
        size, number = choices.pick(SIZES), 1 + choices.below(choices.pick((1, 4, 60)))
        with suppress(LocalError):
            self.source.send_many(self.now, choices.below(TOPICS + 1), [bytes(size)] * number)

    def join(self) -> None:
        """A receiver comes, or one that is there comes again."""
        receiver = self._choices.pick(RECEIVERS)
        self.source.handle_joined(self.now, receiver)
        self._present.add(receiver)

    def leave(self) -> None:
        """A receiver goes, or one that is not there."""
        receiver = self._choices.pick(RECEIVERS)
        self.source.handle_left(self.now, receiver)
        self._present.discard(receiver)

    def hear_nak(self) -> None:
        """Somebody misses datagrams that were sent, or maybe not."""
        choices, spans = self._choices, RangeSet()
        lead, most = self.source.window.lead, choices.pick((0, 1, 10, 70_000))
        is_true = choices.below(4) > 0
        for _ in range(1 + choices.below(8)):
            first = self._sqn()
            first, last = (min(first, lead), lead) if is_true else (first, first + most)
            spans.add(first, min(first + most, last))
        self._hear(encode_nak(Nak(cut(spans, MOST_RANGES))))

    def hear_status(self) -> None:
        """Somebody says how far it is."""
        choices = self._choices
        self._hear(
            encode_status(StatusMessage(self._sqn(), choices.pick(EDGES), choices.below(2) > 0))
        )

    def hear_changed(self) -> None:
        """What was said before comes again, changed or not."""
        if self._heard:
            said = self._choices.pick(self._heard)
            self._hear(mutate(self._choices, said, self._heard) if self._choices.below(4) else said)

    def hear_noise(self) -> None:
        """Bytes."""
        self._hear(self._choices.some_bytes(60))

    def ask(self) -> None:
        """Somebody asks for history, in a way that makes sense or not."""
        choices = self._choices
        frame = choices.pick((self._ask, self._fetch))()
        frame = frame if choices.below(3) else mutate(choices, frame)
        try:
            self._server.handle_frame_untrusted(frame)
        except RemoteError:
            self._server = self._new_server()
        for _ in range(choices.below(70)):
            if self._server.poll_transmit(self.now) is None:
                break

    def wait(self) -> None:
        """Time passes, and perhaps nobody is woken in time."""
        self.now += self._choices.pick(WAITS)
        if self._choices.below(4):
            self.source.handle_timeout(self.now)

    def wait_for_timer(self) -> None:
        """Time passes until something is due."""
        due = self.source.poll_timeout()
        if due is not None:
            self.now = max(self.now, due)
            self.source.handle_timeout(self.now)

    def close(self) -> None:
        """The application closes, now and then."""
        if not self._choices.below(16):
            with suppress(LocalError):
                self.source.close(self.now)

    # How it happens

    def _hear(self, body: bytes) -> None:
        self._heard = [*self._heard[-32:], body]
        self.source.handle_feedback_untrusted(self.now, self._choices.pick(RECEIVERS), body)

    def _sqn(self) -> int:
        """A number near one that matters."""
        window = self.source.window
        near = self._choices.pick((window.lead, window.trail, FIRST))
        return max(near + self._choices.below(NEAR) - NEAR // 2, 0)

    def _ask(self) -> bytes:
        return encode_ask(AskRequest(self._request_key()))

    def _fetch(self) -> bytes:
        choices, spans = self._choices, RangeSet()
        for _ in range(1 + choices.below(4)):
            first = choices.pick((choices.below(300), choices.pick(EDGES) & 2**63 - 1))
            spans.add(first, first + choices.pick((0, 1, 20, 60_000)))
        return encode_fetch(FetchRequest(self._request_key(), [Span(*it) for it in cut(spans, 8)]))

    def _request_key(self) -> RequestKey:
        return RequestKey(self.source.session, self._choices.below(TOPICS), self._choices.below(9))

    def _new_server(self) -> FetchServer:
        source = self.source
        return FetchServer(source.history, source.session, TOPICS, source.part, 1e6)

    def _settle(self) -> None:
        source = self.source
        for _ in range(2):
            self._drain()
            source.handle_timeout(self.now)
        self._drain()
        due = source.poll_timeout()
        assert due is None or due > self.now, f"due at {due}, busy at {self.now}"
        if source.state is SourceState.CLOSED:
            assert due is None
        held = source.statistics()
        size = held.window_bytes
        assert size <= SETTINGS.window + SETTINGS.max_datagram, f"{size} bytes in the window"
        waiting = held.waiting_repairs
        queues = 1 if self._is_shared else len(self._present)
        assert waiting <= queues * SETTINGS.repair_queue, f"{waiting} repairs wait"

    def _drain(self) -> None:
        source, said = self.source, 0
        while (outgoing := source.poll_transmit(self.now)) is not None:
            said += len(outgoing.bodies)
            receiver = outgoing.receiver
            assert receiver in (ALL_RECEIVERS, *self._present), f"{receiver} is not here"
            assert said < MOST_SAID, f"still talking after {said} datagrams at {self.now} s"
            for body in outgoing.bodies:
                decode_body_untrusted(body, source.window.lead)
        while source.poll_event() is not None:
            pass


_SHARES: Final[Mapping[Callable[[Speaker], None], int]] = {
    Speaker.send: 5,
    Speaker.join: 3,
    Speaker.leave: 1,
    Speaker.hear_nak: 5,
    Speaker.hear_status: 3,
    Speaker.hear_changed: 3,
    Speaker.hear_noise: 1,
    Speaker.ask: 3,
    Speaker.wait: 3,
    Speaker.wait_for_timer: 3,
    Speaker.close: 1,
}

HAPPENINGS: Final[Sequence[Callable[[Speaker], None]]] = tuple(
    it for it, share in _SHARES.items() for _ in range(share)
)
