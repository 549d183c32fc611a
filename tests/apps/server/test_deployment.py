"""The image for containers under Podman, and the unit under systemd, as they are in ``share``.

Both tests need programs of the system, and root; where these are missing, they are skipped.

- Podman builds the image, as ``tests.containers`` says.
- ``SPHTP_SYSTEMD_ROOT`` is the folder of a system that systemd-nspawn can boot, with ``sphtp`` in
  its ``/usr/local/bin``. It is left as it was: what changes, changes in an overlay.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.containers import IMAGE, PODMAN, build_image, call, needs_podman
from tests.house.pages import ROOT

pytestmark = pytest.mark.soak

DEADLINE = 60.0
SYSTEM = os.environ.get("SPHTP_SYSTEMD_ROOT", "")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


# Podman


def events(container: str) -> list[str]:
    """Return the events of the log so far; each line is JSON."""
    lines = call(PODMAN, "logs", container).splitlines()
    return [json.loads(line)["event"] for line in lines]


def inspect(container: str, what: str) -> Any:
    return json.loads(call(PODMAN, "inspect", container, "--format", f"{{{{json {what}}}}}"))


@needs_podman
def test_a_server_in_a_container_needs_neither_root_nor_a_file_system_to_write_to(
    tmp_path: Path,
) -> None:
    build_image()
    secret = tmp_path / "secret"
    call(sys.executable, "-m", "sphtp", "keygen", "--secret", str(secret))
    call(PODMAN, "secret", "create", IMAGE, str(secret))
    container = call(
        *(PODMAN, "run", "-d", "--network", "none", "--read-only", "--cap-drop", "all"),
        *("--secret", f"{IMAGE},target=cluster,uid=10001,mode=0400"),
        *(IMAGE, "--new", "--advertise", "tcp://127.0.0.1:8764"),
    )
    try:
        until(lambda: "started" in events(container))
        call(PODMAN, "healthcheck", "run", container)
        assert inspect(container, ".State.Health.Status") == "healthy"
        inside = (PODMAN, "exec", container)
        assert call(*inside, "id", "-u", "-r") == "10001"
        assert call(*inside, "id", "-g", "-r") == "10001"
        call(*inside, "touch", "/opt/sphtp/file", fails=True)
        status = call(*inside, "sphtp", "status", "--secret-file", "/run/secrets/cluster", "--json")
        assert json.loads(status)["state"] == "active"
        call(PODMAN, "kill", "--signal", "HUP", container)
        until(lambda: events(container)[-1] == "reloaded")
        # `podman stop` sends the signal by which a server drains; SIGTERM ends it at once.
        call(PODMAN, "stop", "--time", "60", container)
        assert inspect(container, ".State.ExitCode") == 0
        assert events(container)[-3:] == ["draining", "leaving", "left"]
        call(PODMAN, "start", container)
        until(lambda: events(container).count("started") == 2)
        call(PODMAN, "kill", "--signal", "TERM", container)
        until(lambda: inspect(container, ".State.Status") == "exited")
        assert inspect(container, ".State.ExitCode") == 0
        assert events(container)[-2:] == ["leaving", "left"]
    finally:
        call(PODMAN, "rm", "-f", container)
        call(PODMAN, "secret", "rm", IMAGE)


# systemd

UNIT = "sphtp-server"


@contextmanager
def booted(log: Path, *binds: str) -> Iterator[Callable[..., str]]:
    """Boot the system; yield a function that runs a command in it."""
    command = ("systemd-nspawn", "--boot", "--volatile=overlay", "--private-network", *binds)
    with log.open("wb") as output:
        machine = subprocess.Popen(
            [*command, "--directory", SYSTEM],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: _manager_of(machine.pid) is not None)
        leader = _manager_of(machine.pid)
        enter = ("nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

        def inside(*words: str, fails: bool = False) -> str:
            return call(*enter, "env", "-i", path, *words, fails=fails)

        until(lambda: (machine.poll() or _is_up(inside)) is True)
        yield inside
    finally:
        machine.terminate()
        try:
            machine.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()


def _manager_of(pid: int) -> int | None:
    """Return the process that is the first one of a booted system."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
            return int(child)
    return None


def _is_up(inside: Callable[..., str]) -> bool:
    try:
        return inside("systemctl", "is-system-running", "--wait") == "running"
    except AssertionError:
        return False


@pytest.mark.skipif(
    not SYSTEM or shutil.which("systemd-nspawn") is None,
    reason="needs systemd-nspawn, and a system in SPHTP_SYSTEMD_ROOT",
)
def test_the_unit_starts_reloads_restarts_and_drains_a_server(tmp_path: Path) -> None:
    unit = ROOT / f"share/systemd/{UNIT}.service"
    folder, overrides = tmp_path / "sphtp", tmp_path / "overrides"
    folder.mkdir(mode=0o755)
    overrides.mkdir()
    tmp_path.chmod(0o755)
    settings = folder / "server.toml"
    settings.write_text("new = true\nmax_clients = 5\n")
    (overrides / "quick.conf").write_text("[Service]\nWatchdogSec=2\nRestartSec=0.1\n")
    place = f"/etc/systemd/system/{UNIT}.service"
    binds = [
        *(f"--bind-ro={unit}:{place}", f"--bind-ro={overrides}:{place}.d"),
        f"--bind={folder}:/etc/sphtp",
    ]
    with booted(tmp_path / "machine.log", *binds) as inside:

        def value(name: str) -> str:
            return inside("systemctl", "show", UNIT, "--property", name, "--value")

        def log() -> list[str]:
            lines = inside("journalctl", "--boot", "--unit", UNIT, "--output", "cat", "--no-pager")
            return [json.loads(one)["event"] for one in lines.splitlines() if one.startswith("{")]

        assert inside("systemd-analyze", "verify", place) == ""
        inside("useradd", "--system", "sphtp")
        inside("sphtp", "keygen", "--secret", "/etc/sphtp/cluster.secret")
        inside("chown", "sphtp", "/etc/sphtp/cluster.secret")
        inside("sphtp", "config", "check", "/etc/sphtp/server.toml")
        # It returns when the server has told systemd that it is active.
        inside("systemctl", "start", UNIT)
        assert log() == ["started"]
        assert value("StatusText").startswith("active, ")
        settings.write_text("new = true\nmax_clients = 7\n")
        inside("systemctl", "reload", UNIT)
        until(lambda: log()[-1] == "reloaded")
        # One that is killed, and one that hangs, are started again.
        for number, signal in enumerate(("KILL", "STOP"), 1):
            inside("sh", "-c", f"kill -{signal} {value('MainPID')}")
            until(lambda: log().count("started") == number + 1)  # noqa: B023
            assert value("NRestarts") == str(number)
        until(lambda: value("ActiveState") == "active")
        inside("systemctl", "stop", UNIT)
        assert log()[-3:] == ["draining", "leaving", "left"]
        assert value("Result") == "success"
