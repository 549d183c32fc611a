"""A subscription's way into a stream, and what keeps it there."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Final

import trio

from sphtp.core.entropy import Secrets
from sphtp.core.stream.membership import Join, Refused, StreamKey, Welcome
from sphtp.errors import RefusedError, RemoteError, SettingsError, UnreachableError
from sphtp.shell.channel import Channel
from sphtp.shell.lifetime import running
from sphtp.shell.streams.attendance import Attendance
from sphtp.shell.streams.desk import StreamDesk
from sphtp.shell.streams.fetching import fetch
from sphtp.shell.streams.group import Group, open_receiver
from sphtp.shell.streams.joining import GONE, hear_untrusted, say
from sphtp.shell.udp import UdpSocket

PATIENCE: Final = 5.0
"""Seconds within which a source has to answer."""

BATCH: Final = 256
"""Datagrams taken off a group's socket before others have their turn."""


async def join(channel: Channel, topic: str, *, is_sealed: bool) -> Welcome:
    """Ask to be let in; raises ``RefusedError`` or ``UnreachableError``."""
    try:
        with trio.fail_after(PATIENCE):
            await say(channel, Join(topic))
            answer = await hear_untrusted(channel)
    except (*GONE, trio.TooSlowError, RemoteError) as error:
        raise UnreachableError(f"no answer about the topic {topic!r}: {error}") from error
    match answer:
        # A stream is sealed exactly if the channel is.
        case Welcome() if is_sealed == (answer.key is not None):
            return answer
        case Refused(text):
            raise RefusedError(text, "topic")
        case _:
            raise UnreachableError(f"no answer about the topic {topic!r} that makes sense")


@asynccontextmanager
async def attending(
    desk: StreamDesk, attendance: Attendance, interface: str, udp: UdpSocket, secrets: Secrets
) -> AsyncIterator[None]:
    """Take part in a stream for the length of the block; ``udp`` is the node's socket."""
    desk.attend(attendance)
    try:
        async with (
            running(partial(_follow, attendance)),
            running(partial(fetch, attendance, secrets)),
            _listening(desk, attendance, interface, udp),
        ):
            attendance.touch()
            yield
    finally:
        desk.unattend(attendance)


async def _follow(attendance: Attendance) -> None:
    """Listen to what the source says of membership until it says no more."""
    try:
        while True:
            message = await hear_untrusted(attendance.channel)
            if isinstance(message, StreamKey):
                attendance.learn(message)
    except (*GONE, RemoteError):
        attendance.subscription.handle_gone(trio.current_time())
        attendance.touch()


def _listening(
    desk: StreamDesk, attendance: Attendance, interface: str, udp: UdpSocket
) -> AbstractAsyncContextManager[None]:
    """Listen to the group of a stream, if it has one, for the length of the block."""
    welcome = attendance.welcome
    if not welcome.group:
        return nullcontext()
    try:
        group = Group(welcome.group, welcome.port, interface)
    except SettingsError as error:
        raise UnreachableError(f"the source sends to a group that is none: {error}") from error
    own = open_receiver(udp, group)
    return running(partial(_hear_group, desk, attendance, own))


async def _hear_group(desk: StreamDesk, attendance: Attendance, udp: UdpSocket) -> None:
    with udp:
        while True:
            await udp.wait_readable()
            now = trio.current_time()
            for row in udp.receive_batch(BATCH):
                for _ in desk.take_own_untrusted(now, row):
                    desk.counters.stream_malformed += 1
            attendance.touch()
            await trio.lowlevel.checkpoint()
