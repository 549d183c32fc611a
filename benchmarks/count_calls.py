"""Count the Python calls that a lone message costs each side, with its acks and its timers.

One process sends messages of 64 bytes, with a pause after each, and another one receives them one
by one. Each counts its calls by cProfile; functions of the interpreter and of Trio are left out, as
are the calls of this script. The figure is the calls of the measured time, divided by its messages.
With ``--packets``, the channel uses no shared memory, as between two machines.
"""

import cProfile
import json
import pstats
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Final

import click
import trio

import sphtp
from sphtp.config import ChannelSettings

HOST: Final = "127.0.0.1"
LIBRARY: Final = str(Path(sphtp.__file__).parent)
DEADLINE: Final = 120.0
WARM_UP: Final = 200
"""Messages before the first that counts: the round trip is measured, and the shared memory made."""


@contextmanager
def _profiled(profile: cProfile.Profile) -> Iterator[None]:
    profile.enable()
    try:
        yield
    finally:
        profile.disable()


def _calls(profile: cProfile.Profile, messages: int) -> float:
    """Return the calls of functions in the library per message."""
    statistics = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    called = sum(calls for (file, *_), (_, calls, *_) in statistics.items() if LIBRARY in file)
    return round(called / messages, 1)


def _config(*, is_packeted: bool) -> sphtp.Config:
    return sphtp.Config(channel=ChannelSettings(shared_memory=0)) if is_packeted else sphtp.Config()


async def _send(port: int, messages: int, pause: float, config: sphtp.Config) -> float:
    profile = cProfile.Profile()
    async with (
        sphtp.open_node(HOST, config=config) as node,
        node.open_channel(HOST, port) as channel,
    ):
        for _ in range(WARM_UP):
            await channel.send(bytes(64))
            await trio.sleep(pause)
        with _profiled(profile):
            for _ in range(messages):
                await channel.send(bytes(64))
                await trio.sleep(pause)
    return _calls(profile, messages)


async def _receive(messages: int, pause: float, *, is_packeted: bool) -> tuple[float, float]:
    """Start the sender; return the calls per message of both sides, the sender's first."""
    profile = cProfile.Profile()
    with trio.fail_after(DEADLINE):
        async with sphtp.open_node(HOST, config=_config(is_packeted=is_packeted)) as node:
            command = [sys.executable, __file__, "--port", str(node.address[1])]
            command += ["--messages", str(messages), "--pause", str(pause)]
            command += ["--packets"] * is_packeted
            sender = await trio.lowlevel.open_process(command, stdout=PIPE)
            assert sender.stdout is not None
            async with sender.stdout as figures, await node.accept() as channel:
                for _ in range(WARM_UP):
                    await channel.receive()
                with _profiled(profile):
                    for _ in range(messages):
                        await channel.receive()
                async for _ in channel:
                    pass
                sent = b"".join([part async for part in figures])
            await sender.wait()
    return float(sent), _calls(profile, messages)


@click.command()
@click.option("--messages", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--pause", type=click.FloatRange(0), default=0.005, show_default=True, help="Seconds."
)
@click.option("--packets", is_flag=True, help="Without shared memory.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option("--port", type=int, hidden=True)
def main(messages: int, pause: float, port: int | None, *, packets: bool, as_json: bool) -> None:
    """Count the calls that a lone message costs its sender and its receiver."""
    if port is not None:
        click.echo(trio.run(_send, port, messages, pause, _config(is_packeted=packets)))
        return
    sent, received = trio.run(partial(_receive, messages, pause, is_packeted=packets))
    if as_json:
        click.echo(json.dumps({"send": sent, "receive": received}))
    else:
        click.echo(f"{sent} calls to send, {received} to receive")


if __name__ == "__main__":
    main()
