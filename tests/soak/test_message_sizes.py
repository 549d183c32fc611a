"""Messages of every size, from nothing to the limit, on a bad path and on a wide one."""

from collections.abc import Sequence
from random import Random

import pytest

from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import MessageTooLargeError
from sphtp.testing import Faults, Pair
from tests.soak.scenarios import BAD, HOUR

PATHS = {"bad": BAD, "wide": Faults(loss=0.05, duplicate=0.02, jitter=0.005)}
EDGES = (256, 1200, 1452, 4096, 65_507, 65_536)
"""Of datagrams, and of the fields that hold lengths."""
AROUND = range(-40, 3)


def check_all_arrive(sizes: Sequence[int], limit: int, path: str, seed: int) -> None:
    settings = ChannelSettings(max_message=limit, receive_buffer_bytes=max(2 * limit, 2**20))
    pair = Pair(seed, PATHS[path], settings)
    left, right = pair.open()
    filling = Random(seed).randbytes(limit)
    sent = [filling[limit - size :] for size in sizes]
    received = pair.transfer(left, right, sent, 100 * HOUR)
    assert list(map(len, received)) == list(sizes), f"seed {seed}"
    assert received == sent, f"seed {seed}"
    with pytest.raises(MessageTooLargeError):
        left.port.room_for([limit + 1])
    pair.drive(lambda: not left.port.statistics().waiting, HOUR)
    assert right.port.statistics().malformed == 0


@pytest.mark.parametrize("path", PATHS)
def test_sizes_around_every_edge(path: str, seed: int) -> None:
    limit = 100_000
    # Only what fits into a datagram depends on what else is in it.
    around = [edge + off for edge in EDGES for off in (AROUND if edge < 10_000 else (-1, 0, 1))]
    check_all_arrive([*range(70), *around, limit - 1, limit], limit, path, seed)


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_limits_smaller_than_a_packet(limit: int, seed: int) -> None:
    check_all_arrive([0, 1, limit - 1, limit] * 20, limit, "bad", seed)


@pytest.mark.soak
@pytest.mark.parametrize("path", PATHS)
def test_every_size_up_to_some_packets_and_every_magnitude_up_to_the_limit(
    path: str, seed: int
) -> None:
    limit = ChannelSettings().max_message
    powers = [2**power + off for power in range(13, 24) for off in (-1, 0, 1)]
    around = [edge + off for edge in EDGES for off in AROUND]
    check_all_arrive([*range(5000), *around, *powers, limit - 1, limit], limit, path, seed)
