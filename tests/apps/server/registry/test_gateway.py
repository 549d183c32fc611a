"""The way to etcd: answers whole and in pieces, errors, the next member, and a user."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import h11
import pytest
import trio

from sphtp_server.registry.gateway import Gateway, GatewayError
from sphtp_server.registry.location import EtcdAccess, EtcdLocation
from tests.deadline import within_20_seconds

pytestmark = within_20_seconds

Answer = Callable[[trio.SocketStream, h11.Connection, str, dict[str, Any], str], Awaitable[None]]


async def handle(answer: Answer, stream: trio.SocketStream) -> None:
    """Take requests of one connection, and leave each to ``answer``."""
    http = h11.Connection(h11.SERVER)
    head: h11.Request | None = None
    body = b""
    async with stream:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some()))
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                token = dict(head.headers).get(b"authorization", b"").decode()
                await answer(stream, http, head.target.decode(), json.loads(body), token)
                if http.our_state is not h11.DONE:
                    return
                http.start_next_cycle()
            else:
                return


async def send(
    stream: trio.SocketStream, http: h11.Connection, document: object, status: int = 200
) -> None:
    """Answer in pieces of three bytes."""
    data = json.dumps(document).encode() + b"\n"
    head = h11.Response(status_code=status, headers=[("Transfer-Encoding", "chunked")])
    parts = [http.send(head)]
    parts += [http.send(h11.Data(data=data[i : i + 3])) for i in range(0, len(data), 3)]
    await stream.send_all(b"".join(part or b"" for part in [*parts, http.send(h11.EndOfMessage())]))


@asynccontextmanager
async def members(*answers: Answer, access: EtcdAccess | None = None) -> AsyncIterator[Gateway]:
    async with trio.open_nursery() as nursery:
        hosts = []
        for answer in answers:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            hosts.append(f"127.0.0.1:{listener.socket.getsockname()[1]}")
            nursery.start_soon(trio.serve_listeners, partial(handle, answer), [listener])
        gateway = Gateway(EtcdLocation.parse("etcd://" + ",".join(hosts)), access or EtcdAccess())
        try:
            yield gateway
        finally:
            gateway.close()
        nursery.cancel_scope.cancel()


async def test_requests_in_turn_share_a_connection() -> None:
    streams = set[trio.SocketStream]()

    async def echo(stream: Any, http: Any, path: str, body: Any, _: str) -> None:
        streams.add(stream)
        await send(stream, http, {"path": path, "body": body})

    async with members(echo) as gateway:
        for number in range(3):
            assert await gateway.request("/v3", {"n": number}) == {
                "path": "/v3",
                "body": {"n": number},
            }
    assert len(streams) == 1


async def test_a_member_that_fails_is_left_for_the_next_one() -> None:
    asked: list[str] = []

    async def refuse(stream: Any, http: Any, *_: Any) -> None:
        asked.append("first")
        await send(stream, http, {"error": "etcdserver: no leader", "code": 14}, 503)

    async def serve(stream: Any, http: Any, *_: Any) -> None:
        asked.append("second")
        await send(stream, http, {})

    async with members(refuse, serve) as gateway:
        with pytest.raises(GatewayError, match="no leader"):
            await gateway.request("/v3", {})
        await gateway.request("/v3", {})
        await gateway.request("/v3", {})
    assert asked == ["first", "second", "second"]


async def test_a_member_that_hangs_is_left_for_the_next_one() -> None:
    async def hang(*_: Any) -> None:
        await trio.sleep_forever()

    async def serve(stream: Any, http: Any, *_: Any) -> None:
        await send(stream, http, {})

    async with members(hang, serve) as gateway:
        with trio.move_on_after(0.05) as scope:
            await gateway.request("/v3", {})
        assert scope.cancelled_caught
        await gateway.request("/v3", {})


@pytest.mark.parametrize(
    "data", [b"", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
async def test_what_is_no_answer_is_an_error(data: bytes) -> None:
    async def speak(stream: Any, *_: Any) -> None:
        await stream.send_all(data)

    async with members(speak) as gateway:
        with pytest.raises(GatewayError, match=r"127\.0\.0\.1"):
            await gateway.request("/v3", {})


@pytest.mark.parametrize("document", [[], 7, {"error": {"message": "lease not found"}}])
async def test_a_document_that_is_none_or_an_error_is_one(document: object) -> None:
    async def serve(stream: Any, http: Any, *_: Any) -> None:
        await send(stream, http, document)

    async with members(serve) as gateway:
        with pytest.raises(GatewayError):
            await gateway.request("/v3", {})


@pytest.mark.parametrize("status", [200, 503])
async def test_a_document_that_is_nested_too_deep_is_an_error(status: int) -> None:
    body = 100_000 * b"["
    head = f"HTTP/1.1 {status} S\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    async def speak(stream: Any, *_: Any) -> None:
        await stream.send_all(head + body)

    async with members(speak) as gateway:
        with pytest.raises(GatewayError, match=r"127\.0\.0\.1"):
            await gateway.request("/v3", {})


@pytest.mark.parametrize("member", ["127.0.0.1:1", "[::1]:1"])
async def test_nobody_there_is_an_error_with_the_address_of_the_member(member: str) -> None:
    gateway = Gateway(EtcdLocation.parse(f"etcd://{member}"), EtcdAccess())
    assert gateway.endpoint == member
    with pytest.raises(GatewayError) as caught:
        await gateway.request("/v3", {})
    assert str(caught.value).startswith(f"{member}: ")


async def test_a_user_signs_in_again_when_a_token_is_over() -> None:
    tokens: list[str] = []

    async def serve(stream: Any, http: Any, path: str, body: Any, token: str) -> None:
        if path == "/v3/auth/authenticate":
            assert body == {"name": "gas", "password": "of the gas"}
            tokens.append(f"token{len(tokens)}")
            await send(stream, http, {"token": tokens[-1]})
        elif token != "token1":
            await send(stream, http, {"error": "etcdserver: invalid auth token"}, 401)
        else:
            await send(stream, http, {"as": token})

    access = EtcdAccess(user="gas", password="of the gas")
    async with members(serve, access=access) as gateway:
        with pytest.raises(GatewayError, match="invalid auth token"):
            await gateway.request("/v3", {})
        assert await gateway.request("/v3", {}) == {"as": "token1"}
    assert tokens == ["token0", "token1"]


async def test_a_watch_is_one_document_for_each_line() -> None:
    async def serve(stream: Any, http: Any, *_: Any) -> None:
        await stream.send_all(http.send(h11.Response(status_code=200, headers=[])))
        for piece in (
            b'{"a"',
            b': 1}\n{"b": 2}\n\n{"',
            b'c": 3}\n',
            b'{"error": {"message": "m"}}\n',
        ):
            await stream.send_all(http.send(h11.Data(data=piece)))
            await trio.lowlevel.checkpoint()
        await trio.sleep_forever()

    found: list[dict[str, Any]] = []

    async def follow(gateway: Gateway) -> None:
        async with gateway.stream("/v3/watch", {}) as documents:
            async for document in documents:
                found.append(document)  # noqa: PERF401 - it ends by an error

    async with members(serve) as gateway:
        with pytest.raises(GatewayError, match="m"):
            await follow(gateway)
    assert found == [{"a": 1}, {"b": 2}, {"c": 3}]
