"""Who has to prove itself by when, and who makes room for whom."""

from dataclasses import dataclass, field
from functools import partial

from sphtp.shell.bus_handshakes import AcceptLimits, Handshakes, site_of
from tests.cases import each


@dataclass(eq=False)
class Connection:
    handshakes: Handshakes
    site: str
    owner: object = None
    is_ended: bool = field(default=False, init=False)

    def end(self) -> None:
        self.is_ended = True
        self.handshakes.end(self)


def crowd(handshakes: Handshakes, site: str, number: int, now: float = 0.0) -> list[Connection]:
    connections = [Connection(handshakes, site) for _ in range(number)]
    for connection in connections:
        handshakes.begin(now, connection)
    return connections


def left(*connections: Connection) -> list[bool]:
    return [not connection.is_ended for connection in connections]


def test_each_has_its_deadline_and_who_proves_itself_has_none() -> None:
    handshakes = Handshakes(AcceptLimits(handshake_timeout=10))
    (early,) = crowd(handshakes, "a", 1)
    (late,) = crowd(handshakes, "a", 1, now=5.0)
    (proven,) = crowd(handshakes, "a", 1, now=6.0)
    handshakes.end(proven)
    assert handshakes.next_due() == 10.0
    handshakes.handle_timeout(9.9)
    assert left(early, late, proven) == [True, True, True]
    handshakes.handle_timeout(10.0)
    assert left(early, late, proven) == [False, True, True]
    handshakes.handle_timeout(99.0)
    assert left(early, late, proven) == [False, False, True]
    assert handshakes.next_due() is None
    assert handshakes.counters.timed_out == 2


def test_who_holds_the_most_places_loses_its_oldest() -> None:
    """What must hold: a flood from one place pushes out itself, and nobody who came before it."""
    handshakes = Handshakes(AcceptLimits(max_handshakes=16))
    (honest,) = crowd(handshakes, "honest", 1)
    flood = crowd(handshakes, "stranger", 1000)
    (newcomer,) = crowd(handshakes, "newcomer", 1)
    assert left(honest, newcomer) == [True, True]
    assert sum(left(*flood)) == 14
    assert left(*flood[-14:]) == [True] * 14
    assert handshakes.counters.evicted == 1000 + 2 - 16


def test_room_is_made_among_those_of_one_socket_only() -> None:
    handshakes = Handshakes(AcceptLimits())
    one, other = Connection(handshakes, "a", "one"), Connection(handshakes, "a", "other")
    for connection in (one, other):
        handshakes.begin(0.0, connection)
    assert handshakes.evict("other")
    assert left(one, other) == [True, False]
    assert not handshakes.evict("other")
    assert handshakes.evict()
    assert not handshakes.evict()


def test_who_only_listens_is_believed_for_the_sake_of_who_speaks() -> None:
    handshakes = Handshakes(AcceptLimits(), secret=True)
    here, there = Connection(handshakes, "here"), Connection(handshakes, "there")
    for connection in (here, there):
        handshakes.begin(0.0, connection, partial(handshakes.trusts, connection.site))
    handshakes.trust("here")
    handshakes.trust("here")
    handshakes.distrust("here")
    assert handshakes.trusts("here")
    handshakes.handle_timeout(99.0)
    assert left(here, there) == [True, False]
    handshakes.distrust("here")
    assert not handshakes.trusts("here")


@each(
    ("host", "site"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1:2:3:4", "2001:db8::"),
        ("2001:db8::ffff:2:3:4", "2001:db8::"),
        ("2001:db8:0:1::1", "2001:db8:0:1::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::"),
    ],
)
def test_a_site_is_an_ipv4_address_or_half_an_ipv6_address(host: str, site: str) -> None:
    assert site_of(host) == site
