"""Many messages at a time: all of them in the end, each looked at about once."""

import pytest

from sphtp.core.channel.message_port import OFFERED, Burst
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import MessageTooLargeError
from sphtp.testing import Pair
from tests.recorder import Recorder


@pytest.mark.parametrize("place", [0, OFFERED - 1, OFFERED, 3 * OFFERED])
def test_where_one_is_too_large_none_is_sent(place: int) -> None:
    pair = Pair(1, settings=ChannelSettings(max_message=1000))
    left, _ = pair.open()
    payloads = [b"a"] * 3 * OFFERED + [b"b"]
    payloads[place] = bytes(1001)
    with pytest.raises(MessageTooLargeError, match="1001 bytes"):
        Burst(left.port, payloads).send()
    assert left.port.statistics().waiting == 0


def test_instruments_are_told_of_what_was_queued() -> None:
    here = Recorder()
    pair = Pair(1, settings=ChannelSettings(send_buffer=5), instrument=here)
    left, _ = pair.open()
    burst = Burst(left.port, [b"a" * size for size in range(1, 9)])
    assert burst.send() == 5
    pair.touch(left)
    assert [event[-2:] for event in here.of("messages_queued")] == [(5, 1 + 2 + 3 + 4 + 5)]
    assert burst.left == 3


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
