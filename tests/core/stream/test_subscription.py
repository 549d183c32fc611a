"""Transport, delivery and history together, in every order in which they can speak."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.stream.delivery import DeliveryState
from sphtp.core.stream.events import Item, Loss, LossReason, Origin, StreamEnd
from sphtp.core.stream.receiver import Receiver
from sphtp.core.stream.records import RunRecord, encode_run
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.subscription import ALL_HISTORY, SubscriptionMachine
from sphtp.core.stream.wire import BodyFlag, SessionMessage, Window, encode_data, encode_session
from tests.core.stream.archives import Shelf
from tests.core.stream.topics import PART, TOPIC, Line, Script, told

SESSION = 0xABCD
SETTINGS = StreamSettings(fetch_window=2)


class Scene:
    """A subscription that joined when ``joined`` datagrams had left, its line and its history."""

    def __init__(
        self,
        script: Script,
        joined: int,
        settings: StreamSettings = SETTINGS,
        low: int | None = None,
        **modes: Any,
    ) -> None:
        self.script = script
        self.line = Line(script.sqn + joined - 1)
        holders = script.holders()
        first = next((n for n in sorted(holders) if min(holders[n]) >= joined), script.number)
        self.subscription = SubscriptionMachine(
            settings, 0.0, cast("Receiver", self.line), SESSION, TOPIC, first, **modes
        )
        self.shelf = Shelf(script, low)
        self.server = FetchServer(self.shelf, SESSION, 16, PART)
        self.frames = deque[bytes]()
        self.is_connected = False
        self.items: list[Item] = []
        self.now = 0.0

    # What the network can do

    def come(self, place: int) -> None:
        self.line.arrive(self.script.arrived(place))
        self._hear()

    def give_up(self, place: int) -> None:
        self.line.give_up(self.script.sqn + place)
        self._hear()

    def end(self) -> None:
        self.line.see(self.script.lead)
        self.line.tell([(TOPIC, self.script.number)])
        self.line.end()
        self._hear()

    # What the history can do

    @property
    def can_talk(self) -> bool:
        """Whether the connection has something to do next."""
        wants = self.subscription.wants_connection
        return bool(self.frames) if self.is_connected else wants

    def talk(self) -> None:
        """Connect, or bring one frame."""
        if not self.is_connected:
            self.is_connected = True
            self.subscription.handle_connected(self.now)
        else:
            self.subscription.handle_frame_untrusted(self.now, self.frames.popleft())
        self._look()

    def cut(self) -> None:
        """Refuse or cut the connection."""
        self.is_connected = False
        self.frames.clear()
        self.server = FetchServer(self.shelf, SESSION, 16, PART)
        self.subscription.handle_disconnected(self.now)
        self._look()

    def vanish(self) -> None:
        """The source's node is gone."""
        self.subscription.handle_gone(self.now)
        self._look()

    def wait(self) -> None:
        """Go to what is due next, and do it."""
        due = self.subscription.poll_timeout()
        assert due is not None
        self.now = max(self.now, due)
        self.subscription.handle_timeout(self.now)
        self._look()

    def finish(self) -> None:
        """Let history and time do what is left for them to do."""
        for _ in range(1000):
            if self.can_talk:
                self.talk()
            elif self.subscription.poll_timeout() is not None:
                self.wait()
            else:
                return
        raise AssertionError("it does not come to an end")

    def _hear(self) -> None:
        self.subscription.handle_body_untrusted(self.now, b"")
        self._look()

    def _look(self) -> None:
        for request in iter(self.subscription.poll_request, None):
            self.server.handle_frame_untrusted(request)
        self.frames.extend(iter(lambda: self.server.poll_transmit(self.now), None))
        self.items.extend(iter(self.subscription.poll_item, None))


class Choices:
    """A way through a tree of choices, and then the next one."""

    def __init__(self) -> None:
        self._path = list[tuple[int, int]]()
        self._at = 0

    def __call__(self, options: int) -> int:
        if self._at == len(self._path):
            self._path.append((0, options))
        self._at += 1
        return self._path[self._at - 1][0]

    def go_on(self) -> bool:
        """Begin again with other choices; return whether there are any."""
        while self._path and self._path[-1][0] + 1 == self._path[-1][1]:
            self._path.pop()
        self._at = 0
        if self._path:
            choice, options = self._path.pop()
            self._path.append((choice + 1, options))
        return bool(self._path)


def explore(play: Callable[[Callable[[int], int]], None]) -> int:
    """Play with every sequence of choices; return how many there are."""
    choices, plays = Choices(), 1
    play(choices)
    while choices.go_on():
        play(choices)
        plays += 1
    return plays


def act(scene: Scene, joined: int, choose: Callable[[int], int], *, patient: bool) -> None:
    """Let datagrams come or be given up and history answer, in an order of choice, and then end.

    A ``patient`` end leaves history the time to say what it has to say.
    """
    left = list(range(joined, len(scene.script.datagrams)))
    while left:
        choice = choose(2 * len(left) + scene.can_talk)
        if choice == 2 * len(left):
            scene.talk()
        elif choice % 2:
            scene.give_up(left.pop(choice // 2))
        else:
            scene.come(left.pop(choice // 2))
    while scene.can_talk and (patient or choose(2)):
        scene.talk()
    scene.end()
    scene.finish()


def four() -> Script:
    script = Script(number=10, sqn=(1 << 32) - 2)
    for _ in range(4):
        script.whole(1)
    return script


def torn() -> Script:
    """Two messages, and between them one in two parts."""
    script = Script()
    script.whole(1)
    script.large(2)
    script.whole(1)
    return script


BOTH = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "arrival"])
MADE = pytest.mark.parametrize(
    ("make", "ordered"), [(torn, True), (four, False)], ids=["torn-ordered", "four-arrival"]
)
JOINED = pytest.mark.parametrize(
    ("joined", "plays"),
    [
        pytest.param(0, 5000, marks=pytest.mark.soak),
        pytest.param(1, 1000, marks=pytest.mark.soak),
        (2, 100),
        (3, 10),
        (4, 1),
    ],
)


@MADE
@JOINED
def test_late_join_live_and_recovery_give_one_stream_in_any_order(
    joined: int, plays: int, make: Callable[[], Script], ordered: bool
) -> None:
    def play(choose: Callable[[int], int]) -> None:
        scene = Scene(make(), joined, ordered=ordered, late_join=ALL_HISTORY)
        act(scene, joined, choose, patient=True)
        seen = told(scene.items, scene.script)
        assert sorted(seen.delivered) == list(range(scene.script.first, scene.script.number))
        assert not seen.lost
        assert not ordered or seen.is_ordered
        assert isinstance(scene.items[-1], StreamEnd)
        assert scene.subscription.state is DeliveryState.ENDED

    assert explore(play) >= plays


@MADE
@JOINED
def test_an_end_at_any_moment_loses_only_what_history_had_no_time_for(
    joined: int, plays: int, make: Callable[[], Script], ordered: bool
) -> None:
    def play(choose: Callable[[int], int]) -> None:
        scene = Scene(make(), joined, ordered=ordered, late_join=ALL_HISTORY)
        act(scene, joined, choose, patient=False)
        seen = told(scene.items, scene.script)
        # A message that began before the stream is not in it, if any of it was seen.
        live = scene.subscription.live
        first = min((sent.first for sent in scene.script.sent if sent.first >= live), default=live)
        assert set(seen.numbers) >= set(range(first, scene.script.number))
        assert set(seen.numbers) <= set(range(live, scene.script.number))
        assert not ordered or not seen.numbers or seen.is_ordered
        assert set(seen.lost.values()) <= {LossReason.SESSION_END}
        assert isinstance(scene.items[-1], StreamEnd)
        assert scene.subscription.state is DeliveryState.ENDED

    assert explore(play) > plays


# One by one


def test_a_late_joiner_gets_history_then_what_is_live() -> None:
    scene = Scene(four(), 2, late_join=1)
    assert scene.subscription.wants_connection
    scene.come(2)
    assert scene.items == []
    scene.finish()
    seen = told(scene.items, scene.script)
    assert seen.numbers == [11, 12], "one of those sent before it joined"
    assert seen.origins == {11: Origin.RETRANSMIT, 12: Origin.LIVE}
    assert not scene.subscription.wants_connection


def test_a_late_joiner_whose_request_is_refused_loses_the_history_by_a_timeout() -> None:
    scene = Scene(four(), 2, late_join=1)
    scene.come(2)
    while scene.subscription.state is DeliveryState.HOLDING:
        if scene.subscription.wants_connection:
            scene.cut()
        else:
            scene.wait()
    assert scene.items[0] == Loss(11, 11, LossReason.FETCH_TIMEOUT)
    assert told(scene.items, scene.script).delivered == [12]


def test_who_does_not_join_late_wants_no_connection_without_loss() -> None:
    scene = Scene(four(), 2)
    scene.come(2)
    assert not scene.subscription.wants_connection
    scene.come(3)
    assert told(scene.items, scene.script).numbers == [12, 13]


def test_what_the_transport_gives_up_is_fetched() -> None:
    scene = Scene(four(), 0)
    scene.come(0)
    scene.come(2)
    scene.give_up(1)
    scene.finish()
    seen = told(scene.items, scene.script)
    assert seen.origins == {10: Origin.LIVE, 11: Origin.OTR, 12: Origin.LIVE}


def test_without_recovery_it_is_lost_at_once() -> None:
    scene = Scene(four(), 0, recover=False)
    scene.come(0)
    scene.come(2)
    scene.give_up(1)
    assert not scene.subscription.wants_connection
    assert told(scene.items, scene.script).lost == {11: LossReason.TIMEOUT}


def test_a_refused_connection_ends_in_a_loss() -> None:
    scene = Scene(four(), 0)
    scene.come(0)
    scene.come(2)
    scene.give_up(1)
    while scene.subscription.statistics().delivery.wanted:
        if scene.subscription.wants_connection:
            scene.cut()
        else:
            scene.wait()
    scene.finish()
    assert scene.now == SETTINGS.fetch_timeout
    assert scene.items[1] == Loss(11, 11, LossReason.FETCH_TIMEOUT)
    assert told(scene.items, scene.script).delivered == [10, 12]


def test_a_history_that_is_too_short_tells_what_is_gone() -> None:
    scene = Scene(four(), 0, low=12)
    scene.come(0)
    scene.come(3)
    scene.give_up(1)
    scene.give_up(2)
    scene.finish()
    seen = told(scene.items, scene.script)
    assert seen.lost == {11: LossReason.GONE}
    assert seen.delivered == [10, 12, 13]


@BOTH
@pytest.mark.parametrize(("late_join", "numbers"), [(1, [1, 2]), (2, [0, 1, 2])])
def test_who_joins_inside_a_message_gets_whole_ones_from_history(
    ordered: bool, late_join: int, numbers: list[int]
) -> None:
    script = torn()
    scene = Scene(script, 3, ordered=ordered, late_join=late_join)
    scene.come(3)
    scene.finish()
    assert sorted(told(scene.items, script).numbers) == numbers


def test_a_tail_that_comes_to_light_at_the_end_is_lost_with_the_session() -> None:
    scene = Scene(four(), 2)
    scene.come(2)
    scene.end()
    assert told(scene.items, scene.script).lost == {13: LossReason.SESSION_END}
    assert isinstance(scene.items[-1], StreamEnd)


def test_a_vanished_source_ends_the_subscription_once() -> None:
    scene = Scene(four(), 0)
    scene.come(0)
    scene.come(2)
    scene.vanish()
    scene.vanish()
    scene.finish()
    assert [type(item).__name__ for item in scene.items] == ["Batch", "Loss", "Batch", "StreamEnd"]


def test_with_a_real_transport_a_lost_datagram_is_fetched_and_so_is_a_lost_tail() -> None:
    script = four()
    window = Window(script.sqn - 1, script.sqn)
    transport = Receiver(Random(1), SETTINGS, 0.0, window)
    subscription = SubscriptionMachine(SETTINGS, 0.0, transport, SESSION, TOPIC, script.first)
    bodies = [
        encode_data(sqn, Window(sqn, script.sqn), encode_run(cast("RunRecord", records[0])))
        for sqn, records in enumerate(script.datagrams, script.sqn)
    ]
    subscription.handle_bodies_untrusted(0.0, [bodies[0], bodies[2], b"nonsense"])
    assert subscription.statistics().transport.malformed == 1
    now = 0.0
    while not subscription.wants_connection:
        due = subscription.poll_timeout()
        assert due is not None
        assert due > now
        now = due
        subscription.handle_timeout(now)
        # It asks, and nobody answers.
        subscription.poll_transmit(now)
    assert now == SETTINGS.generation
    server = FetchServer(Shelf(script), SESSION, 16, PART)
    subscription.handle_connected(now)
    serve(subscription, server, now)
    end = SessionMessage(
        BodyFlag.CLOSED, Window(script.lead, script.sqn), 1, [(TOPIC, script.number)]
    )
    subscription.handle_body_untrusted(now, encode_session(end))
    subscription.handle_gone(now)
    serve(subscription, server, now)
    items = list[Item]()
    while (item := subscription.poll_item()) is not None:
        items.append(item)
    assert told(items, script).origins == {
        10: Origin.LIVE,
        11: Origin.OTR,
        12: Origin.LIVE,
        13: Origin.OTR,
    }
    assert isinstance(items[-1], StreamEnd)
    assert subscription.poll_timeout() is None


def serve(subscription: SubscriptionMachine, server: FetchServer, now: float) -> None:
    """Let the history answer all that is asked."""
    for request in iter(subscription.poll_request, None):
        server.handle_frame_untrusted(request)
    frames = list(iter(lambda: server.poll_transmit(now), None))
    subscription.handle_frames_untrusted(now, frames)


# Anything may happen to connection and network


@given(st.data(), st.booleans(), st.integers(0, 8), st.integers(0, 4))
def test_with_any_trouble_each_message_is_told_once_or_its_loss_is(
    data: st.DataObject, ordered: bool, joined: int, low: int
) -> None:
    script = Script(sqn=(1 << 32) - 4)
    for count in (1, 2):
        script.whole(count)
        script.large(3)
        script.other()
    script.whole(2)
    settings = data.draw(
        st.sampled_from(
            [SETTINGS, StreamSettings(caching_proximity=1), StreamSettings(order_map=5)]
        )
    )
    late_join = data.draw(st.sampled_from([0, 3, ALL_HISTORY]))
    scene = Scene(script, joined, settings, low, ordered=ordered, late_join=late_join)
    left = list(range(joined, len(script.datagrams)))
    acts: list[Callable[[], None]] = [
        lambda: scene.come(left.pop(data.draw(st.integers(0, len(left) - 1)))),
        lambda: scene.give_up(left.pop(data.draw(st.integers(0, len(left) - 1)))),
        lambda: scene.talk() if scene.can_talk else None,
        lambda: scene.cut() if scene.is_connected else None,
    ]
    for act in data.draw(st.lists(st.sampled_from(acts), max_size=30)):
        if left:
            act()
    scene.end()
    scene.finish()
    seen = told(scene.items, script)
    assert isinstance(scene.items[-1], StreamEnd)
    statistics = scene.subscription.statistics().delivery
    assert (statistics.gaps, statistics.wanted, statistics.waiting) == (0, 0, 0)
    assert not ordered or not seen.numbers or seen.is_ordered
    if seen.delivered:
        known = range(min(seen.delivered), script.number)
        assert set(known) <= set(seen.numbers)
