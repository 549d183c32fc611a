"""The verbs for a terminal, as their users run them: over real sockets, beside a real peer."""

import json
import signal
from dataclasses import dataclass

import trio

import sphtp
from sphtp.core.messages import MessageFactory
from tests.apps.terminal.company import Ended, ended, open_company
from tests.deadline import within_20_seconds
from tests.interpreters import ForkedProcess

pytestmark = within_20_seconds


def events(ending: Ended) -> list[dict[str, object]]:
    return [json.loads(line) for line in ending.lines]


async def test_the_peers_are_listed_with_all_that_is_known_of_them() -> None:
    async with open_company() as company:
        process = ForkedProcess.of_module("sphtp", ["peers", company.address, "--json"])
        (row,) = events(await ended(process))
        host, port = company.peer.address
        assert row == {
            "event": "peer",
            "peer": company.peer.id,
            "name": "fluid",
            "addresses": [f"{host}:{port}"],
            "groups": [],
            "topics": ["positions/fluid"],
            "data": {"cells": 3},
        }
        shown = await ended(ForkedProcess.of_module("sphtp", ["peers", company.address]))
        assert f"{company.peer.id:#010x}" in shown.out


async def test_a_ping_is_answered_by_a_peer_whose_program_does_nothing() -> None:
    async with open_company() as company:
        ending = await company.call("ping", "fluid", "--count", "3", "--interval", "0.01", "--json")
        kinds = [event["event"] for event in events(ending)]
        assert kinds == ["opened", "answer", "answer", "answer", "summary"]
        assert ending.code == 0
        by_id = await company.call("ping", hex(company.peer.id), "--count", "1")
        assert by_id.lines[-1].startswith("1 answers, 0 missing; min ")


async def test_ctrl_c_ends_a_ping_with_its_summary() -> None:
    async with open_company() as company:
        process = company.start("ping", "fluid", "--interval", "0.01")
        said = b""
        while b"ping 1:" not in said:
            said += await process.stdout.receive_some()
        process.send_signal(signal.SIGINT)
        ending = await ended(process)
        assert ending.code == 130
        assert "missing; min " in ending.lines[-1]
        assert ending.err == ""


async def test_ctrl_c_between_two_pings_keeps_the_count_of_missing_replies() -> None:
    requests = 0

    async def reply_once(_: sphtp.Request) -> None:
        nonlocal requests
        requests += 1
        if requests > 1:
            await trio.sleep_forever()

    async with open_company() as company, trio.open_nursery() as nursery:
        await nursery.start(company.peer.serve, "sphtp/ping", reply_once)
        process = company.start("ping", "fluid", "--interval", "60", "--timeout", "2")
        said = b""
        while b"no answer within" not in said:
            said += await process.stdout.receive_some()
        process.send_signal(signal.SIGINT)
        ending = await ended(process)
        assert ending.lines[-1] == "0 answers, 1 missing"
        assert ending.code == 130
        nursery.cancel_scope.cancel()


async def test_a_request_prints_the_reply_and_errors_are_one_sentence() -> None:
    async with open_company() as company:
        reply = await company.call("request", "fluid", "double", "4")
        assert json.loads(reply.out) == {"twice": 8, "raw": {"base16": "6162"}, "far": "inf"}
        refused = await company.call("request", "fluid", "double", "5")
        assert refused == (3, "", "failed: only 4 has an answer\n")
        message = "not registered"
        # On a machine that has much else to do, registration takes longer than usual.
        for seconds in ("0.2", "2", "20"):
            if "not registered" not in message:
                break
            nobody = await company.call(
                "request", "solid", "double", "--timeout", seconds, "--json"
            )
            assert nobody.code == 3
            message = str(events(nobody)[0]["message"])
        assert f"there are: fluid ({company.peer.id:#010x})" in message


async def test_what_is_published_is_printed_by_who_subscribes() -> None:
    lines = b'1\n{"x": [1, 2]}\n\n"a text"'
    async with open_company() as company:
        reader = company.start("sub", "chat/*", "--count", "3", "--json")
        sent = await company.call("pub", "chat/all", "--name", "speaker", given=lines)
        assert sent == (0, "", "")
        got = events(await ended(reader))
        assert [event["value"] for event in got] == [1, {"x": [1, 2]}, "a text"]
        assert {(event["name"], event["topic"]) for event in got} == {("speaker", "chat/all")}


@dataclass
class Shot:
    power: int


async def test_a_source_with_types_of_messages_refuses_and_the_cause_is_printed() -> None:
    config = sphtp.Config(messages=MessageFactory([Shot]))
    async with (
        open_company() as company,
        sphtp.open_client([company.address], name="typed", config=config) as client,
        client.publish("shots/typed"),
    ):
        reader = company.start("sub", "shots/*", "--json")
        line = json.loads(await reader.stdout.receive_some())
        assert (line["event"], line["name"], line["topic"]) == (
            "source_failed",
            "typed",
            "shots/typed",
        )
        assert "message types differ" in line["why"]
        reader.send_signal(signal.SIGINT)
        assert (await ended(reader)).code == 130


async def test_a_subscription_ends_when_nobody_reads_its_output() -> None:
    async with open_company() as company:
        reader = company.start("sub", "positions/*")
        await company.source.wait_for_receivers()
        await reader.stdout.aclose()
        async with trio.open_nursery() as nursery:

            async def publish() -> None:
                while True:
                    await company.source.send(1)
                    await trio.sleep(0.01)

            nursery.start_soon(publish)
            assert await reader.wait() == 0
            nursery.cancel_scope.cancel()
        assert await reader.stderr.receive_some() == b""
        await reader.aclose()


async def test_nothing_is_published_when_nobody_subscribes_or_it_is_no_json() -> None:
    async with open_company() as company:
        # The same time is for registering, which takes longer on a busy machine.
        for seconds in ("0.1", "1", "10"):
            alone = await company.call("pub", "chat", "1", "--timeout", seconds)
            assert alone.code == 3
            if "not registered" not in alone.err:
                break
        assert "0 of 1 subscriptions to 'chat'" in alone.err
        wrong = await company.call("pub", "chat", "hello")
        assert wrong.code == 2
        assert """a text has quotes: '"hello"'""" in wrong.err
