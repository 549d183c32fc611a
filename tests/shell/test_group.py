"""Groups of real clients on loopback: late joiners, deaths, reductions and cancellation."""

import os
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest
import trio
import trio.testing

import sphtp
from sphtp.config import ChannelSettings
from sphtp.core.group.machine import GroupMachine
from sphtp.core.group.messages import contribution_head
from sphtp.core.packing import Parts, pack_parts
from sphtp.errors import (
    MemberDiedError,
    MessageTooLargeError,
    RefusedError,
    SettingsError,
    StateError,
)
from sphtp.events import PeerChanged, PeerEntered
from sphtp.shell import group as shell_group
from sphtp.shell.channel import ServiceChannel
from sphtp.shell.feed import Feed
from sphtp.shell.group import GroupMember, LockstepGroup, MemberDied, MemberJoined, MemberLeft
from sphtp.shell.lifetime import running
from sphtp.shell.loop import Readers
from sphtp.shell.shared_memory import OutboundSegment
from tests.deadline import until, within_20_seconds
from tests.shell.nodes import BRIEFLY, counted_time
from tests.shell.test_client import client, cluster, kept

pytestmark = within_20_seconds

SMALL = np.zeros(600)
"""An array that goes by shared memory, and is copied out of it at once."""


class Party:
    """Clients in one group, each in a task of its own."""

    def __init__(self, nursery: trio.Nursery, server: sphtp.Server, channel) -> None:
        self._nursery = nursery
        self._channel = channel
        self.server = server
        self.scopes: dict[str, trio.CancelScope] = {}
        self.closed: dict[str, trio.Event] = {}

    async def join(self, name: str, size: int = 1, **options) -> LockstepGroup:
        """Return the group as a new client sees it."""
        group: LockstepGroup = await self._nursery.start(partial(self._keep, name, size, options))
        return group

    async def join_all(self, *names: str, **options) -> list[LockstepGroup]:
        """Return the groups of several new clients, in the order of members."""
        groups: list[LockstepGroup] = []

        async def join(name: str) -> None:
            groups.append(await self.join(name, len(names), **options))

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(join, name)
        return sorted(groups, key=lambda group: group.rank)

    async def leave(self, name: str) -> None:
        self.closed[name].set()
        await until(lambda: name not in self.closed)

    def kill(self, name: str) -> None:
        """End the task of a client in the middle of whatever it does."""
        self.scopes[name].cancel()

    async def _keep(self, name: str, size: int, options, *, task_status) -> None:
        closed = self.closed[name] = trio.Event()
        with trio.CancelScope() as self.scopes[name]:
            async with (
                client(self.server.address, name=name, channel=self._channel) as member,
                member.join("fluid", size=size, **options) as group,
            ):
                task_status.started(group)
                await closed.wait()
        if self.closed[name] is closed:
            del self.closed[name]


@asynccontextmanager
async def party(channel=BRIEFLY):
    async with cluster(1) as (server,), trio.open_nursery() as nursery:
        yield Party(nursery, server, channel)
        nursery.cancel_scope.cancel()


async def together(*calls):
    """Run calls at the same time; return their results in order."""
    results = [None] * len(calls)

    async def run(number: int) -> None:
        results[number] = await calls[number]()

    async with trio.open_nursery() as nursery:
        for number in range(len(calls)):
            nursery.start_soon(run, number)
    return results


def names(group: LockstepGroup) -> list[str]:
    return [str(member) for member in group.members]


async def test_four_members_and_a_late_one_make_the_same_steps() -> None:
    async with party() as those:
        state = {"field": 0.0}
        groups = await those.join_all("a", "b", "c", "d", state=lambda: state["field"])
        assert [group.rank for group in groups] == [0, 1, 2, 3]
        assert len({tuple(group.members) for group in groups}) == 1
        assert groups[0].snapshot is None
        events = groups[0].events()
        for step in range(3):
            arrays = [np.full(4, step * 10.0 + group.rank) for group in groups]
            all_got = await together(
                *(
                    partial(group.exchange, array)
                    for group, array in zip(groups, arrays, strict=True)
                )
            )
            assert [got.rank for got in all_got] == [0, 1, 2, 3]
            for got in all_got:
                assert got.step == step
                assert got.members == groups[0].members
                assert np.array_equal(np.stack(list(got)), np.stack(arrays))
                assert got[got.members[2]][0] == got[got.members[2].name][0] == arrays[2][0]
                with pytest.raises(KeyError, match="nobody sent nothing"):
                    got["nobody"]
                assert dict(got.items()).keys() == set(got.members)
        state["field"] = 7.5
        late: list[LockstepGroup] = []

        async def join() -> None:
            late.append(await those.join("late", state=lambda: state["field"]))
            await late[0].exchange("new")

        async def keep_step(group: LockstepGroup) -> None:
            while list(await group.exchange("old")) != ["old"] * 4 + ["new"]:
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)
            for group in groups:
                nursery.start_soon(keep_step, group)
        (newcomer,) = late
        assert newcomer.snapshot == 7.5
        assert {group.step for group in groups} == {newcomer.step}
        assert names(newcomer)[-1] == "late"
        assert newcomer.rank == 4
        await together(*(group.barrier for group in (*groups, newcomer)))
        assert await anext(events) == MemberJoined(newcomer.members[-1], newcomer.step - 2)
        await those.leave("late")
        await together(*(group.barrier for group in groups))
        assert isinstance(await anext(events), MemberLeft)


async def test_a_reduction_has_the_same_bits_at_every_member() -> None:
    async with party() as those:
        groups = await those.join_all("a", "b", "c")
        arrays = [np.array([0.1, 1e16, -1.0]), np.array([0.2, 1.0, 5.0]), np.array([0.3, -1e16, 2])]
        calls = list(zip(groups, arrays, strict=True))
        sums = await together(*(partial(group.reduce, array) for group, array in calls))
        assert {found.tobytes() for found in sums} == {
            (arrays[0] + arrays[1] + arrays[2]).tobytes()
        }
        least = await together(*(partial(group.reduce, array, "min") for group, array in calls))
        assert {found.tobytes() for found in least} == {np.min(arrays, axis=0).tobytes()}
        most = await together(*(partial(group.reduce, group.rank, "max") for group in groups))
        assert most == [2, 2, 2]
        text = await together(*(partial(group.reduce, f"{group.rank}", lambda x, y: x + y)
                                for group in groups))  # fmt: skip
        assert text == ["012"] * 3
        with pytest.raises(SettingsError, match="'mean'"):
            await groups[0].reduce(1, "mean")


async def test_a_death_ends_the_same_step_at_every_member() -> None:
    async with party() as those:
        groups = await those.join_all("a", "b", "c")
        await together(*(group.barrier for group in groups))
        victim = names(groups[2])[2]
        those.kill(victim)
        failures = []

        async def fail(group: LockstepGroup) -> None:
            with pytest.raises(MemberDiedError) as caught:
                await group.barrier()
            failures.append((caught.value.name, caught.value.step))

        await together(*(partial(fail, group) for group in groups[:2]))
        assert failures == [(victim, 1)] * 2
        with pytest.raises(MemberDiedError):
            await groups[0].exchange(1)


async def test_the_others_go_on_without_one_that_died_or_wait_for_it() -> None:
    async with party() as those:
        groups = await those.join_all("a", "b", "c", on_death="continue")
        victim = groups[0].members[2]
        with groups[0].events() as events:
            those.kill(str(victim))
            left = await together(*(partial(group.exchange, 1) for group in groups[:2]))
            assert [list(got) for got in left] == [[1, 1]] * 2
            assert await anext(events) == MemberDied(victim, 0)
    async with party() as those:
        groups = await those.join_all("a", "b", "c", on_death="wait", state=lambda: "here")
        await together(*(group.barrier for group in groups))
        victim = str(groups[1].members[1])
        those.kill(victim)
        back: list[LockstepGroup] = []

        async def come_back() -> None:
            back.append(await those.join(victim, on_death="wait", state=lambda: "here"))
            await back[0].exchange(victim)

        first, _, third = groups
        got, _, _ = await together(
            partial(first.exchange, "first"), come_back, partial(third.exchange, "third")
        )
        assert list(got) == ["first", victim, "third"]
        assert back[0].snapshot == "here"
        assert back[0].rank == 1


async def test_neighbours_exchange_without_the_others() -> None:
    async with party() as those:
        groups = await those.join_all("a", "b", "c")
        first, second, third = groups[0].members
        left, right = await together(
            partial(groups[0].exchange, "x", with_=[second]),
            partial(groups[1].exchange, "y", with_=[first]),
        )
        assert list(left) == list(right) == ["x", "y"]
        assert list(await groups[2].exchange("z", with_=[])) == ["z"]
        assert third not in left.members
        await together(*(group.barrier for group in groups))
        with pytest.raises(StateError, match="nobody is no member"):
            await groups[0].exchange(1, with_=[first._replace(name="nobody")])


async def test_the_steps_of_a_dead_neighbour_reach_the_others_at_once_however_many() -> None:
    # Keepalives come every 5 s: nothing else would wake a member that leaves messages unread.
    async with party(ChannelSettings()) as those:
        oldest, one, other = groups = await those.join_all("a", "b", "c", on_death="continue")
        for step in range(400):  # until all channels have shared memory
            await together(*(partial(group.exchange, step) for group in groups))
        first, second = one.members[1:]

        async def pair(group: LockstepGroup, neighbour: GroupMember) -> None:
            for step in range(200):
                await group.exchange(step, with_=[neighbour])

        await together(partial(pair, one, second), partial(pair, other, first))
        events = oldest.events()
        those.kill(str(second))
        with trio.fail_after(3):
            assert isinstance(await anext(events), MemberDied)


async def test_a_cancelled_exchange_is_resumed() -> None:
    async with party() as those:
        one, other = await those.join_all("a", "b")
        with trio.move_on_after(0.05) as scope:
            await one.exchange("mine")
        assert scope.cancelled_caught
        with pytest.raises(StateError, match="step 0 is under way"):
            await one.exchange("again")
        got = await other.exchange("yours")
        assert list(await one.resume()) == list(got) == ["mine", "yours"]
        with pytest.raises(StateError, match="no step"):
            await one.resume()
        with trio.CancelScope() as scope:
            scope.cancel()
            await one.exchange("never")
        await together(one.barrier, other.barrier)


async def test_large_arrays_are_those_of_their_step_however_the_caller_changes_its_own() -> None:
    async with party() as those:
        first, second = await those.join_all("a", "b")
        kept = []

        async def run(group: LockstepGroup) -> None:
            array = np.zeros(30_000)
            for step in range(40):
                array[:] = 100 * group.rank + step
                got = await group.exchange(array)
                assert got[group.rank] is array
                kept.append((step, 1 - group.rank, got[1 - group.rank]))
            total = await group.reduce(array, lambda one, other: np.add(one, other, out=one))
            assert (array == 100 * group.rank + 39).all()
            assert (total == 100 + 2 * 39).all()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, first)
            nursery.start_soon(run, second)
        for step, rank, array in kept:
            assert array.flags.writeable
            assert (array == 100 * rank + step).all()
        array = np.ones(30_000)
        with trio.CancelScope() as scope:
            scope.cancel()
            await first.exchange(array)
        with trio.move_on_after(0.01):
            await first.exchange(array)
        array[:] = 2.0
        assert (await second.exchange(None))[0][-1] == 1.0
        assert (await first.resume())[0][-1] == 1.0
        with trio.move_on_after(0.01):
            await first.exchange({"x": 1})
        assert list(await second.exchange(None)) == [{"x": 1}, None]
        assert list(await first.resume()) == [{"x": 1}, None]


async def test_by_shared_memory_only_the_last_one_wakes_a_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with party(replace(BRIEFLY, busy_poll=0.0)) as those:
        first, second, last = await those.join_all("a", "b", "c")
        array, woken, wake = np.zeros(20_000), [], os.eventfd_write

        def count(event: int, value: int) -> None:
            woken.append(event)
            wake(event, value)

        async def step() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first.exchange, array)
                nursery.start_soon(second.exchange, array)
                # What has come is counted, though nobody was woken for it.
                await until(lambda: (first.missing, second.missing) == ((slow,), (slow,)))
                # To look takes nothing.
                with monkeypatch.context() as looking:
                    looking.setattr(ServiceChannel, "take_ready", None)
                    assert (first.missing, second.missing) == ((slow,), (slow,))
                await last.exchange(array)

        slow = last.members[last.rank]
        for _ in range(10):
            await step()
        monkeypatch.setattr(os, "eventfd_write", count)
        for _ in range(10):
            await step()
        assert len(woken) == 2 * 10


@pytest.mark.parametrize("size", [1, 20_000])
async def test_members_that_poll_are_not_woken_by_shared_memory(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Small contributions go by shared memory, too: no packet carries them."""
    counted_time(monkeypatch)
    rounds, woken, wake = 150, [], os.eventfd_write
    posted, post_one = [], OutboundSegment.post

    def post(segment: OutboundSegment, *notice) -> bool:
        posted.append(notice)
        return post_one(segment, *notice)

    def count(event: int, value: int) -> None:
        woken.append(event)
        wake(event, value)

    # No keepalive, whose arrival would have the loop look into the ring.
    quiet = replace(BRIEFLY, busy_poll=0.01, timeout=1000, keepalive=500)
    async with party(quiet) as those:
        groups = await those.join_all("a", "b")
        array = np.zeros(size)

        async def run(group: LockstepGroup) -> None:
            for step in range(rounds):
                assert (await group.exchange(array)).step == first + step

        first = groups[0].step
        await together(*(partial(run, group) for group in groups))
        monkeypatch.setattr(os, "eventfd_write", count)
        monkeypatch.setattr(OutboundSegment, "post", post)
        first = groups[0].step
        await together(*(partial(run, group) for group in groups))
        assert len(woken) < rounds / 2
        assert len(posted) == 2 * rounds
        # Also while the task of the step polls, no other task may wait for the step.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(groups[0].exchange, array)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(StateError, match="another task waits"):
                await groups[0].resume()
            await groups[1].exchange(array)
        # A step that is cancelled while its task polls goes on.
        with trio.move_on_after(0.001):
            await groups[0].exchange(array)
        await groups[1].exchange(array)
        await until(lambda: groups[0].missing is None)
        assert len(await groups[0].resume()) == 2


@pytest.mark.parametrize("seed", range(4))
async def test_contributions_keep_their_order_whichever_way_they_go(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Some leave as notices, some in the ring and some in packets, while members compute."""
    random, post, hold = Random(seed), OutboundSegment.post, ServiceChannel.hold_nowait
    ways = {"notice": 0, "ring": 0, "packet": 0}

    def perhaps_post(segment: OutboundSegment, *notice) -> bool:
        is_posted = random.random() < 0.6 and post(segment, *notice)
        ways["notice"] += is_posted
        return is_posted

    def perhaps_hold(channel: ServiceChannel, payload, *, is_packeted: bool = False) -> bool:
        is_packeted |= random.random() < 0.5
        ways["packet" if is_packeted else "ring"] += 1
        return hold(channel, payload, is_packeted=is_packeted)

    async with party(replace(BRIEFLY, busy_poll=0.0002)) as those:
        groups = await those.join_all("a", "b", "c")

        async def run(group: LockstepGroup, steps: int) -> None:
            for _ in range(steps):
                own = np.full(random.choice((1, 500, 20_000)), group.rank + group.step)
                got = await group.exchange(own)
                assert [value[0] for value in got] == [rank + got.step for rank in range(3)]
                if random.random() < 0.2:
                    # Meanwhile messages of the others arrive.
                    for _ in range(random.randrange(30)):
                        await trio.lowlevel.checkpoint()

        await together(*(partial(run, group, 150) for group in groups))
        monkeypatch.setattr(OutboundSegment, "post", perhaps_post)
        monkeypatch.setattr(ServiceChannel, "hold_nowait", perhaps_hold)
        await together(*(partial(run, group, 400) for group in groups))
    assert min(ways.values()) > 100


async def test_a_member_that_finds_the_contributions_of_all_others_does_not_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with party(replace(BRIEFLY, busy_poll=0.01)) as those:
        first, last = await those.join_all("a", "b")
        for _ in range(150):
            await together(partial(first.exchange, SMALL), partial(last.exchange, SMALL))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.exchange, SMALL)
            await until(lambda: last.missing is None and first.missing == (first.members[1],))
            monkeypatch.setattr(Readers, "poll", None)
            assert len(await last.exchange(SMALL)) == 2


@asynccontextmanager
async def driven(monkeypatch: pytest.MonkeyPatch):
    """A member, its channel to another one, and that one's channel, by which a test contributes."""
    channels, deliver_to = dict[int, ServiceChannel](), ServiceChannel.deliver_to

    def note(channel: ServiceChannel, deliver) -> None:
        channels[channel.peer_id] = channel
        deliver_to(channel, deliver)

    monkeypatch.setattr(ServiceChannel, "deliver_to", note)
    # No keepalive, whose arrival would have the loop look for messages.
    async with party(replace(BRIEFLY, busy_poll=0.0, timeout=1000, keepalive=500)) as those:
        group, other = await those.join_all("a", "b")
        for _ in range(150):
            await together(partial(group.exchange, SMALL), partial(other.exchange, SMALL))
        here, there = channels[group.members[1].id], channels[group.members[0].id]
        here.stop_waiting()
        yield those, group, here, there


def contribution(step: int) -> Parts:
    parts = pack_parts(SMALL + step, contribution_head(step))
    parts.step = step
    return parts


async def test_a_notice_that_comes_after_a_look_is_taken_before_what_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with driven(monkeypatch) as (_, group, here, there):
        first, take_notice, posted = group.step, ServiceChannel.take_notice, list[bool]()

        def take(channel: ServiceChannel, least: int, before: float):
            notice = take_notice(channel, least, before)
            if channel is here and not posted:
                # The other member continues while this one looks: one notice, then no more room.
                posted.append(there.post_notice(contribution(first)))
                there.hold_nowait(contribution(first + 1))
            return notice

        monkeypatch.setattr(ServiceChannel, "take_notice", take)
        # An old contribution in the ring has the member look.
        there.hold_nowait(contribution(first - 1))
        for step in (first, first + 1):
            assert (await group.exchange(SMALL))[1][0] == step
        assert posted == [True]


async def test_a_notice_behind_a_lost_contribution_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shell_group, "LEAVING_TIME", 0.01)
    async with driven(monkeypatch) as (those, group, _, there):
        step = group.step

        async def die() -> None:
            # The contribution to this step was in a packet. The process sends nothing at its end.
            assert there.post_notice(contribution(step + 1))
            for method in ("die", "leave"):
                monkeypatch.setattr(GroupMachine, method, lambda *_: None)
            those.kill(names(group)[1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(die)
            with pytest.raises(MemberDiedError) as caught:
                await group.exchange(SMALL)
        assert caught.value.step == step


async def test_more_contributions_in_the_ring_than_are_taken_at_a_time_wake_a_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with driven(monkeypatch) as (_, group, _, there):
        first = group.step
        for step in range(first, first + 100):
            there.hold_nowait(contribution(step))
        for step in range(first, first + 100):
            assert (await group.exchange(SMALL))[1][0] == step


@pytest.mark.parametrize("dies", [True, False])
async def test_the_last_contribution_of_a_member_counts_after_its_channel_has_ended(
    monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    monkeypatch.setattr(shell_group, "LEAVING_TIME", 0.01)
    async with party() as those:
        first, second = await those.join_all("a", "b")
        array, gone = np.zeros(20_000), names(second)[1]
        for _ in range(10):
            await together(partial(first.exchange, array), partial(second.exchange, array))
        step = first.step
        with trio.move_on_after(0.01):
            await second.exchange(array + 1)
        if dies:
            those.kill(gone)
        else:
            those.closed[gone].set()
        # Meanwhile the program of the first one computes.
        await until(lambda: gone not in those.closed and len(those.server.clients) == 1)
        got = await first.exchange(array)
        assert (got.step, got[1][0]) == (step, 1.0)
        if dies:
            with pytest.raises(MemberDiedError):
                await first.exchange(array)
        else:
            assert len(await first.exchange(array)) == 1


async def test_a_death_shows_behind_a_contribution_that_nobody_has_read() -> None:
    async with party() as those:
        first, second = await those.join_all("a", "b")
        array, victim = np.zeros(20_000), names(second)[1]
        for _ in range(10):
            await together(partial(first.exchange, array), partial(second.exchange, array))
        # The contribution lies in the ring, of which nobody is woken: the first one computes.
        with trio.move_on_after(0.01):
            await second.exchange(array)
        those.kill(victim)
        await until(lambda: len(those.server.clients) == 1)

        async def go_on() -> None:
            while True:
                await first.exchange(array)

        with pytest.raises(MemberDiedError):
            await go_on()


async def test_large_arrays_share_the_memory_of_those_dropped_and_of_no_other() -> None:
    async with party() as those:
        groups = await those.join_all("a", "b")
        addresses, kept, borrowed = set[int](), list[tuple[int, np.ndarray]](), 0
        for step in range(30):
            arrays = [np.full(20_000, 2.0 * step + group.rank) for group in groups]
            got, _ = await together(
                *(
                    partial(group.exchange, array)
                    for group, array in zip(groups, arrays, strict=True)
                )
            )
            other = got[1]
            assert np.array_equal(other, arrays[1])
            other += 1
            # What comes by packets, before memory is shared, is an array like any other.
            if not other.flags.owndata:
                borrowed += 1
                with pytest.raises(ValueError, match="cannot resize"):
                    other.resize(10, refcheck=False)
            if step % 10 == 9:
                with pytest.raises(ValueError, match="does not own its data"):
                    other.resize(10)
                # A view of it alone keeps it.
                kept.append((step, other[5:].reshape(5, -1)))
            addresses.add(other.ctypes.data)
        assert all(np.all(view == 2 * step + 2) for step, view in kept)
        assert len(addresses) < 12
        assert borrowed > 20


async def test_arrays_are_views_of_what_a_member_wrote_where_the_program_asks_for_it() -> None:
    async with party(replace(BRIEFLY, array_views=True)) as those:
        groups = await those.join_all("a", "b", "c")
        views, kept = 0, list[tuple[int, np.ndarray]]()
        for step in range(30):
            arrays = [np.full(20_000, 3.0 * step + group.rank) for group in groups]
            all_got = await together(
                *(
                    partial(group.exchange, array)
                    for group, array in zip(groups, arrays, strict=True)
                )
            )
            for got in all_got:
                assert all(map(np.array_equal, got, arrays))
                other = got[(got.rank + 1) % 3]
                if not other.flags.writeable:
                    views += 1
                    if step % 10 == 9:
                        # A part of it alone keeps the memory of it.
                        kept.append((3 * step + (got.rank + 1) % 3, other[5:]))
        # What comes by packets, before memory is shared, is an array like any other.
        assert views > 60
        assert len(kept) > 6
        groups.pop()
        await those.leave(str(got.members[2]))
        for step in range(10):
            array = np.full(20_000, -1.0 - step)
            await together(*(partial(group.exchange, array) for group in groups))
        # Those of one who has left, and what that one still has, are as they were.
        assert all(np.all(view == value) for value, view in kept)


async def test_terms_that_differ_and_values_that_cannot_be_sent_are_told() -> None:
    async with party() as those:
        one, other = await those.join_all("a", "b")
        with pytest.raises(MessageTooLargeError):
            await one.exchange(bytes(20_000_000))
        with pytest.raises(TypeError):
            await one.exchange(object())
        await together(one.barrier, other.barrier)
        async with client(those.server.address, name="c") as third:
            with pytest.raises(RefusedError, match=r"on_death is 'wait' here and 'raise'"):
                async with third.join("fluid", on_death="wait"):
                    raise AssertionError
            with pytest.raises(SettingsError, match="'sometimes'"):
                async with third.join("fluid", on_death="sometimes"):
                    raise AssertionError
            assert third.groups == ()


@pytest.mark.parametrize("limit", [10_000, 100_000])
async def test_a_value_beyond_a_small_limit_is_refused_before_anything_is_sent(limit: int) -> None:
    async with party(ChannelSettings(max_message=limit)) as those:
        groups = await those.join_all("a", "b")
        one = groups[0]
        for size in (limit - 200, 5, limit):
            values = [bytes(size), b"other"]
            if size == limit:
                with pytest.raises(MessageTooLargeError):
                    await one.exchange(values[0])
                values[0] = b"small"
            calls = map(partial, [group.exchange for group in groups], values)
            assert [list(got) for got in await together(*calls)] == [values, values]


async def test_a_program_that_chooses_groups_leaves_none_that_it_joined() -> None:
    async with cluster(1) as (only,), client(only.address) as ann, client(only.address) as bob:
        ann.set_groups(["solid"])
        async with ann.join("fluid"):
            assert ann.groups == ("solid", "fluid")
            ann.set_groups(["gas"])
            await bob.wait_for_peer(lambda peer: peer.groups == ("gas", "fluid"))
            # What a program adds to what it reads chooses only what it adds.
            ann.set_groups([*ann.groups, "ice"])
        await bob.wait_for_peer(lambda peer: peer.groups == ("gas", "ice"))
        ann.set_groups(["fluid"])
        async with ann.join("fluid"):
            ann.set_groups([*ann.groups, "solid"])
            with pytest.raises(SettingsError, match="65 groups"):
                ann.set_groups(map(str, range(64)))
            assert ann.groups == ("fluid", "solid")
        assert ann.groups == ("fluid", "solid")


async def test_a_block_that_fails_is_a_death_and_leaves_its_own_error() -> None:
    async def keep_step(group: LockstepGroup) -> None:
        while True:
            await group.exchange(1)

    async with party() as those:
        group = await those.join("a", on_death="continue")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a block is what fails
            async with (
                running(partial(keep_step, group)),
                client(those.server.address, name="b") as other,
                other.join("fluid", on_death="continue") as second,
            ):
                await second.exchange(1)
                raise ZeroDivisionError


async def test_a_client_that_closes_ends_the_block_of_its_group() -> None:
    async with cluster(1) as (only,), trio.open_nursery() as nursery:
        closing = trio.CancelScope()
        ann = await nursery.start(kept, client(only.address), closing)
        bob = await nursery.start(kept, client(only.address))

        async def step() -> None:
            async with ann.join("fluid", size=2) as group:
                await group.exchange(1)

        async def fail() -> None:
            with pytest.raises(trio.ClosedResourceError, match="this client was closed"):
                await step()

        async def keep_silent() -> None:
            async with bob.join("fluid", size=2):
                await trio.sleep_forever()

        async with trio.open_nursery() as others:
            others.start_soon(keep_silent)
            async with trio.open_nursery() as steps:
                steps.start_soon(fail)
                await until(lambda: bob.groups == ("fluid",) == ann.groups)
                await trio.testing.wait_all_tasks_blocked(0.05)
                closing.cancel()
            others.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def test_peers_of_which_no_event_came_are_found_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class LossyFeed(Feed[object]):
        """Its listeners miss peers, as those do that are a thousand events behind."""

        loses = True

        def publish(self, event: object) -> None:
            if self.loses and isinstance(event, PeerEntered | PeerChanged):
                for sending in self._senders.values():
                    sending.missed += 1
            else:
                super().publish(event)

    monkeypatch.setattr("sphtp.shell.registration.Feed", LossyFeed)
    async with cluster(1) as (only,), trio.open_nursery() as nursery:
        # The one of the higher id opens the channel.
        high = await nursery.start(kept, client(only.address, ids=iter([1001])))
        low = await nursery.start(kept, client(only.address, ids=iter([501])))

        async def join(member: sphtp.Client) -> None:
            async with member.join("fluid", size=2) as group:
                await group.barrier()

        async with trio.open_nursery() as joining:
            joining.start_soon(join, high)
            await until(lambda: 1001 in low.peers and low.peers[1001].groups == ("fluid",))
            joining.start_soon(join, low)
            await until(lambda: 501 in high.peers and high.peers[501].groups == ("fluid",))
            LossyFeed.loses = False
            await nursery.start(kept, client(only.address))
        nursery.cancel_scope.cancel()


async def test_a_member_that_has_left_has_no_rank() -> None:
    async with cluster(1) as (only,), client(only.address) as alone:
        async with alone.join("fluid") as group:
            assert group.rank == 0
            with pytest.raises(StateError, match="in the group 'fluid' already"):
                await alone.join("fluid").__aenter__()
        with pytest.raises(StateError, match="no member at step 0"):
            _ = group.rank
        async with alone.join("fluid") as again:
            assert again.rank == 0
