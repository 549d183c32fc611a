"""Many messages at a time: all of them in the end, each looked at about once."""

import pytest

from sphtp.core.channel.settings import ChannelSettings
from sphtp.testing import Pair
from tests.recorder import Recorder


def test_instruments_are_told_of_what_was_queued() -> None:
    here = Recorder()
    pair = Pair(1, settings=ChannelSettings(send_buffer=5), instrument=here)
    left, _ = pair.open()
    sizes = list(range(1, 9))
    assert left.port.queue_from(0, [b"a" * size for size in sizes], sizes) == 5
    pair.touch(left)
    assert [event[-2:] for event in here.of("messages_queued")] == [(5, 1 + 2 + 3 + 4 + 5)]


@pytest.mark.parametrize("count", [1, 30, 5000])
def test_empty_messages_arrive_however_many_they_are(count: int) -> None:
    pair = Pair(1)
    left, right = pair.open()
    assert pair.transfer(left, right, [b""]) == [b""]
    left.port.send_many([b""] * count)
    pair.touch(left)
    pair.run(2)
    assert pair.receive(right) == [b""] * count
    assert right.port.statistics().malformed == 0
