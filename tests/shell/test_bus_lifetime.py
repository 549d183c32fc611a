"""The end of a bus socket, and of the Trio run around it."""

import socket
from typing import Any

import pytest
import trio

from sphtp.shell.bus_dialing import PubSocket, SubSocket
from sphtp.shell.bus_listening import ListeningPubSocket, ListeningSubSocket
from sphtp.shell.lifetime import running
from tests.shell.strangers import SUB, greeting

ANY = "tcp://127.0.0.1:0"


@pytest.mark.parametrize("kind", [SubSocket, ListeningSubSocket])
async def test_closing_wakes_the_task_that_waits(nursery: trio.Nursery, kind: Any) -> None:
    subscriber = kind()
    woken = trio.Event()

    async def wait() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await subscriber.receive_batch()
        woken.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    subscriber.close()
    await woken.wait()


async def test_a_publisher_that_is_closed_runs_no_more(nursery: trio.Nursery) -> None:
    publisher = ListeningPubSocket()
    ran = trio.Event()

    async def run() -> None:
        await publisher.run()
        ran.set()

    nursery.start_soon(run)
    await trio.testing.wait_all_tasks_blocked()
    publisher.close()
    await ran.wait()


async def test_after_closing_everything_says_so_and_closing_again_is_fine() -> None:
    dialling = PubSocket(), SubSocket()
    listening = ListeningPubSocket(), ListeningSubSocket()
    for opened in (*dialling, *listening):
        opened.close()
        opened.close()
    for dialler in dialling:
        with pytest.raises(trio.ClosedResourceError):
            dialler.dial(ANY)
        with pytest.raises(trio.ClosedResourceError):
            dialler.hang_up(ANY)
    for listener in listening:
        with pytest.raises(trio.ClosedResourceError):
            listener.listen(ANY)
    for publisher in (dialling[0], listening[0]):
        with pytest.raises(trio.ClosedResourceError):
            publisher.send(b"x")
    for subscriber in (dialling[1], listening[1]):
        with pytest.raises(trio.ClosedResourceError):
            subscriber.subscribe(b"x")
        with pytest.raises(trio.ClosedResourceError):
            await subscriber.receive_batch()


async def test_nobody_is_told_of_a_connection_after_closing() -> None:
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        publisher = PubSocket(on_connected=lambda: told.append("connected"))
        publisher.dial(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        with listener.accept()[0] as peer:
            peer.sendall(greeting(SUB))
            # Spinning without a checkpoint: the news is on its way, Trio has not had it yet.
            while not publisher.connections:
                pass
            publisher.close()
        await trio.testing.wait_all_tasks_blocked()
    assert told == []


def test_a_connection_after_the_end_of_the_run_disturbs_nobody() -> None:
    async def open_publisher() -> PubSocket:
        return PubSocket(on_connected=lambda: None)

    async def listen(url: str) -> bytes:
        with ListeningSubSocket() as late:
            late.subscribe(b"")
            late.listen(url)
            async with running(lambda: keep_saying(publisher)):
                return (await late.receive_batch())[0]

    async def keep_saying(publisher: PubSocket) -> None:
        while True:
            publisher.send(b"still here")
            await trio.sleep(0.01)

    with ListeningSubSocket() as free:
        url = free.listen("tcp://127.0.0.86:0")  # where no other test binds
    publisher = trio.run(open_publisher)
    with publisher:
        publisher.dial(url)
        assert trio.run(listen, url) == b"still here"


@pytest.mark.parametrize("kind", [SubSocket, ListeningSubSocket])
def test_forgetting_to_close_is_a_resource_warning(kind: Any) -> None:
    forgotten = [kind()]
    with pytest.warns(ResourceWarning, match="unclosed"):
        forgotten.clear()
