"""A cluster of one server and one peer in this process, and verbs in processes of their own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import trio

from sphtp import Client, Request, RequestError, Source, open_client, open_server
from tests.interpreters import ForkedProcess

ANSWER = {"twice": 8, "raw": b"ab", "far": float("inf")}


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass
class Company:
    """The cluster: its peer is named fluid."""

    address: str
    peer: Client
    source: Source

    def start(self, *arguments: str) -> ForkedProcess:
        return ForkedProcess.of_module("sphtp", [*arguments, "--server", self.address])

    async def call(self, *arguments: str, given: bytes = b"") -> Ended:
        return await ended(self.start(*arguments), given)


async def ended(process: ForkedProcess, given: bytes = b"") -> Ended:
    said = {"out": b"", "err": b""}

    async def read(name: str, pipe: trio.lowlevel.FdStream) -> None:
        async for data in pipe:
            said[name] += data

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, "out", process.stdout)
            nursery.start_soon(read, "err", process.stderr)
            await process.stdin.send_all(given)
            await process.stdin.aclose()
        return Ended(await process.wait(), said["out"].decode(), said["err"].decode())
    finally:
        await process.aclose()


async def answer(request: Request) -> Any:
    await trio.lowlevel.checkpoint()
    if request.value != 4:
        raise RequestError("only 4 has an answer")
    return ANSWER


@asynccontextmanager
async def open_company() -> AsyncIterator[Company]:
    async with (
        open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        open_client([str(server.advertised)], name="fluid", data={"cells": 3}) as peer,
        peer.publish("positions/fluid") as source,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(partial(peer.serve, "double", answer))
        yield Company(str(server.advertised), peer, source)
        nursery.cancel_scope.cancel()
