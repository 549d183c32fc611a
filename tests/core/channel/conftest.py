"""What the scenarios share: how connections ended, and datagrams lost on purpose."""

from collections.abc import Callable

import pytest

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import Closed, ConnectionEvent
from sphtp.testing import Pair
from sphtp.testing.network import Address

Loses = Callable[[Address, bytes], bool]


@pytest.fixture
def endings() -> Callable[[Connection], list[Closed]]:
    """Every terminal event that a connection has reported."""

    def endings(connection: Connection) -> list[Closed]:
        events: list[ConnectionEvent] = []
        while (event := connection.poll_event()) is not None:
            events.append(event)
        return [event for event in events if isinstance(event, Closed)]

    return endings


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pair, Loses], None]:
    """Lose just the datagrams, by source and content, that a function points at."""

    def lose(pair: Pair, loses: Loses) -> None:
        send = pair.network.send

        def choosy(now: float, source: Address, destination: Address, datagram: bytes) -> None:
            if not loses(source, datagram):
                send(now, source, destination, datagram)

        monkeypatch.setattr(pair.network, "send", choosy)

    return lose
