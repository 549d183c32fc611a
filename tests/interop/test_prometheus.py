"""A real Prometheus that scrapes a cluster, and the dashboard's queries to it.

Debian's package `prometheus` brings both programs. What needs them stands beside the quick suite:
`.ci/run` runs it.
"""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio

from sphtp import Client
from sphtp.core.group.steps import StepStatistics
from sphtp.shell.lifetime import running
from sphtp.shell.metrics import metric_texts
from sphtp.web import Web, open_web
from tests.house.pages import ROOT
from tests.shell.test_client import client, cluster
from tests.shell.test_web import get

DASHBOARD = ROOT / "share" / "grafana" / "sphtp.json"
NAME = re.compile(r"\bsphtp_\w+")

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="there is no prometheus here (Debian: prometheus)",
)


def dashboard_queries() -> list[str]:
    """Return the expressions of the dashboard, as Grafana asks with all nodes."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    texts = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [text.replace("$__rate_interval", "2s").replace("$node", ".*") for text in texts]


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    known = metric_texts({"simulation": StepStatistics[str]()})
    queries = dashboard_queries()
    assert len(queries) > 20
    for query in queries:
        for name in NAME.findall(query):
            family = re.sub(r"_(bucket|count|sum)$", "", name)
            assert family in known, name
            selectors = re.findall(rf"\b{name}{{([^}}]*)}}", query)
            labels = {label for text in selectors for label in re.findall(r"(\w+)=", text)}
            assert labels <= set(known[family].labels), query


def test_the_example_scrapes_what_the_command_serves() -> None:
    text = (ROOT / "share/prometheus/prometheus.yml").read_text(encoding="utf-8")
    ports = [int(port) for port in re.findall(r"- 127\.0\.0\.1:(\d+)", text)]
    assert ports == list(range(9464, 9464 + 6))


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def prometheus(folder: Path, web: Web) -> AsyncIterator[Web]:
    """Run Prometheus for the length of the block; it scrapes often."""
    host, port = web.address
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        f"scrape_configs: [{{job_name: sphtp, static_configs: [{{targets: ['{host}:{port}']}}]}}]\n"
    )
    place = ("127.0.0.1", unused_port())
    command = (
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address={}:{}".format(*place),
        "--log.level=error",
    )
    run = partial(trio.run_process, command, check=False, stderr=subprocess.DEVNULL)
    async with running(run):
        yield Web(place)


async def answer(server: Web, query: str) -> list[dict[str, Any]]:
    """Return the result of a query; none as long as Prometheus has not begun to listen."""
    try:
        status, text = await get(server, f"/api/v1/query?query={quote(query)}")
    except OSError:
        return []
    if status == 503:
        return []
    document = json.loads(text)
    assert document["status"] == "success", (query, text)
    found: list[dict[str, Any]] = document["data"]["result"]
    return found


async def answered(server: Web, query: str, holds: Callable[[float], bool]) -> dict[str, Any]:
    """Ask until some series of the result has a value for which ``holds``; return the labels."""
    while True:
        for series in await answer(server, query):
            if holds(float(series["value"][1])):
                return dict(series["metric"])
        await trio.sleep(0.1)


async def take_part(member: Client) -> None:
    async with member.join("fluid", size=2, on_death="continue") as group:
        while True:
            await group.exchange(None)
            await trio.sleep(0.001)


@needs_prometheus
@pytest.mark.soak
async def test_prometheus_scrapes_a_cluster_and_answers_the_dashboard(tmp_path: Path) -> None:
    steps = StepStatistics[str]()
    with trio.fail_after(60):
        async with (
            cluster(2) as [one, other],
            client(one.address, name="ada") as ada,
            client(one.address, name="bob") as bob,
            open_web(one, other, ada, bob, steps={"simulation": steps}) as web,
            prometheus(tmp_path, web) as server,
            running(partial(take_part, ada)),
            running(partial(take_part, bob)),
        ):
            label = f"{other.id:#010x}"
            active = f'sphtp_server_state{{state="active", server="{label}"}}'
            assert (await answered(server, active, lambda value: value == 1))["job"] == "sphtp"
            rate = "rate(sphtp_group_steps_total[2s])"
            found = await answered(server, rate, lambda value: value > 0)
            assert found["group"] == "fluid"
            waited = "histogram_quantile(0.5, rate(sphtp_group_wait_seconds_bucket[2s]))"
            found = await answered(server, waited, lambda value: value > 0)
            assert {found["node"], found["member"]} == {"ada", "bob"}
            for query in dashboard_queries():
                await answer(server, query)


@needs_prometheus
@pytest.mark.soak
async def test_promtool_finds_nothing_wrong_with_the_names() -> None:
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        open_web(server, ada) as web,
    ):
        _, text = await get(web, "/metrics")
    done = await trio.run_process(
        ("promtool", "check", "metrics"),
        stdin=text.encode(),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")
