"""The page about three machines, typed line by line into three network namespaces with a bridge.

A host is a shell in namespaces of its own: network, mounts, so that it has an ``/etc``, and
processes, so that what it started ends with it. Two commands have stand-ins: ``scp`` copies to the
folder of another host, and ``systemctl`` runs the unit of this project, as root. A line without the
name of a host is not typed. A ``text`` block is what the last line before it prints.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trio

from tests.deadline import within
from tests.house.pages import ANY_FENCE, ROOT
from tests.house.test_programs import agrees

PAGE: Final = ROOT / "docs" / "how-to" / "across-machines.md"
UNIT: Final = ROOT / "share" / "systemd" / "sphtp-server.service"
STAND_INS: Final = Path(__file__).parent / "stand_ins"
HOSTS: Final = {"alpha": "192.0.2.1", "beta": "192.0.2.2", "gamma": "192.0.2.3"}

FENCED: Final = re.compile(r"```(?P<language>\w+)\n(?P<text>.*)```", re.S)
NAMED: Final = re.compile(r"# (?P<name>[\w-]+\.\w+)\n")
TYPED: Final = re.compile(r"(?P<host>\w+)\$ (?P<line>.*)")
MARK: Final = "== this line has ended: "
ENDED: Final = re.compile(MARK.encode() + rb"(\d+)\n")

APART: Final = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

ETC: Final = """
cp -a /etc {folder}/etc && mount --bind {folder}/etc /etc
printf '%s\\n' {names} >> /etc/hosts
mkdir -p /etc/systemd/system
ip link set lo up
"""
PLUG: Final = """
set -e
ip link add {host} type veth peer name out netns {pid}
ip link set {host} master bridge up
"""


class Host:
    """A shell, to which lines are typed."""

    def __init__(self, name: str, shell: trio.Process) -> None:
        self.name = name
        self.pid = shell.pid
        assert shell.stdin is not None
        assert shell.stdout is not None
        self._stdin, self._stdout = shell.stdin, shell.stdout

    async def type(self, line: str) -> str:
        """Return what a line prints. Fails if it ends with anything but 0, or 1 for a fault."""
        typed = f"{{ {line}\n}} </dev/null 2>&1\necho '{MARK}'$?\n"
        await self._stdin.send_all(typed.encode())
        printed = b""
        while not (end := ENDED.search(printed)):
            more = await self._stdout.receive_some()
            assert more, f"{self.name} ended: {printed.decode()}"
            printed += more
        text = printed[: end.start()].decode()
        print(f"{self.name}$ {line}", text, sep="\n")
        code = int(end[1])
        assert code == 0 or (code == 1 and "doctor" in line), f"{self.name}$ {line}: {code}\n{text}"
        return text


class Block(NamedTuple):
    """A fenced block of the page."""

    language: str
    text: str


def blocks() -> Iterator[Block]:
    for fence in ANY_FENCE.finditer(PAGE.read_text(encoding="utf-8")):
        found = FENCED.fullmatch(fence[0])
        assert found is not None, fence[0]
        yield Block(found["language"], found["text"])


@asynccontextmanager
async def open_hosts(folder: Path) -> AsyncIterator[Mapping[str, Host]]:
    async with AsyncExitStack() as stack:
        bridge = await stack.enter_async_context(open_shell("bridge", folder, "--net"))
        await bridge.type("ip link add bridge type bridge && ip link set bridge up")
        hosts = dict[str, Host]()
        names = " ".join(f"'{address} {name}'" for name, address in HOSTS.items())
        for name, address in HOSTS.items():
            home = folder / name
            home.mkdir()
            shutil.copy(UNIT, home)
            host = hosts[name] = await stack.enter_async_context(open_shell(name, home, *APART))
            await host.type(ETC.format(folder=home, names=names))
            await bridge.type(PLUG.format(host=name, pid=host.pid))
            await host.type(f"ip address add {address}/24 dev out && ip link set out up")
        yield hosts


@asynccontextmanager
async def open_shell(name: str, folder: Path, *kinds: str) -> AsyncIterator[Host]:
    """Run a shell in namespaces of its own, of these kinds, for the length of the block."""
    tools = f"{STAND_INS}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    shell = await trio.lowlevel.open_process(
        ["unshare", *kinds, "bash"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={"PATH": tools, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)},
    )
    try:
        yield Host(name, shell)
    finally:
        shell.kill()
        with trio.CancelScope(shield=True):
            await shell.wait()


@pytest.mark.soak
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("nft") is None,
    reason="needs root, for network namespaces, and nftables",
)
@pytest.mark.trio(run=within(60))
async def test_the_page_is_followed_step_by_step(tmp_path: Path) -> None:
    async with open_hosts(tmp_path) as hosts:
        printed = ""
        for language, text in blocks():
            if named := NAMED.match(text):
                for name in hosts:
                    (tmp_path / name / named["name"]).write_text(text, encoding="utf-8")
            elif language == "console":
                for line in text.splitlines():
                    if typed := TYPED.fullmatch(line):
                        printed = await hosts[typed["host"]].type(typed["line"])
            elif language == "text":
                assert agrees(text, printed), f"the page says:\n{text}\nbut it prints:\n{printed}"
