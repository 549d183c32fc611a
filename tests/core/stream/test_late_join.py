"""Asking the history: oldest first, a window ahead, with patience that ends."""

from collections.abc import Iterable

import pytest

from sphtp.core.stream.events import LossReason
from sphtp.core.stream.late_join import (
    RESUME_TIME,
    FetchedRecord,
    Fetcher,
    FetchFailure,
    FetchState,
    HistoryStart,
    NoHistory,
    Outcome,
)
from sphtp.core.stream.late_join_wire import (
    AskRequest,
    EndAnswer,
    FetchRequest,
    GoneAnswer,
    InfoAnswer,
    MessagesAnswer,
    Request,
    RequestKey,
    decode_request_untrusted,
    encode_done,
    encode_gone,
    encode_info,
    encode_msg,
)
from sphtp.core.stream.ranges import RangeSet, Span
from sphtp.core.stream.records import RunRecord
from sphtp.core.stream.settings import StreamSettings
from tests.cases import each
from tests.core.stream.topics import TOPIC

SESSION = 0xABCD
SETTINGS = StreamSettings(fetch_window=10, fetch_interval=1.0, fetch_timeout=20.0)


class Desk:
    """A fetcher, and what is wanted."""

    def __init__(self, *wanted: Span, late_join: bool = False) -> None:
        self.wanted = RangeSet(wanted)
        self.fetcher = Fetcher(SETTINGS, SESSION, TOPIC, self.wanted, late_join=late_join)
        self.now = 0.0
        self.is_hungry = True
        self.update()

    @property
    def state(self) -> FetchState:
        return self.fetcher.state

    def update(self) -> list[Outcome]:
        """Heed outcomes as a delivery controller does."""
        outcomes = list[Outcome]()
        while (news := self.fetcher.poll_outcome()) is not None:
            outcomes.append(news)
        for outcome in outcomes:
            if isinstance(outcome, FetchedRecord):
                self.wanted.discard(outcome.record.first, outcome.record.last)
            elif isinstance(outcome, FetchFailure):
                self.wanted.discard(*outcome.span)
        self.fetcher.update(self.now, is_hungry=self.is_hungry)
        return outcomes

    def connect(self) -> list[Request]:
        self.fetcher.handle_connected(self.now)
        self.update()
        return self.requests()

    def disconnect(self) -> list[Outcome]:
        self.fetcher.handle_disconnected(self.now)
        return self.update()

    def requests(self) -> list[Request]:
        frames = iter(self.fetcher.poll_transmit, None)
        return [decode_request_untrusted(frame) for frame in frames]

    def hear(self, *frames: bytes) -> list[Outcome]:
        for frame in frames:
            self.fetcher.handle_frame_untrusted(self.now, frame)
        return self.update()

    def bring(self, fetch: Request, numbers: Iterable[int]) -> list[Outcome]:
        """Answer with these messages."""
        runs = [RunRecord(TOPIC, number, [b"m%d" % number]) for number in numbers]
        return self.hear(*(encode_msg(MessagesAnswer(fetch.request_key, run)) for run in runs))

    def wait(self) -> list[Outcome]:
        """Go to what is due next, and do it."""
        due = self.fetcher.poll_timeout()
        assert due is not None
        assert due >= self.now
        self.now = due
        self.fetcher.handle_timeout(self.now)
        return self.update()


def request_key(number: int) -> RequestKey:
    return RequestKey(SESSION, TOPIC, number)


def test_nothing_is_asked_where_nothing_is_wanted() -> None:
    desk = Desk()
    assert desk.state is FetchState.RESTING
    assert not desk.fetcher.wants_connection
    assert desk.fetcher.poll_timeout() is None


def test_it_asks_for_the_oldest_first_and_keeps_the_window_full() -> None:
    desk = Desk(Span(3, 4), Span(7, 30))
    assert desk.fetcher.wants_connection
    (first,) = desk.connect()
    assert first == FetchRequest(request_key(1), [Span(3, 4), Span(7, 14)])
    assert desk.bring(first, [3, 4, 7, 8]) != []
    assert desk.requests() == []
    desk.bring(first, [9])
    assert desk.requests() == [FetchRequest(request_key(2), [Span(15, 19)])]


def test_what_came_by_another_way_is_not_asked_for() -> None:
    desk = Desk(Span(0, 30))
    (first,) = desk.connect()
    desk.wanted.discard(0, 12)
    desk.bring(first, [])
    assert desk.requests() == [FetchRequest(request_key(2), [Span(13, 22)])]


def test_when_all_came_it_rests_and_no_clock_runs() -> None:
    desk = Desk(Span(0, 1))
    (fetch,) = desk.connect()
    assert desk.bring(fetch, [0, 1]) == [
        FetchedRecord(RunRecord(TOPIC, 0, [b"m0"])),
        FetchedRecord(RunRecord(TOPIC, 1, [b"m1"])),
    ]
    assert desk.state is FetchState.IDLE
    assert not desk.fetcher.wants_connection
    assert desk.fetcher.poll_timeout() is None
    desk.disconnect()
    assert desk.state.name == "RESTING"
    desk.wanted.add(5, 5)
    desk.update()
    assert desk.connect() == [FetchRequest(request_key(2), [Span(5, 5)])]


def test_what_is_gone_is_missed() -> None:
    desk = Desk(Span(0, 5))
    (fetch,) = desk.connect()
    assert desk.hear(encode_gone(GoneAnswer(fetch.request_key, Span(0, 3)))) == [
        FetchFailure(Span(0, 3), LossReason.GONE)
    ]
    assert desk.state is FetchState.TALKING


def test_silence_is_asked_again_ever_more_seldom_until_it_is_too_long() -> None:
    desk = Desk(Span(0, 1))
    desk.connect()
    times, outcomes = list[float](), list[Outcome]()
    while not outcomes:
        outcomes = desk.wait()
        if desk.requests():
            times.append(desk.now)
    assert times == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert desk.now == 20.0
    assert outcomes[0] == FetchFailure(Span(0, 1), LossReason.FETCH_TIMEOUT)
    assert desk.state is FetchState.IDLE


def test_a_message_that_never_comes_is_lost_while_others_come() -> None:
    desk = Desk(Span(0, 200))
    (fetch,) = desk.connect()
    desk.hear(encode_done(EndAnswer(fetch.request_key)))
    latest, outcomes = fetch, list[Outcome]()
    for number in range(1, 60):
        outcomes = desk.bring(latest, [number])
        latest = next(iter(desk.requests()), latest)
        desk.now += 0.5
        desk.fetcher.handle_timeout(desk.now)
        outcomes = desk.update()
        latest = next(iter(desk.requests()), latest)
        if any(isinstance(outcome, FetchFailure) for outcome in outcomes):
            break
    assert desk.now == 20.0
    assert outcomes == [FetchFailure(Span(0, 9), LossReason.FETCH_TIMEOUT)]
    assert 200 in desk.wanted


@each("ends", [False, True])
def test_a_reader_that_pauses_loses_nothing(ends: bool) -> None:
    desk = Desk(Span(0, 30))
    (fetch,) = desk.connect()
    desk.bring(fetch, [0])
    if ends:
        desk.fetcher.end(desk.now)
    desk.now += 0.999 * SETTINGS.fetch_interval
    desk.is_hungry = False
    desk.update()
    assert desk.fetcher.poll_timeout() is None
    desk.now += 10 * SETTINGS.fetch_timeout
    desk.fetcher.handle_timeout(desk.now)
    assert (desk.update(), desk.requests()) == ([], [])
    desk.is_hungry = True
    assert desk.update() == []
    # The replies have waited in the connection; to read them takes a moment.
    desk.now += 0.9 * RESUME_TIME
    desk.fetcher.handle_timeout(desk.now)
    assert len(desk.bring(fetch, range(1, 10))) == 9
    assert desk.requests() != []


def test_pauses_do_not_put_off_a_loss_for_ever() -> None:
    desk, lost = Desk(Span(0, 30)), list[Outcome]()
    desk.connect()
    while not lost:
        assert desk.now < 2 * SETTINGS.fetch_timeout
        for is_hungry, seconds in ((True, 4.0), (False, 1.0)):
            desk.is_hungry = is_hungry
            lost += desk.update()
            desk.now += seconds
            desk.fetcher.handle_timeout(desk.now)
    assert lost == [FetchFailure(Span(0, 30), LossReason.FETCH_TIMEOUT)]


def test_a_bounds_request_that_is_answered_leaves_room_for_another() -> None:
    desk = Desk(late_join=True)
    (ask,) = desk.connect()
    desk.hear(encode_info(InfoAnswer(ask.request_key, 0, 5)))
    # A second reply to it belongs to no request.
    desk.hear(encode_info(InfoAnswer(ask.request_key, 0, 5)))
    assert desk.fetcher.statistics().unasked == 1


def test_a_connection_that_is_refused_is_tried_again_until_patience_ends() -> None:
    desk = Desk(Span(0, 1))
    times, outcomes = list[float](), list[Outcome]()
    while not outcomes:
        if desk.state is FetchState.CALLING:
            times.append(desk.now)
            outcomes = desk.disconnect()
        else:
            outcomes = desk.wait()
    assert times == [0.0, 1.0, 3.0, 7.0, 15.0]
    assert desk.now == 20.0
    assert outcomes == [FetchFailure(Span(0, 1), LossReason.FETCH_TIMEOUT)]
    assert desk.state is FetchState.RESTING
    assert desk.fetcher.statistics().failures == 5


def test_a_lost_connection_is_made_again_and_asked_the_same() -> None:
    desk = Desk(Span(0, 5))
    (fetch,) = desk.connect()
    desk.bring(fetch, [0, 1])
    assert desk.disconnect() == []
    assert not desk.fetcher.wants_connection
    # An answer of the old connection is nobody's.
    desk.bring(fetch, [2])
    assert desk.fetcher.statistics().unasked == 1
    desk.wait()
    assert desk.fetcher.wants_connection
    assert desk.connect() == [FetchRequest(request_key(2), [Span(2, 5)])]


def test_a_late_joiner_asks_what_there_is() -> None:
    desk = Desk(late_join=True)
    (ask,) = desk.connect()
    assert ask == AskRequest(request_key(1))
    assert desk.hear(encode_info(InfoAnswer(ask.request_key, 2, 20))) == [HistoryStart(2)]
    assert desk.state is FetchState.IDLE


def test_nobody_told_what_there_is() -> None:
    desk = Desk(late_join=True)
    desk.connect()
    outcomes, asked = list[Outcome](), 0
    while not outcomes:
        outcomes = desk.wait()
        asked += len(desk.requests())
    assert outcomes == [NoHistory(LossReason.FETCH_TIMEOUT)]
    assert asked == 5
    assert desk.state is FetchState.IDLE


@pytest.mark.parametrize(
    "frame",
    [
        encode_msg(MessagesAnswer(RequestKey(1, TOPIC, 1), RunRecord(TOPIC, 0, [b"a"]))),
        encode_msg(MessagesAnswer(RequestKey(SESSION, 9, 1), RunRecord(9, 0, [b"a"]))),
        encode_msg(MessagesAnswer(RequestKey(SESSION, TOPIC, 2), RunRecord(TOPIC, 0, [b"a"]))),
        encode_info(InfoAnswer(RequestKey(SESSION, TOPIC, 7), 0, 9)),
    ],
    ids=["session", "topic", "number", "info"],
)
def test_what_was_not_asked_is_dropped(frame: bytes) -> None:
    desk = Desk(Span(0, 5))
    desk.connect()
    assert desk.hear(frame, b"nonsense") == []
    statistics = desk.fetcher.statistics()
    assert (statistics.unasked, statistics.malformed) == (1, 1)


# The end of the session


def test_at_the_end_what_cannot_come_is_lost() -> None:
    desk = Desk(Span(0, 5))
    desk.fetcher.end(desk.now)
    assert desk.update() == [FetchFailure(Span(0, 5), LossReason.SESSION_END)]
    assert desk.state is FetchState.OVER
    assert desk.fetcher.poll_timeout() is None


def test_at_the_end_answers_that_come_are_awaited() -> None:
    desk = Desk(Span(0, 15))
    (fetch,) = desk.connect()
    desk.fetcher.end(desk.now)
    assert desk.update() == []
    desk.bring(fetch, range(8))
    (fetch,) = desk.requests()
    desk.bring(fetch, range(8, 16))
    assert desk.state is FetchState.OVER


@pytest.mark.parametrize("trouble", ["silence", "disconnected"])
def test_at_the_end_the_first_trouble_is_the_last(trouble: str) -> None:
    desk = Desk(Span(0, 15))
    (fetch,) = desk.connect()
    desk.fetcher.end(desk.now)
    desk.bring(fetch, range(8))
    outcomes = desk.disconnect() if trouble == "disconnected" else desk.wait()
    assert outcomes == [FetchFailure(Span(8, 15), LossReason.SESSION_END)]
    assert desk.state is FetchState.OVER
    assert not desk.fetcher.wants_connection


def test_a_late_joiner_that_the_end_surprises_was_told_nothing() -> None:
    desk = Desk(late_join=True)
    (ask,) = desk.connect()
    desk.fetcher.end(desk.now)
    assert desk.update() == [NoHistory(LossReason.SESSION_END)]
    assert desk.hear(encode_info(InfoAnswer(ask.request_key, 0, 5))) == []
    assert desk.state is FetchState.OVER
