"""The view: servers that hear each other agree soon, and nobody runs away."""

import random
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.outputs import ClientEvent, ServerEntered, ServerLeft
from sphtp.core.control.records import MAX_MEMBERS, MAX_VIEW, ClusterView, Member
from sphtp.core.control.server_messages import ServerHeartbeat
from sphtp.core.control.server_set import ServerSet, ViewKeeper, current_view
from sphtp.core.control.vocabulary import MemberState, Reason
from sphtp.testing.cluster import server_address

Heard = set[tuple[int, int]]


def member(number: int, nonce: int = 1) -> Member:
    return Member(number, nonce, server_address(number))


def heartbeat(own: int, number: int, *others: int) -> ServerHeartbeat:
    members = tuple(member(n) for n in sorted((own, *others)))
    return ServerHeartbeat(member(own), ClusterView(number, members))


class Servers:
    """Some servers, and who hears whom."""

    def __init__(self, count: int) -> None:
        self.numbers = range(2, 2 * count + 2, 2)
        self.keepers = {n: ViewKeeper(member(n)) for n in self.numbers}
        self.last: dict[int, dict[int, ServerHeartbeat]] = {n: {} for n in self.numbers}

    def round(self, hears: Heard, entropy: random.Random) -> None:
        order = list(self.numbers)
        entropy.shuffle(order)
        for speaker in order:
            said = ServerHeartbeat(member(speaker), self.keepers[speaker].view)
            for listener in self.numbers:
                if (listener, speaker) in hears:
                    self.last[listener][speaker] = said
                else:
                    self.last[listener].pop(speaker, None)
                self.keepers[listener].update(member(listener), self.last[listener].values())

    def everybody(self) -> Heard:
        return {(a, b) for a in self.numbers for b in self.numbers if a != b}

    def views(self) -> set[ClusterView]:
        return {keeper.view for keeper in self.keepers.values()}


@given(st.integers(1, 5), st.data())
def test_after_any_mess_servers_agree_within_three_rounds(count: int, data: st.DataObject) -> None:
    servers, entropy = Servers(count), random.Random(count)
    everybody = servers.everybody()
    for _ in range(data.draw(st.integers(0, 6))):
        servers.round(data.draw(st.sets(st.sampled_from(sorted(everybody or {(0, 0)})))), entropy)
    for _ in range(3):
        servers.round(everybody, entropy)
    (view,) = servers.views()
    assert [m.id for m in view.members] == list(servers.numbers)
    servers.round(everybody, entropy)
    assert servers.views() == {view}


@given(st.integers(2, 5), st.data())
def test_servers_that_never_agree_stop_counting(count: int, data: st.DataObject) -> None:
    servers, entropy = Servers(count), random.Random(count)
    hears = data.draw(st.sets(st.sampled_from(sorted(servers.everybody()))))
    for _ in range(2 * count + 2):
        servers.round(hears, entropy)
    before = servers.views()
    for _ in range(5):
        servers.round(hears, entropy)
    assert servers.views() == before


def test_a_restarted_server_is_another_member() -> None:
    keeper = ViewKeeper(member(2))
    assert keeper.update(member(2), [heartbeat(4, 1)])
    first = keeper.view.number
    assert keeper.update(member(2), [ServerHeartbeat(member(4, 9), ClusterView(1))])
    assert keeper.view.number > first


def test_a_higher_number_for_the_same_members_is_adopted() -> None:
    keeper = ViewKeeper(member(2))
    keeper.update(member(2), [heartbeat(4, 9, 2)])
    assert keeper.view.number == 10
    keeper.update(member(2), [heartbeat(4, 70, 2)])
    assert keeper.view.number == 70
    assert not keeper.update(member(2), [heartbeat(4, 30, 2)])


def test_the_number_has_an_end() -> None:
    keeper = ViewKeeper(member(2))
    keeper.update(member(2), [heartbeat(4, MAX_VIEW)])
    assert keeper.view.number == MAX_VIEW


def test_a_client_takes_the_highest_number_and_the_union_of_a_tie() -> None:
    assert current_view([]) == ClusterView()
    low, high, other = heartbeat(2, 1, 4, 6), heartbeat(4, 5, 2), heartbeat(8, 5)
    assert [m.id for m in current_view([low, high]).members] == [2, 4]
    assert [m.id for m in current_view([low, high, other]).members] == [2, 4, 8]


def test_what_a_server_tells_about_itself_counts_most() -> None:
    joining = ServerHeartbeat(Member(4, 1, server_address(4), MemberState.JOINING), ClusterView(1))
    view = current_view([heartbeat(2, 3, 4), joining])
    assert view.active == {2}


def test_the_servers_of_a_set_are_bounded() -> None:
    events: deque[ClientEvent] = deque()
    counters = ControlCounters()
    servers = ServerSet(10.0, counters, events)
    for number in range(2, 2 * MAX_MEMBERS + 2, 2):
        assert servers.handle_heartbeat(0.0, heartbeat(number, 1)) is not None
        assert events.pop() == ServerEntered(member(number))
    assert servers.handle_heartbeat(0.0, heartbeat(1000, 1)) is None
    assert counters[Count.TOO_MANY] == 1
    assert servers.handle_heartbeat(1.0, heartbeat(2, 1)) is not None
    assert not events
    assert len(servers.drop_expired(10.0)) == MAX_MEMBERS - 1
    assert not servers.handle_leave(2, 99)
    events.clear()
    assert servers.handle_leave(2, 1)
    assert list(events) == [ServerLeft(member(2), Reason.LEFT)]
