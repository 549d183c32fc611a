"""A subscription to a stream, told whatever may come from its source and the source's history.

Whatever comes, it raises nothing, comes to an end with what it says, is woken for nothing never,
holds no more than its settings allow, and tells each message once: or its loss.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from sphtp.core.stream.events import Item, Loss, StreamEnd
from sphtp.core.stream.late_join_wire import (
    EndAnswer,
    GoneAnswer,
    InfoAnswer,
    MessagesAnswer,
    RequestKey,
    encode_done,
    encode_gone,
    encode_info,
    encode_msg,
)
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.receiver import Receiver
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord, encode_fragment, encode_run
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.source import SourceTransport
from sphtp.core.stream.subscription import ALL_HISTORY, SubscriptionMachine
from sphtp.core.stream.wire import (
    BodyFlag,
    Ncf,
    NcfReason,
    SessionMessage,
    Window,
    cut,
    encode_data,
    encode_ncf,
    encode_session,
)
from tests.fuzz.choices import Choices
from tests.fuzz.mutations import EDGES, mutate
from tests.fuzz.speaker import FIRST, MOST_SAID, NEAR, SETTINGS, SIZES, WAITS

TOPIC: Final = 1
TOPICS: Final = 2
KEPT: Final = 64
PARTS: Final = (1, 2, 3, 20, 2**20)
BITS_63: Final = 2**63 - 1


class Reading:
    """A subscription, and what it is told; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices) -> None:
        self.now = 100.0
        self._choices = choices
        self._source = SourceTransport(
            Random(1), SETTINGS, now=self.now, topics=TOPICS, first=FIRST
        )
        self._bodies: deque[bytes] = deque(maxlen=KEPT)
        self._frames: deque[bytes] = deque(maxlen=KEPT)
        if choices.below(2):
            self._say()
        self.is_ordered = choices.below(4) > 0
        self.subscription = SubscriptionMachine(
            SETTINGS,
            self.now,
            Receiver(Random(2), SETTINGS, self.now, self._source.window),
            self._source.session,
            TOPIC,
            self._source.begins(TOPIC),
            ordered=self.is_ordered,
            late_join=choices.pick((0, 5, ALL_HISTORY)),
            recover=choices.below(4) > 0,
            reach=self._source.reach,
        )
        self._source.handle_joined(self.now, 1)
        self._server: FetchServer | None = None
        self._reads = True
        self._told = RangeSet()
        self._next = 0
        self._is_over = False
        self._settle()

    def step(self) -> None:
        """Let one thing happen, and see that the subscription is well."""
        self._choices.pick(HAPPENINGS)(self)
        self._settle()

    # What may happen

    def talk(self) -> None:
        """The source sends, and some of it arrives, in some order."""
        choices = self._choices
        said = self._say()
        if choices.below(2):
            said = [body for body in said if choices.below(4)]
        if not choices.below(4):
            said.reverse()
        self.subscription.handle_bodies_untrusted(self.now, said)

    def hear_changed(self) -> None:
        """What was said before comes again, changed or not."""
        if self._bodies:
            choices, said = self._choices, self._choices.pick(self._bodies)
            self._hear(mutate(choices, said, self._bodies) if choices.below(4) else said)

    def hear_data(self) -> None:
        """A datagram that nobody sent."""
        choices, sqn = self._choices, self._sqn()
        record = self._record()
        encoded = encode_run(record) if isinstance(record, RunRecord) else encode_fragment(record)
        window = Window(sqn + choices.pick((0, 0, 1, 2**29)), sqn - choices.pick((0, 1, 30)))
        self._hear(encode_data(sqn, window, encoded, repair=choices.below(2) > 0))

    def hear_session(self) -> None:
        """A session message that nobody sent."""
        choices, lead = self._choices, self._sqn()
        flags = choices.pick((BodyFlag.NONE, BodyFlag.NONE, BodyFlag.CLOSING, BodyFlag.CLOSED))
        tails = [(TOPIC, choices.pick((choices.below(300), *EDGES[-3:])))]
        window = Window(lead, lead + 1 - choices.below(NEAR))
        self._hear(encode_session(SessionMessage(flags, window, choices.below(2**32), tails)))

    def hear_ncf(self) -> None:
        """An NCF that nobody sent."""
        choices, lead, spans = self._choices, self._sqn(), RangeSet()
        for _ in range(1 + choices.below(5)):
            first = self._sqn()
            spans.add(first, first + choices.pick((0, 1, 5)))
        after = choices.pick((0.0, 0.01, 60.0))
        ncf = Ncf(Window(lead, lead - 9), choices.pick(tuple(NcfReason)), after, cut(spans))
        self._hear(encode_ncf(ncf))

    def hear_noise(self) -> None:
        """Bytes."""
        self._hear(self._choices.some_bytes(60))

    def connect(self) -> None:
        """The connection to the history is made, and what was asked is answered."""
        subscription, source = self.subscription, self._source
        if self._server is None and subscription.wants_connection:
            self._server = FetchServer(source.history, source.session, TOPICS, source.part)
            subscription.handle_connected(self.now)
        if self._server is not None:
            for request in iter(subscription.poll_request, None):
                self._server.handle_frame_untrusted(request)
            frames = list(iter(partial(self._server.poll_transmit, self.now), None))
            self._frames.extend(frames)
            subscription.handle_frames_untrusted(self.now, frames)

    def disconnect(self) -> None:
        """The connection to the history breaks, or cannot be made."""
        self._server = None
        self.subscription.handle_disconnected(self.now)

    def hear_answer(self) -> None:
        """An answer of the history that nobody gave."""
        choices = self._choices
        if self._frames and choices.below(2):
            frame = mutate(choices, choices.pick(self._frames), self._frames)
        else:
            frame = choices.pick(ANSWERS)(self)
        self.subscription.handle_frame_untrusted(self.now, frame)

    def stop_reading(self) -> None:
        """The reader stands still, or goes on."""
        self._reads = not self._reads

    def vanish(self) -> None:
        """The source's node vanishes, now and then."""
        if not self._choices.below(8):
            self.subscription.handle_gone(self.now)

    def wait(self) -> None:
        """Time passes, and perhaps nobody is woken in time."""
        self.now += self._choices.pick(WAITS)
        self._source.handle_timeout(self.now)
        if self._choices.below(4):
            self.subscription.handle_timeout(self.now)

    def wait_for_timer(self) -> None:
        """Time passes until something is due."""
        due = self.subscription.poll_timeout()
        if due is not None:
            self.now = max(self.now, due)
            self.subscription.handle_timeout(self.now)

    # How it happens

    def _say(self) -> list[bytes]:
        """What the source says after it was given some messages."""
        choices, source = self._choices, self._source
        for _ in range(choices.below(4)):
            if source.room:
                payloads = [bytes(choices.pick(SIZES))] * (1 + choices.below(20))
                source.send_many(self.now, choices.below(TOPICS), payloads)
        outgoing = iter(partial(source.poll_transmit, self.now), None)
        said = [body for one in outgoing for body in one.bodies]
        self._bodies.extend(said)
        return said

    def _hear(self, body: bytes) -> None:
        self.subscription.handle_body_untrusted(self.now, body)

    def _sqn(self) -> int:
        lead = self._source.window.lead
        return self._choices.pick((lead, FIRST)) + self._choices.below(NEAR) - NEAR // 2

    def _record(self) -> Record:
        choices = self._choices
        first = choices.pick((choices.below(300), choices.pick(EDGES) & BITS_63))
        payload = bytes(choices.pick(SIZES[:7]))
        if choices.below(2):
            return RunRecord(TOPIC, first, [payload] * (1 + choices.below(10)))
        parts = choices.pick(PARTS)
        part = min(choices.below(parts), first)
        return FragmentRecord(TOPIC, first, part, parts, payload or b"x")

    def _request_key(self) -> RequestKey:
        return RequestKey(self._source.session, TOPIC, 1 + self._choices.below(8))

    def info(self) -> bytes:
        low = self._choices.pick((0, self._choices.below(300), 2**64 - 1))
        return encode_info(
            InfoAnswer(self._request_key(), low, max(low, self._choices.pick(EDGES)))
        )

    def msg(self) -> bytes:
        return encode_msg(MessagesAnswer(self._request_key(), self._record()))

    def gone(self) -> bytes:
        first = self._choices.pick((0, self._choices.below(300)))
        last = max(first, self._choices.pick(EDGES))
        return encode_gone(GoneAnswer(self._request_key(), Span(first, last)))

    def done(self) -> bytes:
        return encode_done(EndAnswer(self._request_key()))

    def _settle(self) -> None:
        subscription = self.subscription
        for _ in range(2):
            self._drain()
            subscription.handle_timeout(self.now)
        self._drain()
        due = subscription.poll_timeout()
        assert due is None or due > self.now, f"due at {due}, busy at {self.now}"

    def _drain(self) -> None:
        subscription = self.subscription
        for said, body in enumerate(iter(partial(subscription.poll_transmit, self.now), None)):
            assert said < MOST_SAID, f"still talking after {said} datagrams at {self.now} s"
            self._source.handle_feedback_untrusted(self.now, 1, body)
        if self._reads:
            while (item := subscription.poll_item()) is not None:
                self._read(item)
                subscription.handle_read(self.now)

    def _read(self, item: Item) -> None:
        """Each number is told once, and in order if that was wanted."""
        assert not self._is_over, f"{item} after the end"
        if isinstance(item, StreamEnd):
            self._is_over = True
            return
        last = item.last if isinstance(item, Loss) else item.first + len(item.payloads) - 1
        assert not self._told.within(item.first, last), f"{item} told twice"
        assert item.first >= self._next or not self.is_ordered, f"{item} after {self._next - 1}"
        self._told.add(item.first, last)
        self._next = last + 1


ANSWERS: Final[Sequence[Callable[[Reading], bytes]]] = (
    Reading.info,
    Reading.msg,
    Reading.msg,
    Reading.gone,
    Reading.done,
)

_SHARES: Final[Mapping[Callable[[Reading], None], int]] = {
    Reading.talk: 6,
    Reading.hear_changed: 4,
    Reading.hear_data: 4,
    Reading.hear_session: 2,
    Reading.hear_ncf: 2,
    Reading.hear_noise: 1,
    Reading.connect: 3,
    Reading.disconnect: 1,
    Reading.hear_answer: 3,
    Reading.stop_reading: 1,
    Reading.vanish: 1,
    Reading.wait: 3,
    Reading.wait_for_timer: 3,
}

HAPPENINGS: Final = tuple(it for it, share in _SHARES.items() for _ in range(share))
