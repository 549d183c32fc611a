"""The targets can fail: whatever goes wrong on purpose is seen."""

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from random import Random
from typing import Any

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.datagrams import MOST_BYTES, Datagrams
from sphtp.errors import RemoteError, WireError
from tests.fuzz import flood as floods
from tests.fuzz.choices import Dice, Script
from tests.fuzz.crossing import Crossing
from tests.fuzz.flood import flood
from tests.fuzz.nodes import Subject
from tests.fuzz.siege import NODE, Siege
from tests.fuzz.targets import MOST_ENTRIES, check_size, feed


class Faulty:
    """An endpoint in all but what its subclass does wrong."""

    def __init__(self, *given: Any) -> None:
        self._endpoint = Endpoint(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        self._endpoint.handle_datagrams_untrusted(now, datagrams)

    def handle_rows_untrusted(self, now: float, rows: Sequence[Datagrams]) -> None:
        for row in rows:
            self.handle_datagrams_untrusted(now, row)


class Raising(Faulty):
    """Raises when two datagrams come that it has no channel for."""

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        self._endpoint.handle_datagrams_untrusted(now, datagrams)
        if self.counters.unknown > 2:
            raise KeyError(datagrams.data[:5])


class Chattering(Faulty):
    """Answers without end what is malformed."""

    def poll_transmit(self, now: float, most: int = MOST_BYTES) -> Datagrams | None:
        said = self._endpoint.poll_transmit(now, most)
        return Datagrams.of(NODE, b"?") if said is None and self.counters.malformed > 2 else said


class Sleepless(Faulty):
    """Wants to be woken at once when something was malformed."""

    def poll_timeout(self) -> float | None:
        return 0.0 if self.counters.malformed > 2 else self._endpoint.poll_timeout()


class Hoarding(Faulty):
    """Keeps all that it is sent."""

    kept: list[bytes]

    def handle_datagrams_untrusted(self, now: float, datagrams: Datagrams) -> None:
        self._endpoint.handle_datagrams_untrusted(now, datagrams)
        # Not zeros, which take no memory until they are written; and so much that what earlier
        # tests have given back to the allocator does not hold it.
        kept = [b"x" * 200_000 for _ in datagrams.datagrams]
        self.__dict__.setdefault("kept", []).extend(kept)


class Forgetful(Faulty):
    """Reads every seventh message of another node and loses it."""

    count = 0

    def poll_active(self) -> Connection | None:
        connection = self._endpoint.poll_active()
        if connection is not None and connection.port.readable:
            self.count += 1
            connection.port.receive_many(1 if self.count % 7 == 0 else 0)
        return connection


class RepeatingPort:
    """Gives its last message a second time."""

    def __init__(self, port: Any) -> None:
        self._port = port

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def receive_many(self, limit: int) -> list[bytes]:
        messages: list[bytes] = self._port.receive_many(limit)
        return messages + messages[-1:]


class RepeatingConnection:
    """A connection with such a port."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.port = RepeatingPort(connection.port)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Repeating(Faulty):
    """Delivers messages twice."""

    def poll_active(self) -> Any:
        connection = self._endpoint.poll_active()
        if connection is not None:
            return RepeatingConnection(connection)
        return connection


def subject(kind: Callable[..., Any], *, is_sealed: bool = False) -> Subject:
    return Subject(kind, is_sealed)


def besiege(besieged: Subject, steps: int = 1000) -> None:
    siege = Siege(Dice("1"), besieged)
    for _ in range(steps):
        siege.step()
    check_size(siege.node)


def cross(crossed: Subject) -> None:
    for number in range(30):
        crossing = Crossing(Script(Random(number).randbytes(200)), crossed)
        for _ in range(100):
            crossing.step()
        crossing.finish()


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [(Chattering, "still talking"), (Sleepless, "busy at"), (Hoarding, "bytes in buffers")],
)
def test_a_siege_is_lost_by_one_that(kind: Callable[..., Any], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        besiege(subject(kind), steps=200)


def test_a_siege_is_lost_by_one_that_raises() -> None:
    with pytest.raises(KeyError):
        besiege(subject(Raising))


def test_a_siege_is_lost_by_one_that_believes_forgeries() -> None:
    with pytest.raises(AssertionError, match="forgery"):
        besiege(subject(Endpoint, is_sealed=True))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [(Forgetful, "not message|without loss"), (Repeating, "not message|more")],
)
def test_a_crossing_is_lost_by_one_that(kind: Callable[..., Any], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        cross(subject(kind))


def test_a_crossing_is_lost_by_one_that_believes_what_was_altered() -> None:
    with pytest.raises((AssertionError, ValueError, KeyError)):
        cross(subject(Endpoint, is_sealed=True))


def test_a_flood_is_lost_by_one_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that it is the growth that is seen, and not what is held.
    monkeypatch.setattr(floods, "check_size", lambda _: None)
    with pytest.raises(AssertionError, match="bytes at"):
        flood("1", 4000, lambda _: None, subject(Hoarding))


def test_a_flood_is_lost_by_one_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floods, "SLOWEST", 1e-9)
    with pytest.raises(AssertionError, match="a step of"):
        flood("1", 1000, lambda _: None)


def test_a_decoder_may_raise_one_kind_of_error_only() -> None:
    def raising(error: Exception) -> Iterator[None]:
        raise error

    feed(lambda _: next(raising(RemoteError("no"))), b"")
    for error in (WireError("no"), KeyError("no"), IndexError("no")):
        with pytest.raises(type(error)):
            feed(lambda _, error=error: next(raising(error)), b"")  # type: ignore[misc]


def test_what_is_held_is_counted() -> None:
    check_size(list(repeat(None, MOST_ENTRIES)))
    with pytest.raises(AssertionError, match="entries"):
        check_size({"a": [list(repeat(None, MOST_ENTRIES))]})
