"""The requests of two sides on one channel, against what a list of them says."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.requests.table import (
    IDLE,
    MOST_REQUESTS,
    ChannelLost,
    ChannelUse,
    Outgoing,
    RequestArrived,
    RequestCancelled,
    RequestSettled,
    RequestStatistics,
    RequestTable,
)
from sphtp.core.requests.wire import (
    CancelMessage,
    ErrorMessage,
    ErrorReason,
    GoodbyeMessage,
    ReplyMessage,
    RequestMessage,
    encode_message,
)
from sphtp.errors import RemoteError, StateError
from tests.cases import each


@dataclass
class Side:
    """A table, what it has sent in each lane, and what its owner knows."""

    table: RequestTable
    counters: RequestStatistics
    lanes: tuple[deque[bytes], deque[bytes]] = field(default_factory=lambda: (deque(), deque()))
    asked: dict[int, bytes] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    settled: dict[int, object] = field(default_factory=dict)
    to_answer: dict[int, bytes] = field(default_factory=dict)
    to_stop: set[int] = field(default_factory=set)

    def send(self, now: float, outgoing: Outgoing) -> None:
        self.lanes[outgoing.lane].append(outgoing.data)
        self.table.handle_sent(now, outgoing)

    def flush(self, now: float) -> None:
        while (event := self.table.poll_event()) is not None:
            match event:
                case RequestArrived(number, _, value):
                    assert number not in self.to_answer
                    self.to_answer[number] = value
                case RequestCancelled(number):
                    assert number in self.to_answer
                    self.to_stop.add(number)
                case RequestSettled(number, outcome):
                    assert number not in self.settled
                    self.settled[number] = outcome
        while (outgoing := self.table.poll_transmit()) is not None:
            self.send(now, outgoing)


class Talk:
    """Two sides, and a schedule that a seed draws."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.sides = tuple(self.side() for _ in range(2))

    def side(self) -> Side:
        counters = RequestStatistics()
        return Side(RequestTable(self.now, counters), counters)

    def step(self) -> None:
        number = self.random.randrange(2)
        here, there = self.sides[number], self.sides[1 - number]
        action: Callable[[Side, Side], None] = self.random.choice(
            [self.ask, self.arrive, self.arrive, self.answer, self.answer, self.cancel, self.wait]
        )
        action(here, there)
        here.flush(self.now)

    def ask(self, here: Side, _: Side) -> None:
        if here.table.has_room:
            value = self.random.randbytes(self.random.choice([1, 10, 20_000]))
            number, outgoing = here.table.ask(self.now, "load", value, None)
            if self.random.random() < 0.1:
                assert here.table.withdraw(self.now, number)
            else:
                here.asked[number] = value
                here.send(self.now, outgoing)

    def arrive(self, here: Side, there: Side) -> None:
        ready = [lane for lane in there.lanes if lane]
        if ready:
            data = self.random.choice(ready).popleft()
            here.table.handle_message_untrusted(self.now, data)

    def answer(self, here: Side, _: Side) -> None:
        if not here.to_answer:
            return
        number = self.random.choice(list(here.to_answer))
        value = here.to_answer.pop(number)
        if number in here.to_stop:
            here.table.fail(ErrorMessage(number, ErrorReason.CANCELLED))
        elif self.random.random() < 0.3:
            here.table.fail(ErrorMessage(number, ErrorReason.APPLICATION, "E", "", value))
        else:
            outgoing = here.table.reply(number, value)
            assert outgoing is not None
            here.send(self.now, outgoing)

    def cancel(self, here: Side, _: Side) -> None:
        waiting = [it for it in here.asked if it not in here.settled]
        if waiting:
            number = self.random.choice(waiting)
            here.table.cancel(number)
            here.cancelled.add(number)

    def wait(self, here: Side, _: Side) -> None:
        self.now += self.random.choice([0.01, 1.0, IDLE])
        for side in self.sides:
            side.table.handle_timeout(self.now)
            side.flush(self.now)
        assert here.table.state is not ChannelUse.ENDED

    def finish(self) -> None:
        """Let all that is under way arrive and be answered, and nothing new begin."""
        for _ in range(100_000):
            if all(side.table.is_over for side in self.sides):
                return
            for here, there in (self.sides, self.sides[::-1]):
                self.arrive(here, there)
                here.flush(self.now)
                self.answer(here, there)
                here.flush(self.now)
            if not any(side.table.asked or side.table.received for side in self.sides):
                self.wait(*self.sides)
        raise AssertionError([(side.table.state, side.table.asked) for side in self.sides])


@given(st.integers(0, 2**32), st.integers(0, 300))
def test_every_request_gets_its_one_answer_and_the_channel_ends_empty(
    seed: int, steps: int
) -> None:
    talk = Talk(seed)
    for _ in range(steps):
        talk.step()
    talk.finish()
    for side in talk.sides:
        assert side.settled.keys() == side.asked.keys()
        for number, outcome in side.settled.items():
            match outcome:
                case ReplyMessage(_, value):
                    assert value == side.asked[number]
                case ErrorMessage(_, ErrorReason.CANCELLED):
                    assert number in side.cancelled
                case ErrorMessage(_, ErrorReason.APPLICATION, "E", "", data):
                    assert data == side.asked[number]
                case _:
                    raise AssertionError(outcome)
        counters = side.counters
        assert counters.sent == len(side.asked)
        assert counters.replies + counters.errors + counters.late == counters.sent
        assert counters.late == counters.cancelled
        assert (counters.received, counters.malformed) == (counters.answered, 0)
        assert (side.table.asked, side.table.received) == (0, 0)


@given(st.integers(0, 2**32), st.integers(0, 200))
def test_a_channel_that_breaks_settles_all_that_is_open(seed: int, steps: int) -> None:
    talk = Talk(seed)
    for _ in range(steps):
        talk.step()
    for side in talk.sides:
        side.flush(talk.now)
        side.table.handle_ended(talk.now, "vanished")
        side.flush(talk.now)
        assert side.table.is_over
        assert side.settled.keys() == side.asked.keys()
        assert set(side.to_answer) <= side.to_stop
        assert (side.table.asked, side.table.received) == (0, 0)
        assert side.table.poll_timeout() is None
        # What is still running there is answered to nobody.
        for number in side.to_answer:
            assert side.table.reply(number, b"") is None
            side.table.fail(ErrorMessage(number, ErrorReason.CANCELLED))
        assert side.table.poll_transmit() is None
        with pytest.raises(StateError):
            side.table.ask(talk.now, "load", b"", None)


def table() -> tuple[RequestTable, RequestStatistics]:
    counters = RequestStatistics()
    return RequestTable(0.0, counters), counters


def test_a_side_sends_no_more_than_the_bound() -> None:
    mine, _ = table()
    numbers = [mine.ask(0.0, "load", b"", None)[0] for _ in range(MOST_REQUESTS)]
    assert not mine.has_room
    with pytest.raises(StateError):
        mine.ask(0.0, "load", b"", None)
    mine.cancel(numbers[0])
    assert not mine.has_room, "a cancelled request keeps its place until its answer"
    mine.handle_message_untrusted(
        0.0, encode_message(ErrorMessage(numbers[0], ErrorReason.CANCELLED))
    )
    assert mine.has_room


REQUEST = encode_message(RequestMessage(1, "load", b""))
GOODBYE = encode_message(GoodbyeMessage())


@each(
    "received",
    [
        [REQUEST, REQUEST],
        [GOODBYE, GOODBYE],
        [GOODBYE, REQUEST],
        [encode_message(ReplyMessage(1, b""))],
        [encode_message(ErrorMessage(1, ErrorReason.BUSY))],
        [encode_message(RequestMessage(it, "load", b"")) for it in range(MOST_REQUESTS + 1)],
        [b""],
        [b"\x09"],
    ],
)
def test_what_no_peer_may_send_is_refused_and_counted(received: list[bytes]) -> None:
    mine, counters = table()
    *allowed, last = received
    for data in allowed:
        mine.handle_message_untrusted(0.0, data)
    with pytest.raises(RemoteError):
        mine.handle_message_untrusted(0.0, last)
    assert counters.malformed == 1
    assert mine.received <= MOST_REQUESTS


def test_request_and_cancel_by_turns_gain_no_places() -> None:
    mine, _ = table()
    for number in range(MOST_REQUESTS):
        mine.handle_message_untrusted(0.0, encode_message(RequestMessage(number, "load", b"")))
        mine.handle_message_untrusted(0.0, encode_message(CancelMessage(number)))
        mine.fail(ErrorMessage(number, ErrorReason.CANCELLED))
    # All are answered, but no answer has left.
    with pytest.raises(RemoteError, match="at once"):
        mine.handle_message_untrusted(
            0.0, encode_message(RequestMessage(MOST_REQUESTS, "load", b""))
        )


def test_a_cancel_that_its_answer_crossed_changes_nothing() -> None:
    mine, counters = table()
    mine.handle_message_untrusted(0.0, encode_message(CancelMessage(1)))
    assert mine.poll_event() is None
    assert counters.malformed == 0


def test_a_large_request_and_its_cancel_share_a_lane() -> None:
    mine, _ = table()
    number, outgoing = mine.ask(0.0, "load", bytes(100_000), None)
    mine.cancel(number)
    cancel = mine.poll_transmit()
    assert cancel is not None
    assert (outgoing.lane, cancel.lane) == (1, 1)


def test_what_a_broken_channel_means_is_in_the_outcome() -> None:
    mine, _ = table()
    number, _ = mine.ask(0.0, "load", b"", None)
    mine.handle_ended(1.0, "vanished")
    assert mine.poll_event() == RequestSettled(number, ChannelLost("vanished"))


def test_a_channel_is_left_when_nobody_uses_it_for_a_while() -> None:
    mine, _ = table()
    assert mine.poll_timeout() == IDLE
    mine.handle_timeout(IDLE - 0.001)
    assert mine.is_open
    number, _ = mine.ask(IDLE - 0.001, "load", b"", None)
    assert mine.poll_timeout() is None
    mine.handle_message_untrusted(2 * IDLE, encode_message(ReplyMessage(number, b"")))
    assert mine.poll_timeout() == 3 * IDLE
    mine.handle_timeout(3 * IDLE)
    assert mine.poll_transmit() == Outgoing(GOODBYE, 0)
    assert not mine.is_open
    assert not mine.is_over
    mine.handle_message_untrusted(3 * IDLE, GOODBYE)
    assert mine.is_over


def test_a_channel_that_is_retired_is_left_as_soon_as_nothing_is_open() -> None:
    table = RequestTable(0.0, RequestStatistics())
    number, outgoing = table.ask(1.0, "load", b"", None)
    table.handle_sent(1.0, outgoing)
    table.retire()
    assert table.poll_timeout() is None
    table.handle_message_untrusted(2.0, encode_message(ReplyMessage(number, b"")))
    assert table.poll_timeout() == 2.0
    table.handle_timeout(2.0)
    assert not table.is_open
    goodbye = table.poll_transmit()
    assert goodbye is not None
    assert goodbye.data == encode_message(GoodbyeMessage())
