"""Whatever arrives in whatever state: nothing is raised, nothing grows, nothing is made up."""

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.frames import Fragment, Header, encode_data, encode_frames
from sphtp.core.channel.lifecycle import Closed, State
from sphtp.core.channel.receipts import Ticket
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import FRONT, VERSION, Datagrams, Kind
from sphtp.core.serial import unwrap, wrap
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from sphtp.testing.pair import LEFT, RIGHT
from tests.attack.channel.forged import forge, open_pair
from tests.core.channel.talk import follow
from tests.core.channel.test_framing import frames
from tests.profiles import brisk

STARTS = (0, 32767, 65535, 2**32 - 1)
STRANGER: Address = ("10.0.0.9", 1)
SETTINGS = ChannelSettings(backlog=4, max_message=2000, receive_buffer_bytes=20_000)
BLOCKED = Faults(blocked=True)


class Victim(NamedTuple):
    """A connection, where it lives, and who its peer is."""

    pair: Pair
    endpoint: Endpoint
    connection: Connection
    peer: Address


def opened() -> Victim:
    pair = Pair(1, settings=SETTINGS)
    left, _ = pair.open()
    pair.run(0.5)
    return Victim(pair, pair.left, left, RIGHT)


def connecting() -> Victim:
    pair = Pair(1, BLOCKED, SETTINGS)
    return Victim(pair, pair.left, pair.left.dial(0.0, [RIGHT]), RIGHT)


def answering() -> Victim:
    pair = Pair(1, settings=SETTINGS)
    pair.network.set_faults(BLOCKED, RIGHT, LEFT)
    pair.left.dial(0.0, [RIGHT])
    pair.run(0.05)
    (connection,) = pair.right.connections
    return Victim(pair, pair.right, connection, LEFT)


def draining() -> Victim:
    victim = opened()
    victim.pair.network.set_default(BLOCKED)
    victim.pair.send(victim.connection, b"x")
    victim.connection.close(victim.pair.now)
    return victim


def closing() -> Victim:
    victim = opened()
    victim.pair.network.set_default(BLOCKED)
    victim.connection.close(victim.pair.now)
    return victim


def lingering() -> Victim:
    victim = opened()
    (other,) = victim.pair.right.connections
    other.close(victim.pair.now)
    victim.pair.touch(other)
    victim.pair.run(0.05)
    return victim


def closed() -> Victim:
    victim = opened()
    victim.connection.abort(victim.pair.now)
    victim.pair.touch(victim.connection)
    return victim


VICTIMS: dict[State, Callable[[], Victim]] = {
    State.CONNECTING: connecting,
    State.ANSWERING: answering,
    State.OPEN: opened,
    State.DRAINING: draining,
    State.CLOSING: closing,
    State.LINGERING: lingering,
    State.CLOSED: closed,
}

words = st.integers(0, 0xFFFF)
headers = st.builds(Header, words, words, st.integers(0, 0xFFFFFFFF))
bodies = st.one_of(
    st.binary(max_size=100),
    # Long enough for a CONNECT.
    st.binary(max_size=60).map(lambda start: start.ljust(1200, b"\0")),
    st.builds(
        lambda header, row: encode_data(0, header)[FRONT.size :] + encode_frames(row),
        headers,
        st.lists(frames, max_size=4),
    ),
)
kinds = st.sampled_from((*Kind, 4, 15))
attacks = st.lists(st.tuples(kinds, st.booleans(), bodies), max_size=20)


def drain(victim: Victim) -> None:
    while victim.endpoint.poll_transmit(victim.pair.now) is not None:
        pass


def attack(victim: Victim, source: Address, row: list[tuple[int, bool, bytes]]) -> None:
    for kind, is_known, body in row:
        connection_id = victim.connection.connection_id if is_known else 77
        datagram = FRONT.pack(VERSION << 4 | kind, connection_id) + body
        victim.endpoint.handle_datagrams_untrusted(victim.pair.now, Datagrams.of(source, datagram))
        drain(victim)


def test_every_state_has_its_victim() -> None:
    assert {state: build().connection.state for state, build in VICTIMS.items()} == {
        state: state for state in State
    }


@brisk
@given(st.sampled_from(State), attacks)
def test_a_peer_that_talks_nonsense_is_survived(
    state: State, row: list[tuple[int, bool, bytes]]
) -> None:
    """Nothing seals the packets, so that a liar at the peer's address may end the channel."""
    victim = VICTIMS[state]()
    attack(victim, victim.peer, row)
    assert len(victim.endpoint.connections) <= 1 + SETTINGS.backlog
    victim.pair.network.set_default(BLOCKED)
    victim.pair.network.set_faults(BLOCKED, RIGHT, LEFT)
    victim.pair.run(60)
    assert victim.connection.state is State.CLOSED
    assert not victim.endpoint.connections
    events = list(iter(victim.connection.poll_event, None))
    assert sum(isinstance(event, Closed) for event in events) == 1
    assert isinstance(events[-1], Closed)


@brisk
@given(st.sampled_from([state for state in State if state is not State.CLOSED]), attacks)
def test_a_stranger_changes_nothing(state: State, row: list[tuple[int, bool, bytes]]) -> None:
    """It does not know the token; the id alone is worth nothing from another address."""
    victim = VICTIMS[state]()
    due = victim.endpoint.poll_timeout()
    attack(victim, STRANGER, row)
    assert victim.connection.state is state
    assert not victim.connection.port.readable
    assert victim.connection in victim.endpoint.connections
    next_due = victim.endpoint.poll_timeout()
    assert due is None or (next_due is not None and next_due <= due)


@brisk
@given(st.sampled_from(STARTS), st.integers(0, 60), words, st.integers(0, 0xFFFFFFFF))
def test_only_packets_that_were_sent_can_be_acked(
    start: int, count: int, ack: int, bits: int
) -> None:
    """An ack that was made up is believed of what it can be true of, and of nothing else."""
    pair = Pair(1, settings=ChannelSettings(first_sequence=start))
    left, _ = pair.open()
    pair.run(0.5)
    pair.network.set_default(BLOCKED)
    first = start + left.port.statistics().sent
    tickets: list[Ticket] = []
    for _ in range(count):
        tickets.append(follow(left, b"x", pair.now))
        pair.touch(left)
    unsent = tickets[left.port.statistics().sent + start - first :]
    last = start + left.port.statistics().sent - 1
    newest = unwrap(ack, last)
    datagram = forge(left, sequence=wrap(start + 40), ack=ack, bits=bits)
    pair.left.handle_datagrams_untrusted(pair.now, Datagrams.of(RIGHT, datagram))
    figures = left.port.statistics()
    assert figures.forged_acks == figures.malformed == (newest > last)
    named = {newest - bit for bit in range(32) if bits >> bit & 1 and newest <= last}
    delivered = {first + at for at, ticket in enumerate(tickets) if ticket.outcome is not None}
    assert delivered == named & set(range(first, last + 1))
    assert all(ticket.outcome is None for ticket in unsent)


@brisk
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 12), st.binary(min_size=1)),
        max_size=40,
    )
)
def test_fragments_that_disagree_make_up_nothing(
    parts: list[tuple[int, int, int, bytes]],
) -> None:
    """What is delivered has a size that was told, and each byte at a place where it was sent."""
    pair, _, right = open_pair(max_message=12)
    sent: dict[tuple[int, int], set[int]] = {}
    for sequence, (message_id, offset, total, payload) in enumerate(parts, 10):
        fragment = Fragment(0, message_id, offset, total, payload[:12])
        datagram = forge(right, [fragment], sequence=sequence)
        pair.right.handle_datagrams_untrusted(pair.now, Datagrams.of(LEFT, datagram))
        for place, byte in enumerate(payload[:12], offset):
            sent.setdefault((total, place), set()).add(byte)
    received = pair.receive(right)
    assert len(received) <= 3
    for message in received:
        assert all(byte in sent[len(message), place] for place, byte in enumerate(message))
    receive_side = right.port.receive_side
    assert receive_side is not None
    assert receive_side.receive_queue.held <= 3 * (12 + 256), "three of 12 bytes"
