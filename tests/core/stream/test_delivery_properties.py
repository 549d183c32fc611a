"""Whatever network and history do: each message is told once, as it was sent, or its loss is."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from sphtp.core.stream.delivery import DeliveryController, DeliveryState
from sphtp.core.stream.events import Arrived, EndReason, GivenUp, Item, LossReason, StreamEnd
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import FragmentRecord, Record, RunRecord
from sphtp.core.stream.settings import StreamSettings
from tests.core.stream.topics import TOPIC, Line, Script, drain, told
from tests.profiles import brisk

SETTINGS = StreamSettings()
ROOM_FOR_FEW = StreamSettings(order_map=4, order_map_bytes=40, max_message=20)


@st.composite
def scripts(draw: DrawFn) -> Script:
    number = draw(st.sampled_from([0, 1000]))
    script = Script(number=number, sqn=draw(st.sampled_from([0, (1 << 32) - 3])))
    for kind in draw(st.lists(st.sampled_from("11123ABjo"), min_size=1, max_size=14)):
        match kind:
            case "A" | "B":
                script.large(ord(kind) - ord("A") + 2)
            case "j":
                script.whole(1, joined=True)
            case "o":
                script.other()
            case count:
                script.whole(int(count))
    return script


class Play:
    """One script on one network: each datagram comes when it comes, or is given up then."""

    def __init__(self, script: Script, settings: StreamSettings, *, ordered: bool, fetches: bool):
        self.script = script
        self.line = Line(script.sqn - 1)
        self.delivery = DeliveryController(
            settings,
            TOPIC,
            script.first,
            script.sqn - 1,
            self.line.missing,
            ordered=ordered,
            fetches=fetches,
        )
        self.now = 0.0
        self.items: list[Item] = []

    def come(self, place: int) -> None:
        self.line.arrive(self.script.arrived(place))
        arrived = self.line.poll_arrived()
        assert arrived is not None
        self.delivery.handle_arrived(self.now, arrived)
        self.check()

    def give_up(self, place: int) -> None:
        self.line.give_up(self.script.sqn + place)
        given_up = self.line.poll_given_up()
        assert given_up is not None
        self.delivery.handle_given_up(given_up)
        self.check()

    def tell_tail(self, place: int) -> None:
        """A session message from just after this datagram was sent."""
        tails = [
            # A message of which more is to leave has not been sent.
            record.last + (isinstance(record, RunRecord) or record.part + 1 == record.parts)
            for records in self.script.datagrams[: place + 1]
            for record in records
            if record.topic == TOPIC
        ]
        self.line.see(self.script.sqn + place)
        if tails:
            assert self.line.lead is not None
            self.delivery.handle_tail(self.now, tails[-1], self.line.lead)
        self.check()

    def check(self) -> None:
        """What is missing and not wanted from the history is waited for."""
        self.items += drain(self.delivery)
        statistics = self.delivery.statistics()
        assert (self.delivery.poll_timeout() is not None) == (statistics.gaps > 0)
        assert not statistics.refused
        self.now += 0.001


def play_network(data: st.DataObject, play: Play) -> set[int]:
    """Let every datagram come, late maybe, or be given up; return those that came."""
    places = range(len(play.script.datagrams))
    came = data.draw(st.sets(st.sampled_from(places), min_size=len(places) // 2))
    tails = data.draw(st.sets(st.sampled_from(places)))
    delays = data.draw(st.lists(st.integers(0, 5), min_size=len(places), max_size=len(places)))
    for place in sorted(places, key=lambda place: place + delays[place]):
        if place in came:
            play.come(place)
        else:
            play.give_up(place)
        if place in tails:
            play.tell_tail(place)
    return came


def numbers_lost(script: Script, came: set[int]) -> set[int]:
    """Those of messages of which a part did not come."""
    holders = script.holders()
    return {sent.first for sent in script.sent if not holders[sent.first] <= came}


@brisk
@given(st.data(), scripts(), st.booleans())
def test_each_message_is_told_once_or_its_loss_is(
    data: st.DataObject, script: Script, ordered: bool
) -> None:
    play = Play(script, SETTINGS, ordered=ordered, fetches=False)
    came = play_network(data, play)
    if script.datagrams:
        play.tell_tail(len(script.datagrams) - 1)
    play.delivery.handle_end(EndReason.CLOSED, fetching=False)
    play.check()
    seen = told(play.items, script)
    lost = numbers_lost(script, came)
    numbers = set(range(script.first, script.number))
    assert set(seen.delivered) == numbers - lost
    # What was lost before the first message is not told.
    assert set(seen.lost) <= lost
    leading = min(seen.delivered, default=script.number)
    assert set(seen.lost) >= {number for number in lost if number > leading}
    assert not seen.delivered or not ordered or seen.is_ordered
    assert [item for item in play.items if isinstance(item, StreamEnd)] == [play.items[-1]]
    assert play.delivery.state is DeliveryState.ENDED
    assert play.delivery.statistics().waiting == 0


@brisk
@given(st.data(), scripts(), st.booleans())
def test_little_room_loses_what_is_missing_and_nothing_that_came(
    data: st.DataObject, script: Script, ordered: bool
) -> None:
    play = Play(script, ROOM_FOR_FEW, ordered=ordered, fetches=False)
    places = data.draw(st.permutations(range(len(script.datagrams))))
    for place in places:
        play.line.arrive(script.arrived(place))
        arrived = play.line.poll_arrived()
        assert arrived is not None
        play.delivery.handle_arrived(play.now, arrived)
        play.items += drain(play.delivery)
        statistics = play.delivery.statistics()
        # A message in parts that is not torn may be the last that is held.
        assert statistics.waiting + statistics.gaps <= 4 or not statistics.gaps
        assert statistics.waiting_bytes <= 40
    play.delivery.handle_end(EndReason.CLOSED, fetching=False)
    play.items += drain(play.delivery)
    seen = told(play.items, script)
    assert not seen.delivered or not ordered or seen.is_ordered
    assert set(seen.lost.values()) <= {LossReason.MAP_OVERFLOW}
    largest = max(script.sent, key=lambda sent: sent.parts, default=None)
    if largest is None or largest.parts == 1:
        # All came, so that what is lost came after it had been given up, or before the first.
        statistics = play.delivery.statistics()
        assert len(seen.delivered) + statistics.duplicates == len(script.sent)


@brisk
@given(st.data(), scripts(), st.booleans())
def test_what_the_network_loses_the_history_brings(
    data: st.DataObject, script: Script, ordered: bool
) -> None:
    play = Play(script, SETTINGS, ordered=ordered, fetches=True)
    came = play_network(data, play)
    play.tell_tail(len(script.datagrams) - 1) if script.datagrams else None
    gone = data.draw(st.sets(st.sampled_from(range(script.first, script.number + 1)), max_size=3))
    play.delivery.handle_end(EndReason.CLOSED, fetching=True)
    chance = Random(data.draw(st.integers(0, 2**32)))
    while (wanted := next(iter(play.delivery.wanted), None)) is not None:
        number = chance.randint(*wanted)
        if number in gone:
            play.delivery.handle_not_fetched(Span(number, number), LossReason.GONE)
        else:
            for record in records_of(script, number):
                play.delivery.handle_fetched(record)
        play.items += drain(play.delivery)
    play.items += drain(play.delivery)
    seen = told(play.items, script)
    assert isinstance(play.items[-1], StreamEnd)
    assert set(seen.lost.values()) <= {LossReason.GONE}
    torn = numbers_lost(script, came)
    assert set(seen.lost) <= torn
    if not gone:
        assert set(seen.delivered) == set(range(script.first, script.number))
    assert not seen.delivered or not ordered or seen.is_ordered


def records_of(script: Script, number: int) -> list[Record]:
    """What the history answers with: whole runs and all parts, so that much comes twice."""
    return [
        record
        for records in script.datagrams
        for record in records
        if record.topic == TOPIC and record.first <= number <= record.last
    ]


numbers = st.integers(0, 12)
runs = st.builds(
    lambda first, count: RunRecord(TOPIC, first, [b"x"] * count), numbers, st.integers(1, 3)
)
fragments = st.builds(
    lambda number, part, more: FragmentRecord(TOPIC, number, part, part + 1 + more, b"y"),
    numbers,
    st.integers(0, 2),
    st.integers(0, 2),
)
lies = st.one_of(
    st.tuples(st.just("come"), numbers, st.one_of(runs, fragments)),
    st.tuples(st.just("fetch"), numbers, st.one_of(runs, fragments)),
    st.tuples(st.just("tail"), numbers, numbers),
    st.tuples(st.just("lost"), numbers, numbers),
)


@brisk
@given(st.lists(lies, max_size=20), st.booleans(), st.booleans())
def test_no_lie_is_told_twice_or_keeps_the_end_away(
    lies: list[tuple[str, int, Any]], ordered: bool, fetches: bool
) -> None:
    line = Line(100)
    delivery = DeliveryController(
        SETTINGS, TOPIC, 0, -1, line.missing, ordered=ordered, fetches=fetches
    )
    line.missing.update({3, 5, 6})
    for lie, number, what in lies:
        match lie:
            case "come":
                delivery.handle_arrived(0.0, Arrived(number, False, [what]))
            case "fetch":
                delivery.handle_fetched(what)
            case "tail":
                delivery.handle_tail(0.0, what, number)
            case "lost":
                line.missing -= {number}
                delivery.handle_given_up(GivenUp(Span(number, number), LossReason.TIMEOUT))
    delivery.handle_end(EndReason.CLOSED, fetching=fetches)
    delivery.handle_not_fetched(Span(0, 1 << 62), LossReason.GONE)
    items = drain(delivery)
    assert isinstance(items.pop(), StreamEnd)
    firsts = [item.first for item in items if not isinstance(item, StreamEnd)]
    assert len(set(firsts)) == len(firsts)
    assert not ordered or firsts == sorted(firsts)
    assert delivery.statistics().waiting == 0
