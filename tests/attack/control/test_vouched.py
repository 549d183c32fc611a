"""Somebody on the way, who has no secret: replays, cuts, bends, reorders and blows up messages."""

import random

import pytest

from sphtp.core.control.client_messages import Announce, Heartbeat, Leave
from sphtp.core.control.codec import MAX_MESSAGE
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import PeerLeft, ServerLeft
from sphtp.core.secure.vouch import MARK_SIZE, SPEAKERS_KEPT, Authenticity, Voucher, strip
from sphtp.errors import MessageTooLargeError
from sphtp.testing.cluster import SimulatedCluster
from tests.cases import each
from tests.core.control.helpers import Node, established, is_established

SECRET = bytes(range(32))


def talk() -> tuple[SimulatedCluster, Node, Node, Node]:
    bus = SimulatedCluster(secret=SECRET)
    first, second = bus.server(0, new_cluster=True), bus.server(1, join=[0])
    bus.run_until(lambda: all(len(s.machine.view.active) == 2 for s in (first, second)))
    client = bus.client("victim", (0, 1), packed=b"data")
    established(bus, client)
    bus.run(3.0)
    return bus, first, second, client


def state(*nodes: Node) -> list[object]:
    return [
        (node.machine.id, node.machine.view, dict(getattr(node.machine, "clients", {})))
        for node in nodes
    ]


def test_nothing_is_heard_twice() -> None:
    """What must hold: a recording of the whole run, played to everybody, changes nothing."""
    bus, *nodes = talk()
    before = state(*nodes)
    for node in nodes:
        for speaker in nodes:
            if speaker is not node:
                for data in speaker.published:
                    bus.inject(node, data)
    assert state(*nodes) == before
    bus.run(30.0)
    assert is_established(nodes[-1])
    assert all(node.machine.counters[Count.REPLAYED] > 0 for node in nodes)
    assert nodes[0].of(PeerLeft) == nodes[0].of(ServerLeft) == []


def test_a_goodbye_cannot_be_kept_for_later() -> None:
    """What must hold: a client that took its leave and came back is not sent away by the first."""
    bus, first, _, client = talk()
    client.machine.leave(bus.now)
    bus.pump(client)
    bus.run(2.0)
    goodbye = client.published[-1]
    again = bus.client("again", (0, 1))
    established(bus, again)
    bus.inject(first, goodbye)
    assert first.machine.counters[Count.REPLAYED] == 1
    assert again.machine.id in first.machine.clients


@each("seed", range(5))
def test_what_was_bent_is_not_heard(seed: int) -> None:
    """What must hold: with any one bit changed, a message is nobody's."""
    choice = random.Random(seed)
    voucher, listener = Voucher(SECRET, 1), Voucher(SECRET, 2)
    data = voucher.vouch(Announce(7, choice.getrandbits(64), key=bytes(32)).encode())
    for bit in range(8 * len(data)):
        bent = bytearray(data)
        bent[bit // 8] ^= 1 << bit % 8
        assert listener.judge(bytes(bent)) is Authenticity.UNVOUCHED, f"seed {seed}, bit {bit}"
    assert listener.judge(data) is Authenticity.GENUINE


def test_what_was_cut_or_lengthened_is_not_heard() -> None:
    """What must hold: no part of a message passes for a message, and nothing can be added."""
    voucher, listener = Voucher(SECRET, 1), Voucher(SECRET, 2)
    data = voucher.vouch(Heartbeat(7, 5, 1).encode())
    for size in range(len(data)):
        assert listener.judge(data[:size]) is Authenticity.UNVOUCHED
        assert listener.judge(data[size + 1 :]) is Authenticity.UNVOUCHED
    for more in (b"\0", bytes(4), data[-MARK_SIZE:], data):
        assert listener.judge(data + more) is Authenticity.UNVOUCHED
    assert listener.judge(data) is Authenticity.GENUINE


def test_messages_in_another_order_are_heard_as_far_as_they_go_on() -> None:
    """What must hold: nobody can put an old word after a new one."""
    voucher, listener = Voucher(SECRET, 1), Voucher(SECRET, 2)
    said = [voucher.vouch(Heartbeat(7, 5, number).encode()) for number in range(5)]
    verdicts = [listener.judge(said[number]) for number in (1, 0, 3, 2, 4)]
    assert [verdict is Authenticity.GENUINE for verdict in verdicts] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_the_mark_of_one_message_is_worth_nothing_under_another() -> None:
    voucher, listener = Voucher(SECRET, 1), Voucher(SECRET, 2)
    heartbeat = voucher.vouch(Heartbeat(7, 5, 1).encode())
    assert listener.judge(Leave(7, 5).encode() + heartbeat[-MARK_SIZE:]) is Authenticity.UNVOUCHED


def test_a_process_that_starts_again_is_heard_again() -> None:
    """What must hold: numbers begin anew with a new boot, and the old boot's stay used up."""
    listener = Voucher(SECRET, 9)
    before = Voucher(SECRET, 1).vouch(Heartbeat(7, 5).encode())
    assert listener.judge(before) is Authenticity.GENUINE
    assert (
        listener.judge(Voucher(SECRET, 2).vouch(Heartbeat(7, 5).encode())) is Authenticity.GENUINE
    )
    assert listener.judge(before) is Authenticity.REPLAYED


def test_oversized_messages_are_neither_said_nor_heard() -> None:
    voucher = Voucher(SECRET, 1)
    with pytest.raises(MessageTooLargeError, match="at most"):
        voucher.vouch(bytes(MAX_MESSAGE - MARK_SIZE + 1))
    largest = voucher.vouch(bytes(MAX_MESSAGE - MARK_SIZE))
    assert len(largest) == MAX_MESSAGE
    assert Voucher(SECRET, 2).judge(largest) is Authenticity.GENUINE
    assert Voucher(SECRET, 2).judge(bytes(2 * MAX_MESSAGE)) is Authenticity.UNVOUCHED


def test_speakers_beyond_number_cost_a_bounded_memory() -> None:
    """What must hold: only who has the secret is remembered at all, and the longest silent goes."""
    listener, message = Voucher(SECRET, 1 << 63), Heartbeat(7, 5).encode()
    for _ in range(1000):
        assert listener.judge(message + bytes(MARK_SIZE)) is Authenticity.UNVOUCHED
    said = [Voucher(SECRET, boot).vouch(message) for boot in range(SPEAKERS_KEPT + 1)]
    for data in said:
        assert listener.judge(data) is Authenticity.GENUINE
    assert [listener.judge(data) for data in said[-SPEAKERS_KEPT:]] == (
        [Authenticity.REPLAYED] * SPEAKERS_KEPT
    )
    assert listener.judge(said[0]) is Authenticity.GENUINE


def test_what_was_vouched_for_is_as_it_was() -> None:
    message = Heartbeat(7, 5, 1).encode()
    assert strip(Voucher(SECRET, 1).vouch(message)) == message
