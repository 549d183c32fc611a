"""The client in C of a page, compiled and run against a node."""

import shutil
from pathlib import Path

import pytest
import trio

import sphtp
from tests.deadline import within_20_seconds
from tests.house.pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to" / "i-only-want.md"
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fsanitize=undefined"]

pytestmark = [
    within_20_seconds,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]


async def test_the_client_in_c_sends_a_message_and_gets_the_answer(tmp_path: Path) -> None:
    (program,) = blocks(PAGE, "c")
    source = tmp_path / "smallest.c"
    source.write_text(program.text, encoding="utf-8")
    client = tmp_path / "smallest"
    await trio.run_process(["gcc", *STRICT, "-o", client, source])
    for loss in (0.0, 0.3):
        await exchange(client, sphtp.config.Impairment(loss=loss, duplicate=loss))


async def exchange(client: Path, impairment: sphtp.config.Impairment) -> None:
    async with sphtp.open_node(config=sphtp.Config(security=None, impairment=impairment)) as node:
        host, port = node.address

        async def answer() -> None:
            async with await node.accept() as channel:
                assert await channel.receive() == "hello"
                await channel.send("thanks")
                with pytest.raises(trio.EndOfChannel):
                    await channel.receive()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            done = await trio.run_process([client, host, f"{port}"], capture_stdout=True)
    assert done.stdout == b"thanks\n"
