"""All channels behind one socket: who is answered, who is refused, and what is forgotten."""

from collections.abc import Callable
from itertools import groupby
from random import Random

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import TURN, TURN_BYTES, Endpoint
from sphtp.core.channel.handshake import (
    Accept,
    Connect,
    Refusal,
    decode_refuse_untrusted,
    encode_accept,
    encode_connect,
)
from sphtp.core.channel.lifecycle import Closed, CloseReason, Opened, State
from sphtp.core.channel.receipts import Outcome, Ticket
from sphtp.core.channel.settings import ChannelSettings, Delivery
from sphtp.core.datagrams import Address, Datagrams, Kind, decode_front_untrusted
from sphtp.testing import Faults, Pair
from sphtp.testing.pair import LEFT, RIGHT
from tests.core.channel.sealed import SealedPair, check_forgotten
from tests.core.channel.talk import offer

Endings = Callable[[Connection], list[Closed]]
Lose = Callable[[Pair, Callable[[Address, bytes], bool]], None]
NOWHERE = ("10.9.9.9", 9)


def kind(datagram: bytes) -> Kind:
    return decode_front_untrusted(datagram)[0]


def connect(number: int, wanted: int = 0) -> bytes:
    return encode_connect(Connect(token=number, wanted=wanted, offer=offer(number, 5)))


def poll_all(endpoint: Endpoint, now: float) -> list[bytes]:
    sent = list[bytes]()
    while (transmit := endpoint.poll_transmit(now)) is not None:
        sent += transmit.datagrams
    return sent


@pytest.mark.parametrize("lost", [Kind.CONNECT, Kind.ACCEPT, Kind.DATA])
@pytest.mark.parametrize("times", [1, 3])
def test_a_lost_handshake_is_made_up_for(lost: Kind, times: int, lose: Lose) -> None:
    pair, left_to_lose = Pair(1), [None] * times
    lose(
        pair,
        lambda _, datagram: (
            kind(datagram) is lost and bool(left_to_lose) and not left_to_lose.pop()
        ),
    )
    left, right = pair.open()
    assert not left_to_lose
    assert pair.now < 1
    assert pair.transfer(left, right, [b"x"]) == [b"x"]
    assert pair.left.connections == (left,)
    assert pair.right.connections == (right,)


@pytest.mark.parametrize("pair", [Pair(1), SealedPair(1)], ids=["clear", "sealed"])
def test_what_comes_after_an_abort_is_not_taken_in(pair: Pair | SealedPair) -> None:
    """The end of the channel may wait long until the socket takes it."""
    left, right = pair.open()
    pair.run(1)
    left.port.send_many([b"too late"])
    pair.left.touch(left)
    sent = pair.left.poll_transmit(pair.now)
    assert sent is not None
    right.abort(pair.now, "enough")
    before = pair.right.counters.unknown
    pair.right.handle_datagrams_untrusted(pair.now, sent._replace(address=LEFT))
    assert not right.port.readable
    assert pair.right.counters.unknown == before + 1
    pair.touch(right)
    pair.drive(lambda: left.closed is not None)
    assert left.closed is not None
    assert "enough" in left.closed.text


def test_nobody_there(endings: Endings) -> None:
    pair = Pair(1)
    pair.network.set_default(Faults(blocked=True))
    dialled = pair.left.dial(0.0, [RIGHT], wanted=3)
    pair.drive(lambda: dialled.closed is not None)
    assert pair.now == pytest.approx(5)
    text = "peer 0x00000003 at 10.0.0.2:2000 did not answer within 5.0 s"
    assert endings(dialled) == [Closed(CloseReason.UNREACHABLE, text, by_peer=False)]
    assert pair.network.dropped == 27, "at 0, 0.1, 0.23, 0.38, 0.58 s, and then every 0.2 s"
    assert pair.left.connections == ()
    assert pair.left.poll_timeout() is None


def test_an_address_of_version_six_is_named_in_brackets() -> None:
    endpoint = Endpoint(Random(1), ChannelSettings())
    dialled = endpoint.dial(0.0, [("::1", 5)])
    assert dialled.peer_name == "the peer at [::1]:5"


def test_the_first_candidate_to_answer_is_used() -> None:
    pair = Pair(1)
    pair.endpoints[NOWHERE] = Endpoint(Random(5), ChannelSettings(), peer_id=7)
    dialled = pair.left.dial(0.0, [("10.9.9.8", 1), NOWHERE, RIGHT], wanted=3)
    pair.network.set_faults(Faults(blocked=True), LEFT, ("10.9.9.8", 1))
    pair.drive(lambda: dialled.state is State.OPEN)
    assert dialled.address == RIGHT
    assert pair.endpoints[NOWHERE].counters.refused_wrong_peer >= 1


def test_a_wrong_peer_refuses(endings: Endings) -> None:
    pair = Pair(1)
    dialled = pair.left.dial(0.0, [RIGHT], wanted=9)
    pair.drive(lambda: dialled.closed is not None)
    text = (
        "peer 0x00000009 at 10.0.0.2:2000 refused the channel: "
        "it is another peer than the one wanted"
    )
    assert endings(dialled) == [
        Closed(CloseReason.REFUSED, text, by_peer=True, refusal="wrong_peer")
    ]
    assert pair.now < 0.1
    assert pair.right.counters.refused_wrong_peer == 1
    assert pair.right.connections == ()


def test_a_peer_that_claims_another_id_is_not_taken() -> None:
    endpoint = Endpoint(Random(1), ChannelSettings())
    dialled = endpoint.dial(0.0, [RIGHT], wanted=9)
    accept = encode_accept(dialled.connection_id, Accept(dialled.handshake.token, offer(77, 8)))
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(RIGHT, accept))
    assert dialled.state is State.CONNECTING


def test_a_refusal_with_another_token_or_from_elsewhere_is_nothing() -> None:
    pair = Pair(1)
    dialled = pair.left.dial(0.0, [RIGHT])
    other = pair.left.dial(0.0, [RIGHT, NOWHERE])
    for connection, token, address in (
        (dialled, 1, RIGHT),
        (other, other.handshake.token, RIGHT),
        (dialled, dialled.handshake.token, NOWHERE),
    ):
        datagram = bytes([0x13]) + connection.connection_id.to_bytes(4, "little")
        datagram += token.to_bytes(8, "little") + b"\1"
        pair.left.handle_datagrams_untrusted(0.0, Datagrams.of(address, datagram))
    assert dialled.state is other.state is State.CONNECTING


def test_a_full_backlog_refuses(endings: Endings) -> None:
    pair = Pair(1, right_settings=ChannelSettings(backlog=2))
    dialled = [pair.left.dial(0.0, [RIGHT]) for _ in range(3)]
    pair.run(1)
    assert [it.state for it in dialled] == [State.OPEN, State.OPEN, State.CLOSED]
    assert endings(dialled[2])[0].text == (
        "the peer at 10.0.0.2:2000 refused the channel: it has too many channels"
    )
    assert pair.right.counters.refused_full == 1
    assert pair.right.poll_incoming() is not None
    again = pair.left.dial(pair.now, [RIGHT])
    pair.run(1)
    assert again.state is State.OPEN


def test_a_flood_of_connects_is_held_to_the_backlog() -> None:
    settings = ChannelSettings(backlog=50)
    endpoint = Endpoint(Random(1), settings)
    for number in range(1, 601):
        address = (f"10.1.{number >> 8}.{number & 255}", 1000)
        endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(address, connect(number)))
    assert len(endpoint.connections) == 50
    assert endpoint.counters.refused_full == 550
    answers = poll_all(endpoint, 0.0)
    assert len(answers) <= 100
    assert all(len(answer) < len(connect(1)) for answer in answers)
    assert endpoint.poll_incoming() is None, "none has proved its address"
    endpoint.handle_timeout(settings.connect_timeout)
    assert poll_all(endpoint, settings.connect_timeout) == []
    assert endpoint.connections == ()
    assert endpoint.poll_timeout() is None
    check_forgotten(endpoint)


def test_answers_are_never_longer_than_questions_nor_more() -> None:
    endpoint = Endpoint(Random(1), ChannelSettings())
    for _ in range(5):
        endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, connect(1)))
        (answer,) = poll_all(endpoint, 0.0)
        assert len(answer) < len(connect(1))
    now = 0.0
    while (when := endpoint.poll_timeout()) is not None:
        now = when
        endpoint.handle_timeout(now)
        assert poll_all(endpoint, now) == []
    assert now == 5


def test_unknown_ids_are_counted_and_an_accept_is_declined() -> None:
    endpoint = Endpoint(Random(1), ChannelSettings())
    for first in (0x10, 0x12, 0x13):
        endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(RIGHT, bytes([first]) + bytes(60)))
    assert (endpoint.counters.unknown, endpoint.counters.malformed) == (1, 2)
    accept = encode_accept(123, Accept(77, offer(55, 3)))
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(RIGHT, accept))
    assert endpoint.counters.unknown == 2
    (answer,) = poll_all(endpoint, 0.0)
    assert decode_front_untrusted(answer) == (Kind.REFUSE, 55)
    refuse = decode_refuse_untrusted(answer)
    assert (refuse.token, refuse.reason) == (77, Refusal.GONE)
    assert len(answer) < len(accept)


def test_an_opener_that_gave_up_frees_its_place_at_once() -> None:
    pair = Pair(1, Faults(delay=0.2))
    dialled = pair.left.dial(0.0, [RIGHT])
    pair.run(0.25)
    assert len(pair.right.connections) == 1
    dialled.close(pair.now)
    pair.touch(dialled)
    assert dialled.closed is not None
    pair.run(0.5)
    assert not pair.right.connections
    assert pair.right.poll_incoming() is None


def test_a_connect_that_comes_late_makes_no_channel() -> None:
    pair = Pair(1)
    connects: list[bytes] = []
    send = pair.network.send

    def listen(now: float, source: Address, destination: Address, datagram: bytes) -> None:
        if kind(datagram) is Kind.CONNECT:
            connects.append(datagram)
        send(now, source, destination, datagram)

    pair.network.send = listen  # type: ignore[method-assign]
    left, right = pair.open()
    send(pair.now, LEFT, RIGHT, connects[0])
    pair.run(1)
    assert [*pair.right.connections] == [right]
    left.close(pair.now)
    pair.touch(left)
    pair.run(10)
    send(pair.now, LEFT, RIGHT, connects[0])
    pair.run(1)
    assert not pair.right.connections
    assert not pair.left.connections
    assert pair.right.poll_incoming() is None


@pytest.mark.parametrize("dials", [1, 2, 3])
def test_a_node_can_dial_itself(dials: int) -> None:
    pair = Pair(1)
    dialled = [pair.left.dial(0.0, [LEFT], wanted=wanted) for wanted in [0, 1, 0][:dials]]
    answered: list[Connection] = []
    for _ in range(50):
        pair.run(0.1)
        while (incoming := pair.left.poll_incoming()) is not None:
            answered.append(incoming)
    assert [it.state for it in dialled] == [State.OPEN] * dials
    assert len(answered) == dials
    assert len(pair.left.connections) == 2 * dials
    for number, connection in enumerate(dialled):
        pair.send(connection, b"%d" % number)
    pair.run(1)
    assert sorted(pair.receive(it)[0] for it in answered) == [b"%d" % n for n in range(dials)]


def test_an_incoming_channel_is_reported_once_and_open() -> None:
    pair = Pair(1, Faults(duplicate=1.0))
    pair.left.dial(0.0, [RIGHT])
    pair.run(3)
    incoming = pair.right.poll_incoming()
    assert incoming is not None
    assert incoming.poll_event() == Opened()
    assert pair.right.poll_incoming() is None


@pytest.mark.parametrize("size", [256, 1200, 65_507])
def test_connections_take_turns(size: int) -> None:
    settings = ChannelSettings(
        congestion="fixed:1e11", base_datagram=size, max_datagram=size, max_window=2**25
    )
    pair = Pair(1, settings=settings)
    connections = [pair.left.dial(0.0, [RIGHT]) for _ in range(3)]
    pair.run(1)
    for connection in connections:
        connection.port.send_many([bytes(size - 100)] * 2 * TURN)
        pair.left.touch(connection)
    sent = poll_all(pair.left, pair.now)
    turns = [list(turn) for _, turn in groupby(sent, key=lambda it: decode_front_untrusted(it)[1])]
    assert len({decode_front_untrusted(turn[0])[1] for turn in turns[:3]}) == 3
    for turn in turns:
        assert len(turn) < 2 * TURN, "a batch more than a turn at most"
        assert sum(map(len, turn)) < TURN_BYTES + size
    assert len(turns) >= 2 * 3
    assert len(sent) == 3 * 2 * TURN


def test_who_changed_is_told() -> None:
    pair = Pair(1)
    left, right = pair.open()
    assert pair.left.poll_active() is None
    left.port.send_many([b"x"])
    pair.left.touch(left)
    sent = pair.left.poll_transmit(pair.now)
    assert sent is not None
    assert pair.left.poll_active() is None, "nobody waits for what left"
    pair.right.handle_datagrams_untrusted(pair.now, sent._replace(address=LEFT))
    assert pair.right.poll_active() is right
    assert pair.right.poll_active() is None
    left.abort(pair.now, "enough")
    pair.left.touch(left)
    while pair.left.poll_transmit(pair.now) is not None:
        pass
    assert pair.left.poll_active() is left, "that it has ended"


def test_who_changed_is_told_while_the_socket_is_full() -> None:
    pair = Pair(1)
    left, _ = pair.open()
    poll_all(pair.left, pair.now)
    left.events.clear()
    while pair.left.poll_active() is not None:
        pass
    ticket = Ticket(pair.now, deadline=pair.now + 0.1)
    left.port.send(b"stays here", ticket, Delivery.RELIABLE)
    pair.left.touch(left)
    pair.left.handle_timeout(pair.now, is_blocked=True)
    assert pair.left.poll_active() is None
    pair.left.handle_timeout(pair.now + 0.2, is_blocked=True)
    assert pair.left.poll_active() is left
    assert left.port.poll_settled() is ticket
    assert ticket.outcome is Outcome.EXPIRED
    assert pair.left.poll_active() is None
    left.abort(pair.now + 0.3, "nothing leaves")
    pair.left.touch(left)
    pair.left.handle_timeout(pair.now + 0.3, is_blocked=True)
    assert pair.left.poll_active() is left


def test_after_everything_nothing_is_kept() -> None:
    pair = Pair(1, Faults(loss=0.2, duplicate=0.2, jitter=0.05))
    for round_ in range(20):
        for endpoint, there in ((pair.left, RIGHT), (pair.right, LEFT)):
            endpoint.dial(pair.now, [there])
        pair.run(1)
        for endpoint in (pair.left, pair.right):
            while endpoint.poll_incoming() is not None:
                pass
            for connection in endpoint.connections:
                (connection.close if round_ % 2 else connection.abort)(pair.now)
                pair.touch(connection)
    pair.run(60)
    for endpoint in (pair.left, pair.right):
        assert isinstance(endpoint, Endpoint)
        assert endpoint.connections == ()
        check_forgotten(endpoint)


def open_and_close(pair: Pair, *payloads: bytes) -> None:
    dialled = pair.left.dial(pair.now, [RIGHT])
    pair.drive(lambda: dialled.state is State.OPEN)
    for payload in payloads:
        dialled.port.send_many([payload])
    dialled.close(pair.now)
    pair.touch(dialled)
    pair.drive(lambda: not pair.left.connections and not pair.right.connections)


def test_channels_that_ended_unread_give_their_places_back() -> None:
    settings = ChannelSettings(backlog=2, linger=0)
    pair = Pair(1, settings=settings)
    for _ in range(5):
        open_and_close(pair)
    assert pair.right.counters.refused_full == 0
    assert not pair.right.has_incoming


def test_a_channel_that_ended_with_messages_unread_is_still_given_out() -> None:
    pair = Pair(1, settings=ChannelSettings(linger=0))
    open_and_close(pair, b"read me")
    answered = pair.right.poll_incoming()
    assert answered is not None
    assert pair.receive(answered) == [b"read me"]


def test_a_closed_endpoint_refuses_new_channels() -> None:
    pair = Pair(1)
    pair.right.close(pair.now, "leaving")
    dialled = pair.left.dial(pair.now, [RIGHT])
    pair.drive(lambda: dialled.state is State.CLOSED)
    assert dialled.closed is not None
    assert dialled.closed.text.endswith("refused the channel: it has given up, or is closing")
    assert pair.right.counters.refused_closed == 1
