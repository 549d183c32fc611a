"""Each kind of NAT against each, on real sockets: network namespaces and nftables (root)."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
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


async def lines(process: trio.Process) -> AsyncGenerator[str, None]:
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


async def test_a_relayed_channel_moves_to_a_direct_way_that_opens(networks: Networks) -> None:
    for side in ("left", "right"):
        networks.set_kind("left", "port restricted")
        networks.set_kind("right", "port restricted")
        networks.set_wall(stands=True)
        told = list[dict[str, Any]]()
        async with started(networks, "server", *TURN) as turn:
            del turn
            with trio.fail_after(40):
                async for each in dial(networks, 14.0, side):
                    told.append(each)
                    if len(told) == 1:
                        await trio.sleep(1)
                        networks.set_wall(stands=False)
        print(f"relay at {side}: {told}")
        first, last = told[0]["address"][0], dict(told[-1]["addresses"])
        assert first == (f"{networks.publics['right']}%relay" if side == "left" else SERVER), told
        assert networks.publics["right"] in last, told
        assert told[-1]["messages"] > 100, told


async def test_a_command_reaches_a_peer_through_its_relay(
    networks: Networks, tmp_path: Path
) -> None:
    networks.set_kind("left", "symmetric")
    networks.set_kind("right", "symmetric")
    user, password = RELAY_USER
    file = tmp_path / "password"
    file.write_text(password)
    file.chmod(0o600)
    ping = f"-m sphtp ping --server tcp://{SERVER}:8764 --count 3 --json right"
    relay = ("--relay", f"turn://{user}@{SERVER}", "--relay-password-file", str(file))
    async with (
        started(networks, "server", *TURN),
        started(networks, "server", sys.executable, *SERVE.split()),
        started(networks, "right", *PEER, "right") as right,
    ):
        with trio.fail_after(30):
            # A command does not wait for servers to start.
            async with aclosing(lines(right)) as said:
                assert await anext(said) == "here"
            async with started(networks, "left", sys.executable, *ping.split(), *relay) as left:
                told = [json.loads(line) async for line in lines(left)]
                assert await left.wait() == 0, told
