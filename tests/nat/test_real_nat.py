"""Each kind of NAT against each, on real sockets: network namespaces and nftables (root)."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import trio

from tests.nat.networks import KINDS, RELAY_USER, SERVER, Networks, open_networks

pytestmark = pytest.mark.soak

ROOT = Path(__file__).resolve().parents[2]
PEER = (sys.executable, "-m", "tests.nat.peer")
SERVE = f"-m sphtp server --host {SERVER} --insecure --stun --new --no-announce --log-level warning"


@pytest.fixture(scope="module")
def networks() -> Iterator[Networks]:
    missing = [name for name in ("nft", "ip", "conntrack", "turnserver") if which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.fail(f"needs root on Linux, and the programs {missing}")
    with open_networks() as made:
        yield made


TURN = (
    *("turnserver", "-n", "--listening-ip", SERVER, "--relay-ip", SERVER, "--realm", "sphtp"),
    *("--lt-cred-mech", "--user", ":".join(RELAY_USER), "--no-tls", "--no-dtls", "--no-cli"),
    *("--no-tcp", "--log-file", "stdout", "--simple-log", "--pidfile", "/dev/null"),
)


@asynccontextmanager
async def started(
    networks: Networks, place: str, *command: str, relay: bool = False
) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(
        [*networks.entry(place), *command],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **({"RELAY": "1"} if relay else {})},
    )
    try:
        yield process
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stdout is not None
            await process.stdout.aclose()


async def lines(process: trio.Process) -> AsyncIterator[str]:
    assert process.stdout is not None
    rest = b""
    async for data in process.stdout:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield line.decode()


async def dial(
    networks: Networks, seconds: float = 0.0, relayed: str = ""
) -> AsyncIterator[dict[str, Any]]:
    """Have the peer on the left dial the one on the right; yield what it prints.

    Those whose sides are in ``relayed`` have a relay.
    """
    async with (
        started(networks, "server", sys.executable, *SERVE.split()),
        started(networks, "right", *PEER, "right", relay="right" in relayed) as right,
        started(
            networks, "left", *PEER, "left", "right", str(seconds), relay="left" in relayed
        ) as left,
    ):
        del right
        async for line in lines(left):
            yield json.loads(line)


async def test_each_kind_against_each(networks: Networks) -> None:
    table = dict[tuple[str, str], str]()
    failed = list[str]()
    for left, right in product(KINDS, KINDS):
        networks.set_kind("left", left)
        networks.set_kind("right", right)
        with trio.fail_after(30):
            told = [each async for each in dial(networks)]
        opened = told[0].get("opened")
        is_direct = opened is not None and told[0]["address"][0].startswith("198.51.100.2")
        wants_direct = {left, right} not in ({"symmetric"}, {"symmetric", "port restricted"})
        table[left, right] = f"direct {opened:.2f} s" if is_direct else "none"
        if is_direct != wants_direct or (opened is not None and opened > 3):
            failed.append(f"{left} dials {right}: {told}")
    print()
    for left in KINDS:
        print(f"{left:20}", *(f"{table[left, right]:16}" for right in KINDS))
    assert not failed, "\n".join(failed)


async def test_an_address_that_changes_costs_no_message(networks: Networks) -> None:
    for side in ("left", "right"):
        networks.set_kind("left", "port restricted")
        networks.set_kind("right", "port restricted")
        with trio.fail_after(40):
            told = list[dict[str, Any]]()
            async for each in dial(networks, seconds=12):
                told.append(each)
                if len(told) == 1:
                    await trio.sleep(1)
                    networks.move(side, "port restricted")
        print(side, told)
        assert "messages" in told[-1], told


async def test_a_relay_connects_those_that_nothing_else_connects(networks: Networks) -> None:
    failed = list[str]()
    async with started(networks, "server", *TURN) as turn:
        del turn
        for left, right, relayed in [
            ("symmetric", "symmetric", "left"),
            ("symmetric", "symmetric", "right"),
            ("port restricted", "symmetric", "left"),
            ("port restricted", "symmetric", "right"),
            ("symmetric", "port restricted", "left"),
            ("symmetric", "port restricted", "right"),
            ("port restricted", "port restricted", "left"),
        ]:
            networks.set_kind("left", left)
            networks.set_kind("right", right)
            told = list[dict[str, Any]]()
            with trio.move_on_after(30):
                told = [each async for each in dial(networks, 1.0, relayed)]
            print(f"{left} dials {right}, relay at {relayed}: {told}")
            is_direct = "symmetric" not in (left, right)
            opened = told[0].get("opened", 99) if told else 99
            used = told[0]["address"][0] if opened < 99 else ""
            is_relayed = used.endswith("%relay") or used == SERVER
            if opened > 3 or is_relayed is is_direct or "messages" not in told[-1]:
                failed.append(f"{left} dials {right}, relay at {relayed}: {told}")
    assert not failed, "\n".join(failed)
