"""Each kind of NAT against each, in virtual time, and addresses that change."""

from itertools import product
from random import Random

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.nat import (
    CHECKS,
    MOST_REFLEXIVE,
    PER_PEER,
    PER_SECOND,
    CheckCredential,
    NatTraversal,
)
from tests.core.nat.world import KINDS, World, is_direct

SEED = 7


def connect(one: str, other: str, *, lose: float = 0.0) -> tuple[World, Connection, float]:
    world = World(SEED, lose)
    left = world.add(3, "192.168.1.2", KINDS[one]("203.0.113.1"))
    right = world.add(5, "192.168.2.2", KINDS[other]("203.0.113.2"))
    assert world.run(lambda: bool(left.traversal.reflexive and right.traversal.reflexive), 5)
    began, connection = world.now, left.dial(right)
    world.run(lambda: connection.state is not State.CONNECTING, 5)
    return world, connection, world.now - began


def test_a_way_is_found_where_there_is_one() -> None:
    for one, other in product(KINDS, KINDS):
        _, connection, seconds = connect(one, other)
        case = f"{one} dials {other}, seed {SEED}"
        assert (connection.state is State.OPEN) == is_direct(one, other), case
        assert not is_direct(one, other) or seconds < 3, case


def test_lost_datagrams_delay_it_only() -> None:
    for one, other in product(["address restricted", "port restricted"], KINDS):
        if is_direct(one, other):
            _, connection, seconds = connect(one, other, lose=0.2)
            case = f"{one} dials {other}, seed {SEED}: {seconds:.2f} s"
            assert connection.state is State.OPEN, case


def test_an_address_that_changes_costs_no_message() -> None:
    pairs = [
        ("full cone", "address restricted"),
        ("port restricted", "port restricted"),
        ("address restricted", "symmetric"),
        ("none", "port restricted"),
    ]
    for (one, other), mover in product(pairs, (3, 5)):
        case = f"{one} dials {other}, {mover} moves, seed {SEED}"
        world, dialled, _ = connect(one, other)
        nat = world.nodes[mover].nat
        if dialled.state is not State.OPEN or nat is None:
            continue
        left, right = world.nodes[3], world.nodes[5]
        assert world.run(right.has_incoming, 1), case
        sent, got = [0, 0], [list[bytes](), list[bytes]()]
        ends = ((left, dialled), (right, right.incoming[0]))

        def talk(ends=ends, sent=sent, got=got, world=world, until=world.now + 6) -> None:
            for place, (node, connection) in enumerate(ends):
                if connection.port.room_for([8]):
                    connection.port.send_many([sent[place].to_bytes(8, "big")])
                    sent[place] += 1
                node.endpoint.touch(connection)
                got[1 - place] += connection.port.receive_many(64)
            if world.now < until:
                world.later(0.1, talk)

        talk()
        world.run(lambda: False, 1)
        nat.move("203.0.113.9")
        world.run(lambda: False, 7)
        for node, connection in ends:
            node.endpoint.touch(connection)
        talk(until=0)
        for place in (0, 1):
            expected = [number.to_bytes(8, "big") for number in range(sent[place])]
            assert len(got[place]) >= sent[place] - 2, f"{case}: {len(got[place])} of {sent[place]}"
            assert got[place] == expected[: len(got[place])], case


def test_a_node_without_nat_requests_nothing_of_servers() -> None:
    world, connection, seconds = connect("none", "none")
    assert connection.state is State.OPEN
    assert (world.requests, seconds < 0.2) == ([], True)


def test_a_request_is_obeyed_once_and_no_more_than_the_rate_allows() -> None:
    traversal, checks = NatTraversal(Random(SEED)), 0
    for token in range(100):
        for _ in range(3):
            request = CheckCredential(token % 9, token)
            traversal.handle_check_request(0.0, request, [("203.0.113.1", 4)])
    for step in range(100):
        traversal.handle_timeout(step / 10)
        while traversal.poll_check() is not None:
            checks += 1
    assert checks == PER_SECOND * CHECKS


def test_a_peer_with_many_requests_leaves_room_for_others() -> None:
    traversal, checked = NatTraversal(Random(SEED)), list[int]()
    many = [("203.0.113.1", port) for port in range(1, 9)]
    for step in range(30):
        for token in range(100):
            credential = CheckCredential(5, 100 * step + token)
            traversal.handle_check_request(step / 10, credential, many)
        traversal.handle_check_request(step / 10, CheckCredential(7, 9000 + step // 10), many[:1])
        traversal.handle_timeout(step / 10)
        while (check := traversal.poll_check()) is not None:
            checked.append(check.credential.token)
    assert {9000, 9001, 9002} <= set(checked)
    traversal = NatTraversal(Random(SEED))
    for token in range(100):
        traversal.handle_check_request(0.0, CheckCredential(5, token), many[:1])
    assert len(list(iter(traversal.poll_check, None))) == PER_PEER


def test_a_request_to_a_server_is_repeated_seven_times_and_asked_anew() -> None:
    traversal = NatTraversal(Random(SEED))
    traversal.set_servers(0.0, [("198.51.100.1", 8764)])
    times, transactions, now = list[float](), set[int](), 0.0
    while now < 90:
        while (request := traversal.poll_request()) is not None:
            times.append(now)
            transactions.add(request.transaction)
        now = traversal.poll_timeout() or 1e9
        traversal.handle_timeout(now)
    # RFC 8489, section 6.2.1.
    assert times[:7] == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5]
    assert len(transactions) == 2


def test_a_check_of_a_stranger_is_not_taken() -> None:
    traversal, source = NatTraversal(Random(SEED)), ("203.0.113.1", 4)
    token = traversal.begin(0.0, 5)
    assert traversal.takes_check(source, CheckCredential(5, token))
    assert not traversal.takes_check(source, CheckCredential(7, token))
    assert not traversal.takes_check(source, CheckCredential(5, token + 1))
    others = [("203.0.113.1", port) for port in range(5, 50)]
    taken = sum(traversal.takes_check(other, CheckCredential(5, token)) for other in others)
    assert taken == MOST_REFLEXIVE - 1
    traversal.end(token)
    assert not traversal.takes_check(source, CheckCredential(5, token))


def test_candidates_are_dialled_two_by_two_and_one_that_is_found_at_once() -> None:
    endpoint, found = Endpoint(Random(SEED), ChannelSettings()), ("203.0.113.9", 9)
    candidates = [("203.0.113.1", port) for port in range(1, 7)]
    connection, now, flights = endpoint.dial(0.0, candidates), 0.0, list[list[tuple[str, int]]]()
    for _ in range(4):
        flights.append([])
        while (row := endpoint.poll_transmit(now)) is not None:
            flights[-1].append(row.address)
        if len(flights) == 1:
            endpoint.handle_candidate(now, connection, found)
            sent = endpoint.poll_transmit(now)
            assert sent is not None
            assert sent.address == found
        now = endpoint.poll_timeout() or 0.0
        endpoint.handle_timeout(now)
    dialled = [*candidates[:2], found, *candidates[2:]]
    assert flights == [candidates[:2], dialled[:4], dialled[:6], dialled]
