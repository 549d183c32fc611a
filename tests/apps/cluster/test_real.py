"""`sphtp cluster` as a user runs it: real processes, real sockets, on a small scenario."""

import json
import os
import re
import signal
import socket

import pytest

from sphtp import open_client
from sphtp.security import load_secret
from tests.apps.cluster.running import ENDLESS, MORTAL, cluster, gone, is_alive
from tests.deadline import until
from tests.qlog_drafts import read_qlog

BAD = ("--loss", "0.1", "--duplicate", "0.05", "--reorder", "0.1")


@pytest.mark.slow
async def test_a_lossy_run_is_verified_and_tells_all_in_json(gas_file, tmp_path):
    logs = tmp_path / "new" / "logs"
    options = ("--servers", "2", "--clients", "2", "--steps", "60", "--qlog", str(logs))
    async with cluster(gas_file, *options, *BAD, "--verify", "--json") as run:
        assert await run.end() == 0
    found = json.loads("\n".join(run.lines))
    assert found["verified"] is True
    assert (found["servers"], found["clients"], found["steps"]) == (2, 2, 60)
    assert found["state_sha256"] == found["reference_sha256"]
    assert found["start"]["count"] == found["end"]["count"] == 60
    neighbours = {(link["from"], link["to"]) for link in found["links"]}
    assert {(0, 1), (1, 0)} <= neighbours
    assert all(link["sent"] and link["received"] for link in found["links"])
    assert sum(link["lost"] for link in found["links"]) > 0
    assert sum(link["resent"] for link in found["links"]) > 0
    assert {process["exit_code"] for process in found["processes"]} == {0}
    assert {path.name for path in logs.iterdir()} == {f"client-{slab}.sqlog" for slab in range(2)}
    for slab in range(2):
        first, events = read_qlog(logs / f"client-{slab}.sqlog")
        assert first["title"] == f"slab {slab} of 2"
        names = [event["name"].partition(":")[2] for event in events]
        assert (names[0], names[-1]) == ("server_listening", "node_closed")
        mine = [link for link in found["links"] if link["from"] == slab]
        assert names.count("packet_lost") >= sum(link["lost"] for link in mine)
        assert names.count("connection_closed") == names.count("connection_started") >= len(mine)


async def test_a_page_whose_port_is_taken_is_a_wrong_option(gas_file):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with cluster(gas_file, "--servers", "1", "--web", str(port)) as run:
            assert await run.end() == 2
    assert not any(is_alive(pid) for pid in run.pids().values())


async def test_servers_alone_stand_for_programs_of_others(gas_file, monkeypatch):
    async with cluster(gas_file, "--servers", "2", "--clients", "0", "--json") as run:
        told = json.loads(await run.line("servers"))
        assert load_secret(told["secret_file"])
        for name, text in told["environment"].items():
            monkeypatch.setenv(name, text)
        async with open_client(name="mine") as client:
            await until(lambda: len(client.servers) == 2)
        run.process.send_signal(signal.SIGINT)
        assert await run.end() == 0
    assert len(run.lines) == 1


@pytest.mark.soak
async def test_a_long_run_on_a_bad_network_ends_in_the_same_bits(gas_file):
    options = ("--servers", "2", "--clients", "3", "--steps", "300", "--channel-timeout", "5")
    async with cluster(gas_file, *options, *BAD, "--seed", "1", "--verify") as run:
        assert await run.end() == 0
    assert run.lines[-1].startswith("verified: bit-identical")


@pytest.mark.soak
async def test_a_server_killed_in_the_middle_does_not_stop_the_run(gas_file):
    options = ("--servers", "2", "--clients", "2", "--steps", "400", "--verify")
    async with cluster(gas_file, *options, *MORTAL) as run:
        await run.all_running(2)
        os.kill(run.pids()["server 1"], signal.SIGKILL)
        await run.line("server 1: pid .* ended, killed by SIGKILL")
        await run.line(r"client \d: 400 steps")
        assert await run.end() == 0
    assert "server 1 was lost: killed by SIGKILL" in run.lines
    assert run.lines[-1].startswith("verified: bit-identical")


@pytest.mark.soak
async def test_a_client_killed_is_named_by_all_others(gas_file):
    options = ("--servers", "1", "--clients", "3", "--steps", ENDLESS)
    async with cluster(gas_file, *options, *MORTAL) as run:
        await run.all_running(3)
        os.kill(run.pids()["client 2"], signal.SIGKILL)
        assert await run.end() == 3
    said = r"client {}: slab 2 \(id 0x[0-9a-f]+\) left: .*no packet arrived for 1.2 s"
    for slab in (0, 1):
        assert any(re.fullmatch(said.format(slab), line) for line in run.lines)
    assert run.lines[-1].startswith("client 2 failed: killed by SIGKILL")
    assert not any(is_alive(pid) for pid in run.pids().values())


@pytest.mark.soak
async def test_a_signal_ends_everything(gas_file):
    """SIGTERM; SIGINT ends the cluster that is watched."""
    async with cluster(gas_file, "--servers", "1", "--clients", "2", "--steps", ENDLESS) as run:
        await run.all_running(2)
        run.process.send_signal(signal.SIGTERM)
        assert await run.end() == 128 + signal.SIGTERM
    assert len(run.pids()) == 3
    assert not any(is_alive(pid) for pid in run.pids().values())


@pytest.mark.soak
async def test_nothing_outlives_a_killed_supervisor(gas_file):
    async with cluster(gas_file, "--servers", "1", "--clients", "2", "--steps", ENDLESS) as run:
        await run.all_running(2)
        run.process.kill()
        await run.process.wait()
        for pid in run.pids().values():
            await gone(pid)
    assert len(run.pids()) == 3
