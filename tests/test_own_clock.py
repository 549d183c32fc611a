"""The clock of tests on real sockets, which each test has that asks for no other."""

import time

import trio


async def test_it_counts_sleep_and_work_and_nothing_else() -> None:
    began = trio.current_time()
    time.sleep(0.1)  # noqa: ASYNC251 - as if the process was stopped
    assert trio.current_time() < began + 0.1
    await trio.sleep(0.1)
    assert trio.current_time() >= began + 0.1
    working, worked = time.thread_time(), trio.current_time()
    while time.thread_time() < working + 0.02:
        pass
    assert trio.current_time() >= worked + 0.02


async def test_a_sleep_is_as_long_as_it_was_to_be() -> None:
    began = trio.current_time(), time.perf_counter()
    await trio.sleep(0.3)
    assert trio.current_time() - began[0] >= 0.3
    assert time.perf_counter() - began[1] >= 0.29
