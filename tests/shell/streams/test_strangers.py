"""Those who have not said who they are: a few at once, and not for long."""

import pytest
import trio
from trio.testing import MockClock

from sphtp.shell.stream_admission import PendingReceivers


async def stay(strangers: PendingReceivers, ends: list[int], number: int) -> None:
    try:
        with strangers.one():
            await trio.sleep_forever()
    except trio.TooSlowError:
        ends.append(number)


async def test_the_one_who_came_first_makes_room(autojump_clock: MockClock) -> None:
    strangers, ends = PendingReceivers(3, 5.0), list[int]()
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(stay, strangers, ends, number)
            await trio.testing.wait_all_tasks_blocked()
            assert len(strangers) <= 3
        assert ends == [0, 1]
        assert trio.current_time() == 0
    assert sorted(ends) == [0, 1, 2, 3, 4]
    assert trio.current_time() == 5
    assert len(strangers) == 0


async def test_who_is_done_in_time_is_forgotten(autojump_clock: MockClock) -> None:
    strangers = PendingReceivers(1, 5.0)
    for _ in range(3):
        with strangers.one():
            await trio.sleep(4.9)
        assert len(strangers) == 0


async def test_what_goes_wrong_meanwhile_is_told_as_it_is() -> None:
    strangers = PendingReceivers(1, 5.0)
    with pytest.raises(ValueError, match="own"), strangers.one():
        raise ValueError("its own")
    assert len(strangers) == 0
