"""Many messages at a time: all of them in the end, each looked at about once."""

from collections.abc import Sequence

import pytest

from sphtp.core.channel.burst import OFFERED, Burst
from sphtp.core.channel.port import MessagePort
from sphtp.core.channel.settings import ChannelSettings
from sphtp.errors import MessageTooLargeError
from sphtp.testing import Pair
from tests.recorder import Recorder


@pytest.mark.parametrize("is_full", [False, True])
def test_of_very_many_only_those_in_front_are_looked_at(
    is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what has no room for long would be looked at over and over."""
    pair = Pair(1, settings=ChannelSettings(send_buffer=100))
    left, right = pair.open()
    payloads = [b"%d" % number for number in range(20_000)]
    before = [b"a"] * 100 if is_full else []
    left.port.send_many(before)
    looks, room_for = list[int](), MessagePort.room_for

    def watched(port: MessagePort, sizes: Sequence[int], lane: int = 0) -> int:
        looks.append(len(sizes))
        return room_for(port, sizes, lane)

    monkeypatch.setattr(MessagePort, "room_for", watched)
    burst, received = Burst(left.port, payloads), list[bytes]()
    assert burst.left == 20_000
    while burst.left:
        if not burst.send():
            pair.touch(left)
            pair.run(0.01)
            received += pair.receive(right)
            pair.touch(right)
    pair.run(1)
    assert received + pair.receive(right) == before + payloads
    assert sorted(looks)[-2:] == [OFFERED, 20_000], "all of them once"


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
