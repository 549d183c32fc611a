"""What the relay carries and for whom, in virtual time."""

import pytest

from sphtp.errors import SettingsError
from sphtp.testing import Faults
from sphtp.testing.network import Address
from sphtp_client.relay import impairment as module
from sphtp_client.relay.impairment import Direction, Forward, Traffic

ONE: Address = ("127.0.0.1", 1)
TWO: Address = ("127.0.0.1", 2)
CLEAN = Faults(delay=0)


def due(traffic: Traffic, now: float) -> list[Forward]:
    traffic.handle_timeout(now)
    found = []
    while (forward := traffic.poll_forward()) is not None:
        found.append(forward)
    return found


def left(traffic: Traffic) -> list[Address]:
    found = []
    while (client := traffic.poll_left()) is not None:
        found.append(client)
    return found


def test_each_way_has_its_own_faults() -> None:
    traffic = Traffic(1, Faults(delay=0.5), Faults(delay=0.1))
    assert traffic.poll_timeout() is None
    traffic.handle_from_client(0.0, ONE, b"ask")
    traffic.handle_from_target(0.0, ONE, b"answer")
    assert traffic.poll_timeout() == 0.1
    assert due(traffic, 0.1) == [Forward(Direction.DOWN, ONE, b"answer")]
    assert traffic.poll_timeout() == 0.5
    assert due(traffic, 0.5) == [Forward(Direction.UP, ONE, b"ask")]
    assert traffic.poll_timeout() == 60.0


def test_clients_share_one_rate_and_one_queue() -> None:
    traffic = Traffic(1, Faults(delay=0, rate=8000, queue=200), CLEAN)
    for client in (ONE, TWO, ONE):
        traffic.handle_from_client(0.0, client, bytes(100))
    assert [forward.client for forward in due(traffic, 0.1)] == [ONE]
    assert [forward.client for forward in due(traffic, 9.0)] == [TWO]
    up = traffic.statistics(9.0).up
    assert (up.offered, up.queue_dropped, up.carried) == (3, 1, 2)


def test_one_seed_gives_one_trace() -> None:
    def trace(seed: int) -> list[Forward]:
        bad = Faults(loss=0.3, duplicate=0.2, jitter=0.01)
        traffic = Traffic(seed, bad, bad)
        for number in range(100):
            traffic.handle_from_client(number * 1e-3, ONE, bytes([number]))
            traffic.handle_from_target(number * 1e-3, ONE, bytes([number]))
        return due(traffic, 10.0)

    assert trace(1) == trace(1) != trace(2)


def test_one_client_too_many_is_not_served_until_another_is_silent() -> None:
    traffic = Traffic(1, CLEAN, CLEAN, clients=1, idle=10.0)
    traffic.handle_from_client(0.0, ONE, b"first")
    traffic.handle_from_client(1.0, TWO, b"refused")
    assert due(traffic, 1.0) == [Forward(Direction.UP, ONE, b"first")]
    # What the target says keeps a client, too.
    traffic.handle_from_target(5.0, ONE, b"answer")
    assert traffic.poll_timeout() == 5.0
    due(traffic, 14.9)
    assert left(traffic) == []
    assert traffic.poll_timeout() == 15.0
    traffic.handle_from_client(15.0, TWO, b"served")
    assert left(traffic) == [ONE]
    assert due(traffic, 15.0) == [Forward(Direction.UP, TWO, b"served")]
    counts = traffic.statistics(15.0)
    assert (counts.clients, counts.refused, counts.up.offered) == (1, 1, 2)


def test_silence_alone_makes_a_client_leave() -> None:
    traffic = Traffic(1, Faults(delay=20.0), CLEAN, idle=10.0)
    traffic.handle_from_client(0.0, ONE, b"late")
    traffic.handle_timeout(10.0)
    assert left(traffic) == [ONE]
    assert due(traffic, 20.0) == []
    traffic.handle_from_target(20.0, ONE, b"to nobody")
    counts = traffic.statistics(20.0)
    assert (counts.down.offered, counts.abandoned) == (0, 2)
    assert traffic.poll_timeout() is None


def test_a_flood_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 1000)
    traffic = Traffic(1, Faults(delay=1.0), Faults(delay=1.0))
    for _ in range(12):
        traffic.handle_from_client(0.0, ONE, bytes(100))
    assert traffic.statistics(0.0).overflowed == 2
    traffic.handle_from_target(0.0, ONE, bytes(100))
    assert len(due(traffic, 1.0)) == 11
    traffic.handle_from_client(1.0, ONE, bytes(1000))
    assert len(due(traffic, 2.0)) == 1
    assert traffic.statistics(2.0).overflowed == 2


@pytest.mark.parametrize("limits", [{"clients": 0}, {"idle": 0.0}, {"idle": float("nan")}])
def test_limits_are_positive(limits: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="must be positive"):
        Traffic(1, CLEAN, CLEAN, **limits)  # type: ignore[arg-type]
