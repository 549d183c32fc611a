"""Watchers of groups: what has no room is told, and what is malformed ends only the channel."""

from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from sphtp.core.group.seats import Seat
from sphtp.core.packing import pack, unpack
from sphtp.errors import MessageTooLargeError, RefusedError, RemoteError, UnreachableError
from sphtp.shell.channel import ServiceChannel
from sphtp.shell.group_watch import (
    ContributionsSkipped,
    GroupWatchers,
    MemberContribution,
    NeighboursOnly,
    PeerDialing,
    StepMembers,
    Watched,
    WatchedMember,
    read_member_untrusted,
)

LONG = 15.0

ADA = WatchedMember(3, 77, "ada")
BOB = WatchedMember(5, 88, "bob")


def seats(*members: WatchedMember) -> list[Seat]:
    return [Seat(*member, 0, (0, member.id), has_state=False) for member in members]


class NarrowChannel:
    """A channel with room for a few messages, until it is read."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent: list[bytes] = []
        self._end = trio.Event()

    async def __aenter__(self):
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.lowlevel.checkpoint()

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(data)

    def hold_nowait(self, data: bytes) -> None:
        if self.room == 0:
            raise trio.WouldBlock
        self.room -= 1
        self.sent.append(data)

    async def receive(self) -> Any:
        await self._end.wait()


class ShallowChannel(NarrowChannel):
    """A channel that carries only short messages."""

    def hold_nowait(self, data: bytes) -> None:
        if len(data) > 100:
            raise MessageTooLargeError(f"{len(data)} bytes")
        super().hold_nowait(data)


class Loop:
    """A loop with nothing to send."""

    def ask(self) -> None: ...


class Sequence:
    """A channel on which these messages come, and then its end."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = iter(messages)

    async def receive(self) -> bytes:
        await trio.lowlevel.checkpoint()
        try:
            return next(self._messages)
        except StopIteration:
            raise trio.EndOfChannel from None


async def events_of(messages: list[bytes]) -> list[Watched]:
    taken: list[Watched] = []
    with pytest.raises(trio.EndOfChannel):
        await read_member_untrusted(Sequence(messages), taken.append)
    return taken


async def written(room: int) -> list[bytes]:
    """What a member sends for ten steps; there is room again at the fourth of those without."""
    channel = NarrowChannel(room)
    watchers = GroupWatchers("fluid", ADA, cast("Any", Loop()))
    assert not watchers.channels
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watchers.keep, cast("ServiceChannel", channel))
        nursery.start_soon(watchers.run)
        await trio.testing.wait_all_tasks_blocked()
        assert watchers.channels
        blocked = 0
        for step in range(10):
            if channel.room == 0:
                blocked += 1
                channel.room = 1000 if blocked > 4 else 0
            watchers.contributed(step, {"step": step}, is_for_all=step != 9)
            watchers.completed(step, seats(ADA, BOB) if step < 8 else seats(ADA))
            await trio.sleep(1)
        watchers.close()
        await trio.testing.wait_all_tasks_blocked()
        assert not watchers.channels
        nursery.cancel_scope.cancel()
    return channel.sent


async def test_a_watcher_with_room_gets_every_step_and_each_change_of_members(autojump_clock):
    taken = await events_of(await written(1000))
    contributions = [it for it in taken if isinstance(it, MemberContribution)]
    assert [unpack(it.payload) for it in contributions] == [{"step": step} for step in range(10)]
    assert {it.member for it in contributions} == {ADA}
    assert [it for it in taken if isinstance(it, StepMembers)] == [
        StepMembers(0, (ADA, BOB)), StepMembers(8, (ADA,)),
    ]  # fmt: skip
    assert taken[-2] == NeighboursOnly(ADA, 9)


async def test_a_watcher_without_room_is_told_the_steps_that_it_lacks(autojump_clock):
    taken = await events_of(await written(4))
    steps = [it.step for it in taken if isinstance(it, MemberContribution)]
    (skipped,) = [it for it in taken if isinstance(it, ContributionsSkipped)]
    assert skipped.member == ADA
    assert sorted([*steps, *range(skipped.first, skipped.last + 1)]) == list(range(10))
    assert skipped.last > skipped.first


async def test_whatever_a_member_sends_it_is_an_event_or_a_remote_error(seed, autojump_clock):
    random, valid = Random(seed), await written(1000)
    refused = 0
    for _ in range(500):
        messages = [valid[0], random.choice(valid)]
        data = bytearray(messages[1])
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        messages[1] = bytes(data[: random.randrange(len(data) + 1)])
        try:
            await read_member_untrusted(Sequence(messages), lambda _: None)
        except RemoteError:
            refused += 1
        except trio.EndOfChannel:
            continue
    assert refused > 50


async def test_a_step_that_is_too_large_for_a_watcher_is_told_and_the_others_come(autojump_clock):
    channel = ShallowChannel(1000)
    watchers = GroupWatchers("fluid", ADA, cast("Any", Loop()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watchers.keep, cast("ServiceChannel", channel))
        await trio.testing.wait_all_tasks_blocked()
        for step, value in enumerate(("small", "large" * 100, "small")):
            watchers.contributed(step, value, is_for_all=True)
        watchers.close()
    assert await events_of(channel.sent) == [
        MemberContribution(ADA, 0, pack("small")),
        ContributionsSkipped(ADA, 1, 1),
        MemberContribution(ADA, 2, pack("small")),
    ]


async def test_a_member_that_does_not_introduce_itself_is_refused():
    with pytest.raises(RemoteError, match="introduce"):
        await read_member_untrusted(Sequence([b"\x01" + pack([2, 1, 1])]), lambda _: None)


class DialledPeers:
    """A client whose peers are numbers; attempts to open channels to them are noted."""

    def __init__(self) -> None:
        self.peers = {1: SimpleNamespace(id=1, addresses=(), is_member=True)}
        self.node = SimpleNamespace(services=self)
        self.attempts: list[float] = []
        self.refuses = False
        self.timeout = 0.0
        self.end = trio.Event()

    @asynccontextmanager
    async def open(self, service: object, addresses: object, peer_id: int):
        await trio.lowlevel.checkpoint()
        self.attempts.append(trio.current_time())
        if self.timeout:
            await trio.sleep(self.timeout)
            raise UnreachableError("no answer")
        if self.refuses:
            raise RefusedError("no member", "refused")
        yield self


class StepsOfTasks(trio.abc.Instrument):
    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, _: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_a_peer_is_dialled_when_something_changed_and_not_looked_at_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    client, steps = DialledPeers(), StepsOfTasks()

    async def use(opening: Any) -> None:
        async with opening:
            await client.end.wait()

    dialing = PeerDialing(
        cast("Any", client), cast("Any", None), lambda peer: cast("Any", peer).is_member, use
    )
    with suppress(trio.Cancelled):
        async with trio.open_nursery() as nursery:
            dialing.consider(nursery, 1)
            await trio.sleep(1)
            trio.lowlevel.add_instrument(steps)
            await trio.sleep(LONG)
            trio.lowlevel.remove_instrument(steps)
            # The task of this test alone.
            assert steps.count <= 2
            assert len(client.attempts) == 1
            # A channel that ended is opened again soon.
            ended = trio.current_time()
            client.end.set()
            client.end = trio.Event()
            await trio.sleep(1)
            assert client.attempts[1] - ended < 0.5
            # Whoever refuses is asked less and less often, and at once when it has changed.
            client.refuses = True
            client.end.set()
            await trio.sleep(LONG)
            assert LONG / 2.5 < len(client.attempts) - 2 < LONG / 1.5 + 2
            before, changed = len(client.attempts), trio.current_time()
            dialing.consider(nursery, 1)
            await trio.sleep(0.26)
            assert len(client.attempts) - before == 1
            assert client.attempts[-1] - changed <= 0.25
            # One that is no member any more has no task.
            client.peers[1].is_member = False
            await trio.sleep(LONG)
            assert not nursery.child_tasks
            client.peers[1].is_member, client.refuses = True, False
            dialing.consider(nursery, 1)
            await trio.sleep(0.1)
            assert client.attempts[-1] > trio.current_time() - 0.2
            nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_answer_is_dialled_as_rarely_as_one_that_refuses(
    autojump_clock: trio.testing.MockClock,
) -> None:
    client = DialledPeers()
    client.timeout = 3.0

    async def use(opening: Any) -> None:
        async with opening:
            pass

    dialing = PeerDialing(cast("Any", client), cast("Any", None), lambda _: True, use)
    async with trio.open_nursery() as nursery:
        dialing.consider(nursery, 1)
        await trio.sleep(2 * LONG)
        nursery.cancel_scope.cancel()
    pauses = [after - before - client.timeout for before, after in pairwise(client.attempts)]
    assert pauses == pytest.approx([0.5, 1.0, *[2.0] * (len(pauses) - 2)])
    assert len(pauses) > 3
