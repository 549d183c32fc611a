"""Counts the Python calls and the files that one message of a sealed channel passes.

A message leaves between ``channel.send`` and the system call ``sendmsg``, and arrives between the
return of ``recvmsg`` and that of ``channel.receive``. Calls into the library are counted; those of
Trio, of other packages and of the interpreter are not. The other side is a process of its own and
echoes. The median message of many is shown, since now and then one carries an acknowledgement too.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import click
import trio

import sphtp

HOST: Final = "127.0.0.1"
LIBRARY: Final = Path(sphtp.__file__).parent
SIZE: Final = 64
DEADLINE: Final = 60.0
WARM_UP: Final = 50
"""Messages before the first that counts: the round trip is measured by then."""


class Passage(NamedTuple):
    """The way of one message: library calls in order, as ``file:function``."""

    calls: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        """The files on the way, in the order in which they are first entered."""
        return list(dict.fromkeys(call.partition(":")[0] for call in self.calls))


class Recorder:
    """Collects library calls: up to ``sendmsg``, then anew from each return of ``recvmsg``."""

    def __init__(self) -> None:
        self._calls: list[str] = []
        self.sent: Passage | None = None

    def start(self) -> None:
        """Begin with a message that is to be sent."""
        self._calls, self.sent = [], None
        sys.setprofile(self._note)

    def stop(self) -> Passage:
        """End, and return the calls since the last datagram arrived."""
        sys.setprofile(None)
        return Passage(tuple(self._calls))

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(LIBRARY):
                name = path.relative_to(LIBRARY).with_suffix("")
                self._calls.append(f"{name}:{frame.f_code.co_name}")
        elif event == "c_call" and self.sent is None and argument.__name__ == "sendmsg":
            self.sent = Passage(tuple(self._calls))
        elif event == "c_return" and argument.__name__.startswith("recvmsg"):
            # The last datagram before ``receive`` returns is the one that held the message.
            self._calls = []


async def _echo(port: int) -> None:
    async with (
        sphtp.open_node(HOST) as node,
        node.open_channel(HOST, port) as channel,
    ):
        async for message in channel:
            await channel.send(message)


async def _trace(messages: int) -> tuple[list[Passage], list[Passage]]:
    leaving: list[Passage] = []
    arriving: list[Passage] = []
    recorder = Recorder()
    with trio.fail_after(DEADLINE):
        async with (
            sphtp.open_node(HOST) as node,
            _started_echo(node.address[1]),
            await node.accept() as channel,
        ):
            for number in range(WARM_UP + messages):
                sent, arrived = await _exchange(channel, recorder)
                if number >= WARM_UP:
                    leaving.append(sent)
                    arriving.append(arrived)
    return leaving, arriving


async def _exchange(channel: sphtp.Channel, recorder: Recorder) -> tuple[Passage, Passage]:
    """Send a message and receive its echo."""
    payload = bytes(SIZE)
    recorder.start()
    await channel.send(payload)
    assert await channel.receive() == payload
    arrived = recorder.stop()
    assert recorder.sent is not None
    return recorder.sent, arrived


@asynccontextmanager
async def _started_echo(port: int) -> AsyncIterator[None]:
    echo = await trio.lowlevel.open_process([sys.executable, __file__, "--echo", str(port)])
    try:
        yield
    finally:
        echo.kill()
        await echo.wait()


def _median(passages: list[Passage]) -> Passage:
    ordered = sorted(passages, key=lambda passage: len(passage.calls))
    return ordered[len(ordered) // 2]


@click.command()
@click.option("--messages", type=click.IntRange(1), default=101, show_default=True)
@click.option("--calls", is_flag=True, help="List each call, and not only the files.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option("--echo", type=int, hidden=True)
def main(messages: int, echo: int | None, *, calls: bool, as_json: bool) -> None:
    """Count the calls and files that a message passes on its way out and on its way in."""
    if echo is not None:
        trio.run(_echo, echo)
        return
    leaving, arriving = map(_median, trio.run(_trace, messages))
    ways = {"send to sendmsg": leaving, "recvmsg to receive": arriving}
    if as_json:
        document = {
            way: {"calls": len(passage.calls), "files": len(passage.files), "list": passage.calls}
            for way, passage in ways.items()
        }
        click.echo(json.dumps(document, indent=2))
        return
    for way, passage in ways.items():
        click.echo(f"{way}: {len(passage.calls)} calls in {len(passage.files)} files")
        for line in passage.calls if calls else passage.files:
            click.echo(f"  {line}")


if __name__ == "__main__":
    main()
