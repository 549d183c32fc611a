"""A client in one network namespace finds the server in another one, by multicast DNS alone."""

import sys
from functools import partial
from pathlib import Path
from subprocess import DEVNULL

import pytest
import trio

from tests.chaos.namespaces import open_namespaces

pytestmark = [pytest.mark.soak, pytest.mark.chaos]

CLIENT = """
from sphtp import Config, blocking
from sphtp.config import ControlTimers
from sphtp.security import ClusterSecurity, load_secret
# The server may start later.
timers = ControlTimers(start_timeout=30.0)
for secret in (load_secret("cluster.secret"), None, bytes(32)):
    config = Config(cluster=ClusterSecurity(secret=secret), timers=timers)
    timers = None
    try:
        with blocking.open_client(config=config) as client:
            print(*(member.address for member in client.servers.values()))
    except Exception as error:
        print(error)
"""


async def test_a_client_finds_the_server_of_its_network_and_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sphtp = [sys.executable, "-m", "sphtp"]
    await trio.run_process([*sphtp, "keygen", "--secret", "cluster.secret"], cwd=tmp_path)
    async with open_namespaces() as rooms, trio.open_nursery() as nursery:
        host = rooms.host("left")
        server = [*rooms.entry("left"), *sphtp, "server", "--new", f"--host={host}"]
        server += ["--secret-file=cluster.secret", "--log-format=json"]
        run = partial(trio.run_process, check=False, stdout=DEVNULL, stderr=DEVNULL)
        running: trio.Process = await nursery.start(partial(run, server, cwd=tmp_path))
        # The same machine has one folder of announcements; the client has another one here.
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        client = [*rooms.entry("right"), sys.executable, "-c", CLIENT]
        done = await trio.run_process(client, cwd=tmp_path, check=False, capture_stdout=True)
        running.terminate()
    found, without, other = done.stdout.decode().splitlines()
    assert found == f"tcp://{host}:8764"
    assert "has a secret, and this client has none" in without
    assert "has another secret" in other
