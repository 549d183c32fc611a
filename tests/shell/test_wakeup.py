"""A wake-up reaches the one who waits, and is not lost on the one who comes later."""

import trio

from sphtp.shell.driver import Wakeup


async def test_a_wake_up_ends_the_wait(nursery: trio.Nursery) -> None:
    wakeup, woken = Wakeup(), trio.Event()

    async def wait() -> None:
        with wakeup.waiting(None):
            await trio.sleep_forever()
        woken.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    wakeup.wake()
    await woken.wait()
    assert wakeup.clear()
    assert not wakeup.clear()


async def test_one_before_the_wait_ends_it_at_once() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    with wakeup.waiting(None):
        await trio.sleep_forever()
    assert wakeup.clear()


async def test_a_deadline_ends_the_wait_too(autojump_clock: trio.testing.MockClock) -> None:
    wakeup = Wakeup()
    with wakeup.waiting(trio.current_time() + 30):
        await trio.sleep_forever()
    assert not wakeup.clear()
    assert trio.current_time() == 30


async def test_once_cleared_the_next_wait_is_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wakeup = Wakeup()
    wakeup.wake()
    assert wakeup.clear()
    with wakeup.waiting(5):
        await trio.sleep_forever()
    assert trio.current_time() == 5
