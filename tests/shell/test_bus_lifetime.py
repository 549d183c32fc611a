"""The end of a bus socket, and of the Trio run around it."""

import pynng
import pytest
import trio

from sphtp.shell.bus import Publisher, Subscriber

ANY = "tcp://127.0.0.1:0"


async def test_closing_wakes_the_task_that_waits(nursery: trio.Nursery) -> None:
    subscriber = Subscriber()
    woken = trio.Event()

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await subscriber.receive_batch()
        woken.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    subscriber.close()
    await woken.wait()


async def test_after_closing_everything_says_so_and_closing_again_is_fine() -> None:
    publisher, subscriber = Publisher(), Subscriber()
    for opened in (publisher, subscriber):
        opened.close()
        opened.close()
        with pytest.raises(trio.ClosedResourceError):
            opened.listen(ANY)
        with pytest.raises(trio.ClosedResourceError):
            opened.dial(ANY)
        with pytest.raises(trio.ClosedResourceError):
            opened.hang_up(ANY)
    with pytest.raises(trio.ClosedResourceError):
        publisher.send(b"x")
    with pytest.raises(trio.ClosedResourceError):
        subscriber.subscribe(b"x")
    with pytest.raises(trio.ClosedResourceError):
        await subscriber.receive_batch()


async def test_nobody_is_told_of_a_connection_after_closing() -> None:
    told: list[str] = []
    publisher = Publisher(on_connected=lambda: told.append("connected"))
    with Subscriber() as subscriber:
        subscriber.dial(publisher.listen(ANY))
        # Spinning without a checkpoint: the news is on its way, Trio has not had it yet.
        while not publisher.connections:
            pass
        publisher.close()
        await trio.testing.wait_all_tasks_blocked()
    assert told == []


def test_a_connection_after_the_end_of_the_run_disturbs_nobody() -> None:
    async def open_publisher() -> tuple[Publisher, str]:
        publisher = Publisher(on_connected=lambda: None)
        return publisher, publisher.listen(ANY)

    publisher, url = trio.run(open_publisher)
    with publisher, pynng.Sub0(topics=b"") as late:
        late.dial(url, block=True)
        late.recv_timeout = 10_000
        while not publisher.connections:
            pass
        publisher.send(b"still here")
        assert late.recv() == b"still here"


def test_forgetting_to_close_is_a_resource_warning() -> None:
    forgotten = [Subscriber()]
    with pytest.warns(ResourceWarning, match="unclosed"):
        forgotten.clear()
