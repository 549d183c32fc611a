"""Measure bulk data over a wide-area path, beside TCP and QUIC on the same path.

By default the path carries 100 Mbit/s, has a round trip of 200 ms, and loses 1 % of the packets of
each direction; a queue of one bandwidth-delay product (BDP) stands before it. Two network
namespaces have a TUN device each, and a third process moves packets from one to the other, as a
link of the simulated network does. So TCP is the kernel's own, and the kernel needs no netem. Only
root may make namespaces and devices.

Systems take turns. A receiver counts the bytes that its program gets, in order, from the first one
on: those of the first seconds by themselves, because a flow has to find its rate.
"""

import asyncio
import fcntl
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from select import select
from statistics import median
from struct import Struct
from subprocess import PIPE
from typing import Any, Final, NamedTuple

import click
import trio

import sphtp
from sphtp.config import ChannelSettings, StreamSettings
from sphtp.testing import Faults, Link
from sphtp.testing.network import Flight

HOSTS: Final = ("10.84.0.1", "10.84.0.2")
"""The sender, and the receiver; with ``--both`` each is both."""

PORT: Final = 7000
BATCH: Final = [bytes(10_000)] * 10
"""The messages of a call; streams of bytes get as many bytes."""

START: Final = 5.0
"""Seconds from the first byte in which a flow may find its rate."""

GRACE: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Path:
    """A path: bits per second, seconds of a round trip, share of lost packets, and queue in BDP."""

    rate: float
    round_trip: float
    loss: float
    queue: float

    @property
    def faults(self) -> Faults:
        """One direction of the path."""
        product = self.rate / 8 * self.round_trip
        return Faults(
            rate=self.rate,
            delay=self.round_trip / 2,
            loss=self.loss,
            queue=round(self.queue * product),
        )


# The line: a process that moves packets between two devices.

TUNSETIFF: Final = 0x400454CA
IFF_TUN: Final = 0x1
IFF_NO_PI: Final = 0x1000
_REQUEST: Final = Struct("16sH22x")
MOST: Final = 64
"""Packets that are read from a device before the other one gets its turn."""

# TCP gets memory for many BDP, and no figures of an earlier connection.
SET_UP: Final = """
set -e
ip link set {name} netns {pid}
nsenter --net --target {pid} sh -e -c '
ip address add {host}/24 dev {name}
ip link set {name} mtu 1500 txqueuelen 20000 up
sysctl -q -w net.ipv4.tcp_rmem="4096 131072 67108864" net.ipv4.tcp_wmem="4096 65536 67108864"
sysctl -q -w net.ipv4.tcp_no_metrics_save=1
'
"""


def _open_device(name: str, host: str, pid: int) -> int:
    """Make a TUN device in the network namespace of a process; return its file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, _REQUEST.pack(name.encode(), IFF_TUN | IFF_NO_PI))
    script = SET_UP.format(name=name, host=host, pid=pid)
    subprocess.run(["sh", "-c", script], check=True)
    return device


def run_line(path: Path, seed: int, pids: Sequence[int]) -> None:
    """Move packets between the namespaces of two processes, until standard input closes."""
    devices = [_open_device(f"line{at}", HOSTS[at], pid) for at, pid in enumerate(pids)]
    links = [Link(path.faults, Random(f"{seed} {at}")) for at in range(2)]
    flight, clock = Flight[tuple[int, bytes]](), time.monotonic
    _say("ready")
    while True:
        due = flight.next_time()
        wait = None if due is None else max(due - clock(), 0.0)
        readable, _, _ = select([*devices, sys.stdin], [], [], wait)
        if sys.stdin in readable:
            return
        for device, other, link in zip(devices, reversed(devices), links, strict=True):
            for packet in _read(device) if device in readable else ():
                for when, arriving in link.offer(clock(), packet):
                    flight.add(when, (other, arriving))
        for device, packet in flight.take_due(clock()):
            os.write(device, packet)


def _read(device: int) -> list[bytes]:
    packets = list[bytes]()
    try:
        while len(packets) < MOST:
            packets.append(os.read(device, 2048))
    except BlockingIOError:
        pass
    return packets


# The two ends of a flow


def _say(what: Any) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


class Meter:
    """A counter of the bytes that arrive, with a report at the end."""

    def __init__(self, seconds: float) -> None:
        self.lost = 0
        self._seconds = seconds
        self._total = self._first = 0
        self._began = self._steady = self._used = 0.0

    def take(self, size: int) -> bool:
        """Count bytes; return True at the end."""
        now = time.perf_counter()
        if not self._total:
            self._began = now
        self._total += size
        if not self._steady and now >= self._began + START:
            self._first, self._steady, self._used = self._total, now, time.process_time()
        return bool(self._steady) and now >= self._steady + self._seconds

    def report(self) -> None:
        """Report the Mbit/s of the first seconds and of those after them, the CPU, and ``lost``."""
        passed = time.perf_counter() - self._steady
        _say(
            {
                "first_mbit": self._first * 8 / (self._steady - self._began) / 1e6,
                "mbit": (self._total - self._first) * 8 / passed / 1e6,
                "cpu_percent": 100 * (time.process_time() - self._used) / passed,
                "lost": self.lost,
            }
        )


class End(NamedTuple):
    """One end of a flow: its address, that of the other end, the seconds, and the path."""

    host: str
    peer: str
    seconds: float
    path: Path


# SphTP


def _channel(kind: str, path: Path) -> sphtp.Config:
    settings = ChannelSettings.wan() if kind == "wan" else ChannelSettings(congestion=kind)
    return sphtp.Config(channel=settings)


async def _send_by_channel(kind: str, end: End) -> None:
    config = _channel(kind, end.path)
    async with (
        sphtp.open_node(end.host, config=config) as node,
        node.open_channel(end.peer, PORT) as channel,
    ):
        while True:
            await channel.send_many(BATCH)


async def _receive_by_channel(kind: str, end: End) -> None:
    meter = Meter(end.seconds)
    async with sphtp.open_node(end.host, PORT, config=_channel(kind, end.path)) as node:
        _say("ready")
        channel = await node.accept()
        while not meter.take(sum(map(len, await channel.receive_many()))):
            pass
        meter.report()
        await trio.sleep_forever()


SHARE: Final = 0.9
"""The share of the line that a stream takes, which has no congestion control."""


def _stream(kind: str, path: Path) -> StreamSettings:
    rate = SHARE * path.rate / 8
    if kind == "wan":
        return StreamSettings.wan(path.round_trip, rate)
    return StreamSettings(data_rate=rate)


async def _send_by_stream(kind: str, end: End) -> None:
    async with (
        sphtp.open_node(end.host, PORT) as node,
        node.open_source("bulk", settings=_stream(kind, end.path)) as source,
    ):
        _say("ready")
        while True:
            await source.wait_for_receivers()
            await source.send_many(BATCH)


async def _receive_by_stream(kind: str, end: End) -> None:
    meter, settings = Meter(end.seconds), _stream(kind, end.path)
    async with (
        sphtp.open_node(end.host) as node,
        node.subscribe(end.peer, PORT, topic="bulk", settings=settings) as subscription,
    ):
        size = 0
        while not meter.take(size):
            size = 0
            for item in await subscription.receive_many():
                if isinstance(item, sphtp.Loss):
                    meter.lost += item.last - item.first + 1
                else:
                    size += len(item)
        meter.report()
        await trio.sleep_forever()


# TCP


def _tcp_socket(kind: str) -> trio.socket.SocketType:
    opened = trio.socket.socket()
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, kind.encode())
    return opened


async def _send_by_tcp(kind: str, end: End) -> None:
    with _tcp_socket(kind) as opened:
        await opened.connect((end.peer, PORT))
        stream = trio.SocketStream(opened)
        while True:
            await stream.send_all(b"".join(BATCH))


async def _receive_by_tcp(kind: str, end: End) -> None:
    meter, buffer = Meter(end.seconds), bytearray(1 << 18)
    with _tcp_socket(kind) as listener:
        await listener.bind((end.host, PORT))
        listener.listen()
        _say("ready")
        accepted, _ = await listener.accept()
        while not meter.take(await accepted.recv_into(buffer)):
            pass
        meter.report()
        await trio.sleep_forever()


# QUIC

CHUNK: Final = 1 << 16
AHEAD: Final = 256
"""Chunks that a sender may be ahead of what its receiver has counted: some BDP."""


def _quic(kind: str, *, is_client: bool) -> Any:
    from aioquic.quic.configuration import QuicConfiguration

    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=["bulk"],
        verify_mode=ssl.CERT_NONE,
        congestion_control_algorithm=kind,
        max_datagram_size=1452,
        max_data=1 << 28,
        max_stream_data=1 << 28,
    )


async def _send_by_quic(kind: str, end: End) -> None:
    from aioquic.asyncio import connect

    configuration, ahead = _quic(kind, is_client=True), AHEAD
    async with connect(end.peer, PORT, configuration=configuration) as caller:
        reader, writer = await caller.create_stream()
        while True:
            # It queues without a limit, so the receiver sends a byte back for each chunk.
            while ahead:
                writer.write(bytes(CHUNK))
                ahead -= 1
            ahead += len(await reader.read(AHEAD))


async def _receive_by_quic(kind: str, end: End) -> None:
    from aioquic.asyncio import QuicConnectionProtocol, serve
    from aioquic.quic.events import QuicEvent, StreamDataReceived

    meter, is_over = Meter(end.seconds), asyncio.Event()

    class Receiver(QuicConnectionProtocol):
        uncounted = 0

        def quic_event_received(self, event: QuicEvent) -> None:
            if isinstance(event, StreamDataReceived):
                counted, self.uncounted = divmod(self.uncounted + len(event.data), CHUNK)
                if counted:
                    self._quic.send_stream_data(event.stream_id, bytes(counted))
                if meter.take(len(event.data)):
                    is_over.set()

    configuration = _quic(kind, is_client=False)
    configuration.certificate, configuration.private_key = _certificate()
    await serve(end.host, PORT, configuration=configuration, create_protocol=Receiver)
    _say("ready")
    await is_over.wait()
    meter.report()
    await asyncio.Event().wait()


def _certificate() -> Any:
    from sphtp_benchmarks.systems import aioquic

    return aioquic.certificate()


# Systems


Half = Callable[[str, End], Awaitable[None]]


class System(NamedTuple):
    """The two programs of a system, its event loop, and its congestion control or profile."""

    send: Half
    receive: Half
    kind: str
    run: Callable[..., Any] = trio.run
    sender_is_first: bool = False
    """True if the receiver calls the sender."""


def _run_asyncio(half: Half, kind: str, end: End) -> None:
    asyncio.run(half(kind, end))  # type: ignore[arg-type]


_CHANNEL: Final = (_send_by_channel, _receive_by_channel)
_STREAM: Final = (_send_by_stream, _receive_by_stream)
_TCP: Final = (_send_by_tcp, _receive_by_tcp)
_QUIC: Final = (_send_by_quic, _receive_by_quic)

SYSTEMS: Final[Mapping[str, System]] = {
    "channel, wan": System(*_CHANNEL, "wan"),
    "channel, cubic": System(*_CHANNEL, "cubic"),
    "stream, wan": System(*_STREAM, "wan", sender_is_first=True),
    "stream, lan": System(*_STREAM, "lan", sender_is_first=True),
    "tcp, bbr": System(*_TCP, "bbr"),
    "tcp, cubic": System(*_TCP, "cubic"),
    "quic, cubic": System(*_QUIC, "cubic", _run_asyncio),
    "quic, reno": System(*_QUIC, "reno", _run_asyncio),
}


def _run_half(name: str, role: str, end: End) -> None:
    system = SYSTEMS[name]
    system.run(system.send if role == "send" else system.receive, system.kind, end)


# Measurements


@asynccontextmanager
async def _process(*command: str) -> AsyncIterator["Process"]:
    """Run a process for the length of the block."""
    opened = await trio.lowlevel.open_process(list(command), stdin=PIPE, stdout=PIPE)
    try:
        yield Process(opened)
    finally:
        opened.kill()
        with trio.CancelScope(shield=True):
            await opened.wait()


class Process:
    """A process that reports in lines of JSON."""

    def __init__(self, process: trio.Process) -> None:
        self.pid = process.pid
        assert process.stdout is not None
        self._stdout = process.stdout

    async def hear(self) -> Any:
        """Return the value in its next line. Raises ``ClickException`` if it ends before."""
        line = b""
        while not line.endswith(b"\n"):
            more = await self._stdout.receive_some(1)
            if not more:
                raise click.ClickException("a process has ended; its last lines are above")
            line += more
        return json.loads(line)


class Network:
    """Two namespaces, and the path between them."""

    def __init__(self, path: Path, pids: Sequence[int]) -> None:
        self._path = path
        self._pids = pids

    async def measure(self, name: str, seconds: float, sender: int = 0) -> dict[str, float]:
        """Let a system send in one direction; return the report of its receiver."""
        receiver, start = 1 - sender, partial(self._start, name, seconds)
        first, second = (sender, receiver), (receiver, sender)
        roles = ("send", "receive")
        if not SYSTEMS[name].sender_is_first:
            first, second, roles = second, first, ("receive", "send")
        with trio.fail_after(START + seconds + GRACE):
            async with start(roles[0], *first) as waiting:
                await waiting.hear()
                async with start(roles[1], *second) as calling:
                    receiving = waiting if roles[0] == "receive" else calling
                    figures: dict[str, float] = await receiving.hear()
                    return figures

    def _start(self, name: str, seconds: float, role: str, own: int, other: int) -> Any:
        end = End(HOSTS[own], HOSTS[other], seconds, self._path)
        task = json.dumps({**end._asdict(), "path": asdict(self._path)})
        inside = ("nsenter", "--net", "--target", str(self._pids[own]), "--")
        return _process(*inside, sys.executable, __file__, "--half", name, role, task)


@asynccontextmanager
async def open_network(path: Path, seed: int) -> AsyncIterator[Network]:
    """Make the namespaces and the path for the length of the block."""
    keeper = ("unshare", "--net", "sh", "-c", "ip link set lo up && echo 0 && exec cat")
    async with AsyncExitStack() as stack:
        keepers = [await stack.enter_async_context(_process(*keeper)) for _ in HOSTS]
        for each in keepers:
            await each.hear()
        pids = [each.pid for each in keepers]
        task = json.dumps({"path": asdict(path), "seed": seed, "pids": pids})
        command = ("unshare", "--net", sys.executable, __file__, "--line", task)
        line = await stack.enter_async_context(_process(*command))
        await line.hear()
        yield Network(path, pids)


Figures = dict[str, list[dict[str, float]]]


async def _measure_all(
    names: Sequence[str], path: Path, rounds: int, seconds: float, seed: int, *, both: bool
) -> Figures:
    found: Figures = {name: [] for name in names}
    async with open_network(path, seed) as network:

        async def measure(name: str, sender: int) -> None:
            found[name].append(await network.measure(name, seconds, sender))

        for _ in range(rounds):
            for name in names:
                async with trio.open_nursery() as nursery:
                    for sender in range(1 + both):
                        nursery.start_soon(measure, name, sender)
                click.echo(f"{name}: {found[name][-1 - both :]}", err=True)
    return found


@click.command()
@click.option("--system", "names", type=click.Choice(list(SYSTEMS)), multiple=True)
@click.option("--rate", type=click.FloatRange(0.1), default=100.0, show_default=True, help="Mbit/s")
@click.option("--rtt", type=click.FloatRange(0, 10), default=0.2, show_default=True, help="seconds")
@click.option("--loss", type=click.FloatRange(0, 1), default=0.01, show_default=True, help="share")
@click.option("--queue", type=float, default=1.0, show_default=True, help="BDP")
@click.option("--both", is_flag=True, help="Send in both directions at once.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=10.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="of the losses")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option("--half", nargs=3, hidden=True)
@click.option("--line", hidden=True)
def main(
    names: Sequence[str],
    rate: float,
    rtt: float,
    loss: float,
    queue: float,
    rounds: int,
    seconds: float,
    seed: int,
    half: tuple[str, str, str] | None,
    line: str | None,
    *,
    both: bool,
    as_json: bool,
) -> None:
    """Measure bulk data over a wide-area path; figures are medians of the rounds."""
    if line is not None:
        task = json.loads(line)
        run_line(Path(**task["path"]), task["seed"], task["pids"])
        return
    if half is not None:
        name, role, text = half
        end = json.loads(text)
        _run_half(name, role, End(**{**end, "path": Path(**end["path"])}))
        return
    path = Path(rate=rate * 1e6, round_trip=rtt, loss=loss, queue=queue)
    work = partial(_measure_all, names or list(SYSTEMS), path, rounds, seconds, seed, both=both)
    found = {
        name: {key: round(median([it[key] for it in figures]), 1) for key in figures[0]}
        for name, figures in trio.run(work).items()
    }
    if as_json:
        click.echo(json.dumps({"path": asdict(path), "both": both, "systems": found}))
        return
    for name, values in found.items():
        click.echo(f"{name:15} " + "  ".join(f"{key} {value}" for key, value in values.items()))


if __name__ == "__main__":
    main()
