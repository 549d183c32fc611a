"""How far a large message is, on the side that sends it and on the side that gets it."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.reassembly import MessageProgress
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.settings import ChannelSettings, Delivery, Lane
from sphtp.testing import Faults, Pair
from tests.core.channel.talk import follow
from tests.profiles import brisk
from tests.soaked import soaked

LANES = (Lane(), Lane(ordered=False))
SMALL_PACKETS = ChannelSettings(max_datagram=1200, lanes=LANES)


def send_large(pair: Pair, connection: Connection, size: int, lane: int = 0) -> Ticket:
    ticket = Ticket(pair.now, lane, size=size)
    connection.port.send(bytes(size), ticket, Delivery.RELIABLE)
    pair.touch(connection)
    return ticket


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 5))])
def test_both_sides_see_a_message_grow_until_it_is_there(seed: int) -> None:
    pair = Pair(seed, Faults(delay=0.02, loss=0.1, jitter=0.01), SMALL_PACKETS)
    left, right = pair.open()
    ticket = send_large(pair, left, 200_000)
    acked, received = [0], [0]
    while ticket.outcome is None:
        assert pair.step(), f"seed {seed}"
        acked.append(ticket.acked)
        # Several parts may arrive at once, the last one among them.
        is_whole = right.port.readable
        received += [200_000] if is_whole else [it.received for it in right.port.arriving()]
        assert ticket.acked <= max(received), "nothing is acked before it is here"
    assert acked == sorted(acked)
    assert received == sorted(received)
    assert len(set(acked)) > 20
    assert len(set(received)) > 20
    assert acked[-1] < 200_000, "the last part is told by the outcome"
    assert right.port.arriving() == []
    assert ticket.outcome is Outcome.DELIVERED


def test_large_messages_are_told_apart_by_lane_and_in_their_order() -> None:
    pair = Pair(1, Faults(delay=0.02, rate=2e6, queue=10**6), SMALL_PACKETS)
    left, right = pair.open()
    for lane, size in ((1, 70_000), (0, 50_000), (0, 60_000)):
        send_large(pair, left, size, lane)
    seen: list[list[MessageProgress]] = []
    while not seen or seen[-1]:
        pair.step()
        arriving = right.port.arriving()
        if arriving or seen:
            seen.append(arriving)
    assert any([message.lane for message in arriving] == [0, 1] for arriving in seen)
    totals = {(message.lane, message.total) for arriving in seen for message in arriving}
    assert totals == {(1, 70_000), (0, 50_000), (0, 60_000)}
    assert all(0 < message.received < message.total for each in seen for message in each)


def test_a_message_that_was_given_up_stays_where_it_was() -> None:
    pair = Pair(1, Faults(delay=0.02, rate=1e6, queue=10**6), SMALL_PACKETS)
    left, right = pair.open()
    ticket = follow(left, bytes(100_000), pair.now, deadline=0.3)
    pair.touch(left)
    pair.run(0.3)
    far = ticket.acked
    assert ticket.outcome is Outcome.EXPIRED
    assert 0 < far < 100_000
    pair.run(5)
    assert ticket.acked == far
    assert right.port.arriving() == []


def test_a_message_that_goes_whole_has_no_parts_to_count() -> None:
    pair = Pair(1, settings=SMALL_PACKETS)
    left, right = pair.open()
    tickets = [send_large(pair, left, 100) for _ in range(10)]
    while any(ticket.outcome is None for ticket in tickets):
        pair.step()
        assert right.port.arriving() == []
        assert {ticket.acked for ticket in tickets} == {0}


@settings(max_examples=brisk.max_examples // 5)
@given(st.integers(0, 2**32), st.integers(300, 1300))
def test_progress_never_passes_the_whole_when_the_path_shrinks(seed: int, mtu: int) -> None:
    """What was packed for large packets is cut anew, and what was acked stays acked once."""
    settings = ChannelSettings(base_datagram=256, max_datagram=8192)
    pair = Pair(seed, Faults(delay=0.01), settings)
    left, right = pair.open()
    random = Random(seed)
    pair.transfer(left, right, [bytes(8000)] * 12)
    sizes = [random.randint(100, 30_000) for _ in range(5)]
    tickets = [send_large(pair, left, size) for size in sizes]
    pair.network.set_default(Faults(delay=0.01, mtu=mtu))

    def is_over() -> bool:
        assert all(ticket.acked < ticket.size for ticket in tickets), f"seed {seed}"
        return all(ticket.outcome is Outcome.DELIVERED for ticket in tickets)

    pair.drive(is_over, 120)
    assert [len(message) for message in pair.receive(right)] == sizes
