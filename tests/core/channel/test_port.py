"""Messages and their receipts, as an application sees them, across a network."""

from collections.abc import Sequence

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.errors import StateError
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from tests.cases import each
from tests.core.channel.talk import follow, send_once
from tests.steps import steps

BLOCKED = Faults(blocked=True)
CAME = {Delivery.RELIABLE: Outcome.DELIVERED, Delivery.UNRELIABLE: Outcome.ARRIVED}


def outcomes(tickets: Sequence[Ticket]) -> list[Outcome | None]:
    return [ticket.outcome for ticket in tickets]


def settled(connection: Connection) -> list[Ticket]:
    found = []
    while (ticket := connection.port.poll_settled()) is not None:
        found.append(ticket)
    return found


@each("size", [0, 1000, 100_000])
@each("delivery", [Delivery.RELIABLE, Delivery.UNRELIABLE])
def test_delivered_with_its_latency(size: int, delivery: Delivery) -> None:
    if delivery is not Delivery.RELIABLE:
        size = min(size, 1000)
    pair = Pair(1, Faults(delay=0.05))
    left, right = pair.open()
    pair.run(1)
    ticket = follow(left, bytes(size), pair.now, delivery=delivery)
    start = pair.now
    pair.touch(left)
    assert settled(left) == []
    pair.run(3)
    assert settled(left) == [ticket]
    assert ticket.outcome is CAME[delivery]
    assert ticket.settled_at is not None
    assert 0.1 <= ticket.settled_at - start < (0.3 if size < 10_000 else 0.6)
    assert pair.receive(right) == [bytes(size)]


def test_unreliable_messages_are_delivered_or_lost_as_it_is() -> None:
    pair = Pair(1, Faults(loss=0.3))
    left, right = pair.open()
    tickets: dict[bytes, Ticket] = {}
    for number in range(200):
        tickets[b"%d" % number] = follow(
            left, b"%d" % number, pair.now, delivery=Delivery.UNRELIABLE
        )
        pair.touch(left)
        pair.run(0.02)
    pair.run(5)
    received = set(pair.receive(right))
    assert len(settled(left)) == 200
    for payload, ticket in tickets.items():
        assert ticket.outcome is (Outcome.ARRIVED if payload in received else Outcome.LOST)


def test_an_unreliable_message_that_had_to_go_for_later_ones_is_lost() -> None:
    pair = Pair(1, settings=ChannelSettings(unreliable_buffer=2))
    left, right = pair.open()
    tickets = [send_once(left, bytes([number])) for number in range(4)]
    assert outcomes(tickets) == [Outcome.LOST, Outcome.LOST, None, None]
    pair.touch(left)
    pair.run(1)
    assert outcomes(tickets[2:]) == [Outcome.ARRIVED] * 2
    assert pair.receive(right) == [b"\2", b"\3"]


@pytest.mark.parametrize("end", ["close", "abort", "peer closes", "peer vanishes"])
def test_the_end_settles_every_ticket(end: str) -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.network.set_default(BLOCKED)
    tickets = [follow(left, bytes(100), pair.now), send_once(left, b"once")]
    pair.touch(left)
    if end == "close":
        left.close(pair.now)
    elif end == "abort":
        left.abort(pair.now)
    elif end == "peer closes":
        pair.network.set_faults(Faults(), RIGHT, LEFT)
        right.close(pair.now)
    pair.touch(left)
    pair.touch(right)
    pair.drive(lambda: left.closed is not None)
    expected = Outcome.LOST if end == "peer vanishes" else Outcome.CLOSED
    assert outcomes(tickets) == [expected] * 2
    assert settled(left) == tickets
    assert settled(left) == []


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("size", [10, 50_000])
def test_a_message_that_expires_holds_nothing_up(ordered: bool, size: int) -> None:
    pair = Pair(1, settings=ChannelSettings(lanes=(Lane(ordered=ordered),)))
    left, right = pair.open()
    pair.run(1)
    pair.network.set_faults(BLOCKED, LEFT, RIGHT)
    late = follow(left, bytes(size), pair.now, deadline=pair.now + 0.5)
    after = follow(left, b"after", pair.now)
    pair.touch(left)
    pair.run(0.49)
    assert late.outcome is None
    pair.run(0.02)
    assert late.outcome is Outcome.EXPIRED
    pair.network.set_faults(Faults(), LEFT, RIGHT)
    pair.run(3)
    assert after.outcome is Outcome.DELIVERED
    assert pair.receive(right) == [b"after"]
    assert left.port.statistics().waiting == 0


@pytest.mark.parametrize("size", [10, 3000])
def test_what_has_expired_takes_no_room(size: int) -> None:
    """Whether it has left or not, and although its peer is silent."""
    settings = ChannelSettings(send_buffer=8, send_buffer_bytes=8 * size)
    pair = Pair(1, settings=settings)
    left, right = pair.open()
    pair.run(1)
    pair.network.set_faults(BLOCKED, LEFT, RIGHT)
    sent = 0
    for _ in range(20):
        assert left.port.room_for([size] * 9) == 8
        tickets = [
            follow(left, b"late".ljust(size), pair.now, deadline=pair.now + 0.1) for _ in range(8)
        ]
        assert not left.port.has_room(size)
        pair.touch(left)
        pair.run(0.2)
        assert outcomes(tickets) == [Outcome.EXPIRED] * 8
        assert left.port.statistics().waiting == 0
        sent += 8
    kept = [follow(left, b"%d" % number, pair.now) for number in range(8)]
    pair.network.set_faults(Faults(), LEFT, RIGHT)
    pair.run(10)
    assert outcomes(kept) == [Outcome.DELIVERED] * 8
    assert [it for it in pair.receive(right) if it.strip() != b"late"] == [
        b"%d" % number for number in range(8)
    ]


@pytest.mark.parametrize("size", [100, 5000])
def test_what_expires_costs_the_same_however_many_wait(size: int) -> None:
    def steps_with(waiting: int) -> int:
        pair = Pair(1, settings=ChannelSettings(congestion="fixed:1e6", timeout=1000))
        left, _ = pair.open()
        pair.run(1)
        pair.network.set_faults(BLOCKED, LEFT, RIGHT)
        for number in range(waiting + 20):
            deadline = pair.now + (0.05 if number % (waiting // 20 + 1) == 0 else 900)
            follow(left, bytes(size), pair.now, deadline=deadline)
        pair.touch(left)
        pair.run(0.04)
        count = steps(lambda: pair.left.handle_timeout(pair.now + 0.02))
        assert sum(ticket.outcome is Outcome.EXPIRED for ticket in settled(left)) >= 20
        return count

    few, many = steps_with(100), steps_with(1000)
    assert many <= 1.5 * few, f"{many} steps among 1000 messages, {few} among 100"


def test_a_command_is_not_held_up_by_a_flood_of_lower_priority() -> None:
    """At 120 % of what the line takes."""
    settings = ChannelSettings(congestion="fixed:100000", lanes=(Lane(), Lane(priority=1)))
    pair = Pair(1, Faults(delay=0.01, mtu=1452), settings)
    left, right = pair.open()
    pair.run(1)
    commands: list[Ticket] = []
    for number in range(600):
        follow(left, bytes(500), pair.now, delivery=Delivery.UNRELIABLE)
        if number % 120 == 0:
            commands.append(follow(left, bytes(800), pair.now, lane=1))
        pair.touch(left)
        pair.run(500 / 120_000)
        pair.receive(right)
    assert outcomes(commands) == [Outcome.DELIVERED] * 5
    for ticket in commands:
        assert ticket.settled_at is not None
        assert ticket.settled_at - ticket.sent_at < 0.1


@pytest.mark.parametrize("size", [10, 3000])
def test_a_lane_goes_on_whatever_expires_in_it(size: int) -> None:
    """More than all credit, again and again: what is given up has to be given back."""
    tight = ChannelSettings(receive_buffer=16, receive_buffer_bytes=20_000, max_message=5000)
    pair = Pair(1, Faults(loss=0.2), ChannelSettings(congestion="fixed:1e6"), tight)
    left, right = pair.open()
    received: list[bytes] = []
    tickets: list[Ticket] = []
    for round_ in range(30):
        for number in range(20):
            payload = (b"%d %d" % (round_, number)).ljust(size)
            tickets.append(follow(left, payload, pair.now, deadline=pair.now + 0.1))
        pair.touch(left)
        pair.run(1)
        received += pair.receive(right)
        pair.touch(right)
    kept = follow(left, b"kept", pair.now)
    pair.touch(left)
    pair.run(5)
    received += pair.receive(right)
    assert kept.outcome is Outcome.DELIVERED
    assert received[-1] == b"kept"
    pairs = [tuple(map(int, payload.split())) for payload in received[:-1]]
    assert pairs == sorted(set(pairs))
    assert None not in outcomes(tickets)
    assert Outcome.EXPIRED in outcomes(tickets)
    assert left.port.statistics().waiting == 0
    assert right.port.statistics().too_early == 0


def test_an_unreliable_message_that_expires_while_it_waits_does_not_leave() -> None:
    pair = Pair(1, settings=ChannelSettings(congestion="fixed:10000"))
    left, right = pair.open()
    left.port.send_many([bytes(1000)] * 20)
    pair.touch(left)
    late = follow(
        left, bytes(1000), pair.now, delivery=Delivery.UNRELIABLE, deadline=pair.now + 0.01
    )
    pair.run(5)
    assert late.outcome is Outcome.EXPIRED
    assert pair.receive(right) == [bytes(1000)] * 20


@pytest.mark.parametrize("size", [200, 3000])
def test_copies_spare_the_wait_for_a_loss(size: int) -> None:
    def slowest(copies: int) -> float:
        settings = ChannelSettings(congestion="fixed:2e6", max_datagram=1200)
        pair = Pair(5, Faults(delay=0.1, loss=0.1), settings)
        left, right = pair.open()
        tickets = []
        for _ in range(100):
            tickets.append(follow(left, bytes(size), pair.now, copies=copies))
            pair.touch(left)
            pair.run(0.016)
        pair.run(5)
        assert len(pair.receive(right)) == 100, "and each comes once"
        waits = [(ticket.settled_at or 0) - ticket.sent_at for ticket in tickets]
        return sorted(waits)[-5]

    assert slowest(copies=0) > 0.4
    assert slowest(copies=3) < 0.3


def test_a_bulk_lane_does_not_hold_up_another() -> None:
    lanes = ChannelSettings(lanes=(Lane(), Lane(priority=1)), congestion="fixed:1e6")
    pair = Pair(1, Faults(delay=0.02), lanes)
    left, right = pair.open()
    left.port.send_many([bytes(1_000_000)] * 5)
    pair.touch(left)
    pair.run(1)
    ticket = follow(left, b"small", pair.now, lane=1)
    pair.touch(left)
    pair.drive(lambda: ticket.outcome is not None)
    assert (ticket.settled_at or 0) - ticket.sent_at < 0.08
    assert b"small" in pair.receive(right)


def test_many_at_once_and_none_at_all() -> None:
    pair = Pair(1)
    left, right = pair.open()
    left.port.send_many([])
    left.port.send_many([b"%d" % number for number in range(5000)])
    pair.touch(left)
    pair.run(2)
    assert right.port.readable
    assert right.port.receive_many(10) == [b"%d" % number for number in range(10)]
    assert len(right.port.receive_many(100_000)) == 4990
    assert right.port.receive_many(10) == []
    assert not right.port.readable
    assert left.port.statistics().sent < 200, "they share packets"


def test_figures_stay_when_the_channel_has_closed() -> None:
    pair = Pair(1)
    left, right = pair.open()
    pair.transfer(left, right, [b"x"] * 10)
    right.close(pair.now)
    pair.touch(right)
    pair.drive(lambda: left.state is State.CLOSED)
    figures = left.port.statistics()
    assert figures.messages_sent == 10
    assert figures.rtt is not None
    with pytest.raises(StateError, match="CLOSED"):
        left.port.send_many([b"x"])


def test_closing_waits_for_what_is_sent_once() -> None:
    pair = Pair(1, settings=ChannelSettings(congestion="fixed:10000", max_datagram=1200))
    left, right = pair.open()
    tickets = [send_once(left, bytes(1000)) for _ in range(50)]
    left.close(pair.now)
    assert left.state is State.DRAINING
    pair.touch(left)
    pair.drive(lambda: left.closed is not None)
    assert 3.9 < pair.now < 6, "at that rate, the last one leaves after 3.95 s"
    assert len(pair.receive(right)) + outcomes(tickets).count(Outcome.LOST) == 50
