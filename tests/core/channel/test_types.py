"""Peers whose messages are of other types: refused on every way to a channel, and told by name."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.handshake import (
    Accept,
    Connect,
    decode_connect_untrusted,
    decode_refuse_untrusted,
    encode_accept,
    encode_connect,
)
from sphtp.core.channel.lifecycle import Closed, CloseReason, State
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.schema import Schema
from sphtp.testing import Faults
from sphtp.testing.pair import LEFT, RIGHT, Stage
from tests.cases import each
from tests.core.channel.talk import offer

Endings = Callable[[Connection], list[Closed]]

STEP = Schema(["Step: msgpack Step(number: integer)"])
WIDER = Schema(["Step: msgpack Step(number: integer, time: float)"])
SHOTS = Schema([*STEP.lines, "Shot: bits Shot[power](integer(0..100))"])
NONE = Schema()
MANY = Schema(f"Type{number:04}: msgpack Type({'x' * number})" for number in range(600))
NOWHERE: Address = ("10.9.9.9", 9)


def stage(left: Schema, right: Schema, faults: Faults | None = None) -> Stage:
    settings = ChannelSettings()
    endpoints = {
        LEFT: Endpoint(Random(1), settings, peer_id=1, schema=left),
        RIGHT: Endpoint(Random(2), settings, peer_id=3, schema=right),
    }
    return Stage(1, endpoints, faults)


@pytest.mark.parametrize("schema", [NONE, STEP, SHOTS, MANY])
def test_peers_of_the_same_types_talk(schema: Schema) -> None:
    scene = stage(schema, Schema(reversed(schema.lines)))
    left, right = scene.connect(LEFT, RIGHT)
    assert scene.transfer(left, right, [b"x"]) == [b"x"]


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        (
            STEP,
            WIDER,
            (
                "Step: here msgpack Step(number: integer), "
                "there msgpack Step(number: integer, time: float)"
            ),
        ),
        (SHOTS, STEP, "Shot: here bits Shot[power](integer(0..100)), there missing"),
        (STEP, SHOTS, "Shot: here missing, there bits Shot[power](integer(0..100))"),
        (STEP, NONE, "Step: here msgpack Step(number: integer), there missing"),
        (NONE, STEP, "Step: here missing, there msgpack Step(number: integer)"),
    ],
)
def test_other_types_are_refused_at_once_and_by_name(
    ours: Schema, theirs: Schema, why: str, endings: Endings
) -> None:
    scene = stage(ours, theirs)
    dialled = scene.endpoints[LEFT].dial(0.0, [RIGHT])
    scene.drive(lambda: dialled.closed is not None)
    hashes = [f"{one.schema_hash:016x}" if one.lines else "none" for one in (ours, theirs)]
    text = (
        "the peer at 10.0.0.2:2000 refused the channel: message types differ "
        f"(here {hashes[0]}, there {hashes[1]}): {why}"
    )
    assert endings(dialled) == [Closed(CloseReason.SCHEMA, text, by_peer=True, refusal="schema")]
    assert scene.now < 0.1
    assert scene.endpoints[RIGHT].counters.refused_schema == 1
    assert [endpoint.connections for endpoint in scene.endpoints.values()] == [(), ()]


@each(("ours", "theirs"), list(product([NONE, STEP, MANY], repeat=2)))
def test_no_answer_is_longer_than_its_question(ours: Schema, theirs: Schema) -> None:
    scene = stage(ours, theirs)
    left, right = scene.endpoints[LEFT], scene.endpoints[RIGHT]
    left.dial(0.0, [RIGHT])
    question = left.poll_transmit(0.0)
    assert question is not None
    assert len(question.data) <= ChannelSettings().base_datagram
    right.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, question.data))
    answer = right.poll_transmit(0.0)
    assert answer is not None
    assert len(answer.data) <= len(question.data)
    left.handle_datagrams_untrusted(0.0, Datagrams.of(RIGHT, answer.data))
    again = left.poll_transmit(0.0)
    assert again is None or len(again.data) <= len(answer.data)


def test_an_answer_is_no_longer_than_any_path_takes() -> None:
    endpoint = Endpoint(Random(1), ChannelSettings(), schema=Schema([f"A: {'x' * 9000}"]))
    connect = encode_connect(Connect(1, 0, offer(1), size=60_000))
    endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, connect))
    answer = endpoint.poll_transmit(0.0)
    assert answer is not None
    assert len(answer.data) == ChannelSettings().base_datagram


def test_a_lost_refusal_is_asked_for_again() -> None:
    scene = stage(STEP, NONE, Faults(loss=0.7))
    dialled = scene.endpoints[LEFT].dial(0.0, [RIGHT])
    scene.drive(lambda: dialled.closed is not None)
    assert dialled.closed is not None
    assert dialled.closed.reason is CloseReason.SCHEMA


@pytest.mark.parametrize(("ours", "theirs"), [(STEP, WIDER), (NONE, STEP), (SHOTS, STEP)])
def test_both_dial_at_once_and_both_are_refused(
    ours: Schema, theirs: Schema, endings: Endings
) -> None:
    scene = stage(ours, theirs)
    here = scene.endpoints[LEFT].dial(0.0, [RIGHT], wanted=3)
    there = scene.endpoints[RIGHT].dial(0.0, [LEFT], wanted=1)
    scene.drive(lambda: here.closed is not None and there.closed is not None)
    for dialled in (here, there):
        assert [closed.reason for closed in endings(dialled)] == [CloseReason.SCHEMA]
    for endpoint in scene.endpoints.values():
        assert endpoint.connections == ()
        assert endpoint.poll_incoming() is None


def test_who_dials_again_is_refused_again() -> None:
    scene = stage(STEP, WIDER)
    for times in (1, 2, 3):
        dialled = scene.endpoints[LEFT].dial(scene.now, [RIGHT])
        scene.drive(lambda dialled=dialled: dialled.closed is not None)  # type: ignore[misc]
        assert scene.endpoints[RIGHT].counters.refused_schema == times


def test_the_peer_meant_is_not_waited_for_at_its_other_addresses() -> None:
    scene = stage(STEP, WIDER)
    dialled = scene.endpoints[LEFT].dial(0.0, [NOWHERE, RIGHT], wanted=3)
    scene.drive(lambda: dialled.closed is not None)
    assert scene.now < 0.1
    assert "message types differ" in dialled.closed.text if dialled.closed else False


def test_whoever_is_there_may_understand_us_at_another_address() -> None:
    scene = stage(STEP, WIDER)
    scene.endpoints[NOWHERE] = Endpoint(Random(3), ChannelSettings(), peer_id=5, schema=STEP)
    dialled = scene.endpoints[LEFT].dial(0.0, [RIGHT, NOWHERE])
    scene.drive(lambda: dialled.state is State.OPEN)
    assert dialled.address == NOWHERE


def test_a_refusal_is_told_when_nobody_else_answers() -> None:
    scene = stage(STEP, WIDER)
    dialled = scene.endpoints[LEFT].dial(0.0, [RIGHT, NOWHERE])
    scene.drive(lambda: dialled.closed is not None)
    assert scene.now == pytest.approx(5)
    assert dialled.closed is not None
    assert dialled.closed.reason is CloseReason.SCHEMA
    assert "Step: here" in dialled.closed.text


def test_an_accept_of_other_types_is_declined_on_both_sides(endings: Endings) -> None:
    """As from a peer that does not compare."""
    endpoint = Endpoint(Random(1), ChannelSettings(), schema=STEP)
    dialled = endpoint.dial(0.0, [RIGHT])
    theirs = replace(offer(77), schema_hash=WIDER.schema_hash)
    for token in (dialled.handshake.token ^ 1, dialled.handshake.token):
        accept = encode_accept(dialled.connection_id, Accept(token, theirs))
        while endpoint.poll_transmit(0.0) is not None:
            pass
        endpoint.handle_datagrams_untrusted(0.0, Datagrams.of(RIGHT, accept))
        answer = endpoint.poll_transmit(0.0)
        assert (answer is None) == (token != dialled.handshake.token)
    assert answer is not None
    assert decode_refuse_untrusted(answer.data).token == dialled.handshake.token
    assert [closed.reason for closed in endings(dialled)] == [CloseReason.SCHEMA]

    answerer = Endpoint(Random(2), ChannelSettings(), schema=WIDER)
    connect = Connect(5, 0, replace(offer(77), schema_hash=WIDER.schema_hash))
    answerer.handle_datagrams_untrusted(0.0, Datagrams.of(LEFT, encode_connect(connect)))
    (half_open,) = answerer.connections
    refuse = replace(decode_refuse_untrusted(answer.data), token=5)
    half_open.handle_refuse(0.0, LEFT, refuse)
    assert half_open.state is State.CLOSED


def test_a_forged_hash_opens_nothing_and_ends_nothing() -> None:
    """A hash flipped on the way: refused. And what is open does not listen to it any more."""
    scene = stage(STEP, STEP)
    left, right = scene.connect(LEFT, RIGHT)
    ours = replace(left.handshake.offer, schema_hash=1)
    connect = encode_connect(Connect(left.handshake.token, 0, ours))
    assert decode_connect_untrusted(connect).offer.schema_hash == 1
    accept = encode_accept(
        left.connection_id,
        Accept(left.handshake.token, replace(right.handshake.offer, schema_hash=1)),
    )
    scene.endpoints[LEFT].handle_datagrams_untrusted(scene.now, Datagrams.of(RIGHT, accept))
    scene.endpoints[RIGHT].handle_datagrams_untrusted(scene.now, Datagrams.of(LEFT, connect))
    stranger = encode_connect(Connect(9, 0, replace(offer(9), schema_hash=STEP.schema_hash ^ 1)))
    scene.endpoints[RIGHT].handle_datagrams_untrusted(scene.now, Datagrams.of(NOWHERE, stranger))
    assert scene.endpoints[RIGHT].counters.refused_schema == 1
    assert scene.transfer(left, right, [b"x"]) == [b"x"]
    assert scene.transfer(right, left, [b"y"]) == [b"y"]
    assert scene.endpoints[RIGHT].connections == (right,)
