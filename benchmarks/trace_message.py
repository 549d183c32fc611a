"""Count the Python calls and the files that one message of a sealed channel passes.

A message leaves between ``channel.send`` and the system call ``sendmsg``, and arrives between the
return of ``recvmsg`` and that of ``channel.receive``. Calls into the library are counted, and each
time that a coroutine of it goes on; those of Trio, of other packages and of the interpreter are
not. The other side is a process of its own. The median message of many is shown.

There are two kinds of message. A lone one comes after a pause, on a channel on which only one side
sends. Its header acknowledges nothing new, because the other side has sent only acknowledgements,
each of which is for several messages. An answer is sent back at once, and its packet acknowledges
the packet that it answers. So its way in includes the work for an acknowledgement: packets leave
the record, the round trip is measured, losses are searched, congestion control is updated. Its way
out includes the frame with the delay of its acknowledgement, because the count itself makes that
late.
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
from sphtp.config import ChannelSettings

HOST: Final = "127.0.0.1"
PACKETS: Final = sphtp.Config(channel=ChannelSettings(shared_memory=0))
"""Without shared memory, because messages in it pass no system call."""
LIBRARY: Final = f"{Path(sphtp.__file__).parent}/"
SIZE: Final = 64
DEADLINE: Final = 60.0
WARM_UP: Final = 50
"""Messages before the first that counts: the round trip is measured by then."""

PAUSE: Final = 0.003
"""Seconds between lone messages. One acknowledgement, 10 ms after the first, is for several. The
first one sets its timer, which takes a call more, in one more file.
"""


class Passage(NamedTuple):
    """The way of one message: library calls in order, as ``file:function``."""

    calls: tuple[str, ...]

    @property
    def is_lone(self) -> bool:
        """True if a task waited for the message, and no ack was handled on its way in."""
        is_awaited = "core/channel/endpoint:handle_datagrams_untrusted" in self.calls
        return is_awaited and "core/channel/loss_detection:acked" not in self.calls

    @property
    def files(self) -> list[str]:
        """The files on the way, in the order in which they are first entered."""
        return list(dict.fromkeys(call.partition(":")[0] for call in self.calls))


class Recorder:
    """A collector of library calls: up to ``sendmsg``, then anew from each end of ``recvmsg``."""

    def __init__(self) -> None:
        self._calls: list[str] = []
        self._sent: Passage | None = None

    def start(self) -> None:
        """Begin, before a message is sent or received."""
        self._calls, self._sent = [], None
        sys.setprofile(self._note)

    def stop(self) -> Passage:
        """End, and return the calls since the last datagram arrived."""
        sys.setprofile(None)
        return Passage(tuple(self._calls))

    def departure(self) -> Passage | None:
        """Return the calls from the start to the first datagram that left; None if none has."""
        return self._sent

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            path = frame.f_code.co_filename
            if path.startswith(LIBRARY):
                name = path.removeprefix(LIBRARY).removesuffix(".py")
                self._calls.append(f"{name}:{frame.f_code.co_name}")
        elif event == "c_call" and self._sent is None and argument.__name__ == "sendmsg":
            self._sent = Passage(tuple(self._calls))
        elif event == "c_return" and argument.__name__.startswith("recvmsg"):
            # The last datagram before ``receive`` returns is the one that held the message.
            self._calls = []


async def _speak(port: int, messages: int) -> None:
    """Run the other side: send lone messages, receive some, and send each of others back."""
    async with sphtp.open_node(HOST, config=PACKETS) as node:
        async with node.open_channel(HOST, port) as channel:
            for _ in range(messages):
                await trio.sleep(PAUSE)
                await channel.send(bytes(SIZE))
        async with node.open_channel(HOST, port) as channel:
            async for _ in channel:
                pass
        async with node.open_channel(HOST, port) as channel:
            async for message in channel:
                await channel.send(message)


async def _trace(messages: int) -> dict[str, Passage]:
    """Return the median way of each kind of message."""
    number = WARM_UP + messages
    recorder, payload = Recorder(), bytes(SIZE)
    leaving, arriving, answering, answered = [list[Passage | None]() for _ in range(4)]
    with trio.fail_after(DEADLINE):
        async with (
            sphtp.open_node(HOST, config=PACKETS) as node,
            _started_peer(node.address[1], number),
        ):
            async with await node.accept() as channel:
                for _ in range(number):
                    recorder.start()
                    await channel.receive()
                    arriving.append(recorder.stop())
            async with await node.accept() as channel:
                for _ in range(number):
                    await trio.sleep(PAUSE)
                    recorder.start()
                    await channel.send(payload)
                    recorder.stop()
                    # None for a message that is corked: an ack has left within the last 100 us.
                    leaving.append(recorder.departure())
            async with await node.accept() as channel:
                for _ in range(number):
                    recorder.start()
                    await channel.send(payload)
                    await channel.receive()
                    answered.append(recorder.stop())
                    answering.append(recorder.departure())
    return {
        "send to sendmsg": _median(leaving[WARM_UP:]),
        "recvmsg to receive": _median([it for it in arriving[WARM_UP:] if it and it.is_lone]),
        "send to sendmsg, an answer": _median(answering[WARM_UP:]),
        "recvmsg to receive, an answer": _median(answered[WARM_UP:]),
    }


@asynccontextmanager
async def _started_peer(port: int, messages: int) -> AsyncIterator[None]:
    command = [sys.executable, __file__, "--peer", str(port), "--messages", str(messages)]
    peer = await trio.lowlevel.open_process(command)
    try:
        yield
    finally:
        peer.kill()
        await peer.wait()


def _median(passages: list[Passage | None]) -> Passage:
    ordered = sorted(filter(None, passages), key=lambda passage: len(passage.calls))
    return ordered[len(ordered) // 2]


@click.command()
@click.option("--messages", type=click.IntRange(1), default=101, show_default=True)
@click.option("--calls", is_flag=True, help="List each call, and not only the files.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
@click.option("--peer", type=int, hidden=True)
def main(messages: int, peer: int | None, *, calls: bool, as_json: bool) -> None:
    """Count the calls and files that a message passes on its way out and on its way in."""
    if peer is not None:
        trio.run(_speak, peer, messages)
        return
    ways = trio.run(_trace, messages)
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
