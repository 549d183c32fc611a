"""One seed, one trace: every datagram at its time."""

import pytest

from sphtp.core.channel.lifecycle import State
from sphtp.testing import Faults, Pair
from sphtp.testing.network import Address
from tests.core.channel.talk import send_once

Trace = list[tuple[float, Address, bytes]]


class Traced(Pair):
    """Writes down every datagram that leaves, and that each wake-up was for something."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, Faults(loss=0.2, duplicate=0.1, jitter=0.05))
        self.trace: Trace = []
        send = self.network.send

        def traced(now: float, source: Address, destination: Address, datagram: bytes) -> None:
            self.trace.append((now, source, datagram))
            send(now, source, destination, datagram)

        self.network.send = traced  # type: ignore[method-assign]


def play(seed: int) -> Trace:
    pair = Traced(seed)
    left, right = pair.open()
    sent = [bytes([number]) * number * 10 for number in range(200)]
    assert pair.transfer(left, right, sent) == sent
    send_once(right, b"x")
    right.close(pair.now)
    pair.touch(right)
    pair.run(20)
    assert left.state is right.state is State.CLOSED
    return pair.trace


def test_the_same_seed_gives_the_same_trace() -> None:
    assert play(7) == play(7)


def test_other_seeds_give_other_traces() -> None:
    assert play(7) != play(8)


@pytest.mark.parametrize("seed", range(3))
def test_time_does_not_run_backwards(seed: int) -> None:
    times = [now for now, _, _ in play(seed)]
    assert times == sorted(times)
