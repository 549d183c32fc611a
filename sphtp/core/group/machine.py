"""One member of a group: see the package for the agreement that it takes part in."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from sphtp.core.fsm import Runner
from sphtp.core.group.lifecycle import GROUP, GroupAction, GroupEvent, GroupState
from sphtp.core.group.messages import (
    VERSION,
    Abandon,
    Admitted,
    Complaint,
    Dying,
    Exclusion,
    FlushRequest,
    FlushState,
    GroupHello,
    GroupMessage,
    Install,
    JoinRequest,
    Key,
    LeaveReleased,
    Leaving,
    Seat,
    StateSnapshot,
    StepReached,
    contribution_head,
    decode_group_message_untrusted,
    encode_group_message,
    step_of_untrusted,
)
from sphtp.core.group.statistics import StepStatistics
from sphtp.core.timers import earliest
from sphtp.errors import (
    ExcludedError,
    LocalError,
    MemberDiedError,
    RefusedError,
    RemoteError,
    SettingsError,
    SphtpError,
    StateError,
)

WINDOW: Final = 256
"""The most steps that a member is ahead of another one."""

TELL_EVERY: Final = 64
"""The steps after which a member tells those that it sends nothing else how far it is."""

PATIENCE: Final = 30.0
"""Seconds without agreement after which a member that has lost others gives up."""

SETTLE: Final = 1.0
"""Seconds for which somebody who would found a group alone looks for others."""

MOST_GONE: Final = 4096
"""The most former members that are remembered, to tell them so."""

KEPT: Final = 1
"""The steps of which contributions are held before it is looked whether anybody needs them."""


class OnDeath(StrEnum):
    """The policy for the step from which on a member that died is missing."""

    RAISE = "raise"
    """That step fails at every member."""
    CONTINUE = "continue"
    """That step and the later ones are made without it."""
    WAIT = "wait"
    """That step waits for a member of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTerms:
    """The group that a member joins, with the member's terms. Raises ``SettingsError``."""

    group: str
    name: str
    on_death: OnDeath = OnDeath.RAISE
    size: int = 1
    """The members that found the group."""
    has_state: bool = False
    """True if this member gives newcomers the state of the simulation."""

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 1 << 16:
            raise SettingsError(f"size is {self.size}; allowed is 1 to 65536")


class CompleteStep(NamedTuple):
    """A step and its contributions, in the order of the members; each behind its head."""

    step: int
    contributions: tuple[tuple[Seat, bytes], ...]


class SeatTaken(NamedTuple):
    """A member takes part from ``seat.start`` on."""

    seat: Seat


class SeatEnded(NamedTuple):
    """A member takes part no more from ``seat.end`` on: it left or died."""

    seat: Seat


class _MemberLink:
    """A channel to somebody else who wants to be in the group, or is."""

    __slots__ = ("connected", "heard", "hello", "left_at", "number", "outgoing", "reached", "told")

    def __init__(self, number: int) -> None:
        self.number = number
        self.outgoing: deque[bytes] = deque()
        self.hello: GroupHello | None = None
        self.heard: frozenset[Key] = frozenset()
        self.connected: frozenset[Key] = frozenset()
        # The last step that it began, the last one of which it was told, and where it ended.
        self.reached = -1
        self.told = -1
        self.left_at: int | None = None

    @property
    def key(self) -> Key | None:
        return None if self.hello is None else self.hello.member


class _OpenStep:
    """The step that this member contributes to."""

    __slots__ = ("began_at", "is_begun", "missing", "neighbours", "payload")

    def __init__(
        self, now: float, payload: bytes, neighbours: frozenset[tuple[int, int]] | None
    ) -> None:
        self.began_at = now
        self.payload = payload
        # The places of those that it exchanges with; None for all.
        self.neighbours = neighbours
        self.is_begun = False
        self.missing: set[Key] = set()


class _Flush:
    """A round of this member as the coordinator."""

    __slots__ = ("asked", "founding", "joiners", "number", "removed", "states")

    def __init__(
        self, number: int, removed: frozenset[Key], joiners: tuple[Key, ...], asked: frozenset[Key]
    ) -> None:
        self.number = number
        self.removed = removed
        self.joiners = joiners
        self.asked = asked
        self.states: dict[Key, FlushState] = {}


class GroupMachine:
    """One member of a group.

    After each input or command take what there is from ``poll_link``, ``poll_close``, ``poll_step``
    and ``poll_event``, and look at ``failure`` and ``poll_timeout``. ``now`` is in seconds.
    """

    def __init__(self, now: float, key: Key, terms: GroupTerms) -> None:
        self.key = key
        self.terms = terms
        self.state = GroupState.FORMING
        self.step = 0
        """The step that is contributed to next, or being made."""
        self.failure: SphtpError | None = None
        """The error of every further step, once the group has ended for this member."""
        self.snapshot: bytes | None = None
        """The state at the step at which this member started, as msgpack."""
        self.epoch = 0
        """The number of changes that it has installed."""
        self.counters = {"malformed": 0}
        self.statistics = StepStatistics[Key]()
        self._seats: tuple[Seat, ...] = ()
        self._founder: Key | None = None
        self._links: dict[int, _MemberLink] = {}
        self._by_key: dict[Key, _MemberLink] = {}
        self._ready: dict[int, None] = {}
        self._closing: deque[int] = deque()
        self._results: deque[CompleteStep] = deque()
        self._events: deque[SeatTaken | SeatEnded] = deque()
        # The contributions of each step that somebody may still need, and the step that is open.
        self._held: dict[int, dict[Key, bytes]] = {}
        self._open: _OpenStep | None = None
        self._began = -1
        # Who has been lost, reported as lost by others, and reported as gone by the servers; those
        # whom the flush under way removes; those who are out for good.
        self._lost: set[Key] = set()
        self._complaints: set[Key] = set()
        self._departed: set[int] = set()
        # The last contribution that came from each.
        self._heights: dict[Key, int] = {}
        self._removed: frozenset[Key] = frozenset()
        self._gone: dict[Key, None] = {}
        self._frozen_by: tuple[Key, int] | None = None
        self._complained: tuple[Key, frozenset[Key]] | None = None
        self._round = 0
        self._promised: Key | None = None
        self._announced: JoinRequest | None = None
        self._left_at: int | None = None
        self._flush: _Flush | None = None
        self._kept_requests: dict[Key, FlushRequest] = {}
        self._admitted_by: set[Key] = set()
        # Newcomers that may still need the state, and those to whom this member gave it.
        self._newcomers: dict[Key, int] = {}
        self._supplied: set[Key] = set()
        self._leavers: dict[Key, int] = {}
        self._releases: set[Key] = set()
        self._gives_up_at: float | None = None
        self._settles_at: float | None = now + SETTLE

    # What there is

    @property
    def has_ended(self) -> bool:
        """True if it takes part in nothing any more, and all channels may be closed."""
        return self.state is GroupState.ENDED

    @property
    def members(self) -> tuple[Seat, ...]:
        """The members of the present step, in order."""
        return self.members_at(self.step)

    def members_at(self, step: int) -> tuple[Seat, ...]:
        """Return the members of a step, in order, as far as this member knows."""
        return tuple([seat for seat in self._seats if seat.covers(step)])

    @property
    def seats(self) -> tuple[Seat, ...]:
        """All seats that are still of any consequence."""
        return self._seats

    @property
    def is_open(self) -> bool:
        """True while a step is being made."""
        return self._open is not None

    @property
    def has_result(self) -> bool:
        """True if ``poll_step`` has a step to return."""
        return bool(self._results)

    @property
    def wants_state(self) -> bool:
        """True if ``give_state`` must be called, with the state at the beginning of ``step``."""
        return bool(self._unsupplied())

    # Commands

    def head(self) -> bytes:
        """Return what stands before this member's next contribution."""
        return contribution_head(self.step)

    def contribute(
        self, now: float, data: bytes, neighbours: Collection[Key] | None = None
    ) -> None:
        """Contribute to the present step, for all members or for some neighbours.

        ``data`` is ``head()`` and msgpack.

        Raises what ended the group, ``StateError`` in the middle of a step, and ``LocalError`` for
        a neighbour that is no member.
        """
        self.check()
        if self._open is not None:
            raise StateError(f"step {self.step} is still being made")
        places = None
        if neighbours is not None:
            known = {seat.key: seat.place for seat in self._seats if self._is_present(seat)}
            for key in neighbours:
                if key not in known:
                    raise LocalError(f"{key[0]:#010x} is no member at step {self.step}")
            places = frozenset(known[key] for key in neighbours if key != self.key)
        self._open = _OpenStep(now, data, places)
        self._begin(now)

    def check(self) -> None:
        """Raise what ended the group, or ``StateError`` before it has begun."""
        if self.failure is not None:
            raise self.failure
        if self.state is not GroupState.MEMBER:
            raise StateError(f"a member that is {self.state.value} makes no steps")

    def leave(self, now: float) -> None:
        """Leave from the next step on. ``state`` is ENDED when nobody needs anything more."""
        if self.state in (GroupState.LEAVING, GroupState.ENDED):
            return
        _RUNNER.step(self, GroupEvent.LEAVE)
        if self.has_ended:
            self._close_all()
            return
        self._flush = None
        end = self._left_at = max(self._began + 1, self.step)
        self._seats = _ended(self._seats, self.key, end, has_left=True)
        for link in self._links.values():
            self._send(link, Leaving(end))
        self._consider(now)

    def die(self, why: str) -> None:
        """End, and have the others count this member as dead."""
        if self.state is GroupState.ENDED:
            return
        for link in self._links.values():
            self._send(link, Dying(why))
        self._fail(StateError("this member has ended"))

    def give_state(self, payload: bytes) -> None:
        """Give newcomers the state at the beginning of the present step."""
        for key in self._unsupplied():
            self._supplied.add(key)
            if (link := self._by_key.get(key)) is not None:
                self._send(link, StateSnapshot(self.step, payload))

    # Inputs

    def handle_link_opened(self, now: float, number: int) -> None:
        """Handle a channel to somebody who has announced this group, or who opened it."""
        if self.state is GroupState.ENDED:
            self._closing.append(number)
            return
        link = self._links[number] = _MemberLink(number)
        self._send(link, self._hello())

    def handle_link_lost(self, now: float, number: int) -> None:
        """Handle the end of a channel."""
        link = self._links.pop(number, None)
        self._ready.pop(number, None)
        if link is None or link.hello is None or self.state is GroupState.ENDED:
            return
        key = link.hello.member
        if self._by_key.get(key) is link:
            del self._by_key[key]
            self._kept_requests.pop(key, None)
            seat = self._seat_of(key)
            if seat is not None and self._is_needed(seat):
                self._lose(now, key)
            self._announce_connections()
        self._consider(now)

    def handle_departed(self, now: float, peer_id: int) -> None:
        """Handle that the servers report a client as gone."""
        if any(seat.id == peer_id for seat in self._seats):
            self._departed.add(peer_id)
            self._consider(now)

    def handle_message_untrusted(self, now: float, number: int, data: bytes) -> None:
        """Handle a message. Raises ``RemoteError`` for one that ends the channel."""
        link = self._links.get(number)
        if link is None or self.state is GroupState.ENDED:
            return
        step = step_of_untrusted(data)
        if step is not None:
            self._take(now, link, step, data)
            return
        message = decode_group_message_untrusted(data)
        if isinstance(message, GroupHello):
            self._handle_hello(now, link, message)
            return
        if link.hello is None:
            raise RemoteError("it did not say who it is")
        match message:
            case JoinRequest(heard, connected):
                link.heard, link.connected = frozenset(heard), frozenset(connected)
                self._announce_connections()
            case FlushRequest():
                self._kept_requests[link.hello.member] = message
            case FlushState():
                self._handle_state(now, link.hello.member, message)
            case Install():
                self._handle_install(now, link.hello.member, message)
            case Abandon():
                self._handle_abandon(link.hello.member, message)
            case Admitted():
                self._admitted_by.add(link.hello.member)
            case Complaint(keys):
                if self._seat_of(link.hello.member) is not None:
                    self._complaints.update(key for key in keys if key != self.key)
            case Exclusion(why):
                by = link.hello.name or hex(link.hello.member[0])
                self._fail(ExcludedError(f"excluded by {by}: {why}"))
            case Dying():
                self._departed.add(link.hello.member[0])
                self.handle_link_lost(now, number)
                self._closing.append(number)
                return
            case Leaving(end):
                self._handle_leaving(now, link, end)
            case LeaveReleased():
                self._releases.add(link.hello.member)
            case StateSnapshot(_, payload):
                self.snapshot = payload
            case StepReached(reached):
                link.reached = max(link.reached, reached)
                self._newcomers.pop(link.hello.member, None)
                self._begin(now)
        self._consider(now)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        if self._gives_up_at is not None and now >= self._gives_up_at:
            self._gives_up_at = None
            names = ", ".join(self._name_of(key) for key in sorted(self._lost | self._complaints))
            self._fail(ExcludedError(f"no agreement on the members: {names} cannot be reached, and "
                                     "may go on without this one"))  # fmt: skip
        if self._settles_at is not None and now >= self._settles_at:
            self._settles_at = None
            self._consider(now)

    # Outputs

    def poll_link(self) -> tuple[int, deque[bytes]] | None:
        """Return a channel and what it has to send, oldest first; the caller takes it off."""
        while self._ready:
            number = self._ready.popitem()[0]
            link = self._links.get(number)
            if link is not None and link.outgoing:
                return number, link.outgoing
        return None

    def poll_close(self) -> int | None:
        """Return a channel to close when everything has been sent; None if there is none."""
        return self._closing.popleft() if self._closing else None

    def poll_step(self) -> CompleteStep | None:
        """Return a step that is complete; None if there is none."""
        return self._results.popleft() if self._results else None

    def poll_event(self) -> SeatTaken | SeatEnded | None:
        """Return what happened to the members; None if nothing did."""
        return self._events.popleft() if self._events else None

    def poll_timeout(self) -> float | None:
        """Return when ``handle_timeout`` is due; None if it is not."""
        if self.state is GroupState.ENDED:
            return None
        return earliest(self._gives_up_at, self._settles_at)

    # Steps

    def _begin(self, now: float) -> None:
        """Send this member's contribution, unless something has to come first."""
        step, opened = self.step, self._open
        if opened is None or opened.is_begun or self.state is not GroupState.MEMBER:
            return
        if self._frozen_by is not None or self._flush is not None or self._is_failed_at(step):
            return
        neighbours = opened.neighbours
        if neighbours is not None and step - self._floor() > WINDOW:
            return
        opened.is_begun = True
        self._began = step
        here = self._held.get(step)
        if here is None:
            here = self._held[step] = {}
        here[self.key] = opened.payload
        for seat in self._seats:
            key = seat.key
            if key == self.key or not seat.covers(step):
                continue
            link = self._by_key.get(key)
            if link is None:
                continue
            if neighbours is None or seat.place in neighbours:
                link.outgoing.append(opened.payload)
                link.told = step
                self._ready[link.number] = None
            elif step - link.told >= TELL_EVERY:
                self._send(link, StepReached(step))
                link.told = step
        self._await(now)

    def _await(self, now: float) -> None:
        """Find whose contributions the open step lacks; complete it if none."""
        opened = self._open
        if opened is None or not opened.is_begun:
            return
        here = self._held[self.step]
        opened.missing = {
            seat.key
            for seat in self._seats
            if seat.covers(self.step)
            and seat.key not in here
            and seat.key not in self._gone
            and (opened.neighbours is None or seat.place in opened.neighbours)
        }
        if not opened.missing and not self._vacant(self.step, opened.neighbours):
            self._complete(now, opened)

    def _take(self, now: float, link: _MemberLink, step: int, data: bytes) -> None:
        """Take a contribution."""
        if link.hello is None:
            raise RemoteError("a contribution of somebody who did not say who it is")
        key = link.hello.member
        if step <= self._heights.get(key, -1) or key in self._removed or key in self._gone:
            return
        if step > self.step + WINDOW + 1 if self._is_in else len(self._held) > 2 * WINDOW:
            raise RemoteError(f"a contribution to step {step}, in step {self.step}")
        self._heights[key] = step
        link.reached = max(link.reached, step)
        if self._newcomers:
            self._newcomers.pop(key, None)
        here = self._held.get(step)
        if here is None:
            here = self._held[step] = {}
        here[key] = data
        opened = self._open
        if opened is None or step != self.step or not opened.is_begun:
            if opened is not None and not opened.is_begun:
                self._begin(now)
            return
        opened.missing.discard(key)
        if not opened.missing and not self._vacant(step, opened.neighbours):
            self._complete(now, opened, key)

    def _complete(self, now: float, opened: _OpenStep, last: Key | None = None) -> None:
        """Complete the step. ``last`` is the member that it waited for, None for nobody."""
        step, neighbours = self.step, opened.neighbours
        self.statistics.add(opened.began_at, now, last)
        here = self._held[step]
        contributions = tuple(
            [
                (seat, here[seat.key])
                for seat in self._seats
                if seat.key in here
                and seat.covers(step)
                and (neighbours is None or seat.place in neighbours or seat.key == self.key)
            ]
        )
        self._open = None
        self.step = step + 1
        self._results.append(CompleteStep(step, contributions))
        if len(self._held) > KEPT:
            floor = self._floor()
            for old in [step for step in self._held if step < floor]:
                del self._held[old]
        if self._leavers:
            self._release()

    def _floor(self) -> int:
        """The first step of which somebody may still need a contribution."""
        floor = self.step
        for seat in self._seats:
            if seat.key == self.key or seat.key in self._gone or seat.end is not None:
                continue
            link = self._by_key.get(seat.key)
            floor = min(floor, seat.start if link is None else max(seat.start, link.reached))
        return floor

    def _vacant(self, step: int, neighbours: frozenset[tuple[int, int]] | None) -> bool:
        """True if the step waits for the return of somebody who died."""
        if self.terms.on_death is not OnDeath.WAIT:
            return False
        return any(
            neighbours is None or seat.place in neighbours
            for seat in _vacancies(self._seats)
            if seat.end is not None and seat.end <= step
        )

    def _is_failed_at(self, step: int) -> bool:
        """Fail if a member has died by this step, and that is an error."""
        if self.terms.on_death is not OnDeath.RAISE or self.failure is not None:
            return self.failure is not None
        died = [
            (seat.end, seat.place, seat)
            for seat in self._seats
            if seat.end is not None and seat.end <= step and not seat.has_left
        ]
        if not died:
            return False
        end, _, seat = min(died)
        self.failure = MemberDiedError(seat.name or f"{seat.id:#010x}", end, seat.id)
        self._open = None
        return True

    # Who is there

    @property
    def _is_in(self) -> bool:
        return self.state in (GroupState.MEMBER, GroupState.LEAVING)

    def _hello(self) -> GroupHello:
        terms = self.terms
        return GroupHello(
            VERSION,
            terms.group,
            self.key,
            terms.name,
            terms.on_death.value,
            terms.size,
            terms.has_state,
            self._founder,
        )

    def _handle_hello(self, now: float, link: _MemberLink, hello: GroupHello) -> None:
        if (hello.version, hello.group) != (VERSION, self.terms.group) or hello.member == self.key:
            raise RemoteError(f"it is in the group {hello.group!r}, of version {hello.version}")
        if link.key not in (None, hello.member):
            raise RemoteError("it is somebody else than before")
        is_new = link.hello is None
        link.hello = hello
        key = hello.member
        if key in self._gone:
            self._exclude(link)
            return
        self._check_terms(hello)
        if self.state is GroupState.ENDED:
            return
        if is_new:
            if key in self._by_key and self._seat_of(key) is not None:
                # A channel that is opened once more may have lost what the first one carried.
                self._lose(now, key)
            self._by_key[key] = link
            self._departed.discard(key[0])
            if self.state in (GroupState.MEMBER, GroupState.LEAVING):
                self._send(link, JoinRequest((key,), ()))
            if self._left_at is not None:
                self._send(link, Leaving(self._left_at))
            self._announce_connections()
        ours, theirs = self._founder, hello.founder
        if ours is not None and theirs is not None and theirs < ours:
            self._fail(ExcludedError(f"another group called {self.terms.group!r} was founded "
                                     "at the same time"))  # fmt: skip
        self._consider(now)

    def _check_terms(self, hello: GroupHello) -> None:
        """End if somebody who was there first goes by other rules."""
        if hello.on_death == self.terms.on_death.value or self.state is not GroupState.FORMING:
            return
        if hello.founder is not None or hello.member < self.key:
            self._fail(RefusedError(
                f"on_death is {self.terms.on_death.value!r} here and {hello.on_death!r} at "
                f"{hello.name or hex(hello.member[0])}; all members need the same", "on_death",
            ))  # fmt: skip

    def _announce_connections(self) -> None:
        """Tell all how far this one is connected, which is what it needs to be admitted."""
        if self.state not in (GroupState.FORMING, GroupState.ENTERING):
            return
        connected = [key for key, link in self._by_key.items() if self.key in link.heard]
        request = JoinRequest(tuple(sorted(self._by_key)), tuple(sorted(connected)))
        if request != self._announced:
            self._announced = request
            for link in self._by_key.values():
                self._send(link, request)

    def _lose(self, now: float, key: Key) -> None:
        if key not in self._lost:
            self._lost.add(key)
            self._gives_up_at = now + PATIENCE

    def _seat_of(self, key: Key) -> Seat | None:
        return next((seat for seat in self._seats if seat.key == key), None)

    def _is_present(self, seat: Seat) -> bool:
        return seat.covers(self.step)

    def _is_needed(self, seat: Seat) -> bool:
        """True if the end of a channel to a member leaves something to be agreed."""
        if seat.key in self._gone:
            return False
        if seat.end is None:
            return True
        return self.step < seat.end and self._heights.get(seat.key, -1) < seat.end - 1

    def _name_of(self, key: Key) -> str:
        seat = self._seat_of(key)
        return seat.name if seat is not None and seat.name else f"{key[0]:#010x}"

    def _alive(self) -> list[Seat]:
        return [seat for seat in self._seats if seat.end is None]

    def _coordinator(self) -> Key | None:
        """The first member, in the order of joining, to which there is a channel."""
        alive = [
            (seat.start, seat.key)
            for seat in self._seats
            if seat.end is None and seat.key not in self._lost
        ]
        return min(alive)[1] if alive else None

    # Changes

    def _consider(self, now: float) -> None:
        """Do what the present state of things calls for: answer a flush, begin one, or complain."""
        if self.state is GroupState.FORMING:
            self._consider_founding(now)
            return
        if self.state is GroupState.ENDED:
            return
        self._check_admitted(now)
        if self.state is GroupState.LEAVING and self._is_released():
            _RUNNER.step(self, GroupEvent.RELEASED)
            self._close_all()
            return
        troubled = self._troubled()
        if not troubled and self._frozen_by is None and self._flush is None:
            self._gives_up_at = None
        coordinator = self._coordinator()
        if coordinator is None and self.state is GroupState.ENTERING:
            self._fail(ExcludedError("the members that admitted this one are gone"))
            return
        if coordinator == self.key and self.state is not GroupState.LEAVING:
            if self._may_coordinate:
                self._coordinate(now, troubled)
            return
        self._flush = None
        if coordinator is None or coordinator == self.key:
            return
        complaint = (coordinator, frozenset(troubled))
        if troubled and self._complained != complaint:
            self._complained = complaint
            self._send_to(coordinator, Complaint(tuple(sorted(troubled))))
        self._answer_requests(coordinator)

    @property
    def _may_coordinate(self) -> bool:
        """A newcomer may not: it may be a member in nobody's eyes but its own."""
        return self.state is GroupState.MEMBER or (
            self.state is GroupState.ENTERING and self.step == 0
        )

    def _troubled(self) -> set[Key]:
        """Those lost, here or elsewhere, of whom something has to be agreed."""
        # Whoever was told to take nothing from somebody may lack what that one sent since.
        troubled = self._lost | self._complaints | self._removed
        if not troubled:
            return troubled
        return {seat.key for seat in self._seats if seat.key in troubled} - self._gone.keys()

    def _answer_requests(self, coordinator: Key) -> None:
        """Answer the flush of the coordinator; a newcomer answers anybody's."""
        if self.state is GroupState.ENTERING and self.step:
            senders = list(self._kept_requests)
        else:
            senders = [coordinator] if coordinator in self._kept_requests else []
        for key in senders:
            request = self._kept_requests.pop(key)
            self._frozen_by = (key, request.round)
            self._removed |= frozenset(request.removed)
            removed = self._removed
            self._send_to(key, self._flush_state(request.round, removed))

    def _flush_state(self, number: int, removed: frozenset[Key]) -> FlushState:
        heights, held = [], []
        for seat in self._seats:
            if seat.key in removed or seat.end is not None:
                here = [step for step, those in self._held.items() if seat.key in those]
                height = max([seat.start - 1, self._heights.get(seat.key, -1), *here])
                heights.append((seat.key, height))
                held += [(seat.key, self._held[step][seat.key]) for step in sorted(here)]
        return FlushState(
            number,
            self.epoch,
            self._began,
            self._seats,
            tuple(heights),
            tuple(held),
            self._founder,
        )

    def _coordinate(self, now: float, troubled: set[Key]) -> None:
        """Begin a change if there is a need for one, or begin it anew if the need has changed."""
        flush = self._flush
        if flush is not None and not self._is_outdated(flush, troubled):
            self._decide(now, flush)
            return
        removed = frozenset(troubled)
        joiners = self._eligible(removed)
        if not removed and not joiners and flush is None and self._frozen_by is None:
            return
        if not self._has_quorum(removed):
            self._flush = None
            self._hold_still()
            return
        asked = {
            seat.key
            for seat in self._seats
            if seat.key != self.key
            and seat.key not in removed
            and seat.key not in self._gone
            and (seat.end is None or (seat.has_left and seat.key in self._by_key))
        }
        for key in asked - self._by_key.keys():
            self._lose(now, key)
            troubled = troubled | {key}
        if asked - self._by_key.keys():
            self._coordinate(now, troubled)
            return
        self._start_round(now, removed, joiners, asked)

    def _start_round(
        self, now: float, removed: frozenset[Key], joiners: tuple[Key, ...], asked: Iterable[Key]
    ) -> None:
        self._round += 1
        self._hold_still()
        self._removed |= removed
        flush = self._flush = _Flush(self._round, removed, joiners, frozenset(asked))
        for key in flush.asked:
            self._send_to(key, FlushRequest(self._round, tuple(sorted(removed))))
        flush.states[self.key] = self._flush_state(self._round, self._removed)
        self._decide(now, flush)

    def _hold_still(self) -> None:
        self._frozen_by = (self.key, self._round)

    def _is_outdated(self, flush: _Flush, troubled: set[Key]) -> bool:
        """True if somebody else has been lost, or a newcomer, or somebody new is a member."""
        if not troubled <= flush.removed or not flush.asked <= self._by_key.keys():
            return True
        if not set(flush.joiners) <= self._by_key.keys():
            return True
        known = {seat.key for seat in self._seats if seat.end is None} - {self.key}
        return not known <= flush.asked | flush.removed

    def _has_quorum(self, removed: frozenset[Key]) -> bool:
        """True if those that stay may go on: see the package."""
        before = sorted((seat.start, seat.key) for seat in self._alive())
        stay = [key for _, key in before if key not in removed]
        if 2 * len(stay) > len(before) or all(key[0] in self._departed for key in removed):
            return True
        return 2 * len(stay) == len(before) and before[0][1] in stay

    def _eligible(self, removed: frozenset[Key]) -> tuple[Key, ...]:
        """Those who want in and have channels to all that stay."""
        if self.failure is not None:
            return ()
        need = {seat.key for seat in self._alive()} - removed
        if self.terms.on_death is OnDeath.RAISE and any(
            seat.end is not None and not seat.has_left for seat in self._seats
        ):
            return ()
        known = {seat.key for seat in self._seats}
        return tuple(sorted(
            key
            for key, link in self._by_key.items()
            if key not in known
            and key not in self._gone
            and link.hello is not None
            and link.hello.on_death == self.terms.on_death.value
            and need - {self.key} <= link.connected
            and self.key in link.heard
            and link.hello.founder in (None, self._founder)
            and link.left_at is None
        ))  # fmt: skip

    def _handle_state(self, now: float, key: Key, state: FlushState) -> None:
        flush = self._flush
        if flush is None or state.round != flush.number or key not in flush.asked:
            return
        flush.states[key] = state
        if self.state is GroupState.FORMING:
            # A founder that is gone has installed it elsewhere.
            if state.founder is not None and any(seat.key == self.key for seat in state.seats):
                self._flush = None
                self._apply(now, Install(0, state.epoch, state.founder, state.seats, ()))
            return
        # What somebody has installed stays as it is.
        for seat in state.seats:
            mine = self._seat_of(seat.key)
            if mine is None and seat.key not in self._gone:
                self._seats = _in_order((*self._seats, seat))
                if seat.end is None and seat.key not in self._by_key:
                    self._lose(now, seat.key)
            elif mine is not None and mine.end is None and seat.end is not None:
                self._seats = _ended(self._seats, seat.key, seat.end, has_left=seat.has_left)

    def _decide(self, now: float, flush: _Flush) -> None:
        """Install what follows from the answers, when all are here."""
        dead = {seat.key for seat in self._seats if seat.end is not None and not seat.has_left}
        if not flush.asked - dead <= flush.states.keys():
            return
        states = list(flush.states.values())
        heights: dict[Key, int] = {}
        held: dict[tuple[Key, int], bytes] = {}
        for state in states:
            for key, height in state.heights:
                heights[key] = max(height, heights.get(key, -1))
            for key, data in state.held:
                held[key, step_of_untrusted(data) or 0] = data
        seats = self._seats
        for key in flush.removed:
            seat = self._seat_of(key)
            if seat is not None and seat.end is None:
                end = max(heights.get(key, -1), seat.start - 1) + 1
                seats = _ended(seats, key, end, has_left=False)
        begun = max(state.begun for state in states)
        seats = self._seated(seats, flush.joiners, begun + 1)
        install = Install(
            flush.number,
            max(state.epoch for state in states) + 1,
            self._founder or self.key,
            _pruned(seats, states, self.terms.on_death),
            tuple((key, data) for (key, _), data in sorted(held.items())),
        )
        for key in (*flush.asked, *flush.joiners):
            self._send_to(key, install)
        self._apply(now, install)

    def _seated(
        self, seats: tuple[Seat, ...], joiners: Sequence[Key], start: int
    ) -> tuple[Seat, ...]:
        """Return the seats with those of newcomers, who start at a step or take a vacant place."""
        vacant = _vacancies(seats) if self.terms.on_death is OnDeath.WAIT else []
        for key in joiners:
            link = self._by_key.get(key)
            hello = self._hello() if key == self.key else link.hello if link is not None else None
            if hello is None:
                continue
            seat = Seat(*key, hello.name, start, (start, key[0]), hello.has_state)
            for old in vacant:
                if old.name == hello.name and old.end is not None:
                    seat = seat._replace(start=old.end, place=old.place)
                    vacant.remove(old)
                    break
            seats = _in_order((*seats, seat))
        return seats

    def _handle_install(self, now: float, key: Key, install: Install) -> None:
        is_mine = any(seat.key == self.key for seat in install.seats)
        if self.state is GroupState.FORMING:
            if not is_mine:
                return
        elif self.state is GroupState.ENTERING and self.step:
            if not is_mine or install.epoch < self.epoch:
                return
        elif self._frozen_by != (key, install.round):
            return
        if not is_mine:
            self._fail(ExcludedError("the others have agreed to go on without this member"))
            return
        self._apply(now, install)

    def _apply(self, now: float, install: Install) -> None:
        """Install the members."""
        known = {seat.key: seat for seat in self._seats}
        is_first = self.state is GroupState.FORMING
        _RUNNER.step(self, GroupEvent.INSTALLED)
        self.epoch, self._founder = install.epoch, install.founder
        self._seats = _in_order(install.seats)
        # What was said since the answers to this flush.
        if self._left_at is not None:
            self._seats = _ended(self._seats, self.key, self._left_at, has_left=True)
        for seat in self._alive():
            link = self._by_key.get(seat.key)
            if link is not None and link.left_at is not None:
                self._seats = _ended(self._seats, seat.key, link.left_at, has_left=True)
            elif link is None and seat.key != self.key:
                self._lose(now, seat.key)
        mine = self._seat_of(self.key)
        if mine is not None and self.state is GroupState.ENTERING:
            self.step, self._began = mine.start, mine.start - 1
            for step in [step for step in self._held if step < mine.start]:
                del self._held[step]
        for key, data in install.held:
            step = step_of_untrusted(data) or 0
            if step >= self.step:
                self._held.setdefault(step, {}).setdefault(key, data)
        died = [seat.key for seat in self._seats if seat.end is not None and not seat.has_left]
        for key in (*died, *self._removed):
            self._gone[key] = None
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._report(known, is_first=is_first)
        self.statistics.keep_only([seat.key for seat in self._alive()])
        self._removed, self._frozen_by, self._flush = frozenset(), None, None
        self._complained = self._announced = self._promised = None
        self._complaints -= self._gone.keys()
        self._lost -= self._gone.keys()
        for key in list(self._kept_requests):
            if key in self._gone:
                del self._kept_requests[key]
        self._welcome(known)
        if self._open is not None and not self._is_failed_at(self.step):
            self._begin(now)
            self._await(now)
        self._consider(now)

    def _report(self, known: dict[Key, Seat], *, is_first: bool) -> None:
        for seat in self._seats:
            old = known.get(seat.key)
            if old is None and not is_first and seat.end is None:
                self._events.append(SeatTaken(seat))
            if seat.end is not None and (old is None or old.end is None) and not is_first:
                self._events.append(SeatEnded(seat))

    def _welcome(self, known: dict[Key, Seat]) -> None:
        """Send newcomers what they need, those removed their exclusion, and others the news."""
        keys = {seat.key for seat in self._seats}
        for seat in self._seats:
            if seat.key in known or seat.key == self.key or seat.end is not None:
                continue
            if seat.start and seat.key != self.key:
                self._newcomers[seat.key] = seat.start
            link = self._by_key.get(seat.key)
            if link is None:
                continue
            self._send(link, Admitted(self.epoch))
            for step in sorted(self._held):
                own = self._held[step].get(self.key)
                if own is not None and step >= seat.start:
                    link.outgoing.append(own)
                    link.told = step
        for link in tuple(self._links.values()):
            key = link.key
            if key in self._gone:
                self._exclude(link)
            elif key not in keys:
                self._send(link, self._hello())

    def _exclude(self, link: _MemberLink) -> None:
        self._send(link, Exclusion("it could not be reached, and the group went on"))
        key = link.key
        if key is not None and self._by_key.get(key) is link:
            del self._by_key[key]
        self._closing.append(link.number)

    # Founding

    def _consider_founding(self, now: float) -> None:
        """Found a group, or promise to follow a founder."""
        hellos = [link.hello for link in self._by_key.values() if link.hello is not None]
        if any(hello.founder is not None for hello in hellos):
            # It is for them to let this one in.
            self._abandon()
            return
        if min([self.key, *self._by_key]) != self.key:
            self._abandon()
            if self._promised not in self._by_key:
                self._promised = None
            if self._promised is None and self._kept_requests:
                self._promised = key = min(self._kept_requests)
                request = self._kept_requests.pop(key)
                self._send_to(key, self._flush_state(request.round, frozenset()))
            return
        size = max(self.terms.size, *(hello.size for hello in hellos), 1)
        chosen = self._choose_founders()
        if len(chosen) < size or (len(chosen) == 1 and self._settles_at is not None):
            self._abandon()
            return
        flush = self._flush
        if flush is None or not flush.asked <= set(chosen):
            self._abandon()
            self._round += 1
            others = chosen[1:]
            flush = self._flush = _Flush(self._round, frozenset(), (), frozenset(others))
            for key in others:
                self._send_to(key, FlushRequest(self._round, ()))
        if flush.asked <= flush.states.keys():
            seats = self._seated((), (self.key, *sorted(flush.asked)), 0)
            install = Install(flush.number, 1, self.key, seats, ())
            for key in flush.asked:
                self._send_to(key, install)
            self._apply(now, install)

    def _choose_founders(self) -> list[Key]:
        """Return this one and others, by their ids, who have channels to each other."""
        chosen = [self.key]
        for key in sorted(self._by_key):
            link = self._by_key[key]
            is_alike = link.hello is not None and link.hello.on_death == self.terms.on_death.value
            connected = all(
                key in self._by_key[other].connected and other in link.connected
                for other in chosen[1:]
            )
            if is_alike and connected and self.key in link.connected:
                chosen.append(key)
        return chosen

    def _abandon(self) -> None:
        if self._flush is None:
            return
        for key in self._flush.asked:
            self._send_to(key, Abandon(self._flush.number))
        self._flush = None

    def _handle_abandon(self, key: Key, message: Abandon) -> None:
        request = self._kept_requests.get(key)
        if request is not None and request.round <= message.round:
            del self._kept_requests[key]
        if self._promised == key:
            self._promised = None

    # Entering and leaving

    def _check_admitted(self, now: float) -> None:
        """Become a member when all others have installed this one, and the state is here."""
        if self.state is not GroupState.ENTERING or self._is_failed_at(self.step):
            return
        others = {seat.key for seat in self._alive()} - {self.key} - self._lost
        if not others <= self._admitted_by:
            return
        if self.snapshot is None and self._has_elder():
            return
        _RUNNER.step(self, GroupEvent.ADMITTED)
        self._settles_at = None
        self._begin(now)

    def _has_elder(self) -> bool:
        """True if somebody can give this newcomer the state."""
        return any(
            seat.has_state and seat.start < self.step and seat.key not in self._lost
            for seat in self._alive()
        )

    def _unsupplied(self) -> list[Key]:
        """The newcomers to which this member has to give the state now."""
        if not self._newcomers or not self.terms.has_state or self._open is None:
            return []
        alive = {seat.key: seat for seat in self._alive()}
        keys = []
        for key, start in self._newcomers.items():
            elders = [
                (seat.start, seat.key)
                for seat in alive.values()
                if seat.has_state and seat.start < start and seat.key not in self._lost
            ]
            is_due = key in alive and key not in self._supplied and self.step >= start
            if is_due and elders and min(elders)[1] == self.key:
                keys.append(key)
        return keys

    def _handle_leaving(self, now: float, link: _MemberLink, end: int) -> None:
        key = link.key
        if key is None:
            return
        link.left_at = end
        seat = self._seat_of(key)
        if seat is not None and seat.end is None:
            self._seats = _ended(self._seats, key, end, has_left=True)
            ended = self._seat_of(key)
            if ended is not None:
                self._events.append(SeatEnded(ended))
        self._leavers[key] = end
        self._await(now)
        self._release()

    def _release(self) -> None:
        """Tell those who leave that this member needs nothing more of them."""
        is_over = self.failure is not None or self.state not in (
            GroupState.ENTERING,
            GroupState.MEMBER,
        )
        for key, end in list(self._leavers.items()):
            if self.step >= end or is_over:
                del self._leavers[key]
                self._send_to(key, LeaveReleased(end))

    def _is_released(self) -> bool:
        others = {seat.key for seat in self._alive()}
        return others & self._by_key.keys() <= self._releases

    def _fail(self, error: SphtpError) -> None:
        if self.state is GroupState.ENDED:
            return
        _RUNNER.step(self, GroupEvent.FAILED)
        self.failure = self.failure or error
        self._open = None
        self._close_all()

    def _close_all(self) -> None:
        self._closing.extend(self._links)

    # Sending

    def _send(self, link: _MemberLink, message: GroupMessage) -> None:
        link.outgoing.append(encode_group_message(message))
        self._ready[link.number] = None

    def _send_to(self, key: Key, message: GroupMessage) -> None:
        if (link := self._by_key.get(key)) is not None:
            self._send(link, message)


def _in_order(seats: Iterable[Seat]) -> tuple[Seat, ...]:
    """Return seats in the order of members; of one place, the one that had it first."""
    return tuple(sorted(seats, key=_rank))


def _rank(seat: Seat) -> tuple[object, ...]:
    return (seat.place, seat.start, seat.end is None, seat.key)


def _ended(seats: tuple[Seat, ...], key: Key, end: int, *, has_left: bool) -> tuple[Seat, ...]:
    """Return the seats with one that ends."""
    return tuple(
        [seat._replace(end=end, has_left=has_left) if seat.key == key else seat for seat in seats]
    )


def _vacancies(seats: tuple[Seat, ...]) -> list[Seat]:
    """Return the seats of the dead whose places nobody has taken."""
    last = {seat.place: seat for seat in seats}
    return [seat for seat in last.values() if seat.end is not None and not seat.has_left]


def _pruned(
    seats: tuple[Seat, ...], states: Sequence[FlushState], on_death: OnDeath
) -> tuple[Seat, ...]:
    """Return the seats without those that all know to have ended before their present steps."""
    if on_death is OnDeath.RAISE:
        return seats
    floor = min(state.begun for state in states)
    alive = {seat.key for state in states for seat in state.seats if seat.end is None}
    vacant = _vacancies(seats) if on_death is OnDeath.WAIT else []
    return tuple(
        [
            seat
            for seat in seats
            if seat.end is None or seat.end > floor or seat.key in alive or seat in vacant
        ]
    )


_RUNNER: Final = Runner[GroupState, GroupEvent, GroupAction](
    GROUP,
    {},
    raised=(GroupEvent.LEAVE,),
    ignored=(
        GroupEvent.INSTALLED, GroupEvent.ADMITTED, GroupEvent.RELEASED, GroupEvent.FAILED,
    ),
)  # fmt: skip
