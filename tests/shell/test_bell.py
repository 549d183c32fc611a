"""A bell wakes the one who listens, and is not lost on the one who comes later."""

import trio

from sphtp.shell.bell import Bell


async def test_ringing_ends_the_wait(nursery: trio.Nursery) -> None:
    bell, woken = Bell(), trio.Event()

    async def wait() -> None:
        with bell.listening(None):
            await trio.sleep_forever()
        woken.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    bell.ring()
    await woken.wait()
    assert bell.answer()
    assert not bell.answer()


async def test_what_rang_before_ends_the_next_wait_at_once() -> None:
    bell = Bell()
    bell.ring()
    with bell.listening(None):
        await trio.sleep_forever()
    assert bell.answer()


async def test_a_deadline_ends_the_wait_too(autojump_clock: trio.testing.MockClock) -> None:
    bell = Bell()
    with bell.listening(trio.current_time() + 60):
        await trio.sleep_forever()
    assert not bell.answer()
    assert trio.current_time() == 60


async def test_after_an_answer_the_next_wait_is_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bell = Bell()
    bell.ring()
    assert bell.answer()
    with bell.listening(5):
        await trio.sleep_forever()
    assert trio.current_time() == 5
