"""A subscription's way into a stream, and what keeps it there."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Final

import trio

from sphtp.core.entropy import Secrets
from sphtp.core.stream.membership import Closing, Join, Refused, StreamKey, Welcome
from sphtp.errors import (
    RefusedError,
    RemoteError,
    SettingsError,
    SphtpError,
    UnreachableError,
)
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

RETRY: Final = 0.25
"""Seconds between two tries to come back to a source."""

BATCH: Final = 256
"""Datagrams taken off a group's socket before others have their turn."""

Dial = Callable[[], AbstractAsyncContextManager[Channel]]
"""Opens a channel to the source's node for the length of a block."""


async def join(channel: Channel, wanted: Join, *, is_sealed: bool) -> Welcome:
    """Ask to be let in; raises ``RefusedError`` or ``UnreachableError``."""
    try:
        with trio.fail_after(PATIENCE):
            await say(channel, wanted)
            answer = await hear_untrusted(channel)
    except (*GONE, trio.TooSlowError, RemoteError) as error:
        raise UnreachableError(f"no answer about the topic {wanted.topic!r}: {error}") from error
    match answer:
        # A stream is sealed exactly if the channel is.
        case Welcome() if is_sealed == (answer.key is not None):
            return answer
        case Refused(text):
            raise RefusedError(text, "topic")
        case _:
            raise UnreachableError(f"no answer about the topic {wanted.topic!r} that makes sense")


@asynccontextmanager
async def attending(
    desk: StreamDesk,
    attendance: Attendance,
    interface: str,
    udp: UdpSocket,
    secrets: Secrets,
    dial: Dial,
) -> AsyncIterator[None]:
    """Take part in a stream for the length of the block; ``udp`` is the node's socket."""
    desk.attend(attendance)
    try:
        async with (
            running(partial(_belong, attendance, dial)),
            running(partial(fetch, attendance, secrets)),
            _listening(desk, attendance, interface, udp),
        ):
            attendance.touch()
            yield
    finally:
        desk.unattend(attendance)


async def _belong(attendance: Attendance, dial: Dial) -> None:
    """Stay a member: listen to what the source says of it, and come back when the channel breaks.

    That ends when the source ends, or was silent for its activity timeout.
    """
    await _follow(attendance)
    while attendance.channel.has_vanished and not attendance.subscription.is_over:
        attendance.unlink()
        with suppress(*GONE, OSError, SphtpError):
            async with dial() as channel:
                await _come_back(attendance, channel)
        await trio.sleep(RETRY)
    attendance.handle_gone()


async def _come_back(attendance: Attendance, channel: Channel) -> None:
    is_sealed, known = attendance.welcome.key is not None, attendance.channel.peer_key
    welcome = await join(channel, attendance.join, is_sealed=is_sealed)
    # Nobody else continues a session, whatever it says.
    if welcome.session == attendance.session and channel.peer_key == known:
        attendance.relink(welcome, channel)
        await _follow(attendance)
    else:
        attendance.handle_gone(anew=True)


async def _follow(attendance: Attendance) -> None:
    """Listen to what the source says of membership until it says no more."""
    with suppress(*GONE, RemoteError):
        while True:
            message = await hear_untrusted(attendance.channel)
            if isinstance(message, StreamKey):
                attendance.learn(message)
            elif isinstance(message, Closing):
                attendance.handle_closing(message)


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
