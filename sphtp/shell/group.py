"""Groups of clients in lock step, over channels between their members.

``sphtp.core.group`` decides which members take part in each step. This module has the channels of a
group: a client dials each peer that has announced the group and has a lower id, and admits the
others. The machine gets arriving messages in the turn of the loop that read them. The program wakes
once for a step, not once for a member. A contribution is packed once, and queued for all members
before the task waits for anything.

**Waking.** With shared memory, waking a member costs more than a step of a few kB. So only one
member wakes this one: of the members whose contributions the step lacks, the one that was last in
the step before. By then the contributions of the others have usually arrived; otherwise this member
has one of these wake it next. No contribution wakes a member that computes. All other messages
travel in packets, which always wake. Where steps are short, a member polls for the contributions
before it sleeps (``loop.Readers``), and nobody has to wake it.

So a contribution by shared memory is taken in one of three ways: by ``_take_step`` while the task
polls; by ``_deliver``, after an event of the one member that ``_take_or_await`` chose, while the
task sleeps; and when the next step begins, if the program computes.

**Copies.** A contribution is copied from the caller's memory once, into the segment that all peers
on this host read, or once for each peer if that segment is full: see the notices of
``core.channel.shared_memory``. It is copied again only if a peer may still need it when the step is
over. A received array stays in its segment as long as others may lack it, and is copied once, for
the program. A contribution of less than 16 KiB is copied out of the segment at once: to free its
region later costs more. In a group of two, nobody else can lack a contribution. So its region is
free at the end of the step, and the next one is written to the same memory, which is in the caches.
Each further copy of 400 kB would cost a fifth of a step of two workers, because fresh memory of
that size costs a hundred page faults. So the copy goes into the memory of an earlier array that the
program has dropped. With ``array_views`` there is no such copy: the program reads the memory to
which the peer wrote.
"""

import math
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast, overload
from weakref import ref

import trio

from sphtp.core.arrays import is_array
from sphtp.core.control.outputs import PeerChanged, PeerEntered, PeerLeft
from sphtp.core.control.records import Peer
from sphtp.core.group.lifecycle import GroupState
from sphtp.core.group.machine import GroupMachine, GroupTerms, SeatEnded, SeatTaken
from sphtp.core.group.messages import (
    CONTRIBUTION,
    MOST_ADDED,
    Contribution,
    contribution_head,
)
from sphtp.core.group.seats import Key, OnDeath, Seat, Seats
from sphtp.core.group.steps import GroupStep, StepStatistics
from sphtp.core.packing import (
    MALFORMED,
    Parts,
    pack,
    pack_parts,
    unpack,
    unpack_parts,
    unpack_shared_untrusted,
)
from sphtp.core.schema import Schema
from sphtp.core.topics import check_group
from sphtp.errors import (
    GroupError,
    RemoteError,
    SettingsError,
    StateError,
)
from sphtp.shell.channel import Channel, ServiceChannel
from sphtp.shell.config import SECRETS
from sphtp.shell.encoding import HELD
from sphtp.shell.feed import Feed, Listener
from sphtp.shell.group_watch import GroupWatchers, PeerDialing, WatchedMember, watch_service
from sphtp.shell.lifetime import ScopedService, running
from sphtp.shell.loop import Readers
from sphtp.shell.services import Service

if TYPE_CHECKING:
    from sphtp.shell.client import Client
    from sphtp.shell.node import Node

LEAVING_TIME: Final = 5.0
"""The most seconds for which a leaving member stays for others that may need its contributions."""

FAREWELL: Final = 0.5
"""The most seconds for which a member whose program has failed can announce that."""

REUSED: Final = 65_536
"""The bytes of an array from which its memory is used again."""

MOST_FREE: Final = 16
"""The most dropped arrays whose memory is kept for later ones."""

GONE: Final = (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError)
"""The errors with which a channel ends, on either side."""

Reduction = Literal["sum", "min", "max"] | Callable[[Any, Any], Any]


class GroupMember(NamedTuple):
    """A member of a group in lock step."""

    id: int
    """The id of the member's client in the cluster."""
    name: str
    """The name of the member's client, or empty."""

    def __str__(self) -> str:
        return self.name or f"{self.id:#010x}"


class MemberJoined(NamedTuple):
    """The event that a member takes part, from ``step`` on."""

    member: GroupMember
    step: int


class MemberLeft(NamedTuple):
    """The event that a member has left, and takes no part from ``step`` on."""

    member: GroupMember
    step: int


class MemberDied(NamedTuple):
    """The event that a member has died, and takes no part from ``step`` on."""

    member: GroupMember
    step: int


MembershipEvent = MemberJoined | MemberLeft | MemberDied


class Contributions(Sequence[Any]):
    """The contributions of the members to one step, in the order of members.

    ``contributions[0]`` is that of the first member, and ``contributions["fluid"]`` that of the
    member of this name, of several that of the last; a ``GroupMember`` is an index, too. An index
    for no member of the step raises ``KeyError`` or ``IndexError``. All values are new objects,
    except an array that this member has sent itself.

    All members get the same ``members`` for this step, unless they exchanged with some members
    only. So a program can divide the work of the next step by ``rank`` and ``len(contributions)``.
    """

    __slots__ = ("_values", "members", "rank", "step")

    def __init__(
        self, step: int, members: tuple[GroupMember, ...], values: list[Any], rank: int
    ) -> None:
        self.step = step
        """The number of the step."""
        self.members = members
        """The members that contributed to the step, in order."""
        self.rank = rank
        """The place of this client among the members, from 0 on."""
        self._values = values

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.members))
        return f"<Contributions of {names} to step {self.step}>"

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    @overload
    def __getitem__(self, which: int | str | GroupMember) -> Any: ...

    @overload
    def __getitem__(self, which: slice) -> list[Any]: ...

    def __getitem__(self, which: int | str | GroupMember | slice) -> Any:
        if isinstance(which, int | slice):
            return self._values[which]
        for member, value in zip(reversed(self.members), reversed(self._values), strict=True):
            if which in (member, member.name):
                return value
        raise KeyError(f"{which} sent nothing for step {self.step}")

    def items(self) -> Iterator[tuple[GroupMember, Any]]:
        """Iterate over the members and their contributions."""
        return zip(self.members, self._values, strict=True)


class GroupAdmission:
    """The admission of channels that peers open to a group, as long as this client is in it."""

    def __init__(self, name: str) -> None:
        self.service = Service(Schema([f"(group): {name}"]), self._admit, HELD, name="group")
        self.watch = watch_service(name, self._admit_watcher)
        self.group: LockstepGroup | None = None
        """The group, while this client is in it."""
        self.admit: Callable[[ServiceChannel], None] | None = None
        """The function that takes a member's channel, while this client is in the group."""
        self.admit_watcher: Callable[[ServiceChannel], None] | None = None
        """The function that takes a watcher's channel, while this client is in the group."""

    def _admit_watcher(self, channel: ServiceChannel) -> None:
        if self.admit_watcher is None:
            channel.abort("this client is not in the group")
        else:
            self.admit_watcher(channel)

    def _admit(self, channel: ServiceChannel) -> None:
        if self.admit is None:
            channel.abort("it is not in this group")
        else:
            self.admit(channel)


class LockstepGroup(ScopedService):
    """The interface of a member to its group in lock step. Made by ``Client.join``."""

    def __init__(
        self,
        client: "Client",
        node: "Node",
        admission: GroupAdmission,
        terms: GroupTerms,
        state: Callable[[], Any] | None,
    ) -> None:
        self._client = client
        self._node = node
        self._admission = admission
        self._state = state
        key = client.id, SECRETS.getrandbits(63)
        self._machine = GroupMachine(trio.current_time(), key, terms)
        self._steps = self._machine.steps
        self._loop = node.services.loop
        self._watchers = GroupWatchers(terms.group, WatchedMember(*key, client.name), self._loop)
        self._feed: Feed[MembershipEvent] = Feed()
        self._nursery: trio.Nursery | None = None
        self._started = trio.Event()
        self._channels: dict[int, ServiceChannel] = {}
        # The largest contribution that all of them are known to carry.
        self._carried = 0
        self._ends: dict[int, trio.Event] = {}
        # The messages for which their channels have no room, by channel.
        self._blocked: dict[int, deque[Contribution]] = {}
        self._closing: set[int] = set()
        self._links = 0
        # The number of channels that are open, or being closed.
        self._open = 0
        self._dialing = PeerDialing(client, admission.service, self._is_dialled, self._keep_dialled)
        # The channels whose peers are to wake this member, and the id of the member that was last
        # in the last step.
        self._wakers: set[int] = set()
        self._last = 0
        # The number of the present channel of each peer, whichever side opened it.
        self._connected: dict[int, int] = {}
        self._waiting = Readers(self._loop)
        # True while a task waits for the step; and while it polls, so that no member need wake it.
        self._is_awaited = False
        self._is_polling = False
        # True if the machine may have outputs since they were last taken.
        self._may_have_outputs = False
        self._changed = trio.lowlevel.ParkingLot()
        # The time of the machine's next timer, and the scope of the task that sleeps until then.
        self._due: float | None = None
        self._sleep = trio.CancelScope()
        self._known: dict[Key, GroupMember] = {}
        # The members of the last decoded step; most steps have the same ones.
        self._seats: Seats = ()
        self._members: tuple[GroupMember, ...] = ()
        self._rank = 0
        self._contributed_at = -math.inf
        # ``trio.current_time`` makes four calls, three of which only find this clock.
        self._time = trio.lowlevel.current_clock().current_time
        self._memory = ArrayMemory(are_views=node.array_views, least=node.shared_memory_threshold)
        self.statistics = StepStatistics[GroupMember]()
        """The times of this member's steps, and of its waiting, by the member that was last."""

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.members))
        state = self._machine.state.value
        return f"<LockstepGroup {self.name!r} of {names}, {state}, step {self.step}>"

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._machine.terms.group

    @property
    def members(self) -> tuple[GroupMember, ...]:
        """The members of the present step: the founders by id, then the others as they joined.

        A client that takes the place of a dead member (``on_death="wait"``) also has its position.
        Until the step is complete, a member may still leave or die, and another client may know
        that earlier. ``members`` and ``rank`` of the result of ``exchange`` are final.
        """
        return tuple(map(self._member, self._machine.members))

    @property
    def rank(self) -> int:
        """The place of this client among ``members``, from 0 on.

        It changes only when a member before this one leaves or dies. Raises ``StateError`` if this
        client is not among the members.
        """
        for rank, seat in enumerate(self._machine.members):
            if seat.key == self._machine.key:
                return rank
        raise StateError(f"this client is no member at step {self.step}")

    @property
    def step(self) -> int:
        """The number of the present step: the one that is being exchanged, or the next one."""
        return self._steps.step

    @property
    def missing(self) -> tuple[GroupMember, ...] | None:
        """The members whose contributions the present step lacks; None between two steps.

        Between two steps this member's program computes, and the others may be waiting for it.
        """
        opened = self._steps.opened
        if opened is None:
            return None
        return tuple(
            self._member(seat)
            for seat in self._machine.members
            if seat.key in opened.missing and not self._has_arrived(seat.id)
        )

    def _has_arrived(self, peer_id: int) -> bool:
        """Return True if a message of a member has arrived for which no task was woken."""
        channel = self._channels.get(self._connected.get(peer_id, 0))
        step = self._steps.step
        return channel is not None and (channel.has_notice(step) or channel.has_ready)

    @property
    def malformed(self) -> int:
        """The number of malformed messages of other members."""
        return self._machine.counters["malformed"]

    @property
    def snapshot(self) -> Any:
        """The state of the simulation at this client's first step, from an older member.

        None for a member that founded the group, and if no older member gave ``state`` to ``join``.
        Each access unpacks the state again. Raises ``RemoteError`` if it is malformed.
        """
        packed = self._machine.snapshot
        try:
            return None if packed is None else unpack(packed)
        except MALFORMED as error:
            raise RemoteError(f"the state from a member is malformed: {error}") from None

    def events(self) -> Listener[MembershipEvent]:
        """Return an async iterator over the members that join, leave and die from now on.

        It ends with this client's membership.
        """
        return self._feed.listen()

    async def exchange(
        self, value: Any, *, with_: Iterable[GroupMember] | None = None
    ) -> Contributions:
        """Send a value to all members, and wait for their values for the same step.

        Args:
            value: an array, or any other value that channels carry. An array must not change before
                the call returns. The value of this member in the result is the same array object.
            with_: the members to exchange with, which have to name this member as well. This call
                waits for no others. A member gets at most 256 steps ahead of another one.

        The program may change the arrays of other members in the result. When it drops an array of
        64 KiB or more, later steps use the memory again. So ``array.resize`` refuses such an array;
        ``numpy.resize`` does not. With ``array_views`` of ``ChannelSettings``, an array that came
        by shared memory is a read-only view of that memory, without a copy.

        If the call is cancelled while it waits, or ends with an error of ``state`` of
        ``Client.join``, the step goes on with the value; ``resume`` waits for its end. A step at
        which this member has to give a newcomer the state begins only when it has given it.

        Raises:
            MemberDiedError: a member died, and ``on_death`` is ``"raise"``. All members raise it at
                the same step.
            ExcludedError: the other members go on without this client, or may do so.
            MessageTooLargeError, TypeError, OverflowError: as ``Channel.send``; nothing was sent.
            StateError: a step is under way, in another task or after a cancellation, one of
                ``with_`` is no member at this step, or this client has left the group.
            RemoteError: the value of a member is malformed; the step is complete nevertheless.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        steps = self._steps
        step = steps.step
        if steps.opened is not None or steps.results:
            raise StateError(
                f"step {step} is under way; after a cancellation, resume() waits for it"
            )
        data = pack_parts(value, contribution_head(step))
        data.step = step
        if data.size > self._carried:
            self._check_size(data.size)
        self._machine.contribute(data, None if with_ is None else self._keys_of(with_))
        self._contributed_at = self._time()
        if self._watchers.channels:
            self._watchers.contributed(step, value, is_for_all=with_ is None)
        done = None
        try:
            done = await self._complete()
        finally:
            if done is None or done.is_own_kept or self._blocked:
                # The data may still have to be sent, and the caller may now change its array.
                data.detach()
        return self._decode(done, value)

    async def resume(self) -> Contributions:
        """Wait for the end of a step whose ``exchange`` was cancelled.

        Return the contributions, and raise, as ``exchange``. Raises ``StateError`` if no step is
        under way, or another task waits for the step.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._steps.opened is None and not self._steps.results:
            self._machine.check()
            raise StateError("no step is under way")
        if self._is_awaited:
            raise StateError(f"another task waits for step {self.step}")
        return self._decode(await self._complete())

    async def barrier(self) -> None:
        """Wait until all members have called this method, which exchanges None as one step.

        Raises as ``exchange``.
        """
        await self.exchange(None)

    async def reduce(self, value: Any, how: Reduction = "sum") -> Any:
        """Exchange a value as one step, and return the combination of the values of all members.

        Args:
            value: a number, or an array.
            how: ``"sum"``, ``"min"``, ``"max"`` (of arrays, item by item), or a function of two
                values.

        The values are combined in the order of members, so that the result has the same bits at
        every member. Raises as ``exchange``, and ``SettingsError`` for another ``how``.
        """
        if not callable(how) and how not in ("sum", "min", "max"):
            raise SettingsError(f"how is {how!r}; allowed are 'sum', 'min', 'max' or a function")
        if callable(how) and is_array(value):
            # The function may write to its arguments.
            value = value.copy()
        result = reduce(_combiner(how), await self.exchange(value))
        return value.copy() if result is value and is_array(value) else result

    # The step

    def _check_size(self, size: int) -> None:
        """Raise ``MessageTooLargeError`` for a contribution or a state that a channel cannot carry.

        A member may have to pass on the contribution of another one with some bytes around it.
        """
        for channel in self._channels.values():
            channel.check_size(size + MOST_ADDED)
        self._carried = size

    async def _complete(self) -> GroupStep:
        """Wait for the step under way."""
        machine, steps = self._machine, self._steps
        self._is_awaited = self._is_polling = True
        try:
            self._poll()
            while not steps.results:
                if self._state is not None and machine.wants_state:
                    packed = pack(self._state())
                    self._check_size(len(packed))
                    machine.give_state(packed)
                    self._poll()
                    continue
                if steps.opened is None:
                    machine.check()
                if not self._is_polling:
                    await self._waiting.sleep()
                # Half of the time, the contributions of the others are there already.
                elif not self._take_step() and not await self._waiting.poll(
                    self._take_step, steps.step
                ):
                    self._is_polling = False
                    self._perform()
        finally:
            self._is_awaited = self._is_polling = False
            if steps.opened is not None:
                # The call was cancelled. The step goes on.
                self._perform()
        done = steps.results.popleft()
        last = None
        if done.last is not None:
            last, self._last = self._member(done.last), done.last.id
        self.statistics.add(self._contributed_at, self._time(), last)
        # A step that is complete at once does not wait, but other tasks need their turn.
        if self._loop.is_turn_over:
            await self._loop.give_way()
        return done

    def _decode(self, done: GroupStep, own: Any = None) -> Contributions:
        """Return the values of a step; ``own`` is this member's contribution, if it is known."""
        if self._watchers.channels:
            self._watchers.completed(done.step, done.seats)
        if done.seats is not self._seats:
            self._seats, self._members = done.seats, tuple(map(self._member, done.seats))
            self._rank = [seat.key for seat in done.seats].index(self._machine.key)
        values: list[Any] = []
        for data in done.contributions:
            try:
                if isinstance(data, bytes):
                    value = unpack(data, CONTRIBUTION.size)
                elif isinstance(data, Parts):
                    # The body is mostly the array itself, which saves the look at its type.
                    is_own = own is not None and (own is data.body or is_array(own))
                    value = own if is_own else unpack_parts(data, CONTRIBUTION.size)
                else:
                    value = self._memory.unpack_untrusted(data, CONTRIBUTION.size)
            except MALFORMED as error:
                who = self._members[len(values)]
                raise RemoteError(f"{who} sent a malformed value: {error}") from None
            values.append(value)
        return Contributions(done.step, self._members, values, self._rank)

    def _member(self, seat: Seat) -> GroupMember:
        member = self._known.get(seat.key)
        if member is None:
            member = self._known[seat.key] = GroupMember(seat.id, seat.name)
        return member

    def _keys_of(self, members: Iterable[GroupMember]) -> list[Key]:
        keys = {self._member(seat): seat.key for seat in self._machine.members}
        found = []
        for member in members:
            if member not in keys:
                raise StateError(f"{member} is no member at step {self.step}")
            found.append(keys[member])
        return found

    # The machine's inputs and outputs

    def _perform(self, *, in_loop: bool = False) -> bool:
        """Perform the machine's outputs. Return true if a task that waited for messages goes on.

        With ``in_loop`` the messages are only queued, because the loop sends next anyway.
        """
        machine, steps = self._machine, self._steps
        self._may_have_outputs = False
        self._poll(in_loop=in_loop)
        while steps.opened is not None and not self._is_polling and self._take_or_await():
            self._poll(in_loop=in_loop)
        is_open = steps.opened is not None
        if self._wakers and not is_open:
            self._set_wakers(set())
        due = machine.poll_timeout()
        if due != self._due:
            self._due = due
            self._sleep.deadline = math.inf if due is None else due
        if self._changed:
            self._changed.unpark_all()
        return (not is_open or machine.wants_state) and self._waiting.wake()

    def _poll(self, *, in_loop: bool = False) -> None:
        machine, has_sent = self._machine, False
        for number, outgoing in machine.ready.items():
            has_sent |= self._send(number, outgoing)
        machine.ready.clear()
        while machine.closing:
            number = machine.closing.popleft()
            self._closing.add(number)
            self._close_if_sent(number)
        while machine.events:
            self._feed.publish(self._event(machine.events.popleft()))
            # Forget the members that are gone.
            self._known.clear()
            self.statistics.keep_only(self.members)
        if has_sent and in_loop:
            self._loop.ask()
        elif has_sent:
            self._loop.flush_now()

    def _send(self, number: int, outgoing: deque[Contribution]) -> bool:
        """Send to a member as room allows. Return true if messages are held until a flush."""
        channel, is_held = self._channels.get(number), False
        if channel is None:
            outgoing.clear()
            return False
        try:
            while outgoing:
                data = outgoing[0]
                if not isinstance(data, Parts):
                    is_held |= channel.hold_nowait(data, is_packeted=True)
                elif data.step != self._steps.begun or not channel.post_notice(data):
                    # Contributions to earlier steps, for a newcomer, need the order of the lane.
                    is_held |= channel.hold_nowait(data)
                outgoing.popleft()
            if self._blocked:
                self._blocked.pop(number, None)
        except trio.WouldBlock:
            self._blocked[number] = outgoing
        except GONE:
            # The loop reports the end of the channel separately.
            outgoing.clear()
            self._blocked.pop(number, None)
        return is_held

    def _close_if_sent(self, number: int) -> None:
        if number in self._closing and number not in self._blocked and number in self._ends:
            self._closing.discard(number)
            self._ends[number].set()

    def _event(self, event: SeatTaken | SeatEnded) -> MembershipEvent:
        member, seat = self._member(event.seat), event.seat
        if isinstance(event, SeatTaken):
            return MemberJoined(member, seat.start)
        if seat.has_left:
            return MemberLeft(member, seat.end or 0)
        return MemberDied(member, seat.end or 0)

    # Channels

    def _admit(self, channel: ServiceChannel) -> None:
        """Take a channel that a member or a newcomer has opened."""
        if self._nursery is None:
            channel.abort("this client is leaving the group")
            return
        self._nursery.start_soon(self._keep_admitted, channel)

    def _admit_watcher(self, channel: ServiceChannel) -> None:
        """Take a channel that a watcher of the group has opened."""
        if self._nursery is None:
            channel.abort("this client is leaving the group")
        else:
            self._nursery.start_soon(self._keep_watcher, channel)

    async def _keep_watcher(self, channel: ServiceChannel) -> None:
        with self._counted():
            await self._watchers.keep(channel)

    async def _keep_admitted(self, channel: ServiceChannel) -> None:
        with suppress(*GONE), self._counted():
            async with channel:
                await self._keep(channel)
        # The ids may have changed, so that this client now has to dial the peer.
        self._consider(channel.peer_id)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._changed.unpark_all()

    async def _keep(self, channel: ServiceChannel) -> None:
        """Use a channel until it ends, or the machine has no use for it any more."""
        self._links += 1
        number, machine = self._links, self._machine
        ended = self._ends[number] = trio.Event()
        self._channels[number], self._carried = channel, 0
        self._connected[channel.peer_id] = number
        try:
            channel.share_copies()
            machine.handle_link_opened(trio.current_time(), number, channel.peer_id)
            channel.deliver_to(partial(self._deliver, number))
            self._deliver(number)
            self._perform()
            await ended.wait()
            # Also for a channel that the machine has closed: it keeps the link until this input.
            machine.handle_link_lost(trio.current_time(), number)
            self._perform()
        finally:
            channel.deliver_to(None)
            self._channels.pop(number, None)
            self._blocked.pop(number, None)
            self._closing.discard(number)
            del self._ends[number]
            if self._connected.get(channel.peer_id) == number:
                del self._connected[channel.peer_id]

    def _deliver(self, number: int) -> bool:
        """Pass arrived messages to the machine. Return true if a waiting task goes on."""
        channel = self._channels.get(number)
        if channel is None:
            return False
        if number in self._wakers:
            # Messages that woke no task arrived earlier. They are taken first, so that the machine
            # sees the right member as the last one.
            self._take_missing(but=number)
        # Nothing would wake this member for what it leaves. An error after the last message reports
        # the end.
        while self._take(number):
            pass
        if number in self._blocked:
            self._send(number, self._blocked[number])
            self._loop.ask()
            self._close_if_sent(number)
        is_awaited = self._perform(in_loop=True)
        if number not in self._wakers:
            channel.stop_waiting()
        return is_awaited

    def _take(self, number: int) -> bool:
        """Pass arrived messages of a channel to the machine. Return false if there are none.

        First the notice for the present step, then the messages, and at the end of the channel the
        other notices. So the machine gets the contributions of a member in the order of their
        steps, whichever way they came. A notice for a later step stays where it is: the
        contribution to the present step may be on its way in a packet.
        """
        channel, machine, steps = self._channels.get(number), self._machine, self._steps
        if channel is None:
            return False
        now = self._time()
        try:
            notice = channel.take_notice(steps.step, steps.step + 1)
            if notice is not None:
                self._may_have_outputs |= machine.handle_message_untrusted(now, number, notice)
                return True
            if not channel.has_ready and not channel.has_ended:
                return False
            messages = channel.take_ready()
            if messages and (notice := channel.take_notice(steps.step, steps.step + 1)) is not None:
                # It came after the first look, and the next contribution behind it in the ring.
                messages.insert(0, notice)
            for data in messages:
                self._may_have_outputs |= machine.handle_message_untrusted(now, number, data)
            return bool(messages)
        except RemoteError as error:
            machine.counters["malformed"] += 1
            channel.abort(str(error))
            self._lose(number)
        except GONE:
            with suppress(RemoteError):
                self._take_last_notices(number, channel)
            self._lose(number)
        return True

    def _take_last_notices(self, number: int, channel: ServiceChannel) -> None:
        """Pass the notices to the machine that follow a contribution which it has.

        The contribution before another notice was on its way in a packet, and is lost.
        """
        machine, steps, now = self._machine, self._steps, self._time()
        while True:
            is_missing = number in machine.awaited
            before = steps.step + 1 if is_missing else math.inf
            notice = channel.take_notice(steps.step, before)
            if notice is None:
                return
            machine.handle_message_untrusted(now, number, notice)

    def _take_missing(self, *, but: int | None = None) -> None:
        """Pass on the messages of the members that the step lacks, except those of one channel."""
        for number in self._machine.awaited:
            if number != but:
                self._take(number)

    def _take_step(self) -> bool:
        """Pass arrived messages to the machine. Return true if the program need not wait."""
        if self._steps.opened is not None:
            for number in tuple(self._channels):
                self._take(number)
            if self._may_have_outputs or self._wakers:
                self._perform()
        return self._steps.opened is None or self._machine.wants_state

    def _take_or_await(self) -> bool:
        """Have one of the members that the step lacks wake this one, or all before it has begun.

        If messages of such a member have arrived already, take them, and return true.
        """
        opened = self._steps.opened
        if opened is not None and not opened.is_begun:
            # The step waits for another member to catch up, which may be any of them.
            return self._set_wakers(set(self._channels))
        awaited = self._machine.awaited
        if not self._wakers.isdisjoint(awaited):
            return False
        last = self._connected.get(self._last)
        return self._set_wakers({last} if last in awaited else set(awaited[:1]))

    def _set_wakers(self, numbers: set[int]) -> bool:
        """Have these channels wake this member. Return true if messages were taken at once."""
        for number in self._wakers - numbers:
            if (channel := self._channels.get(number)) is not None:
                channel.stop_waiting()
        self._wakers, has_taken = numbers, False
        for number in tuple(numbers):
            channel = self._channels.get(number)
            if channel is not None and not channel.await_shared(self._steps.step):
                self._take_missing(but=number)
                has_taken |= self._take(number)
        return has_taken

    def _lose(self, number: int) -> None:
        self._channels.pop(number, None)
        self._machine.handle_link_lost(trio.current_time(), number)
        self._may_have_outputs = True
        self._ends[number].set()

    # Tasks

    async def _watch_peers(self, events: Listener[Any]) -> None:
        """Open channels to peers that announce the group, and report departed peers to the machine.

        Raises ``trio.ClosedResourceError`` when the client is closed.
        """
        await self._started.wait()
        here, missed = self._consider_all(), events.missed
        async for event in events:
            match event:
                case PeerEntered(peer) | PeerChanged(peer):
                    here.add(peer.id)
                    self._consider(peer.id)
                case PeerLeft(peer, _):
                    here.discard(peer.id)
                    self._note_departed(peer.id)
            if events.missed != missed:
                # This listener missed events, because thousands came at once.
                missed, before, here = events.missed, here, self._consider_all()
                for peer_id in before - here:
                    self._note_departed(peer_id)
        raise trio.ClosedResourceError("this client was closed")

    def _consider_all(self) -> set[int]:
        """Dial the peers that have to be dialled. Return the ids of all peers."""
        peers = set(self._client.peers)
        for peer_id in peers:
            self._consider(peer_id)
        return peers

    def _note_departed(self, peer_id: int) -> None:
        self._machine.handle_departed(trio.current_time(), peer_id)
        self._perform()

    def _consider(self, peer_id: int) -> None:
        if self._nursery is not None:
            self._dialing.consider(self._nursery, peer_id)

    def _is_dialled(self, peer: Peer) -> bool:
        is_other = self.name in peer.groups and peer.id < self._client.id
        return is_other and peer.id not in self._connected and not self._machine.has_ended

    async def _keep_dialled(self, opening: AbstractAsyncContextManager[Channel[Any]]) -> None:
        with self._counted():
            async with opening as channel:
                await self._keep(cast("ServiceChannel", channel))

    async def _run_timers(self) -> None:
        while True:
            due = self._due = self._machine.poll_timeout()
            deadline = math.inf if due is None else due
            with trio.CancelScope(deadline=deadline) as self._sleep:
                await trio.sleep_forever()
            self._machine.handle_timeout(trio.current_time())
            self._perform()

    # Joining and leaving

    @asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        admission = self._admission
        admission.group = self
        admission.admit, admission.admit_watcher = self._admit, self._admit_watcher
        try:
            async with self._taking_part():
                yield
        finally:
            admission.group = admission.admit = admission.admit_watcher = None

    @asynccontextmanager
    async def _taking_part(self) -> AsyncIterator[None]:
        """Run the group, enter it, and leave it at the end of the block."""
        client = self._client
        with client.events() as events:
            async with running(self._run), running(partial(self._watch_peers, events)):
                with client.own_groups.joined(self.name):
                    try:
                        await self._enter()
                        await self._watchers.wait_for_announced(client)
                        yield
                    except (GroupError, GeneratorExit):
                        await self._leave(LEAVING_TIME)
                        raise
                    except BaseException as error:
                        self._machine.die(f"its program ended with {type(error).__name__}")
                        await self._leave(FAREWELL)
                        raise
                    else:
                        await self._leave(LEAVING_TIME)
                    finally:
                        self._feed.close()
                        self._nursery = None

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._started.set()
            nursery.start_soon(self._run_timers)
            nursery.start_soon(self._watchers.run)
            try:
                await trio.sleep_forever()
            finally:
                # Before the nursery refuses tasks: the loop may pass a channel at any time.
                self._nursery = None

    async def _enter(self) -> None:
        machine = self._machine
        while machine.state is not GroupState.MEMBER:
            if machine.failure is not None:
                raise machine.failure
            await self._changed.park()
        await trio.lowlevel.checkpoint()

    async def _leave(self, seconds: float) -> None:
        """Leave the group, and wait until no other member needs this one any more."""
        machine = self._machine
        with trio.move_on_after(seconds, shield=True):
            machine.leave(trio.current_time())
            self._perform()
            while not machine.has_ended:
                await self._changed.park()
            self._watchers.close()
            while self._open:
                await self._changed.park()


class ArrayMemory:
    """The memory of arrays that the program has dropped, for arrays of later steps.

    The arrays of a step are freed together. The C library then returns their memory to the system,
    and the next step would need fresh pages.
    """

    __slots__ = ("_are_views", "_free", "_least", "_lent")

    def __init__(self, *, are_views: bool, least: int) -> None:
        # True if the program reads arrays of ``least`` bytes or more in the peer's memory, without
        # a copy. A view of a smaller one would occupy a region for little.
        self._are_views = are_views
        self._least = least
        self._free: deque[bytearray] = deque(maxlen=MOST_FREE)
        # Weak references to the arrays in use, by the id of the array.
        self._lent: dict[int, ref[Any]] = {}

    def unpack_untrusted(self, payload: memoryview, start: int) -> Any:
        """Return the value from ``start`` on in memory that its sender may change.

        An array is a copy, or with views a view, which keeps ``payload`` alive. Raises
        ``MALFORMED``.
        """
        value = unpack_shared_untrusted(payload, start, is_copied=False)
        if not is_array(value):
            return value
        if self._are_views and value.nbytes >= self._least:
            self._lend(value, payload, is_own=False)
            return value
        if value.nbytes < REUSED:
            return value.copy()
        return self._copy(value)

    def _take(self, size: int) -> bytearray:
        # The memory that was dropped last is used first, because it is in the processor's caches.
        # Members may have arrays of different sizes. Other threads may drop arrays at any time, so
        # that nothing iterates over the deque.
        free = self._free
        for _ in range(len(free)):
            memory = free.pop()
            if len(memory) == size:
                return memory
            free.appendleft(memory)
        return bytearray(size)

    def _copy(self, array: Any) -> Any:
        memory = self._take(array.nbytes)
        copy = type(array)(array.shape, array.dtype, memory)
        copy[...] = array
        self._lend(copy, memory, is_own=True)
        return copy

    def _lend(self, array: Any, memory: Any, *, is_own: bool) -> None:
        """Keep the memory of an array until the array is gone; then reuse it if it ``is_own``.

        A view of the array keeps the array alive: NumPy looks for the owner of the memory no
        further than an array whose base is no array.
        """
        free, lent, key = self._free, self._lent, id(array)

        def give_back(gone: "ref[Any]") -> None:
            lent.pop(key)
            if is_own:
                free.append(memory)

        lent[key] = ref(array, give_back)


def _combiner(how: Reduction) -> Callable[[Any, Any], Any]:
    if callable(how):
        return how
    return {"sum": add, "min": _smaller, "max": _larger}[how]


def _smaller(one: Any, other: Any) -> Any:
    if is_array(one) or is_array(other):
        return sys.modules["numpy"].minimum(one, other)
    return min(one, other)


def _larger(one: Any, other: Any) -> Any:
    if is_array(one) or is_array(other):
        return sys.modules["numpy"].maximum(one, other)
    return max(one, other)


@asynccontextmanager
async def join_group(
    client: "Client",
    node: "Node",
    admissions: dict[str, GroupAdmission],
    name: str,
    size: int,
    on_death: str,
    state: Callable[[], Any] | None,
) -> AsyncIterator[LockstepGroup]:
    """Join a group for the length of the block. Raises as ``Client.join``."""
    check_group(name)
    if on_death not in tuple(OnDeath):
        allowed = ", ".join(repr(one.value) for one in OnDeath)
        raise SettingsError(f"on_death is {on_death!r}; allowed are {allowed}")
    terms = GroupTerms(
        group=name,
        name=client.name,
        on_death=OnDeath(on_death),
        size=size,
        has_state=state is not None,
    )
    if name in admissions:
        raise StateError(f"this client is in the group {name!r} already")
    admission = admissions[name] = GroupAdmission(name)
    node.services.add(admission.service)
    node.services.add(admission.watch)
    try:
        async with LockstepGroup(client, node, admission, terms, state) as group:
            yield group
    finally:
        # The names are free again: a program may join any number of groups, one after the other.
        node.services.remove(admission.service)
        node.services.remove(admission.watch)
        del admissions[name]
