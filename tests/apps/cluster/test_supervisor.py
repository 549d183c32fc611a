"""The supervisor with small children, each a few lines of Python."""

import os
import sys
from math import inf

import pytest
import trio
import trio.testing

from sphtp_client.cluster.launcher import ProcessSpec
from sphtp_client.cluster.process import LINE_LIMIT, StopTimeouts, split_lines
from sphtp_client.cluster.run_status import ProcessRole, RunStatus
from sphtp_client.cluster.supervisor import open_supervisor
from tests.apps.cluster.running import FakeLauncher

HEAD = "import json, signal, sys, os\ndef say(**event): print(json.dumps(event), flush=True)\n"
READY = "say(event='connected', id=7, slab=0, slabs=1)\n"
OBEDIENT = READY + "sys.stdin.read()\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + "while True: signal.pause()\n"
SHORT = StopTimeouts(close=0.05, terminate=0.05, kill=5.0)


def spec(name: str, script: str) -> ProcessSpec:
    return ProcessSpec(name, ProcessRole.CLIENT, (sys.executable, "-S", "-c", HEAD + script))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_child_that_ends_by_itself_is_heard_to_the_end():
    status, changes = RunStatus(), []
    with trio.fail_after(10):
        async with open_supervisor(status, lambda: changes.append(1)) as supervisor:
            process = await supervisor.start(
                spec("a", "print('noise'); say(event='finished', steps=3, seconds=1)")
            )
            await supervisor.wait_until(lambda: not process.alive)
    assert process.finished
    assert process.garbage == 1
    assert process.exit is not None
    assert (process.exit.code, process.exit.asked) == (0, False)
    assert len(changes) >= 4


async def test_an_error_of_the_block_is_raised_as_it_is():
    with pytest.raises(LookupError) as raised:
        async with open_supervisor(RunStatus(), lambda: None):
            raise LookupError("no such thing") from OSError()
    assert isinstance(raised.value.__cause__, OSError)


async def test_a_failure_keeps_exit_code_and_last_words():
    status = RunStatus()
    with trio.fail_after(10):
        async with open_supervisor(status, lambda: None) as supervisor:
            good = await supervisor.start(spec("good", OBEDIENT))
            bad = await supervisor.start(spec("bad", "sys.exit('no such thing')"))
            await supervisor.wait_until(lambda: bad.exit is not None and good.id is not None)
            assert good.alive
    assert bad.exit is not None
    assert (bad.exit.code, bad.exit.asked) == (1, False)
    assert list(bad.errors) == ["no such thing"]
    assert good.exit is not None
    assert (good.exit.code, good.exit.asked) == (0, True)


async def test_closing_its_input_is_enough_for_an_obedient_child():
    status = RunStatus()
    timeouts = StopTimeouts(close=inf, terminate=0, kill=0)
    with trio.fail_after(10):
        async with open_supervisor(status, lambda: None, timeouts) as supervisor:
            process = await supervisor.start(spec("a", OBEDIENT))
            await supervisor.wait_until(lambda: process.id is not None)
    assert process.exit is not None
    assert process.exit.code == 0


async def test_a_deaf_child_is_killed_after_its_deadlines():
    status = RunStatus()
    with trio.fail_after(10):
        async with open_supervisor(status, lambda: None, SHORT) as supervisor:
            process = await supervisor.start(spec("a", DEAF))
            await supervisor.wait_until(lambda: process.id is not None)
    assert process.exit is not None
    assert (process.exit.code, process.exit.asked) == (-9, True)
    assert process.pid is not None
    assert is_gone(process.pid)


async def test_cancelling_the_run_leaves_nothing_behind():
    status = RunStatus()
    with trio.fail_after(10), trio.CancelScope() as scope:
        async with open_supervisor(status, lambda: None, SHORT) as supervisor:
            processes = [await supervisor.start(spec(name, OBEDIENT)) for name in "abc"]
            processes.append(await supervisor.start(spec("deaf", DEAF)))
            await supervisor.wait_until(
                lambda: all(process.id is not None for process in processes)
            )
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert all(process.pid is not None and is_gone(process.pid) for process in processes)
    assert all(process.exit is not None for process in processes)


async def test_cancelled_before_a_child_has_said_anything():
    status = RunStatus()
    with trio.fail_after(10), trio.CancelScope() as scope:
        async with open_supervisor(status, lambda: None) as supervisor:
            process = await supervisor.start(spec("a", OBEDIENT))
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert process.pid is not None
    assert is_gone(process.pid)


async def test_a_grandchild_that_keeps_the_pipe_does_not_keep_us(autojump_clock):
    script = "import subprocess; p = subprocess.Popen([sys.executable, '-S', '-c', "
    script += "'import sys; sys.stdin.read()']); say(event='started', id=p.pid, pub='', sub='')\n"
    status = RunStatus()
    async with open_supervisor(status, lambda: None, StopTimeouts(close=inf)) as supervisor:
        autojump_clock.autojump_threshold = inf
        process = await supervisor.start(spec("a", script))
        assert process.pid is not None
        while not is_gone(process.pid):
            await trio.lowlevel.checkpoint()
        # From here on only the pipe is waited for, which the other process keeps open.
        autojump_clock.autojump_threshold = 0.2
        await supervisor.wait_until(lambda: not process.alive)
    assert process.exit is not None
    assert process.exit.code == 0
    assert process.id is not None


async def test_a_command_that_does_not_exist_has_failed_and_the_others_are_ended():
    status = RunStatus()
    with trio.fail_after(10):
        async with open_supervisor(status, lambda: None) as supervisor:
            good = await supervisor.start(spec("good", OBEDIENT))
            bad = await supervisor.start(
                ProcessSpec("bad", ProcessRole.CLIENT, ("/no-such-program",))
            )
            assert bad.exit is not None
            assert bad.failure is not None
            assert "/no-such-program" in bad.failure
    assert good.pid is not None
    assert is_gone(good.pid)


async def test_a_late_end_is_not_that_of_a_successor(autojump_clock):
    status, launcher = RunStatus(), FakeLauncher((5.0, None), (30.0, 0))
    async with open_supervisor(status, lambda: None, launcher=launcher) as supervisor:
        first = await supervisor.start(spec("a", ""))
        second = await supervisor.start(spec("a", ""))
        await supervisor.wait_until(lambda: first.exit is not None)
        assert first.is_lost
        assert second.alive
        assert second.failure is None


async def test_lines_are_cut_whatever_the_chunks(nursery):
    left, right = trio.testing.memory_stream_one_way_pair()

    async def feed() -> None:
        for chunk in (b"on", b"e\n\ntw", b"o\nrest"):
            await left.send_all(chunk)
        await left.aclose()

    nursery.start_soon(feed)
    assert [line async for line in split_lines(right)] == [b"one", b"", b"two", b"rest"]


async def test_a_line_without_end_is_cut_at_the_limit(nursery):
    left, right = trio.testing.memory_stream_one_way_pair()

    async def feed() -> None:
        for _ in range(3):
            await left.send_all(b"x" * LINE_LIMIT)
        await left.aclose()

    nursery.start_soon(feed)
    lengths = [len(line) async for line in split_lines(right)]
    assert sum(lengths) == 3 * LINE_LIMIT
    assert max(lengths) <= 2 * LINE_LIMIT
