"""A source with somebody who writes down what it says."""

import random
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from sphtp.core.stream.events import ALL_RECEIVERS, SourceEvent
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceTransport
from sphtp.core.stream.wire import (
    Body,
    BodyFlag,
    Nak,
    Ncf,
    SessionMessage,
    StatusMessage,
    StreamData,
    decode_body_untrusted,
    encode_nak,
    encode_status,
)

NEAR_WRAP = 2**32 - 3

B = TypeVar("B", StreamData, SessionMessage, Ncf)


class Said(NamedTuple):
    """A body, when it left, how large it was, and for whom it was."""

    at: float
    body: Body
    size: int
    receiver: int = ALL_RECEIVERS


class Listening:
    """Drives a source through its own timers; receivers 1 and 2, a group, are there at first."""

    def __init__(
        self,
        settings: StreamSettings | None = None,
        *,
        first: int = NEAR_WRAP,
        topics: int = 1,
        receivers: Iterable[int] = (1, 2),
        shared: bool = True,
    ) -> None:
        self.now = 100.0
        self.settings = settings or StreamSettings.lan()
        self.first = first
        self.source = SourceTransport(
            random.Random(1),
            self.settings,
            now=self.now,
            topics=topics,
            first=first,
            shared=shared,
        )
        self.said = list[Said]()
        for receiver in receivers:
            self.source.handle_joined(self.now, receiver)
        self.listen()

    def listen(self) -> None:
        """Write down all that may leave now."""
        while (outgoing := self.source.poll_transmit(self.now)) is not None:
            receiver, bodies = outgoing
            assert 1 <= len(bodies) <= 64
            assert sum(map(len, bodies)) <= 65_507
            for body in bodies:
                # What is said comes soon enough for the last lead known to restore numbers.
                known = self.source.window.lead
                decoded = decode_body_untrusted(body, known)
                self.said.append(Said(self.now, decoded, len(body), receiver))

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping wherever the source wants to be asked."""
        until = self.now + seconds
        while (due := self.source.poll_timeout()) is not None and due <= until:
            assert due >= self.now or not self.source.poll_transmit(self.now), "it wants the past"
            # A timer that does not move the source would go round for ever.
            before = (due, len(self.said), self.source.state)
            self.now = max(self.now, due)
            self.source.handle_timeout(self.now)
            self.listen()
            after = (self.source.poll_timeout(), len(self.said), self.source.state)
            assert after != before, f"stuck at {before}"
        self.now = until

    def send(self, *payloads: bytes, topic: int = 0) -> int:
        """Send messages and listen."""
        first = self.source.send_many(self.now, topic, payloads)
        self.listen()
        return first

    def send_datagrams(self, count: int, size: int = 1000) -> list[int]:
        """Send datagrams of one message each; return their sqns."""
        first = self.source.window.lead + 1
        for _ in range(count):
            self.source.send_many(self.now, 0, [bytes(size)])
            self.listen()
        return list(range(first, first + count))

    def nak(self, *sqns: int | Span, receiver: int = 1) -> list[Said]:
        """Let a receiver ask; return what is said at once."""
        spans = [Span(sqn, sqn) if isinstance(sqn, int) else sqn for sqn in sqns]
        return self.nak_raw(encode_nak(Nak(spans)), receiver)

    def nak_raw(self, body: bytes, receiver: int = 1) -> list[Said]:
        """Let a receiver say anything at all."""
        before = len(self.said)
        self.source.handle_feedback_untrusted(self.now, receiver, body)
        self.listen()
        return self.said[before:]

    def events(self) -> list[SourceEvent]:
        """Take all events."""
        found = list[SourceEvent]()
        while (event := self.source.poll_event()) is not None:
            found.append(event)
        return found

    def forget(self) -> None:
        """Take a new page."""
        self.said.clear()

    @property
    def data(self) -> list[StreamData]:
        """Data that was said for the first time."""
        return [body for body in self.bodies(StreamData) if not body.flags & BodyFlag.REPAIR]

    @property
    def repairs(self) -> list[int]:
        """The sqns of repairs."""
        return [body.sqn for body in self.bodies(StreamData) if body.flags & BodyFlag.REPAIR]

    @property
    def ncfs(self) -> list[Ncf]:
        """NAK confirmations."""
        return self.bodies(Ncf)

    @property
    def sessions(self) -> list[SessionMessage]:
        """Session messages."""
        return self.bodies(SessionMessage)

    def bodies(self, kind: type[B]) -> list[B]:
        """All bodies of one type."""
        return [said.body for said in self.said if isinstance(said.body, kind)]

    def times(self, kind: type[Body]) -> list[float]:
        """When bodies of a type were said, counted from the first one."""
        return [said.at for said in self.said if isinstance(said.body, kind)]


def only(said: list[Said], kind: type[B]) -> B:
    """The one thing said, which is of this type."""
    (one,) = said
    assert isinstance(one.body, kind)
    return one.body


def say_done(source: SourceTransport, now: float, receiver: int, lead: int) -> None:
    """Let a receiver say that it has everything up to ``lead``, and knows of the end."""
    status = StatusMessage(lead, 1 << 24, knows_end=True)
    source.handle_feedback_untrusted(now, receiver, encode_status(status))
