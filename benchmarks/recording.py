"""Measure the cost of a recorder for the source that it records.

Beside this process, which runs the server, there are three: a source, a subscriber that reads
everything, and ``sphtp record`` in the second half of each round. The figures are the processor
time of the source for a message and its messages per second, with and without the recorder, and the
messages that the recorder lost. The processor time is the cost to the source. The rate also falls
where the recorder takes a core that source and subscriber need, on a machine with two.

Cases: ``full`` sends 64 messages with each call as fast as possible, ``single`` one, and ``paced``
a thousand messages a second; ``steps`` has, in place of source and subscriber, two members of a
group in lock step, whose messages are steps.
"""

import json
import sys
import tempfile
import time
from functools import partial
from statistics import median
from subprocess import DEVNULL, PIPE
from typing import Any, Final

import click
import numpy as np
import trio

import sphtp

TOPIC: Final = "state"
REPORT: Final = 0.25
"""Seconds between two reports of a source."""

PACE: Final = 0.001
BATCH: Final = 64
"""The messages of a call in the case ``full``."""

CASES: Final = ("full", "single", "paced", "steps")


class Meter:
    """The reports of a source, one for each period."""

    def __init__(self) -> None:
        self._count = 0
        self._began = time.perf_counter()
        self._used = time.process_time()

    def add(self, receivers: int, messages: int = 1) -> None:
        """Count messages, and report at the end of a period."""
        self._count += messages
        if self._count % 16 or (now := time.perf_counter()) - self._began < REPORT:
            return
        used = time.process_time()
        figures: dict[str, float] = {
            "receivers": receivers,
            "rate": self._count / (now - self._began),
            "cpu_us": 1e6 * (used - self._used) / self._count,
        }
        print(json.dumps(figures), flush=True)
        self._count, self._began, self._used = 0, now, used


def _value(size: int) -> Any:
    return {"step": 1, "x": np.zeros(size // 8)} if size >= 64 else {"step": 1, "x": 0.5}


async def _send(server: str, case: str, size: int) -> None:
    meter, value = Meter(), _value(size)
    batch = [value] * BATCH
    async with sphtp.open_client(server, name="source") as client, client.publish(TOPIC) as source:
        await source.wait_for_receivers()
        due = trio.current_time()
        while True:
            if case == "full":
                await source.send_many(batch)
                meter.add(len(source.receivers), BATCH)
                continue
            await source.send(value)
            meter.add(len(source.receivers))
            if case == "paced":
                due += PACE
                await trio.sleep_until(due)


async def _read(server: str) -> None:
    async with sphtp.open_client(server) as client:
        await client.wait_for_peer(lambda peer: TOPIC in peer.topics)
        async with client.subscribe(TOPIC) as subscription:
            async for _ in subscription:
                pass


async def _step(server: str, name: str, size: int) -> None:
    meter, value = Meter(), np.zeros(size // 8)
    async with (
        sphtp.open_client(server, name=name) as client,
        client.join(TOPIC, size=2) as group,
    ):
        while True:
            await group.exchange(value)
            if name == "source":
                watched = any(peer.name == "recorder" for peer in client.peers.values())
                meter.add(1 + watched)


async def _measure(case: str, size: int, rounds: int, seconds: float) -> dict[str, Any]:
    anywhere = sphtp.ServerAddress.parse("tcp://127.0.0.1:0,0")
    found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
    lost: list[dict[str, Any]] = []
    async with (
        sphtp.open_server(anywhere, new_cluster=True) as server,
        trio.open_nursery() as nursery,
    ):
        address = str(server.address)

        async def start(*command: str, **options: Any) -> trio.Process:
            run = partial(trio.run_process, [sys.executable, *command], check=False, **options)
            process: trio.Process = await nursery.start(run)
            return process

        own = ("--server", address, "--case", case, "--size", str(size))
        source = await start(__file__, "--part", "source", *own, stdout=PIPE)
        await start(__file__, "--part", "reader", *own, stdout=DEVNULL)
        # The number of receivers with which figures count; with 0 none counts.
        wanted = 0

        async def collect() -> None:
            rest = b""
            assert source.stdout is not None
            async for data in source.stdout:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    figures = json.loads(line)
                    if figures["receivers"] == wanted:
                        found[wanted].append(figures)

        nursery.start_soon(collect)
        for number in range(rounds):
            wanted = 0
            await trio.sleep(2)
            wanted = 1
            await trio.sleep(seconds)
            wanted = 0
            with tempfile.TemporaryDirectory() as directory:
                wish = ("--group" if case == "steps" else "--topic", TOPIC)
                command = ("-m", "sphtp", "record", f"{directory}/a.mcap", *wish, *own[:2])
                recorder = await start(*command, "--json", stdout=PIPE)
                assert recorder.stdout is not None
                output = b""
                while b'"joined"' not in output:
                    data = await recorder.stdout.receive_some()
                    if not data:
                        raise click.ClickException("the recorder has ended too early")
                    output += data
                await trio.sleep(1)
                wanted = 2
                await trio.sleep(seconds)
                wanted = 0
                recorder.terminate()
                while data := await recorder.stdout.receive_some():
                    output += data
                summary = json.loads(output.splitlines()[-1])
                lost.append({key: summary[key] for key in ("messages", "lost", "bytes")})
                print(f"round {number + 1} of {rounds}: {lost[-1]}", file=sys.stderr)
        nursery.cancel_scope.cancel()
    without, beside = found[1], found[2]
    result: dict[str, Any] = {"case": case, "size": size, "recorded": lost}
    for name, is_best in (("cpu_us", min), ("rate", max)):
        # Other programs on the machine make a period worse, and none makes it better.
        before, after = (is_best(it[name] for it in group) for group in (without, beside))
        result[name] = {"without": before, "with": after, "ratio": after / before}
        before, after = (median(it[name] for it in group) for group in (without, beside))
        result[f"median_{name}"] = {"without": before, "with": after, "ratio": after / before}
    return result


@click.command()
@click.option("--case", type=click.Choice(CASES), default="full", show_default=True)
@click.option("--size", type=click.IntRange(8), default=64, show_default=True, help="Bytes.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.5), default=4.0, show_default=True)
@click.option("--part", type=click.Choice(["source", "reader"]), hidden=True)
@click.option("--server", hidden=True, default="")
def main(case: str, size: int, rounds: int, seconds: float, part: str | None, server: str) -> None:
    """Measure the cost of a recorder for a source."""
    if part is None:
        print(json.dumps(trio.run(_measure, case, size, rounds, seconds), indent=2))
    elif case == "steps":
        trio.run(_step, server, part, size)
    elif part == "source":
        trio.run(_send, server, case, size)
    else:
        trio.run(_read, server)


if __name__ == "__main__":
    main()
