"""The verb: one state for scripts, and a line where something is missing."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

import sphtp
from sphtp.config import ChannelSettings
from sphtp.groups import LockstepGroup
from sphtp.shell.lifetime import running
from sphtp.web import open_web
from sphtp_client.top.command import top
from tests.deadline import until, within_20_seconds
from tests.shell.test_client import client, cluster


async def call(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(CliRunner().invoke, top, arguments)


@within_20_seconds
async def test_one_state_is_printed_for_people_and_for_programs(tmp_path: Path) -> None:
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob") as bob,
        open_web(ada) as web,
        ada.open_channel(await ada.wait_for_peer("bob")) as channel,
    ):
        accepted = await bob.accept()
        await channel.send(1)
        assert await accepted.receive() == 1
        found = await call(web.url, "--once", "--interval", "0.05")
        assert found.exit_code == 0
        titles = [line for line in found.stdout.splitlines() if line.isupper()]
        assert titles == ["PEERS", "CHANNELS", "LANES", "WAITING"]
        assert found.stdout.endswith("Nothing waits.\n")
        found = await call(str(server.address), "--once", "--interval", "0.05")
        assert "start programs with --metrics PORT" in found.stdout.splitlines()[-1]
        found = await call(web.url, str(server.address), "--json", "--interval", "0.05")
        state = json.loads(found.stdout)
        assert {row["peer"] for row in state["views"]["peers"]} == {
            "ada",
            "bob",
            f"{server.id:#010x}",
        }
        (row,) = state["views"]["channels"]
        assert (row["from"], row["to"], row["waiting"]) == ("ada", "bob", 0)
        assert row["out"] is not None
        assert state["causes"] == []
        assert [place["error"] for place in state["places"]] == ["", ""]


@within_20_seconds
async def test_a_reader_that_does_not_read_and_a_member_that_computes_are_named() -> None:
    async def take_part(member: sphtp.Client) -> None:
        async with member.join("fluid", size=2, on_death="continue") as group:
            groups[member.name] = group
            if member is ada:
                await group.exchange(None)
            await trio.sleep_forever()

    groups: dict[str, LockstepGroup] = {}
    async with (
        cluster(1) as [server],
        client(server.address, name="ada") as ada,
        client(server.address, name="bob", channel=ChannelSettings(receive_buffer=4)) as bob,
        open_web(ada, bob) as web,
        ada.open_channel(await ada.wait_for_peer("bob")) as channel,
        running(partial(take_part, ada)),
        running(partial(take_part, bob)),
    ):
        accepted = await bob.accept()
        for number in range(9):
            await channel.send(number)
        await until(lambda: len(groups) == 2 and bool(groups["ada"].missing))
        await until(lambda: channel.statistics().waiting == 5)
        found = await call(web.url, "--json", "--interval", "0.6")
        stopped = [
            it["text"] for it in json.loads(found.stdout)["causes"] if it["weight"] == "stopped"
        ]
        assert "ada waits for bob in step 0 of fluid; bob computes." in stopped
        credit = "5 messages of ada for bob wait: the credit of bob is used up"
        assert any(text.startswith(credit) for text in stopped)
        assert [await accepted.receive() for _ in range(9)] == [*range(9)]


def test_without_an_answer_it_fails_and_says_why() -> None:
    found = CliRunner().invoke(top, ["127.0.0.1:9", "--json"])
    assert found.exit_code == 3
    assert json.loads(found.stdout)["places"][0]["error"] == "connection refused"
    found = CliRunner().invoke(top, ["127.0.0.1:9", "--once"])
    assert "127.0.0.1:9 has not answered: connection refused." in found.stdout
    wrong = CliRunner().invoke(top, ["host"])
    assert (wrong.exit_code, "'host' is neither a server" in wrong.stderr) == (2, True)


def test_what_is_missing_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sphtp_client.top.screen", raising=False)
    monkeypatch.setitem(sys.modules, "textual", None)
    found = CliRunner().invoke(top, ["9464", "--once"])
    assert found.exit_code == 2
    assert found.stderr == "failed: sphtp top needs textual: pip install 'sphtp[top]' brings it.\n"
