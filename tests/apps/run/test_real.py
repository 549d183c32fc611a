"""`sphtp run` as a user runs it: real processes, which crash, ignore signals and leave children."""

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.apps.cluster.running import Run, gone, is_alive
from tests.house.pages import ROOT
from tests.interpreters import ForkedProcess


@asynccontextmanager
async def started(file: Path, *options: str) -> AsyncIterator[Run]:
    process = ForkedProcess.of_module("sphtp", ("run", str(file), *options))
    run = Run(process)
    try:
        with trio.fail_after(120):
            yield run
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            await process.wait()
            await run.source.aclose()
            await process.aclose()


def write(folder: Path, text: str) -> Path:
    file = folder / "run.toml"
    file.write_text(text)
    return file


def pids(run: Run) -> list[int]:
    found = (re.fullmatch(r"\S+: pid (\d+)", line) for line in run.lines)
    return [int(match[1]) for match in found if match]


def exists(path: str) -> bool:
    return Path(path).exists()


def events(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.lines]


# Programs alone


async def test_a_program_that_crashes_starts_again_until_its_limit_which_ends_the_run(
    tmp_path: Path,
) -> None:
    file = write(
        tmp_path,
        """
        servers = { count = 0 }
        [program.steady]
        command = "sleep 1000"
        [program.broken]
        command = ["sh", "-c", "echo $WORD; echo 'no disk' >&2; exit 7"]
        environment = { WORD = "I am {name}" }
        restart = "on-failure"
        max_restarts = 2
        backoff = 0.02
        """,
    )
    async with started(file, "--json") as run:
        assert await run.end() == 3
    seen = events(run)
    assert [it["phase"] for it in seen if it["event"] == "ended" and "phase" in it] == [
        "restarting",
        "restarting",
        "failed",
    ]
    spoken = [it for it in seen if it["event"] == "line"]
    assert sorted({(it["stream"], it["text"]) for it in spoken}) == [
        ("stderr", "no disk"),
        ("stdout", "I am broken"),
    ]
    assert len(spoken) == 6
    order = [it["event"] for it in seen if it.get("program") == "broken"]
    assert order == ["started", "line", "line", "ended"] * 3
    end = seen[-1]
    assert (end["event"], end["outcome"], end["exit_code"]) == ("outcome", "failed", 3)
    assert end["message"] == "broken failed: exit code 7 (no disk), after 2 restarts"
    assert {it["program"]: it["restarts"] for it in end["programs"]} == {"steady": 0, "broken": 2}
    assert not any(is_alive(it["pid"]) for it in seen if it["event"] == "started")


async def test_what_ignores_the_signal_is_killed_with_its_children_when_the_grace_is_over(
    tmp_path: Path,
) -> None:
    # The child has a session of its own, in which no signal to the group reaches it.
    file = write(
        tmp_path,
        """
        servers = { count = 0 }
        [program.first]
        command = "sleep 1000"
        [program.stubborn]
        command = ["sh", "-c", "trap '' TERM; setsid sleep 1000 & echo child $!; wait; sleep 1000"]
        after = ["first"]
        grace = 0.2
        """,
    )
    logs = tmp_path / "logs"
    async with started(file, "--logs", str(logs)) as run:
        await run.line("stubborn: pid")
        log = logs / "stubborn.log"
        while not (log.exists() and log.read_text()):  # noqa: ASYNC110 # a file
            await trio.sleep(0.01)
        child = int(log.read_text().split()[1])
        assert is_alive(child)
        run.process.send_signal(signal.SIGINT)
        assert await run.end() == 130
    # In the reverse order of their starts.
    assert [line for line in run.lines if "ended" in line] == [
        "stubborn: ended, killed by SIGKILL",
        "first: ended, killed by SIGTERM",
    ]
    assert not any("child" in line for line in run.lines)
    assert run.lines[-1].startswith("interrupted before the end")
    assert not any(is_alive(pid) for pid in (*pids(run), child))


async def test_nothing_outlives_a_killed_run(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        servers = { count = 0 }
        [program.a]
        command = ["sh", "-c", "sleep 1000 & echo child $!; wait"]
        """,
    )
    async with started(file) as run:
        child = int((await run.line("child")).split()[-1])
        run.process.kill()
        for pid in (*pids(run), child):
            await gone(pid)


# With servers; these start interpreters, and .ci/run runs them beside the quick suite.


@pytest.mark.soak
async def test_the_example_runs_to_its_end() -> None:
    async with started(ROOT / "examples/run/run.toml") as run:
        assert await run.end() == 0
    found = [re.fullmatch(r"worker-\d \| pi is about (3\.1\d+)", line) for line in run.lines]
    assert len({match[1] for match in found if match}) == 1
    assert sum(match is not None for match in found) == 3
    assert "report | the workers have finished" in run.lines
    assert run.lines[-1].startswith("finished")
    assert not any(is_alive(pid) for pid in pids(run))
    assert len(pids(run)) == 6


PEER = """
import os, sys
from pathlib import Path
import trio
import sphtp

async def main(name):
    async with sphtp.open_client(name=name) as client:
        print("servers", len(client.servers), flush=True)
        if name == "peer-1" and not Path("crashed").exists():
            Path("crashed").touch()
            os.abort()
        async with client.join("sum", size=3) as group:
            for _ in range(5):
                total = sum(await group.exchange(group.step))
            print("total", total, flush=True)
            if "stay" in sys.argv:
                await trio.sleep_forever()

trio.run(main, sys.argv[1])
"""

WITH_SERVERS = """
[servers]
count = 2
heartbeat = 0.25
expiry = 20
[program.peer]
command = "python peer.py {name} MODE"
count = 3
restart = "on-failure"
backoff = 0.1
"""


@pytest.mark.soak
async def test_peers_reach_the_servers_and_one_that_crashes_comes_back(tmp_path: Path) -> None:
    (tmp_path / "peer.py").write_text(PEER)
    file = write(tmp_path, WITH_SERVERS.replace("MODE", "once"))
    async with started(file, "--json") as run:
        assert await run.end() == 0
    seen = events(run)
    assert [it["text"] for it in seen if it["event"] == "line" and "total" in it["text"]] == [
        "total 12"
    ] * 3
    crashed = [it for it in seen if it["event"] == "ended" and it.get("phase") == "restarting"]
    assert [(it["program"], it["exit_code"]) for it in crashed] == [("peer-1", -signal.SIGABRT)]
    [handed] = [it for it in seen if it["event"] == "servers"]
    assert len(handed["environment"]["SPHTP_CLIENT_SERVER"].split()) == 2
    # The secret is gone with the run.
    assert not exists(handed["environment"]["SPHTP_CLIENT_SECRET_FILE"])
    assert {it["phase"] for it in seen[-1]["programs"]} == {"ended", "finished"}


@pytest.mark.soak
async def test_ctrl_c_ends_programs_before_servers_and_a_lost_server_comes_back(
    tmp_path: Path,
) -> None:
    (tmp_path / "peer.py").write_text(PEER)
    file = write(tmp_path, WITH_SERVERS.replace("MODE", "stay"))
    async with started(file, "--json") as run:
        for _ in range(3):
            await run.line("total")
        listening = [it for it in events(run) if it["event"] == "listening"]
        [lost] = [
            it["pid"] for it in events(run) if it["event"] == "started" and "r-1" in it["program"]
        ][:1]
        os.kill(lost, signal.SIGKILL)
        await run.line('"restarting"')
        back = json.loads(await run.line("listening"))
        # It has its ports again, so that the addresses in the environment stay true.
        assert back in listening
        run.process.send_signal(signal.SIGINT)
        assert await run.end() == 130
    ended = [it["program"] for it in events(run) if it["event"] == "ended" and "phase" not in it]
    assert sorted(ended[:3]) == ["peer-0", "peer-1", "peer-2"]
    assert sorted(ended[3:]) == ["server-1", "server-2"]
    assert not any(is_alive(it["pid"]) for it in events(run) if it["event"] == "started")


@pytest.mark.soak
async def test_a_terminal_has_a_living_table(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        servers = { count = 0 }
        [program.a]
        command = ["sh", "-c", "echo at work; exec sleep 1000"]
        [program.b]
        command = "sh -c 'exit 1'"
        restart = "always"
        backoff = 60
        backoff_max = 60
        """,
    )
    control, terminal = os.openpty()
    # Wide enough for all columns.
    environ = os.environ | {"COLUMNS": "120", "LINES": "40", "TERM": "xterm"}
    command = (sys.executable, "-m", "sphtp", "run", str(file))
    process = await trio.lowlevel.open_process(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environ
    )
    os.close(terminal)
    os.set_blocking(control, False)
    text = ""

    async def until_drawn(pattern: str) -> None:
        nonlocal text
        with trio.fail_after(120):
            while not re.search(pattern, text):
                await trio.lowlevel.wait_readable(control)
                text += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(control, 65536).decode())

    try:
        await until_drawn(r"a +│ +\d+ +│ ready +│ +\d+ s +│ +│ at work")
        # Without any event it is drawn again.
        await until_drawn(r"restarts in 5[5-9] s")
        await until_drawn(r"restarts in 5[0-4] s")
        process.send_signal(signal.SIGINT)
        await until_drawn("interrupted before the end")
        assert await process.wait() == 130
    finally:
        process.kill()
        await process.wait()
        os.close(control)
