"""Sealed channels in bad weather: each message once and in order, over many keys, and unaltered.

With a seal corruption is loss: what arrives is what was sent.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.security import PeerPin
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.secure import seal
from sphtp.testing import Faults
from tests.core.channel.sealed import SealedPair, check_forgotten, identity
from tests.profiles import few
from tests.soaked import soaked

KNOWN = PeerPin(identity("right").public)
PATIENT = ChannelSettings(connect_timeout=600, timeout=600, close_timeout=600, max_datagram=1200)
faults = st.builds(
    Faults,
    loss=st.floats(0, 0.3),
    corrupt=st.floats(0, 0.2),
    duplicate=st.floats(0, 0.3),
    jitter=st.floats(0, 0.05),
    reorder=st.floats(0, 0.2),
    burst=st.floats(0, 0.01),
)


def payloads(seed: int, number: int) -> list[bytes]:
    random = Random(f"payloads {seed}")
    sizes = [random.choice((0, 1, 30, 200, 1500, 20_000)) for _ in range(number)]
    return [random.randbytes(size) for size in sizes]


@few
@given(st.integers(0, 2**32), faults, st.booleans(), st.integers(1, 40))
def test_each_message_arrives_once_in_order_and_as_it_was(
    seed: int, weather: Faults, known: bool, number: int
):
    pair = SealedPair(seed, weather, PATIENT)
    left, right = pair.open(KNOWN if known else PeerPin(), 600)
    sent = payloads(seed, number)
    assert pair.transfer(left, right, sent, 600) == sent
    assert pair.transfer(right, left, sent[::-1], 600) == sent[::-1]


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 8))])
def test_keys_change_on_the_way(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seal, "EPOCH_BITS", 5)
    weather = Faults(loss=0.05, corrupt=0.05, jitter=0.03, duplicate=0.1)
    pair = SealedPair(seed, weather, PATIENT)
    left, right = pair.open(KNOWN, 600)
    sent = payloads(seed, 120)
    assert pair.transfer(left, right, sent, 600) == sent
    assert pair.transfer(right, left, sent, 600) == sent
    for connection, endpoint in ((left, pair.left), (right, pair.right)):
        assert connection.port.statistics().sent > 10 << 5, "so many keys were used"
        assert connection.port.statistics().malformed == 0
        assert endpoint.handshake_counters.forged > 0
    for connection in (left, right):
        connection.close(pair.now)
        pair.touch(connection)
    pair.network.set_default(Faults())
    pair.run(700)
    for endpoint in (pair.left, pair.right):
        check_forgotten(endpoint)


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 4))])
def test_corruption_breaks_no_channel(seed: int):
    """In the clear it may; here every third datagram is altered, both ways."""
    pair = SealedPair(seed, Faults(), PATIENT)
    left, right = pair.open(PeerPin(), 600)
    pair.network.set_default(Faults(corrupt=0.3, jitter=0.01))
    sent = payloads(seed, 60)
    assert pair.transfer(left, right, sent, 600) == sent
    assert (left.state, right.state) == (State.OPEN, State.OPEN)
    for connection in (left, right):
        figures = connection.port.statistics()
        assert (figures.malformed, figures.forged_acks, figures.foreign_address) == (0, 0, 0)
