"""Many paths: each by itself, on a shared link, changed while it runs."""

from sphtp.testing import DeliveredDatagram, Faults, SimulatedNetwork, VirtualClock
from sphtp.testing.network import Address

A: Address = ("10.0.0.1", 1)
B: Address = ("10.0.0.2", 2)
C: Address = ("10.0.0.3", 3)
BAD = Faults(loss=0.2, duplicate=0.1, corrupt=0.1, jitter=0.05, reorder=0.1, burst=0.01)


def trace(
    seed: int, *paths: tuple[Address, Address], faults: Faults = BAD
) -> list[tuple[float, DeliveredDatagram]]:
    network, clock, arrived = SimulatedNetwork(seed, faults), VirtualClock(), []
    for number in range(300):
        for source, destination in paths:
            network.send(clock(), source, destination, number.to_bytes(2, "big"))
        clock.advance(0.01)
        arrived += [(clock.now, delivery) for delivery in network.take_due(clock.now)]
    return arrived


def test_one_seed_gives_one_trace() -> None:
    assert trace(7, (A, B), (B, A)) == trace(7, (A, B), (B, A))
    assert trace(7, (A, B), (B, A)) != trace(8, (A, B), (B, A))


def test_traffic_elsewhere_changes_nothing() -> None:
    alone = trace(7, (A, B))
    in_company = trace(7, (C, B), (A, B), (B, A))
    assert [entry for entry in in_company if (entry[1].source, entry[1].destination) == (A, B)] == (
        alone
    )
    assert alone


def test_paths_have_fates_of_their_own() -> None:
    def numbers(source: Address, destination: Address) -> list[bytes]:
        return [delivery.datagram for _, delivery in trace(7, (source, destination))]

    assert numbers(A, B) != numbers(B, A)


def test_what_comes_at_one_time_comes_in_the_order_of_sending() -> None:
    network = SimulatedNetwork(1, Faults(delay=0.1))
    for number in range(50):
        network.send(0.0, A if number % 2 else C, B, bytes([number]))
    assert network.next_time() == 0.1
    assert network.take_due(0.0999) == []
    assert [delivery.datagram for delivery in network.take_due(0.1)] == [
        bytes([number]) for number in range(50)
    ]
    assert network.next_time() is None


def test_faults_hold_for_one_direction_and_can_change_any_time() -> None:
    network = SimulatedNetwork(1, Faults(delay=0))

    def arrives(source: Address, destination: Address) -> bool:
        network.send(0.0, source, destination, b"x")
        return bool(network.take_due(0.0))

    assert arrives(A, B)
    network.set_faults(Faults(blocked=True), A, B)
    assert (arrives(A, B), arrives(B, A), arrives(A, C)) == (False, True, True)
    network.set_default(Faults(loss=1.0))
    assert (arrives(A, B), arrives(B, A), arrives(C, A)) == (False, False, False)
    network.set_faults(Faults(delay=0), A, B)
    assert (arrives(A, B), arrives(B, A)) == (True, False)
    assert (network.carried, network.dropped) == (4, 5)
    assert network.statistics(0.0, A, B).blocked == 2
    assert network.statistics(0.0, B, A).lost == 2
    assert network.statistics(0.0, C, B).offered == 0


def test_what_is_under_way_arrives_though_the_path_is_cut() -> None:
    network = SimulatedNetwork(1, Faults(delay=1.0))
    network.send(0.0, A, B, b"before")
    network.set_default(Faults(blocked=True))
    network.send(0.5, A, B, b"after")
    assert [delivery.datagram for delivery in network.take_due(5.0)] == [b"before"]


def test_paths_on_one_link_share_its_rate_and_its_queue() -> None:
    network = SimulatedNetwork(1, Faults(delay=0))
    link = network.share_link(Faults(rate=8000, queue=300, delay=0), (A, C), (B, C))
    for source in (A, B, A, B):
        network.send(0.0, source, C, bytes(100))
    assert [delivery.source for delivery in network.take_due(1.0)] == [A, B, A]
    assert network.statistics(0.0, A, C) == network.statistics(0.0, B, C) == link.statistics(0.0)
    assert (network.carried, network.dropped) == (3, 1)
    network.set_default(Faults(blocked=True))
    network.send(1.0, A, C, b"still")
    link.faults = Faults(blocked=True)
    network.send(1.0, B, C, b"gone")
    assert [delivery.datagram for delivery in network.take_due(2.0)] == [b"still"]
