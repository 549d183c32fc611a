"""What leaves a node goes in turns, and nothing stays behind."""

from collections import deque
from typing import Any, cast

from sphtp.core.datagrams import Address, Datagrams
from sphtp.shell.departures import Departures

HERE, THERE = ("127.0.0.1", 1), ("127.0.0.1", 2)


class Talker:
    """An endpoint that has rows to send."""

    def __init__(self, rows: list[Datagrams]) -> None:
        self.rows = deque(rows)
        self.asked: list[int] = []
        self.refused: list[tuple[Address, int]] = []

    def poll_transmit(self, now: float, most: int) -> Datagrams | None:
        self.asked.append(most)
        return self.rows.popleft() if self.rows else None

    def handle_too_large(self, now: float, address: Address, size: int) -> None:
        self.refused.append((address, size))


class Socket:
    """Has room for so many rows, and remembers what one call got."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.calls: list[list[Datagrams]] = []
        self.too_large: dict[tuple[Address, int], None] = {}

    def send(self, rows: deque[Datagrams]) -> bool:
        number = min(self.room, len(rows))
        self.room -= number
        self.calls.append([rows.popleft() for _ in range(number)])
        return not rows

    @property
    def sent(self) -> list[Datagrams]:
        return [row for call in self.calls for row in call]


def departures(udp: Socket, endpoint: Talker) -> Departures:
    return Departures(cast("Any", udp), cast("Any", endpoint))


def rows(number: int, size: int, address: Address = HERE) -> list[Datagrams]:
    return [Datagrams.of(address, bytes([n]) * size) for n in range(number)]


def test_all_that_there_is_leaves_in_order() -> None:
    said = rows(3, 100) + rows(2, 100, THERE) + rows(1, 100)
    udp = Socket()
    assert departures(udp, Talker(said)).send(0.0, 1_000_000)
    assert udp.sent == said
    assert [len(call) for call in udp.calls] == [3, 2, 1], "one call, one address"


def test_a_turn_ends_and_the_next_one_goes_on() -> None:
    said = rows(10, 60_000)
    udp = Socket()
    leaving = departures(udp, Talker(said))
    assert not leaving.send(0.0, 130_000)
    assert not leaving.is_blocked
    assert sum(len(row.data) for row in udp.sent) == 180_000, "the first that is enough"
    turns = 1
    while not leaving.send(0.0, 130_000):
        turns += 1
    assert udp.sent == said
    assert turns == 3


def test_no_more_is_made_than_a_turn_takes() -> None:
    endpoint = Talker(rows(10, 60_000))
    assert not departures(Socket(), endpoint).send(0.0, 130_000)
    assert len(endpoint.rows) == 7


def test_what_finds_no_room_waits_and_goes_first() -> None:
    said = rows(5, 100)
    udp = Socket(room=2)
    leaving = departures(udp, Talker(said))
    assert not leaving.send(0.0, 1_000_000)
    assert leaving.is_blocked
    udp.room = 1000
    assert leaving.send(0.0, 1_000_000)
    assert not leaving.is_blocked
    assert udp.sent == said


def test_what_the_host_refuses_for_its_size_is_told() -> None:
    udp, endpoint = Socket(), Talker(rows(1, 100))
    udp.too_large[HERE, 9000] = None
    assert departures(udp, endpoint).send(0.0, 1_000_000)
    assert endpoint.refused == [(HERE, 9000)]
    assert not udp.too_large


def test_an_endpoint_is_told_what_is_left_of_a_turn() -> None:
    talker = Talker(rows(3, 100) + rows(2, 100, THERE))
    assert departures(Socket(), talker).send(0.0, 1000)
    assert talker.asked == [1000, 900, 800, 700, 600, 500, 500]
