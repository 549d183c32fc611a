"""Places over real sockets: pages of metrics of every kind, servers, and addresses of them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

import sphtp
from sphtp import aio
from sphtp.errors import RemoteError, SettingsError
from sphtp_client.top.model import PlaceReport, read_samples_untrusted
from sphtp_client.top.places import PageReader, ServerReader, parse_places, samples_untrusted
from tests.cases import each

PAGE = b"""\
# HELP sphtp_channel_messages_waiting Messages.
# TYPE sphtp_channel_messages_waiting gauge
sphtp_channel_messages_waiting{node="ada",peer="a \\"b\\"",service="messages",channel="0x1"} 4.0
"""
OK = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"

CONFIG = sphtp.Config()


@asynccontextmanager
async def page(answer: bytes, asked: list[bytes] | None = None) -> AsyncIterator[PageReader]:
    """Serve an answer for the length of the block; an empty one never comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if asked is not None:
            asked.append(request)
        if answer:
            writer.write(answer)
            writer.close()
        else:
            # Until the reader gives up.
            await reader.read()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield PageReader(host, port, 10.0)


async def told(answer: bytes) -> PlaceReport:
    async with page(answer) as reader:
        return await reader.read()


def test_a_page_is_read_with_its_token() -> None:
    async def main() -> None:
        asked: list[bytes] = []
        async with page(OK + PAGE, asked) as reader:
            (channel,) = (await reader.read()).channels
            assert (channel.node, channel.peer, channel.waiting) == ("ada", 'a "b"', 4)
            with_token = PageReader(reader.host, reader.port, 10.0, "a long enough token")
            assert (await with_token.read()).error == ""
            host = f"Host: 127.0.0.1:{reader.port}".encode()
        assert [host in request for request in asked] == [True, True]
        assert [b"Bearer a long enough token\r\n" in it for it in asked] == [False, True]

    asyncio.run(main())


@each(
    ("answer", "error"),
    [
        (b"220 mail.example ESMTP\r\n\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 " + 5000 * b"2" + b"\r\n\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "it asks for a token: --metrics-token-file"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP status 404"),
        (OK + b"<html>", "its metrics are malformed"),
        (OK + b"up 1\n", "it is no page of metrics of SphTP"),
        (OK + b"sphtp_node{a=", "its metrics are malformed"),
        (OK + b"\xff\xfe", "its metrics are malformed"),
        (OK, "it is no page of metrics of SphTP"),
    ],
)
def test_what_is_no_page_says_what_it_is(answer: bytes, error: str) -> None:
    assert asyncio.run(told(answer)).error == error


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from(["node", "peer"]), TEXTS), st.floats()),
        max_size=4,
    )
)
def test_a_page_is_read_as_the_library_that_writes_it_reads_it(
    rows: list[tuple[dict[str, str], float]],
) -> None:
    families = [
        Metric(f"sphtp_of_{number}", 'its "meaning"', "gauge") for number in range(len(rows))
    ]
    for family, (labels, value) in zip(families, rows, strict=True):
        family.add_sample(family.name, labels, value)
    registry = CollectorRegistry()
    registry.register(FixedCollector(families))
    page = generate_latest(registry).decode()
    expected = [
        (sample.name, sample.labels, repr(float(sample.value)))
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]
    found = [(name, dict(labels), repr(value)) for name, labels, value in samples_untrusted(page)]
    assert found == expected


class FixedCollector(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


@given(st.text(max_size=40) | st.text('sphtp_a{}="\\, 1\n', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(RemoteError):
        read_samples_untrusted("here", 0.0, samples_untrusted(text))


def test_a_page_that_is_not_there_and_one_that_stalls() -> None:
    async def main() -> None:
        async with page(OK + PAGE) as reader:
            port = reader.port
        gone = await PageReader("127.0.0.1", port, 10.0).read()
        assert (gone.place, gone.error) == (f"127.0.0.1:{port}", "connection refused")
        async with page(b"") as reader:
            stalled = await PageReader(reader.host, reader.port, 0.01).read()
            assert stalled.error == "no answer within 0.01 s"
        unknown = await PageReader("host.invalid", 9, 10.0).read()
        assert "known" in unknown.error or "resolution" in unknown.error

    asyncio.run(main())


def test_a_server_reports_its_clients_and_a_dead_one_has_a_reason() -> None:
    async def main() -> None:
        address = "tcp://127.0.0.1:0"
        async with aio.open_server(address, new_cluster=True) as server:
            (reader,) = parse_places([str(server.address)], CONFIG, 10.0)
            async with aio.open_client(server.address, name="ada"):
                state = await reader.read()
            assert state.error == ""
            assert [(node.name, node.kind) for node in state.nodes] == [
                (f"{server.id:#010x}", "server"),
                ("ada", "client"),
            ]
            assert state.at <= time.monotonic()
        dead = await reader.read()
        assert dead.error.startswith("connection refused by 127.0.0.1:")
        assert dead.place == reader.place

    asyncio.run(main())


@each(
    ("text", "places"),
    [
        ("9464", ["127.0.0.1:9464"]),
        ("9464-9466", ["127.0.0.1:9464", "127.0.0.1:9465", "127.0.0.1:9466"]),
        ("10.0.0.1:1-2", ["10.0.0.1:1", "10.0.0.1:2"]),
        ("my-host:9464", ["my-host:9464"]),
        ("http://10.0.0.1:9464/metrics", ["10.0.0.1:9464"]),
        ("https://gate.example:443", ["gate.example:443"]),
        ("[::1]:9464", ["[::1]:9464"]),
        ("tcp://10.0.0.1:8764", ["tcp://10.0.0.1:8764"]),
    ],
)
def test_addresses_of_pages_and_servers(text: str, places: list[str]) -> None:
    readers = parse_places([text, text], CONFIG, 5.0, "a long enough token")
    assert [reader.place for reader in readers] == places
    for reader in readers:
        if isinstance(reader, PageReader):
            assert (reader.token, reader.path) == ("a long enough token", "/metrics")
            assert reader.is_secure is text.startswith("https")
        else:
            assert isinstance(reader, ServerReader)


@each(
    "text",
    [
        "",
        "host",
        "host:",
        "host:http",
        "ftp://host:1",
        "9-8",
        "1-9999",
        "host:99999",
        "tcp://a",
        "http://host:1/a b",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        parse_places([text], CONFIG, 5.0)
