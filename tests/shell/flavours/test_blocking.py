"""Plain programs: methods wait, errors are those of Trio's objects, and nothing is left behind."""

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from sphtp import (
    Delivery,
    Outcome,
    Peer,
    RefusedError,
    Request,
    RequestError,
    UnreachableError,
    blocking,
)
from sphtp.config import ChannelSettings
from sphtp.events import PeerEntered
from sphtp.shell.config import Config
from sphtp.shell.flavours import NOTHING, Kept

BRIEFLY = Config(channel=ChannelSettings(linger=0.05))


@contextmanager
def pair() -> Iterator[tuple[blocking.Channel, blocking.Channel]]:
    """Two ends of a channel."""
    with (
        blocking.open_node(config=BRIEFLY) as here,
        blocking.open_node(config=BRIEFLY) as there,
        here.open_channel(*there.address) as sender,
        there.accept() as receiver,
    ):
        yield sender, receiver


@pytest.fixture(autouse=True)
def _the_thread_ends() -> Iterator[None]:
    yield
    assert "sphtp" not in {thread.name for thread in threading.enumerate()}


def test_threads_share_what_cancelled_calls_have_taken() -> None:
    kept, taken = Kept(deque([None] * 3000), None), list[Any]()

    def take() -> None:
        while (value := kept.take()) is not NOTHING:
            taken.append(value)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == [None] * 3000
    assert Kept(deque([1, 2, 3]), 2).take() == [1, 2]
    for args, kwargs in ((2,), {}), ((), {"limit": 2}):
        assert Kept.of_call(deque([1, 2, 3]), "receive_many", args, kwargs).take() == [1, 2]
    assert Kept.of_call(deque([1, 2, 3]), "receive_many", (), {}).take() == [1, 2, 3]
    assert Kept(deque(), 2).take() is Kept(None, 2).take() is NOTHING


def test_a_channel_carries_messages_both_ways() -> None:
    with pair() as (here, there):
        here.send({"step": 1})
        here.send_many([2, 3])
        assert there.receive() == {"step": 1}
        assert there.receive_many(1) == [2]
        receipt = there.post("back")
        assert here.receive() == "back"
        assert receipt.wait() is Outcome.DELIVERED
        with pytest.raises(trio.WouldBlock):
            here.receive_nowait()
        assert there.receive() == 3
        here.send_nowait("once", delivery=Delivery.UNRELIABLE)
        assert there.receive() == "once"
        here.close()
        assert list(there) == []


def test_clients_answer_requests_and_join_groups() -> None:
    def increase(request: Request) -> int:
        if request.value < 0:
            raise RequestError("too small")
        return int(request.value) + 1

    with (
        blocking.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        blocking.open_client(server.address, name="Ann", config=BRIEFLY) as ann,
    ):
        with blocking.open_client(server.address, name="Bob", config=BRIEFLY) as bob:

            def serve() -> None:
                with suppress(trio.ClosedResourceError):
                    bob.serve("increase", increase)

            serving = threading.Thread(target=serve)
            serving.start()
            while True:
                with suppress(RefusedError):
                    assert ann.request("Bob", "increase", 1) == 2
                    break
            with pytest.raises(RequestError, match="too small"):
                ann.request("Bob", "increase", -1)
        serving.join()
        with ann.join("alone", state=lambda: None) as group:
            assert list(group.exchange("step")) == ["step"]
            assert group.reduce(3) == 3


def test_clients_find_each_other_and_tell_of_events() -> None:
    with blocking.open_server("tcp://127.0.0.1:0", new_cluster=True) as server:
        server.wait_active()
        with (
            blocking.open_client(server.address, data="Ann", config=BRIEFLY) as ann,
            ann.events() as events,
            blocking.open_client([str(server.address)], data="Bob", config=BRIEFLY) as bob,
        ):
            peer = ann.wait_for_peer(lambda it: it.data == "Bob")
            assert isinstance(peer, Peer)
            assert dict(ann.peers) == {bob.id: peer}
            event = next(events)
            assert isinstance(event, PeerEntered)
            assert event.peer.id == bob.id
            with (
                bob.publish("positions") as source,
                ann.subscribe_to(bob.id, "positions") as positions,
            ):
                source.wait_for_receivers()
                source.send([1.0, 2.0])
                assert positions.receive() == [1.0, 2.0]
            bob.set_data("Robert")
            assert ann.wait_for_peer(lambda it: it.data == "Robert").id == bob.id
            assert blocking.fetch_status(server.address)["id"] is not None


def test_handlers_serve_in_threads_of_their_own() -> None:
    class Echo:
        def __call__(self, channel: blocking.Channel) -> None:
            for message in channel:
                channel.send(message)

    with blocking.open_node(config=BRIEFLY) as server, blocking.open_node(config=BRIEFLY) as client:

        def serve() -> None:
            with suppress(ExceptionGroup):
                server.serve_channels(Echo())

        serving = threading.Thread(target=serve)
        serving.start()
        failures = list[object]()

        def ask(name: int) -> None:
            with client.open_channel(*server.address) as channel:
                for number in range(10):
                    channel.send([name, number])
                    if channel.receive() != [name, number]:
                        failures.append((name, number))

        asking = [threading.Thread(target=ask, args=[name]) for name in range(8)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
    serving.join()
    assert failures == []


def test_errors_are_those_of_the_objects_for_trio() -> None:
    with pytest.raises(UnreachableError), blocking.open_client("tcp://127.0.0.1:1"):
        pass
    with pair() as (here, there):
        with pytest.raises(TypeError):
            here.send(object())
        there.close()
        with pytest.raises(trio.EndOfChannel):
            here.receive()
        with pytest.raises(trio.ClosedResourceError):
            there.receive()
    with pytest.raises(trio.ClosedResourceError):
        here.send(1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
        blocking.open_client("tcp://127.0.0.1:1", timeout=1)  # type: ignore[call-arg]


def test_an_error_in_a_block_leaves_it_as_it_is() -> None:
    mistake = ZeroDivisionError()

    def fail() -> None:
        with pair() as (here, _):
            here.send(1)
            raise mistake

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert caught.value is mistake


def test_what_fails_beside_a_block_leaves_it_and_ends_the_calls_in_it() -> None:
    def fail(_: blocking.Receipt) -> None:
        raise ZeroDivisionError

    def wait_for_ever() -> None:
        with pair() as (here, there):
            here.post(1).add_callback(fail)
            there.receive()
            here.receive()

    with pytest.raises(ZeroDivisionError) as caught:
        wait_for_ever()
    assert isinstance(caught.value.__context__, trio.ClosedResourceError)


def test_time_limits_lose_nothing() -> None:
    with pair() as (here, there):
        with pytest.raises(TimeoutError), blocking.fail_after(0.02):
            there.receive()
        with blocking.fail_after(60.0):
            here.send("late")
            assert there.receive() == "late"
        with pytest.raises(TimeoutError), blocking.fail_after(0):
            there.receive_many()


def test_an_interrupt_cancels_the_call_and_loses_nothing() -> None:
    main = threading.get_ident()

    def interrupt() -> None:
        while not is_waiting(main):
            pass
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pair() as (here, there):
            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                there.receive()
            thread.join()
            here.send("after")
            assert there.receive() == "after"
    finally:
        signal.signal(signal.SIGINT, before)


def is_waiting(thread: int) -> bool:
    """Return true if a thread waits in ``receive``."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - there is no other way to look
    names = list[str]()
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[:2] == ["wait", "exception"]


def test_a_function_that_the_library_calls_must_not_wait() -> None:
    answers = list[str]()
    called = threading.Event()

    def on_outcome(receipt: blocking.Receipt) -> None:
        assert receipt.outcome is Outcome.DELIVERED
        try:
            receipt.wait()
        except RuntimeError as error:
            answers.append(str(error))
        called.set()

    with pair() as (here, there):
        here.post(1).add_callback(on_outcome)
        there.receive()
        assert called.wait(10)
    assert "must not wait" in answers[0]


FORGETFUL = """
from sphtp import blocking
server = blocking.open_server("tcp://127.0.0.1:0", new_cluster=True).__enter__()
client = blocking.open_client(server.address).__enter__()
print("open", blocking.fetch_status(server.address)["id"] == server.id)
"""


def test_a_program_that_leaves_its_blocks_open_ends(tmp_path: Path) -> None:
    script = tmp_path / "forgetful.py"
    script.write_text(FORGETFUL)
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "open True\n", "")


def test_a_forked_process_opens_its_own_and_has_none_of_its_parents() -> None:
    program = """
import os
import trio
from sphtp import blocking
with blocking.open_node() as node:
    child = os.fork()
    if not child:
        try:
            node.address
        except trio.ClosedResourceError:
            with blocking.open_node() as own:
                own.address
            print("closed in the child", flush=True)
if child:
    os.waitpid(child, 0)
    print("left in the parent")
"""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "closed in the child\nleft in the parent\n"
