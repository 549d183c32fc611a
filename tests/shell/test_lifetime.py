"""A background task lives exactly as long as its block, and errors keep their type."""

import pytest
import trio

from sphtp.shell.lifetime import running


class Interrupted:
    """A task that waits for ever and remembers that it was cancelled."""

    def __init__(self) -> None:
        self.cancelled = False

    async def __call__(self) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            self.cancelled = True
            raise


async def fail() -> None:
    raise ValueError("the task")


async def test_the_task_is_cancelled_at_the_end_of_the_block() -> None:
    task = Interrupted()
    async with running(task):
        await trio.testing.wait_all_tasks_blocked()
        assert not task.cancelled
    assert task.cancelled


async def test_an_error_of_the_block_leaves_as_itself_and_ends_the_task() -> None:
    task = Interrupted()

    async def block() -> None:
        async with running(task):
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError

    with pytest.raises(KeyError):
        await block()
    assert task.cancelled


async def test_an_error_of_the_task_leaves_as_itself_and_ends_the_block() -> None:
    with pytest.raises(ValueError, match="the task"):
        async with running(fail):
            await trio.sleep_forever()


async def test_errors_of_both_leave_together() -> None:
    async def block() -> None:
        async with running(fail):
            try:
                await trio.sleep_forever()
            finally:
                raise KeyError

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert {type(error) for error in caught.value.exceptions} == {ValueError, KeyError}


async def test_a_cancelled_block_is_cancelled() -> None:
    task = Interrupted()
    with trio.CancelScope() as scope:
        async with running(task):
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert task.cancelled
