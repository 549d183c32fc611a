"""Metrics and health over HTTP: from a real cluster, to readers of every kind."""

import json
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import numpy as np
import pytest
import trio
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

import sphtp
from sphtp import Client
from sphtp.config import ChannelSettings
from sphtp.core.group.steps import StepStatistics
from sphtp.errors import RemoteError, SettingsError, StateError, WebAddressError
from sphtp.groups import LockstepGroup
from sphtp.observe import serve_status
from sphtp.shell import status as status_module
from sphtp.shell.group_watch import watch_group
from sphtp.shell.lifetime import running
from sphtp.shell.metrics import METRICS
from sphtp.shell.status import STATUS_KIND, read_client_status_untrusted, status_service
from sphtp.shell.stream_admission import GONE
from sphtp.web import Web, open_web
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import open_node
from tests.shell.test_client import client, cluster

pytestmark = within_20_seconds


async def get(web: Web, path: str, **headers: str) -> tuple[int, str]:
    """Return status and body."""
    lines = {"Host": "localhost", "Connection": "close", **headers}
    async with await trio.open_tcp_stream(*web.address) as stream:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await stream.send_all(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        answer = b"".join([part async for part in stream]).decode()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


async def scrape(web: Web) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return the values by name and labels; each series stands once."""
    status, text = await get(web, "/metrics")
    assert status == 200
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series, (sample.name, labels)
            series[labels] = sample.value
    return found


def value(
    found: dict[str, dict[frozenset[tuple[str, str]], float]], name: str, **labels: str
) -> float:
    """Return the value of the one series that has these labels, among others."""
    fitting = [
        value for series, value in found.get(name, {}).items() if labels.items() <= set(series)
    ]
    assert len(fitting) == 1, (name, labels, found.get(name))
    return fitting[0]


def family_of(sample: str) -> str:
    for end in ("_bucket", "_count", "_sum"):
        if sample.removesuffix(end) in METRICS:
            return sample.removesuffix(end)
    return sample


async def test_a_scrape_has_what_the_statistics_have() -> None:
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob") as bob,
        open_web(server, ada, bob) as web,
        ada.publish("positions") as source,
    ):
        peer = await bob.wait_for_peer("ada")
        async with bob.subscribe_to(peer, "positions") as subscription, AsyncExitStack() as stack:
            channel = await stack.enter_async_context(bob.open_channel(peer))
            accepted = await ada.accept()
            for number in range(3):
                await channel.send(number)
                assert await accepted.receive() == number
            await source.send("here")
            assert await subscription.receive() == "here"
            found = await scrape(web)
            assert {name for name in map(family_of, found) if name.startswith("sphtp_")} <= {
                *METRICS
            }
            label = f"{server.id:#010x}"
            assert value(found, "sphtp_server_state", server=label, state="active") == 1
            assert value(found, "sphtp_server_clients", server=label) == 2
            assert value(found, "sphtp_client_peers", node="ada") == 1
            of_channel = {"node": "bob", "peer": "ada", "service": "messages"}
            assert value(found, "sphtp_channel_messages_sent_total", **of_channel) == 3
            assert value(found, "sphtp_lane_messages_waiting", **of_channel, lane="0") <= 3
            assert 0 < value(found, "sphtp_channel_round_trip_seconds", **of_channel) < 20
            of_source = {"node": "ada", "topics": "positions"}
            assert value(found, "sphtp_source_messages_sent_total", **of_source) == 1
            assert value(found, "sphtp_source_receivers_left_behind_total", **of_source) == 0
            assert value(found, "sphtp_source_receiver_behind_datagrams", peer="bob") >= 0
            of_topic = {"node": "bob", "peer": "ada", "topic": "positions"}
            assert value(found, "sphtp_subscription_messages_delivered_total", **of_topic) == 1
            assert found["process_cpu_seconds_total"]
            # What ends vanishes.
            await stack.aclose()
            found = await scrape(web)
            services = {
                dict(labels)["service"]
                for labels in found["sphtp_channel_packets_sent_total"]
                if ("node", "bob") in labels
            }
            assert services == {"streams"}


async def test_a_group_tells_its_steps_and_who_was_waited_for() -> None:
    steps = 5

    async def take_part(member: sphtp.Client) -> None:
        async with member.join("fluid", size=2, on_death="continue") as group:
            for _ in range(steps):
                await group.exchange(None)
            done.append(group)
            if member is ada:
                # Until Bob has left, at the end of the test.
                await group.exchange(None)
            await trio.sleep_forever()

    done: list[LockstepGroup] = []
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob") as bob,
        open_web(ada, bob) as web,
        running(partial(take_part, ada)),
        running(partial(take_part, bob)),
    ):
        # At the end Ada makes another step, and Bob computes.
        await until(lambda: len(done) == 2 and any(group.missing for group in done))
        found = await scrape(web)
        for node in ("ada", "bob"):
            labels = {"node": node, "group": "fluid"}
            assert value(found, "sphtp_group_members", **labels) == 2
            assert value(found, "sphtp_group_steps_total", **labels) == steps
            assert value(found, "sphtp_group_exchange_seconds_count", **labels) == steps
            assert value(found, "sphtp_group_step_seconds_count", **labels) == steps - 1
        waits = {
            dict(labels)["node"]: count
            for labels, count in found["sphtp_group_wait_seconds_count"].items()
        }
        # Of two, whoever did not wait was waited for.
        assert sum(waits.values()) >= steps
        assert {
            node: value(found, "sphtp_group_exchanging", node=node) for node in ("ada", "bob")
        } == {"ada": 1, "bob": 0}
        (missing,) = found["sphtp_group_missing"]
        assert missing == {("node", "ada"), ("group", "fluid"), ("member", "bob")}


async def test_the_channels_of_each_service_have_its_name() -> None:
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob") as bob,
        open_web(ada) as web,
        ada.join("fluid", size=1),
        running(partial(watch_group, bob, "fluid", lambda _: None)),
    ):
        await until(lambda: bool(ada.node.connections))
        found = await scrape(web)
        services = {dict(labels)["service"] for labels in found["sphtp_channel_packets_sent_total"]}
        assert services == {"watch"}


async def test_a_channel_tells_what_keeps_its_messages() -> None:
    small = sphtp.Config(channel=ChannelSettings(receive_buffer=4))
    async with (
        open_node(config=small) as reader,
        open_node() as node,
        open_web(node) as web,
        node.open_channel(*reader.address) as channel,
    ):
        accepted = await reader.accept()
        for number in range(9):
            await channel.send(number)
        await until(lambda: channel.statistics().waiting == 5)
        found = await scrape(web)
        assert value(found, "sphtp_channel_blocked", by="credit") == 1
        assert value(found, "sphtp_channel_in_flight_bytes") == 0
        assert value(found, "sphtp_channel_probes_unanswered") == 0
        assert [await accepted.receive() for _ in range(9)] == [*range(9)]


async def test_two_of_one_name_have_their_own_series() -> None:
    async with (
        cluster(1) as [server],
        client(server.address, name="twin") as one,
        client(server.address, name="twin") as other,
        open_node() as node,
        open_web(one, other, node) as web,
    ):
        found = await scrape(web)
        nodes = {dict(labels)["node"] for labels in found["sphtp_node_datagrams_sent_total"]}
        host, port = other.address
        assert nodes == {"twin", f"twin at {host}:{port}", "{}:{}".format(*node.address)}


async def test_readiness_follows_the_states() -> None:
    # Nobody is there to be joined.
    joining = sphtp.open_server("tcp://127.0.0.1:0", join=["tcp://127.0.0.1:1"])
    async with cluster(1) as [active], joining as other:
        async with open_web(active) as web:
            assert await get(web, "/readyz") == (200, "ready\n")
            web.unready = "draining"
            assert await get(web, "/readyz") == (503, "draining\n")
        async with open_web(active, other) as web:
            assert await get(web, "/readyz") == (503, f"server {other.id:#010x} is joining\n")
            assert await get(web, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("LOCALHOST.", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example:80", 403),
        ("", 403),
    ],
)
async def test_a_request_names_this_machine(host: str, status: int) -> None:
    async with open_node() as node, open_web(node) as web:
        assert (await get(web, "/metrics", Host=host))[0] == status


async def test_with_a_token_only_health_is_for_everybody() -> None:
    token = "a long enough token"
    async with open_node() as node, open_web(node, host="0.0.0.0", token=token) as web:
        reached = Web(("127.0.0.1", web.address[1]))
        assert (await get(reached, "/metrics"))[0] == 401
        assert (await get(reached, "/metrics", Authorization="Bearer another"))[0] == 401
        right = {"Authorization": f"Bearer {token}", "Host": "x.example"}
        assert (await get(reached, "/", **right))[0] == 200
        assert (await get(reached, "/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"host": "0.0.0.0"}, "token"),
        ({"host": "example.org"}, "token"),
        ({"token": "short"}, "16"),
        ({"token": "a token\nof two lines"}, "printable"),
        ({"port": 1 << 16}, "65536"),
    ],
)
async def test_wrong_arguments_are_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        async with open_web(**wrong):
            pass


async def test_a_port_that_is_taken_is_named() -> None:
    async with open_web() as web:
        with pytest.raises(WebAddressError, match=str(web.address[1])):
            async with open_web(port=web.address[1]):
                pass


async def test_what_has_no_metrics_is_refused() -> None:
    with pytest.raises(SettingsError, match="no server, client, node"):
        async with open_web(7):  # type: ignore[arg-type]
            pass


class Large(Collector):
    """More than the buffers of a connection hold."""

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily("program_something", "Something.", labels=["one"])
        for number in range(800):
            family.add_metric([f"{number}" + "x" * 4000], number)
        return [family]


async def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    async with AsyncExitStack() as stack, open_web(Large()) as web:
        stalled = await stack.enter_async_context(await trio.open_tcp_stream(*web.address))
        await stalled.send_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await stalled.receive_some(1)
        # The program's own metrics, to a reader that does.
        found = await scrape(web)
        assert len(found["program_something"]) == 800


@pytest.mark.parametrize("path", ["/metrics", "/page/main.js", "/healthz", "/"])
async def test_what_a_page_of_another_site_asks_for_is_refused(path: str) -> None:
    async with open_web(page=True) as web:
        for site in ("cross-site", "same-site", "anything"):
            asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
            status, body = await get(web, path, **asked)
            assert (status, body) == (403, "the request comes from a page of another site\n")
        for site in ("same-origin", "none"):
            assert (await get(web, path, **{"Sec-Fetch-Site": site}))[0] == 200
        link = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert (await get(web, path, **{"Sec-Fetch-Site": "cross-site"}, **link))[0] == 200
        framed = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert (await get(web, path, **{"Sec-Fetch-Site": "cross-site"}, **framed))[0] == 403


@pytest.mark.parametrize("line", ["nonsense", "GET /none HTTP/1.1", "POST /metrics HTTP/1.1"])
async def test_other_requests_are_refused(line: str) -> None:
    async with open_web() as web, await trio.open_tcp_stream(*web.address) as stream:
        head = f"{line}\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        await stream.send_all(head.encode())
        answer = b"".join([part async for part in stream]).decode()
        assert answer.split()[1] in ("400", "404", "405")
        assert (await get(web, "/healthz"))[0] == 200


async def test_the_page_has_its_files_and_the_status_of_all_that_tell_it() -> None:
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob") as bob,
        open_web(server, ada, page=True) as web,
        running(partial(serve_status, bob)),
    ):
        await ada.wait_for_peer("bob")
        assert "<title>" in (await get(web, "/"))[1]
        assert (await get(web, "/page/main.js"))[0] == 200
        assert (await get(web, "/page/none.js"))[0] == 404
        states: dict[str, Any] = {}
        while states.get("bob") != "established":
            status, text = await get(web, "/status")
            assert status == 200
            states = {peer["name"]: peer["state"] for peer in json.loads(text)["peers"]}
        assert states == {"ada": "established", "bob": "established"}
        status, text = await get(web, f"/peers/{bob.id}/metrics")
        assert status == 200
        assert ["sphtp_client_peers", {"node": "bob"}, 1.0] in json.loads(text)


async def test_the_page_has_the_metrics_of_steps_of_servers_and_of_the_one_that_looks() -> None:
    steps = StepStatistics[str]()
    steps.add(1.0, 1.25, "west")
    async with (
        cluster(2) as [one, _],
        client(one.address, name="ada") as ada,
        client(one.address, name="looks on") as looker,
        open_web(page=True) as web,
        open_web(ada, steps={"simulation": steps}) as own,
        running(partial(serve_status, ada, steps={"simulation": steps})),
    ):
        await looker.wait_for_peer("ada")
        await until(lambda: len(looker.servers) == 2)
        with web.observe_with(looker):
            found: dict[str, list[Any]] = {}
            for name, number in (("ada", ada.id), ("looker", looker.id), ("server", one.id)):
                status, text = await get(web, f"/peers/{number}/metrics")
                assert status == 200, text
                found[name] = json.loads(text)
        assert ["sphtp_simulation_steps_total", {"node": "ada"}, 1.0] in found["ada"]
        waited = {"node": "ada", "peer": "west"}
        assert ["sphtp_simulation_wait_seconds_sum", waited, 0.25] in found["ada"]
        assert any(name == "process_cpu_seconds_total" and value for name, _, value in found["ada"])
        assert ["sphtp_client_peers", {"node": "looks on"}, 1.0] in found["looker"]
        label = {"server": f"{one.id:#010x}"}
        assert ["sphtp_server_clients", label, 2.0] in found["server"]
        assert ["sphtp_server_state", {**label, "state": "active"}, 1.0] in found["server"]
        scraped = await scrape(own)
        assert value(scraped, "sphtp_simulation_wait_seconds_count", peer="west") == 1


@pytest.mark.parametrize("names", [("group",), ("a b", "a_b")])
async def test_steps_whose_metrics_would_have_the_names_of_others_are_refused(
    names: tuple[str, ...],
) -> None:
    steps = {name: StepStatistics[str]() for name in names}
    async with cluster(1) as [server], client(server.address) as ada:
        with pytest.raises(SettingsError, match=f"{names[-1]!r} would have a metric sphtp_"):
            await serve_status(ada, steps=steps)
        with pytest.raises(SettingsError, match="give them another name"):
            async with open_web(ada, steps=steps):
                pass


async def test_the_status_of_a_client_is_served_once() -> None:
    async with (
        cluster(1) as [server],
        client(server.address) as ada,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(serve_status, ada)
        with pytest.raises(StateError, match="served already"):
            await serve_status(ada)
        nursery.cancel_scope.cancel()


async def test_a_question_that_is_no_text_ends_its_own_channel_only() -> None:
    service = status_service(lambda channel: channel.abort("nobody asks here"))
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob") as bob,
        running(partial(serve_status, ada)),
    ):
        bob.node.services.add(service)
        peer = await bob.wait_for_peer("ada")
        async with bob.node.services.open(service, peer.addresses, peer.id) as channel:
            await channel.send(np.zeros(2))
            with pytest.raises(GONE):
                await channel.receive()
        async with bob.node.services.open(service, peer.addresses, peer.id) as channel:
            await channel.send(STATUS_KIND)
            kind, status = await channel.receive()
            assert kind == STATUS_KIND
        assert read_client_status_untrusted(status)["name"] == "ada"
        for time in (1e300, float("inf"), float("nan")):
            with pytest.raises(RemoteError):
                read_client_status_untrusted({**status, "time": time})


async def test_one_peer_keeps_no_other_from_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    service = status_service(lambda channel: channel.abort("nobody asks here"))

    async def ask(asking: Client, *, task_status: trio.TaskStatus[bool]) -> None:
        peer = await asking.wait_for_peer("ada")
        try:
            async with asking.node.services.open(service, peer.addresses, peer.id) as channel:
                await channel.send(STATUS_KIND)
                await channel.receive()
                task_status.started(True)
                await channel.receive()
        except GONE:
            ended.append(asking.name)
            with suppress(RuntimeError):
                task_status.started(False)

    ended = list[str]()
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob") as bob,
        client(server.address, name="eve") as eve,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(serve_status, ada)
        for each in (bob, eve):
            each.node.services.add(service)
        answered = [await nursery.start(ask, eve) for _ in range(20)]
        assert answered.count(True) == 4
        assert await nursery.start(ask, bob)
        # Whoever asks no more makes room.
        ended.clear()
        monkeypatch.setattr(status_module, "LONGEST_IDLE", 0.05)
        assert await nursery.start(ask, bob)
        await until(lambda: "bob" in ended)
        nursery.cancel_scope.cancel()


async def test_the_page_is_for_everybody_and_its_status_for_those_with_the_token() -> None:
    token = "a long enough token"
    async with open_web(host="0.0.0.0", token=token, page=True) as web:
        reached = Web(("127.0.0.1", web.address[1]))
        assert web.page_url.endswith("/#token=a%20long%20enough%20token")
        assert token not in repr(web)
        assert (await get(reached, "/"))[0] == 200
        for path in ("/status", "/states", "/peers/1/metrics", "/metrics"):
            assert (await get(reached, path))[0] == 401
