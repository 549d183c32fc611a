"""Somebody answers who is not the one meant: the program is told, and nobody else can say it."""

from collections import deque
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endings import refused_by_peer
from sphtp.core.channel.handshake import (
    Accept,
    AnswerRejection,
    Refuse,
    encode_accept,
    encode_refuse,
)
from sphtp.core.channel.lifecycle import CloseReason
from sphtp.core.channel.noise import SecurityContext
from sphtp.core.channel.responder import Responder, ResponderHandshake
from sphtp.core.channel.security import AllowKeys, HandshakeCounters, HandshakeLimits, PeerPin
from sphtp.core.datagrams import Address, Datagrams, Kind
from sphtp.core.schema import Schema
from sphtp.errors import LocalError
from tests.core.channel.sealed import LEFT, RIGHT, SealedPair, identity, make_sealed
from tests.core.channel.talk import offer


@pytest.mark.parametrize(
    ("expectation", "more"),
    [
        pytest.param(
            PeerPin(identity("another").public), {"psk": bytes(32)}, id="XXpsk0, not the pinned key"
        ),
        pytest.param(PeerPin(), {"allow": {identity("left").public}}, id="XX, not allowed"),
        pytest.param(
            PeerPin(identity("right").public),
            {"allow": {identity("left").public}},
            id="IK, not allowed",
        ),
    ],
)
def test_an_impostor_is_called_one(expectation: PeerPin, more: dict[str, Any]):
    pair = SealedPair(**more)
    left = pair.left.dial(pair.now, [RIGHT], 0, expectation)
    pair.drive(lambda: left.closed is not None, seconds=1.0)
    assert left.closed is not None
    assert left.closed.refusal == "impostor"
    assert left.closed.text.endswith("its key is not that of the peer wanted")
    assert pair.left.handshake_counters.denied == 1
    assert not pair.right.has_incoming


def test_no_peer_can_say_so_itself():
    with pytest.raises(LocalError):
        encode_refuse(1, Refuse(2, AnswerRejection.IMPOSTOR))
    assert refused_by_peer("it", Refuse(2, 9), Schema()).refusal == "reason 9"


ELSEWHERE: Address = ("10.0.0.9", 9)


def dial_a_liar(wanted: int, **says: int) -> tuple[Connection, set[Kind]]:
    """Dial somebody who proves its key and then grants what was not asked for.

    Return the attempt as it is after ten seconds, and the kinds of datagrams that left for it.
    """
    left = make_sealed("left")
    context = SecurityContext(
        identity("right"), Random(3), AllowKeys(), None, bytes(32), HandshakeCounters()
    )
    outgoing = deque[Datagrams]()
    liar = Responder(context, HandshakeLimits(), {}, outgoing)
    dialled = left.dial(0.0, [RIGHT, ELSEWHERE], wanted, PeerPin())
    kinds = set[Kind]()
    now = 0.0
    while now < 10:
        left.handle_timeout(now)
        while (sent := left.poll_transmit(now)) is not None:
            kind = Kind(sent.data[0] & 15)
            kinds.add(kind)
            if sent.address != RIGHT or kind not in (Kind.GREET, Kind.CONFIRM):
                continue
            take = liar.handle_greet_untrusted if kind is Kind.GREET else None
            output = (take or liar.handle_confirm_untrusted)(now, LEFT, sent.data)
            if isinstance(output, ResponderHandshake):
                lie = Accept(output.token, replace(offer(77), **says))
                granted = output.accept(encode_accept(output.origin[1], lie))
                outgoing.extend([] if granted is None else [granted])
            while outgoing:
                left.handle_datagrams_untrusted(now, outgoing.popleft()._replace(address=RIGHT))
        now += 0.01
    return dialled, kinds


@pytest.mark.parametrize(("wanted", "says"), [(5, {"peer_id": 7}), (0, {"schema_hash": 9})])
def test_a_sealed_attempt_never_goes_on_in_the_clear(wanted: int, says: dict[str, int]):
    """Whoever answered had proven its key, and granted a channel that nobody here wants."""
    dialled, kinds = dial_a_liar(wanted, **says)
    assert kinds <= {Kind.GREET, Kind.CONFIRM, Kind.SEALED}
    assert dialled.closed is not None
    expected = CloseReason.REFUSED if wanted else CloseReason.SCHEMA
    assert dialled.closed.reason is expected
