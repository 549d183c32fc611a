"""The daemon as a process of its own, and `sphtp status` against it.

One test starts an interpreter for it; for all others one is forked that has imported it already.
"""

import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from sphtp import Config
from sphtp.core.control.outputs import ServerEntered, ServerLeft
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import Reason
from sphtp.shell.bus_listening import ListeningPubSocket
from sphtp.shell.client import open_client
from sphtp.shell.server import open_server
from sphtp.web import Web
from sphtp_server.status import status
from tests.interpreters import ForkedProcess
from tests.shell.test_web import get
from tests.soaked import soaked

QUICK = ("--heartbeat", "0.1", "--expiry", "20", "--announce-deadline", "0.2")
CROWD = 20
"""Clients that come and go: more lines than the smallest pipe holds."""

ANY_PORTS = ("--pub-port", "0", "--sub-port", "0")


class Daemon:
    """A started daemon and what it writes."""

    def __init__(self, process: ForkedProcess) -> None:
        self.process = process
        self.stdin = process.stdin
        self.stdout = process.stdout
        self._text = b""

    async def next_line(self) -> dict[str, Any]:
        """Wait for the next log line."""
        while b"\n" not in self._text:
            chunk = await self.stdout.receive_some()
            assert chunk, "the daemon ended"
            self._text += chunk
        line, _, self._text = self._text.partition(b"\n")
        fields: dict[str, Any] = json.loads(line)
        return fields

    async def line(self, event: str) -> dict[str, Any]:
        """Wait for a certain log line."""
        while True:
            line = await self.next_line()
            if line["event"].startswith(event):
                return line


@asynccontextmanager
async def daemon(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Daemon]:
    options = ("--log-format", "json", *ANY_PORTS, *QUICK, *arguments)
    process = ForkedProcess.of_module("sphtp", ["server", *options], environ)
    try:
        yield Daemon(process)
    finally:
        await process.aclose()


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(status, arguments)


async def leave(started: Daemon, number: signal.Signals) -> None:
    """Each signal at which a server leaves ends one of the servers here."""
    started.process.send_signal(number)
    assert (await started.line("leaving"))["because"] == number.name
    assert await started.process.wait() == 0


async def test_a_signal_makes_it_leave_the_view_and_end_well() -> None:
    async with open_server(
        ServerAddress.parse("tcp://127.0.0.1:0"),
        new_cluster=True,
        config=Config(timers=ControlTimers(heartbeat=0.1, expiry=20, announce_deadline=0.2)),
    ) as neighbour:
        events = neighbour.events()
        async with daemon("--join", str(neighbour.address)) as started:
            first = await started.next_line()
            entered = await next_of(events, ServerEntered)
            await leave(started, signal.SIGTERM)
            left = await next_of(events, ServerLeft)
    assert first["event"] == "started"
    assert first["id"] == entered.member.id == left.member.id
    assert left.reason is Reason.LEFT


async def next_of(events: AsyncIterator[object], kind: type) -> Any:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


async def test_the_first_line_tells_the_real_ports_and_status_answers_there() -> None:
    async with daemon("--new") as started:
        first = await started.next_line()
        address = f"{first['pub']},{first['sub'].rpartition(':')[2]}"
        assert first["advertised"] == str(ServerAddress.parse(address))
        as_json = await trio.to_thread.run_sync(ask, address, "--json")
        as_tables = await trio.to_thread.run_sync(ask, address)
        await leave(started, signal.SIGUSR2)
    assert as_json.exit_code == as_tables.exit_code == 0
    assert json.loads(as_json.output)["id"] == first["id"]
    assert f"{first['id']:#010x}" in as_tables.output
    assert "│" in as_tables.output


async def test_it_serves_metrics_where_its_first_line_says() -> None:
    async with daemon("--new", "--metrics", "0") as started:
        first = await started.next_line()
        host, port = first["metrics"].removeprefix("http://").split(":")
        web = Web((host, int(port)))
        assert await get(web, "/readyz") == (200, "ready\n")
        _, text = await get(web, "/metrics")
        assert f'sphtp_server_state{{server="{first["id"]:#010x}",state="active"}} 1.0' in text
        await leave(started, signal.SIGTERM)


async def test_its_page_looks_at_the_cluster_as_a_client_and_holds_up_no_drain() -> None:
    nobody_else = "B" * 42 + "E="
    async with daemon("--new", "--web", "0", "--allow-key", nobody_else) as started:
        first = await started.next_line()
        host, port = first["page"].removeprefix("http://").split(":")
        page = Web((host, int(port)))
        document: dict[str, Any] = {"observer": None}
        while document["observer"] is None:
            code, text = await get(page, "/status")
            assert code == 200
            document = json.loads(text)
        assert [server["clients"] for server in document["servers"]] == [1]
        assert (await get(page, "/readyz"))[0] == 200
        started.process.send_signal(signal.SIGUSR1)
        assert (await started.line("leaving"))["because"] == "drained"
        assert await started.process.wait() == 0


async def test_without_an_input_to_wait_for_it_leaves_at_once() -> None:
    command = [sys.executable, "-m", "sphtp", "server", *ANY_PORTS, "--new", "--exit-with-stdin"]
    done = await trio.run_process(command, stdin=subprocess.DEVNULL, capture_stdout=True)
    assert b"standard input closed" in done.stdout


async def test_a_server_that_has_to_wait_says_so_and_for_how_long() -> None:
    async with daemon("--expiry", "0.5") as started:
        joining = await started.line("joining")
        assert (joining["seconds"], joining["level"]) == (1.0, "warning")
        assert (await started.line("state changed"))["state"] == "active"
        await leave(started, signal.SIGINT)


async def test_a_server_that_finds_nobody_to_join_says_what_it_waits_for() -> None:
    with ListeningPubSocket() as free:
        port = free.listen("tcp://127.0.0.86:0").rpartition(":")[2]
    async with daemon("--join", f"tcp://127.0.0.86:{port}") as started:
        joining = await started.line("joining")
        assert (joining["join"], joining["level"]) == ([f"tcp://127.0.0.86:{port}"], "info")
        waiting = await started.line("waiting for a server to join")
        assert waiting["address"] == f"tcp://127.0.0.86:{port}"
        assert waiting["why"] == f"connection refused by 127.0.0.86:{port}"
        assert waiting["level"] == "warning"
        started.process.send_signal(signal.SIGUSR1)
        # Nobody is there to be handed over.
        assert (await started.line("leaving"))["because"] == "drained"
        assert await started.process.wait() == 0


@pytest.mark.parametrize("option", ["--pub-port", *soaked(["--sub-port"])])
async def test_a_port_in_use_is_named_with_the_option_that_changes_it(option: str) -> None:
    with ListeningPubSocket() as taken:
        port = taken.listen("tcp://127.0.0.1:0").rpartition(":")[2]
        async with daemon(option, port) as started:
            assert await started.process.wait() == 2
            said = await started.process.stderr.receive_some()
    assert f":{port} is already in use".encode() in said
    assert option.encode() in said


async def test_nobody_reading_its_log_does_not_stop_it() -> None:
    async with daemon("--new", "--exit-with-stdin", "--log-level", "debug") as started:
        first = await started.next_line()
        await started.stdout.aclose()
        address = f"{first['pub']},{first['sub'].rpartition(':')[2]}"
        assert (await trio.to_thread.run_sync(ask, address)).exit_code == 0
        await started.stdin.send_all(b"what is written there does not matter\n")
        await started.stdin.aclose()
        assert await started.process.wait() == 0


async def test_a_pause_of_whoever_reads_its_log_does_not_stop_it() -> None:
    async with daemon("--new", "--log-level", "debug") as started:
        first = await started.next_line()
        fcntl.fcntl(started.stdout.fileno(), fcntl.F_SETPIPE_SZ, 1)
        address = f"{first['pub']},{first['sub'].rpartition(':')[2]}"
        for _ in range(CROWD):
            async with open_client(address):
                pass
        assert (await trio.to_thread.run_sync(ask, address)).exit_code == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_and_go, address)
            for _ in range(CROWD):
                await started.line("client left")
            nursery.cancel_scope.cancel()


async def come_and_go(address: str) -> None:
    """Give the server something to tell, again and again."""
    while True:
        async with open_client(address):
            pass
