"""A source that has nothing to say for long is there all the same."""

import pytest

from sphtp.core.stream.events import StreamEnd
from sphtp.core.stream.settings import StreamSettings
from sphtp.testing import Broadcast, Faults
from tests.soaked import soaked


@pytest.mark.parametrize("seed", [0, *soaked(range(1, 50))])
def test_ten_quiet_minutes_on_a_bad_network_end_nothing(seed: int) -> None:
    broadcast = Broadcast(seed, 3, Faults(delay=0.001, loss=0.3), StreamSettings())
    broadcast.send([b"something"])
    broadcast.run(600)
    for subscriber in broadcast.subscribers:
        assert not any(isinstance(item, StreamEnd) for item in subscriber.items), f"seed {seed}"
    broadcast.send([b"more"])
    broadcast.close()
    broadcast.run(30)
    for subscriber in broadcast.subscribers:
        assert subscriber.payloads == [b"something", b"more"], f"seed {seed}"
        assert isinstance(subscriber.items[-1], StreamEnd), f"seed {seed}"
