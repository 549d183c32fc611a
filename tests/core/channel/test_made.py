"""Large packets full of large messages are made several at a time, and leave one by one."""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.delivery import Lane
from sphtp.core.channel.frames import Close, Fragment, Packet, Ping, decode_packet_untrusted
from sphtp.core.channel.packet_builder import LONGEST_TRAIN
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Datagrams
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.talk import follow
from tests.core.channel.test_send_queue import send_queue
from tests.recorder import Recorder

LARGEST = 65_507
LARGE = 65_536
NUMBER = LONGEST_TRAIN // LARGEST
TURN = 4 * LONGEST_TRAIN

Loses = Callable[[Address, bytes], bool]


def opened(faults: Faults | None = None, here: Recorder | None = None, **changes: Any) -> Pair:
    settings = ChannelSettings(
        base_datagram=LARGEST, max_datagram=LARGEST, congestion="fixed:1e9", **changes
    )
    return Pair(1, faults, settings, instrument=here)


def talking(pair: Pair) -> tuple[Connection, Connection]:
    left, right = pair.open()
    pair.run(0.5)
    return left, right


def polled(connection: Connection, now: float, most: int = TURN) -> list[Datagrams]:
    """All that leaves now."""
    rows = []
    while (row := connection.poll_transmit(now, most)) is not None:
        rows.append(row)
    return rows


def packets(rows: list[Datagrams]) -> list[Packet]:
    return [decode_packet_untrusted(it) for row in rows for it in row.datagrams]


def messages(count: int, size: int = LARGE) -> list[bytes]:
    return [Random(number).randbytes(size) for number in range(count)]


def made(connection: Connection) -> int:
    """Packets that wait to leave."""
    assert connection.port.transport is not None
    return len(connection.port.transport.sender._made)


def until_made(connection: Connection, now: float) -> list[Datagrams]:
    """What leaves until packets wait to leave; the very first one tells how late its ack is."""
    rows = []
    while not made(connection) and (row := connection.poll_transmit(now, TURN)) is not None:
        rows.append(row)
    return rows


def test_they_are_full_but_for_the_last_and_follow_one_another() -> None:
    pair = opened()
    left, _ = talking(pair)
    left.port.send_many(messages(8))
    rows = polled(left, pair.now)
    assert [row.number for row in rows] == [1] * 9
    sent = packets(rows)
    assert [it.size for it in sent[:-1]] == [LARGEST] + [LARGEST - 3] * 7, "one with an ack's delay"
    assert sent[-1].size < 1000
    assert all(b.sequence == a.sequence + 1 for a, b in pairwise(sent))
    frames = [[type(frame) for frame in it.frames] for it in sent]
    assert [it.ack_delay > 0 for it in sent] == [True] + [False] * 8
    assert frames == [[Fragment]] + [[Fragment, Fragment]] * 7 + [[Fragment]]


@pytest.mark.parametrize("most", [65_000, 131_014, 300_000, TURN])
def test_no_more_are_made_than_leave_at_a_stretch(most: int) -> None:
    """What comes up afterwards would have to wait behind them."""
    pair = opened()
    left, _ = talking(pair)
    left.port.send_many(messages(40))
    left.poll_transmit(pair.now)
    assert left.poll_transmit(pair.now, most) is not None
    assert made(left) == max(1, min(most, LONGEST_TRAIN) // LARGEST) - 1


@pytest.mark.parametrize("packets", [1, 3, 8, 40])
def test_connections_share_what_may_leave(packets: int) -> None:
    pair = opened()
    sides = [talking(pair)[0] for _ in range(4)]
    endpoint = pair.endpoints[LEFT]
    for side in sides:
        side.port.send_many(messages(40))
        endpoint.touch(side)
    for _ in sides:
        endpoint.poll_transmit(pair.now)  # how late their acks are
    left = packets * LARGEST
    while left > 0 and (row := endpoint.poll_transmit(pair.now, left)) is not None:
        left -= len(row.data)
    assert sum(map(made, sides)) == 0, "nothing is left over from a turn"


def test_what_comes_up_meanwhile_leaves_behind_them() -> None:
    """A packet with a later sequence would make those look lost."""
    pair = opened()
    left, _ = talking(pair)
    left.port.send_many(messages(10))
    rows = until_made(left, pair.now)
    left._add_control(Ping())
    left.port.send_many([b"small"])
    follow(left, bytes(LARGE), pair.now)
    sent = packets(rows + polled(left, pair.now))
    assert [it.sequence for it in sent] == sorted(it.sequence for it in sent)
    kinds = [type(it.frames[0]) for it in sent]
    assert kinds.index(Ping) == 11


def test_a_side_that_closes_meanwhile_says_so_behind_them() -> None:
    pair = opened()
    left, right = talking(pair)
    wanted = messages(10)
    left.port.send_many(wanted)
    until_made(left, pair.now)
    waiting = made(left)
    left.close(pair.now)
    assert waiting == made(left) > 0
    pair.touch(left)
    pair.run(0.5)
    # Two were taken, and lost; all the same it closes when all have arrived.
    assert right.port.receive_many(100) == wanted
    assert right.closed is not None


def test_an_abort_leaves_what_is_made_behind() -> None:
    pair = opened()
    left, _ = talking(pair)
    left.port.send_many(messages(10))
    until_made(left, pair.now)
    left.abort(pair.now)
    assert made(left) == 0
    words = [type(frame) for it in packets(polled(left, pair.now)) for frame in it.frames]
    assert words == [Close]
    pair.run(5)
    assert left.port.statistics().waiting == 10, "what was not acked stays so"


@pytest.mark.parametrize("number", range(NUMBER))
def test_one_that_is_lost_goes_again_alone(
    number: int, lose: Callable[[Pair, Loses], None]
) -> None:
    pair = opened()
    left, right = talking(pair)
    counted = iter(range(10_000))
    lose(pair, lambda source, _: source == LEFT and next(counted) == number)
    wanted = messages(20)
    left.port.send_many(wanted)
    pair.touch(left)
    pair.run(1)
    assert right.port.receive_many(100) == wanted
    figures = left.port.statistics()
    assert (figures.lost, figures.lost_in_appearance) == (1, 0)
    assert figures.resent <= 2, "messages that end in it"
    assert figures.waiting == 0


def test_a_message_with_copies_ends_a_train() -> None:
    pair = opened()
    left, right = talking(pair)
    before, after = messages(3), messages(6)[3:]
    left.port.send_many(before)
    follow(left, b"c" * LARGE, pair.now, copies=2)
    left.port.send_many(after)
    sent = packets(polled(left, pair.now))
    parts = [frame.message_id for it in sent for frame in it.frames if isinstance(frame, Fragment)]
    first = min(parts)
    assert parts.count(first + 3) >= 2 * 3, "two parts, three times each"
    assert len(parts) < 30
    pair.touch(left)
    pair.run(1)
    assert right.port.receive_many(100) == [*before, b"c" * LARGE, *after]


def test_a_peer_with_little_room_is_not_sent_more() -> None:
    pair = opened(receive_buffer_bytes=2**18, max_message=2**17)
    left, right = talking(pair)
    wanted = messages(40)
    left.port.send_many(wanted)
    size = sum(row.size for row in polled(left, pair.now))
    assert size <= 2**18 + LARGE + LARGEST
    received: list[bytes] = []
    for _ in range(200):
        pair.touch(left)
        pair.run(0.01)
        received += right.port.receive_many(100)
        pair.touch(right)
    assert received == wanted
    assert right.port.statistics().too_early == 0


@pytest.mark.parametrize("small", [0, 1, 7, 300])
def test_what_is_told_and_counted_is_what_leaves(small: int) -> None:
    """Small messages of one size take less than they are reckoned with: packets differ by that."""
    here = Recorder()
    pair = opened(here=here)
    left, _ = talking(pair)
    here.told.clear()
    before = left.port.statistics().bytes_sent
    for size in (200, 100_000, 5):
        left.port.send_many([bytes(LARGE + size), *[b"s" * 20] * small, *messages(2)])
    rows = polled(left, pair.now)
    sent, told = packets(rows), here.last("packet_sent")
    assert len({it.size for it in sent[:-1]}) >= (2 if small else 1)
    assert [it.size for it in told] == [it.size for it in sent]
    assert [it.sequence for it in told] == [it.sequence for it in sent]
    assert [len(it.frames) for it in told] == [len(it.frames) for it in sent]
    assert left.port.statistics().bytes_sent - before == sum(len(row.data) for row in rows)
    assert left.port.transport is not None
    left.port.transport.catch_up()
    send_side = left.port.transport.send_side
    assert send_side.recovery.bytes_in_flight == sum(it.size for it in sent)


def test_each_piece_is_on_its_way_once() -> None:
    box = send_queue(size=2**24, limit=2**20)
    box.room = LARGEST
    box.push_many(messages(9))
    lane = box.bulk_lane()
    assert lane is not None
    loads = box.take_loads(lane, 5)
    assert [len(load) for load in loads] == [1, 2, 2, 2, 2]
    assert {piece.flights for load in loads for piece in load} == {1}
    assert box.take_loads(lane, 0) == []


def test_what_is_made_stays_behind_on_a_new_path_and_arrives_by_it() -> None:
    pair = opened()
    left, right = talking(pair)
    wanted = messages(12)
    left.port.send_many(wanted)
    until_made(left, pair.now)
    left.handle_new_path(pair.now, RIGHT)
    assert made(left) == 0
    pair.touch(left)
    pair.run(5)
    assert pair.receive(right) == wanted


def test_what_is_made_stays_behind_when_it_is_too_large() -> None:
    pair = Pair(1, settings=ChannelSettings(congestion="fixed:1e9"))
    left, right = talking(pair)
    wanted = messages(12)
    while (size := left.port.statistics().datagram_size) < LARGEST:
        assert pair.transfer(left, right, wanted) == wanted
    left.port.send_many(wanted)
    until_made(left, pair.now)
    waiting = made(left)
    left.handle_too_large(pair.now, size + 1)
    assert made(left) == waiting > 0, "a probe says nothing against smaller ones"
    left.handle_too_large(pair.now, size)
    assert left.port.statistics().datagram_size == 1200
    assert made(left) == 0
    pair.touch(left)
    pair.run(5)
    assert pair.receive(right) == wanted


def test_what_is_made_stays_behind_when_the_peer_closes() -> None:
    pair = opened()
    left, right = talking(pair)
    left.port.send_many(messages(12))
    until_made(left, pair.now)
    assert made(left) > 0
    right.abort(pair.now)
    for row in polled(right, pair.now):
        pair.left.handle_datagrams_untrusted(pair.now, row._replace(address=RIGHT))
    assert left.closed is not None
    assert made(left) == 0


def test_in_bad_weather_each_arrives_once_and_in_order(seed: int) -> None:
    pair = Pair(
        seed,
        Faults(loss=0.1, jitter=0.01, duplicate=0.05),
        ChannelSettings(base_datagram=LARGEST, max_datagram=LARGEST, lanes=(Lane(), Lane())),
    )
    left, right = talking(pair)
    wanted = messages(150)
    sent = 0
    received: list[bytes] = []
    for _ in range(3000):
        count = left.port.room_for([LARGE] * (len(wanted) - sent))
        left.port.send_many(wanted[sent : sent + count])
        sent += count
        pair.touch(left)
        pair.run(0.01)
        received += right.port.receive_many(100)
        pair.touch(right)
        if len(received) == len(wanted):
            break
    assert received == wanted
