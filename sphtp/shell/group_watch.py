"""Watchers of a group in lock step: a recorder gets the contributions of the members.

Theory of operation. A watcher opens a channel to each member of the group. A member sends each of
its own contributions there, and a list of the members whenever they have changed. It sends
contributions together, every 20 ms, because single packets and their acks would cost more than the
bytes. A member does not wait for watchers: it drops contributions for which a watcher has no room,
and sends the watcher their steps. Without watchers, a step costs only the check that there are
none.

A watcher gets every step of a member only if its channel is open before the member's first step. So
watchers announce a group with a name of its own, which ``mark_of`` returns. A member that enters
waits up to ``PATIENCE`` seconds for the channels of the announced watchers.

A message is a byte 0, a step u64 and the value as msgpack; or a byte 1 and a list in msgpack.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from enum import IntEnum
from math import inf
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from sphtp.core.control.outputs import PeerChanged, PeerEntered
from sphtp.core.control.records import Peer
from sphtp.core.group.seats import Seat
from sphtp.core.packing import MALFORMED, pack, unpack
from sphtp.core.schema import Schema
from sphtp.core.topics import check_group
from sphtp.errors import (
    LocalError,
    MessageTooLargeError,
    RefusedError,
    RemoteError,
    UnreachableError,
)
from sphtp.shell.channel import Channel, ServiceChannel
from sphtp.shell.encoding import RAW
from sphtp.shell.services import Service

if TYPE_CHECKING:
    from sphtp.shell.client import Client
    from sphtp.shell.loop import Loop

HEAD: Final = Struct("<BQ")
"""The head of a contribution: 0, and the number of its step."""

CONTROL: Final = b"\x01"
"""The head of any other message."""

PATIENCE: Final = 5.0
"""The most seconds for which a member that enters waits for announced watchers."""

DELAY: Final = 0.02
"""Seconds for which contributions wait for others, to leave in fewer packets."""

MOST_QUEUED: Final = 1 << 16
"""The bytes of queued contributions from which they leave at once."""

REDIAL: Final = 0.25
LONGEST_REDIAL: Final = 2.0
"""The least and the most seconds from an attempt to reach a member to the next one. Each attempt
doubles the pause. A change of the peer, or a channel that was open for longer than
``LONGEST_REDIAL``, resets it to the least."""

GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)


class WatchMessage(IntEnum):
    """The kinds of a member's other messages; each message is a list that begins with its kind."""

    HELLO = 0
    """The member: its id, the number that it drew when it joined, and its name."""
    MEMBERS = 1
    """A step, and the members from that step on, each as in HELLO."""
    SKIPPED = 2
    """The first and the last step of contributions without room, or too large for the watcher."""
    NEIGHBOURS = 3
    """A step. The next contribution, to this step, is for some members only."""


class WatchedMember(NamedTuple):
    """A member of a watched group."""

    id: int
    incarnation: int
    """The number that the member drew when it joined."""
    name: str


class MemberContribution(NamedTuple):
    """A member's contribution to a step; ``payload`` is msgpack."""

    member: WatchedMember
    step: int
    payload: bytes


class StepMembers(NamedTuple):
    """The members from a step on, in order."""

    step: int
    members: tuple[WatchedMember, ...]


class ContributionsSkipped(NamedTuple):
    """The first and the last step of missing contributions of a member."""

    member: WatchedMember
    first: int
    last: int


class NeighboursOnly(NamedTuple):
    """A step at which a member exchanges with some members only."""

    member: WatchedMember
    step: int


Watched = MemberContribution | StepMembers | ContributionsSkipped | NeighboursOnly


class PeerDialing:
    """The channels of a service that one client opens: one to each wanted peer.

    ``is_wanted`` is evaluated when a peer enters or changes, and when its channel has ended. An
    attempt that failed is repeated after a pause.
    """

    def __init__(
        self,
        client: "Client",
        service: Service,
        is_wanted: Callable[[Peer], bool],
        use: Callable[[AbstractAsyncContextManager[Channel[Any]]], Awaitable[None]],
    ) -> None:
        self._client = client
        self._service = service
        self._is_wanted = is_wanted
        self._use = use
        # The peers that have a task, each with the event that ends the pause of the task.
        self._changed: dict[int, trio.Event] = {}

    def consider(self, nursery: trio.Nursery, peer_id: int) -> None:
        """Open a channel to a peer if it is wanted and has none."""
        if peer_id in self._changed:
            self._changed[peer_id].set()
        elif self._find(peer_id) is not None:
            self._changed[peer_id] = trio.Event()
            nursery.start_soon(self._keep, peer_id)

    def _find(self, peer_id: int) -> Peer | None:
        peer = self._client.peers.get(peer_id)
        return peer if peer is not None and self._is_wanted(peer) else None

    async def _keep(self, peer_id: int) -> None:
        pause = REDIAL
        try:
            while (peer := self._find(peer_id)) is not None:
                self._changed[peer_id] = changed = trio.Event()
                lasted = await self._try(peer)
                pause = REDIAL if lasted > LONGEST_REDIAL else min(2 * pause, LONGEST_REDIAL)
                # This pause applies after a change, too: a peer may refuse and change all the time.
                await trio.sleep(REDIAL)
                with trio.move_on_after(pause - REDIAL):
                    await changed.wait()
                    pause = REDIAL
        finally:
            del self._changed[peer_id]

    async def _try(self, peer: Peer) -> float:
        """Open a channel and use it; return the seconds for which it was open, perhaps 0."""
        opened_at = inf

        @asynccontextmanager
        async def opening() -> AsyncIterator[Channel[Any]]:
            nonlocal opened_at
            services = self._client.node.services
            async with services.open(self._service, peer.addresses, peer.id) as channel:
                opened_at = trio.current_time()
                yield channel

        with suppress(UnreachableError, RefusedError, RemoteError, *GONE):
            await self._use(opening())
        return max(trio.current_time() - opened_at, 0.0)


def mark_of(group: str) -> str:
    """Return the name of the group that the watchers of a group announce."""
    return f"{group} (watched)"


def watch_service(group: str, admit: Callable[[ServiceChannel], None]) -> Service:
    """Return the service whose channels carry contributions to watchers of a group."""
    return Service(Schema([f"(group watch): {group}"]), admit, RAW, name="watch")


class GroupWatchers:
    """A member's channels to the watchers of its group."""

    def __init__(self, group: str, member: WatchedMember, loop: "Loop") -> None:
        self._group = group
        self._member = member
        self._loop = loop
        self.channels: dict[ServiceChannel, tuple[int, int] | None] = {}
        """The channels, each with the first and the last step skipped since the last send."""
        self._scopes: dict[ServiceChannel, trio.CancelScope] = {}
        self._members: tuple[WatchedMember, ...] = ()
        self._changed = trio.lowlevel.ParkingLot()
        # The messages that leave together, each with its step, or None if it is no contribution.
        self._queued: list[tuple[int | None, bytes]] = []
        self._queued_bytes = 0
        self._is_queued = trio.Event()

    async def keep(self, channel: ServiceChannel) -> None:
        """Serve a watcher until its channel ends."""
        with suppress(*GONE):
            async with channel:
                await channel.send(CONTROL + pack([WatchMessage.HELLO, *self._member]))
                # All watchers get the members again with the next step.
                self._members = ()
                self.channels[channel] = None
                self._changed.unpark_all()
                with trio.CancelScope() as self._scopes[channel]:
                    try:
                        while True:
                            await channel.receive()
                    finally:
                        del self.channels[channel], self._scopes[channel]

    def close(self) -> None:
        """Close the channels, each once all that was sent has arrived."""
        self._send_queued()
        for scope in tuple(self._scopes.values()):
            scope.cancel()

    async def wait_for_announced(self, client: "Client") -> None:
        """Wait for the channels of announced watchers, up to ``PATIENCE`` seconds."""
        mark = mark_of(self._group)
        with trio.move_on_after(PATIENCE):
            while True:
                announced = [peer for peer in client.peers.values() if mark in peer.groups]
                if len(self.channels) >= len(announced):
                    return
                with trio.move_on_after(REDIAL):
                    await self._changed.park()

    def contributed(self, step: int, value: Any, *, is_for_all: bool) -> None:
        """Queue this member's contribution for all watchers."""
        if not is_for_all:
            self._queue(None, CONTROL + pack([WatchMessage.NEIGHBOURS, step]))
        self._queue(step, pack(value, HEAD.pack(0, step)))

    def completed(self, step: int, seats: Sequence[Seat]) -> None:
        """Queue the members of a step, if they have changed."""
        members = tuple(WatchedMember(*seat[:3]) for seat in seats)
        if members != self._members:
            self._members = members
            self._queue(None, CONTROL + pack([WatchMessage.MEMBERS, step, members]))

    async def run(self) -> None:
        """Send the queued messages at intervals, until cancelled."""
        while True:
            await self._is_queued.wait()
            await trio.sleep(DELAY)
            self._send_queued()

    def _queue(self, step: int | None, payload: bytes) -> None:
        self._queued.append((step, payload))
        self._queued_bytes += len(payload)
        self._is_queued.set()
        if self._queued_bytes >= MOST_QUEUED:
            self._send_queued()

    def _send_queued(self) -> None:
        for channel in tuple(self.channels):
            for step, payload in self._queued:
                if not self._send(channel, step, payload):
                    break
        self._queued.clear()
        self._queued_bytes = 0
        self._is_queued = trio.Event()
        self._loop.ask()

    def _send(self, channel: ServiceChannel, step: int | None, payload: bytes) -> bool:
        """Send a message, or record its step as skipped; return False if the channel has ended.

        A step is skipped if the channel has no room for its message, or can never carry it.
        """
        try:
            if (skipped := self.channels[channel]) is not None:
                channel.hold_nowait(CONTROL + pack([WatchMessage.SKIPPED, *skipped]))
                self.channels[channel] = None
            channel.hold_nowait(payload)
        except (trio.WouldBlock, MessageTooLargeError):
            if step is None:
                # Send the members again with the next step.
                self._members = ()
            else:
                first, _ = self.channels[channel] or (step, step)
                self.channels[channel] = first, step
        except (*GONE, LocalError):
            return False
        return True


async def watch_group(client: "Client", group: str, take: Callable[[Watched], None]) -> None:
    """Watch a group until cancelled: call ``take`` with each message of its members after HELLO.

    ``take`` must not wait. Raises ``SettingsError`` if ``group`` is not a valid name.
    """
    check_group(group)
    service = watch_service(group, lambda channel: channel.abort("it is no member"))
    client.node.services.add(service)

    async def read(opening: AbstractAsyncContextManager[Channel[Any]]) -> None:
        async with opening as channel:
            await read_member_untrusted(channel, take)

    dialing = PeerDialing(client, service, lambda peer: group in peer.groups, read)
    with client.events() as events, client.own_groups.joined(mark_of(group)):
        async with trio.open_nursery() as nursery:
            for peer_id in tuple(client.peers):
                dialing.consider(nursery, peer_id)
            missed = events.missed
            async for event in events:
                if isinstance(event, PeerEntered | PeerChanged):
                    dialing.consider(nursery, event.peer.id)
                if events.missed != missed:
                    # This listener missed events, because thousands came at once.
                    missed = events.missed
                    for peer_id in tuple(client.peers):
                        dialing.consider(nursery, peer_id)


async def read_member_untrusted(channel: Any, take: Callable[[Watched], None]) -> None:
    """Pass the messages of a member after its HELLO to ``take``, until its channel ends.

    Raises ``RemoteError`` if one is malformed, and the error of ``Channel.receive`` at the end.
    """
    member: WatchedMember | None = None
    while True:
        data = await channel.receive()
        try:
            if data[:1] == CONTROL:
                kind, *fields = unpack(data, 1)
                if kind == WatchMessage.HELLO:
                    member = _member_untrusted(fields)
                    continue
                if member is None:
                    raise RemoteError("a member that does not introduce itself")
                take(_event_untrusted(member, kind, fields))
            elif member is not None:
                form, step = HEAD.unpack_from(data)
                if form:
                    raise RemoteError(f"a message of form {form}")
                take(MemberContribution(member, step, data[HEAD.size :]))
        except (*MALFORMED, StructError) as error:
            raise RemoteError(f"a malformed message of a member: {error}") from None


def _event_untrusted(member: WatchedMember, kind: Any, fields: list[Any]) -> Watched:
    if kind == WatchMessage.MEMBERS:
        step, members = fields
        return StepMembers(_number(step), tuple(map(_member_untrusted, members)))
    if kind == WatchMessage.SKIPPED:
        first, last = fields
        return ContributionsSkipped(member, _number(first), _number(last))
    if kind == WatchMessage.NEIGHBOURS:
        (step,) = fields
        return NeighboursOnly(member, _number(step))
    raise RemoteError(f"a message of kind {kind!r}")


def _member_untrusted(fields: Any) -> WatchedMember:
    number, incarnation, name = fields
    if not isinstance(name, str):
        raise RemoteError("a name that is no text")
    return WatchedMember(_number(number), _number(incarnation), name)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise RemoteError(f"{value!r} is no number")
    return value
