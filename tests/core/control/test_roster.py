"""Peers, and the servers that vouch for them."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.codec import Part
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.directory import Roster
from sphtp.core.control.lists import (
    MAX_CHUNK,
    Assembly,
    Fingerprints,
    divide,
    fingerprint,
    number_parts,
)
from sphtp.core.control.outputs import Dial, HangUp, PeerChanged, PeerEntered, PeerLeft
from sphtp.core.control.records import (
    MAX_MEMBERS,
    MOST_PEERS,
    Candidate,
    Digest,
    GoneHolder,
    Holder,
    Peer,
    PeerRecord,
    ServerAddress,
)
from sphtp.core.control.registry import IdAvailability, MemoryRegistry
from sphtp.core.control.server_set import Dialler, ExponentialBackoff
from sphtp.core.control.vocabulary import Reason
from sphtp.testing.cluster import server_address

A, B = 2, 4
PEER = PeerRecord(7, 70)
peer = Peer.from_record


def test_a_peer_is_there_as_long_as_some_server_vouches() -> None:
    roster = Roster(10.0, ControlCounters())
    assert roster.enter(0.0, A, PEER) == [PeerEntered(peer(PEER))]
    assert roster.enter(0.0, B, PEER) == []
    assert roster.leave(1.0, A, GoneHolder(7, 70, Reason.EXPIRED)) == []
    assert roster.peers == {7: PEER}
    assert roster.leave(1.0, B, GoneHolder(7, 70, Reason.EXPIRED)) == [
        PeerLeft(peer(PEER), Reason.EXPIRED)
    ]
    assert roster.peers == {}


def test_a_good_bye_counts_at_once_and_late_news_do_not_undo_it() -> None:
    roster = Roster(10.0, ControlCounters())
    roster.enter(0.0, A, PEER)
    roster.enter(0.0, B, PEER)
    assert roster.leave(1.0, A, GoneHolder(7, 70, Reason.LEFT)) == [
        PeerLeft(peer(PEER), Reason.LEFT)
    ]
    assert roster.enter(1.1, B, PEER) == []
    assert roster.enter(1.3, B, replace(PEER, nonce=71)) == [
        PeerEntered(peer(replace(PEER, nonce=71)))
    ]


def test_another_nonce_is_another_peer() -> None:
    roster = Roster(10.0, ControlCounters())
    roster.enter(0.0, A, PEER)
    other = replace(PEER, nonce=71)
    assert roster.leave(0.0, A, GoneHolder(7, 71, Reason.EXPIRED)) == []
    assert roster.enter(0.0, B, other) == [
        PeerLeft(peer(PEER), Reason.CONFLICT),
        PeerEntered(peer(other)),
    ]
    assert roster.digest(A) == Digest(0, 0)


def test_older_data_do_not_replace_newer() -> None:
    roster = Roster(10.0, ControlCounters())
    new, old = replace(PEER, data=b"new", revision=2), replace(PEER, data=b"old", revision=1)
    roster.enter(0.0, A, old)
    assert roster.enter(0.0, A, new) == [PeerChanged(peer(new))]
    assert roster.enter(0.0, B, old) == []
    assert roster.enter(0.0, A, new) == []
    assert roster.peers == {7: new}


def test_the_client_itself_is_no_peer_but_counts_for_the_digest() -> None:
    roster = Roster(10.0, ControlCounters(), own=[Holder(7, 70)])
    assert roster.enter(0.0, A, PEER) == []
    assert roster.peers == {}
    assert roster.digest(A) == Digest(1, fingerprint(PEER))
    assert roster.leave(0.0, A, GoneHolder(7, 70, Reason.LEFT)) == []


def test_peers_beyond_the_capacity_are_dropped_and_counted() -> None:
    counters = ControlCounters()
    roster = Roster(10.0, counters)
    for peer in range(3, 3 + 2 * (MOST_PEERS + 2), 2):
        roster.enter(0.0, A, PeerRecord(peer, 1))
    assert len(roster.peers) == MOST_PEERS
    assert counters[Count.OVER_MAX_PEERS] == 2


def test_the_client_itself_does_not_count_for_the_capacity() -> None:
    counters = ControlCounters()
    roster = Roster(10.0, counters, 1, own=[Holder(7, 70)])
    roster.enter(0.0, A, PEER)
    other = PeerRecord(9, 1)
    assert roster.enter(0.0, A, other) == [PeerEntered(peer(other))]
    assert roster.enter(0.0, A, PeerRecord(11, 1)) == []
    assert counters[Count.OVER_MAX_PEERS] == 1


def test_the_client_itself_is_known_although_there_is_no_room_for_peers() -> None:
    roster = Roster(10.0, ControlCounters(), 1, own=[Holder(7, 70)])
    roster.enter(0.0, A, PeerRecord(9, 1))
    roster.enter(0.0, A, PEER)
    assert roster.has(A, Holder(7, 70))


def test_questions_come_ever_less_often() -> None:
    patience = ExponentialBackoff(0.5, 10.0)
    asked = [now for now in range(60) if patience.allows(float(now))]
    assert asked == [0, 1, 2, 4, 8, 16, 26, 36, 46, 56]


def test_a_whole_list_replaces_what_a_server_vouched_for() -> None:
    roster = Roster(10.0, ControlCounters())
    second, third = PeerRecord(9, 90), PeerRecord(11, 110)
    roster.enter(0.0, A, PEER)
    roster.enter(0.0, A, second)
    roster.enter(0.0, B, second)
    assert roster.enter(0.0, A, third) == [PeerEntered(peer(third))]
    assert roster.keep_only(A, [third.id]) == [PeerLeft(peer(PEER), Reason.EXPIRED)]
    assert set(roster.peers) == {9, 11}
    assert roster.drop_server(B) == [PeerLeft(peer(second), Reason.EXPIRED)]
    assert roster.servers == (A,)


records = st.builds(
    PeerRecord,
    st.integers(1, 6).map(lambda n: 2 * n + 1),
    st.integers(1, 3),
    st.just((Candidate("127.0.0.1", 1),)),
    st.binary(max_size=4),
    st.integers(0, 3),
)


@given(st.lists(st.tuples(st.booleans(), records)))
def test_fingerprints_depend_on_what_is_in_and_not_on_how_it_came(
    steps: list[tuple[bool, PeerRecord]],
) -> None:
    prints, model = Fingerprints(), dict[int, PeerRecord]()
    for put, record in steps:
        if put:
            prints.put(record)
            model[record.id] = record
        else:
            prints.drop(record.id)
            model.pop(record.id, None)
    mix = 0
    for record in model.values():
        mix ^= fingerprint(record)
    assert prints.digest == Digest(len(model), mix)
    assert prints.ids == set(model)


def test_swapped_data_changes_the_digest() -> None:
    one, other = Fingerprints(), Fingerprints()
    for prints, first, second in ((one, b"a", b"b"), (other, b"b", b"a")):
        prints.put(replace(PEER, data=first))
        prints.put(PeerRecord(9, 90, data=second))
    assert one.digest != other.digest


@given(st.lists(st.integers(1, 30_000)))
def test_lists_are_divided_in_order_and_within_the_limit(sizes: list[int]) -> None:
    shares = divide(sizes, lambda size: size)
    assert [size for share in shares for size in share] == sizes
    assert all(sum(share) <= MAX_CHUNK for share in shares)
    assert all(sum(a) + b[0] > MAX_CHUNK for a, b in pairwise(shares))


def test_parts_are_put_together_only_when_none_is_missing() -> None:
    assembly = Assembly[int](ControlCounters())
    assert assembly.add(Part(0, 1), [1]) == [1]
    assert assembly.add(Part(0, 3), [1]) is None
    assert assembly.add(Part(2, 3), [3]) is None
    assert assembly.add(Part(1, 3), [2]) is None
    assert assembly.add(Part(2, 3), [3]) == [1, 2, 3]
    assert assembly.add(Part(2, 3), [3]) is None
    assert number_parts([]) == [(Part(0, 1), ())]


def test_a_list_that_is_longer_than_any_is_dropped_and_the_next_one_counts() -> None:
    counters = ControlCounters()
    assembly = Assembly[int](counters)
    ids = range(MOST_PEERS // 2)
    for index in range(5):
        assert assembly.add(Part(index, 5), ids) is None
    assert counters[Count.TOO_MANY] == 1
    assert assembly.add(Part(0, 2), ids) is None
    assert assembly.add(Part(1, 2), ids) == [*ids, *ids]


def test_a_registry_decides_by_nonce() -> None:
    registry = MemoryRegistry(10.0, capacity=2)
    assert registry.availability(0.0, 7, 70) is IdAvailability.FREE
    registry.create(0.0, PEER, expires=True)
    assert registry.availability(0.0, 7, 70) is IdAvailability.HELD
    assert registry.availability(0.0, 7, 71) is IdAvailability.TAKEN
    assert registry.records == {7: PEER}
    assert registry.release(1.0, 7, Reason.EXPIRED) == PEER
    assert registry.release(1.0, 7, Reason.EXPIRED) is None
    assert registry.availability(1.0, 7, 71) is IdAvailability.TAKEN
    assert registry.availability(1.0, 7, 70) is IdAvailability.RESERVED
    assert registry.availability(11.0, 7, 71) is IdAvailability.FREE
    registry.reserve(11.0, 7, 72)
    assert registry.availability(11.0, 7, 72) is IdAvailability.RESERVED
    for peer in (PeerRecord(9, 1), PeerRecord(11, 1)):
        registry.create(11.0, peer, expires=False)
    assert registry.is_full
    assert registry.digest.count == 2


def test_connections_follow_the_wish() -> None:
    dialler = Dialler([server_address(0), server_address(9)], own=server_address(9))
    dialler.want([server_address(1), None, server_address(9)])
    dialler.dial(0.0)
    dialler.want([server_address(2)])
    dialler.dial(0.0)
    commands = [dialler.poll() for _ in range(5)]
    assert commands == [
        Dial(server_address(0)),
        Dial(server_address(1)),
        HangUp(server_address(1)),
        Dial(server_address(2)),
        None,
    ]


def test_a_member_that_names_others_in_each_heartbeat_makes_nobody_dial_all_of_them() -> None:
    standing, live = server_address(0), server_address(1)
    dialler = Dialler([standing])
    connected = set[ServerAddress]()
    dials = 0
    for second in range(10):
        for heartbeat in range(20):
            first = 1000 + 64 * (20 * second + heartbeat)
            dialler.want([live, *(server_address(first + n) for n in range(64))])
            dialler.dial(second + heartbeat / 20)
            while (command := dialler.poll()) is not None:
                if isinstance(command, Dial):
                    connected.add(command.address)
                    dials += 1
                else:
                    connected.remove(command.address)
            assert len(connected) <= 1 + MAX_MEMBERS
            assert {standing, live} <= connected
    assert dials <= 1 + MAX_MEMBERS + 10
    assert dialler.due is not None
    dialler.want([live])
    assert dialler.due is None


def test_new_addresses_in_each_heartbeat_keep_no_other_one_waiting() -> None:
    dialler, honest = Dialler([server_address(0)]), server_address(1)
    for heartbeat in range(4):
        lies = [server_address(1000 + 64 * heartbeat + n) for n in range(64)]
        dialler.want([lies[0], honest, *lies[1:]] if heartbeat else lies)
        dialler.dial(heartbeat)
    commands = list(iter(dialler.poll, None))
    assert Dial(honest) in commands
    assert HangUp(honest) not in commands
