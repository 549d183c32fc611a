"""Channels of several services behind one socket: none gets another's."""

import pytest

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.lifecycle import CloseReason, State
from sphtp.core.channel.settings import Lane
from sphtp.core.schema import Schema
from sphtp.errors import LocalError
from sphtp.testing import Pair
from sphtp.testing.pair import LEFT, RIGHT

OTHER = Schema(["another service"])


def serving_pair() -> tuple[Pair, Endpoint, Endpoint]:
    pair = Pair(1)
    left, right = pair.left, pair.right
    assert isinstance(left, Endpoint)
    assert isinstance(right, Endpoint)
    for endpoint in (left, right):
        endpoint.serve(OTHER)
    return pair, left, right


def test_a_channel_of_another_service_waits_where_that_service_looks() -> None:
    pair, left, right = serving_pair()
    dialled = left.dial(pair.now, [RIGHT], schema=OTHER)
    pair.run(1)
    assert dialled.state is State.OPEN
    assert right.poll_incoming() is None
    incoming = right.poll_incoming(OTHER)
    assert incoming is not None
    assert incoming.handshake.schema is OTHER


def test_a_service_that_the_peer_has_not_is_refused() -> None:
    pair = Pair(1)
    left = pair.left
    left.serve(OTHER)
    assert isinstance(left, Endpoint)
    dialled = left.dial(pair.now, [RIGHT], schema=OTHER)
    pair.run(1)
    assert dialled.closed is not None
    assert dialled.closed.reason is CloseReason.SCHEMA


def test_a_service_that_ends_keeps_what_is_open_and_refuses_what_comes() -> None:
    pair, left, right = serving_pair()
    dialled = left.dial(pair.now, [RIGHT], schema=OTHER)
    pair.run(1)
    assert not right.stop_serving(OTHER), "one waits"
    incoming = right.poll_incoming(OTHER)
    assert right.stop_serving(OTHER)
    late = left.dial(pair.now, [RIGHT], schema=OTHER)
    pair.run(1)
    assert late.closed is not None
    assert late.closed.reason is CloseReason.SCHEMA
    assert incoming is not None
    assert (dialled.state, incoming.state) == (State.OPEN, State.OPEN)
    dialled.close(pair.now)
    left.touch(dialled)
    pair.run(1)
    assert incoming.closed is not None
    assert incoming.closed.reason is CloseReason.DONE


def test_channels_of_a_service_have_its_lanes_and_others_those_of_the_settings() -> None:
    pair, left, _ = serving_pair()
    left.serve(OTHER, (Lane(), Lane()))
    with_two, with_one = left.dial(pair.now, [RIGHT], schema=OTHER), left.dial(pair.now, [RIGHT])
    pair.run(1)
    assert with_two.port.has_room(1, 1)
    with pytest.raises(LocalError, match="lane 1"):
        with_one.port.has_room(1, 1)


def test_two_that_dial_at_once_for_different_things_get_both() -> None:
    pair, left, right = serving_pair()
    one = left.dial(pair.now, [RIGHT])
    other = right.dial(pair.now, [LEFT], schema=OTHER)
    pair.run(1)
    assert (one.state, other.state) == (State.OPEN, State.OPEN)
    assert (len(left.connections), len(right.connections)) == (2, 2)
    assert right.poll_incoming() is not None
    assert left.poll_incoming(OTHER) is not None
