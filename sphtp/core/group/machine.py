"""The membership of one member: its entry, its part in changes, and its end.

Theory of operation. The docstring of the package describes the agreement of the members. This
module has one member's part. A member has a channel (a *link*) to each other member, an exchange of
steps (``steps``), and the seats that were installed last (``seats``). After each input that may
change the membership, ``_consider`` examines the whole state of the member, and chooses an action:

- No seats are installed yet: found a group, follow a founder, or wait for INSTALL.
- A member is suspected (its link was lost, here or elsewhere), or a newcomer wants to enter: the
  coordinator begins a change (``_coordinate``). Any other member sends the coordinator a COMPLAINT.
- The coordinator has sent FLUSH: answer it.
- This member leaves, and all others have released it: end.

So no handler of an input chooses the next action, and the order of inputs matters little. For
example, a member may get the FLUSH of another member before it loses the channel to its old
coordinator. It keeps the FLUSH, and answers it after the loss.

A change has three messages: FLUSH (``_start_round``), STATE (``_answer_request``), and INSTALL
(``_decide``); ``_apply`` installs the seats. Contributions that a member may lack travel before
STATE and INSTALL, one by one, in HELD. The coordinator begins a new round if another member is lost
meanwhile, or a newcomer of the round, or if an answer shows a member that it did not know
(``_is_outdated``); the number of the round shows which answers are outdated. ``_frozen_by`` is the
round that keeps this member from beginning steps. The round ends with INSTALL, or the member fails
after ``AGREEMENT_TIMEOUT``.

The shell reads the open step and takes messages, results, events and closed links itself, from
``steps``, ``ready``, ``events`` and ``closing``. A getter for each would cost a tenth of the calls
of a step.

The times: a channel ends 10 s after the last packet of the other side, and the change takes one
round trip. A member that cannot agree with enough others fails 30 s after it lost the last channel.
Servers report a silent client as gone after 10 s, before that member would fail.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sphtp.core.fsm import Runner
from sphtp.core.group.lifecycle import GROUP, GroupAction, GroupEvent, GroupState
from sphtp.core.group.messages import (
    VERSION,
    Abandon,
    Admitted,
    Complaint,
    Contribution,
    Dying,
    Exclusion,
    FlushRequest,
    FlushState,
    GroupHello,
    GroupMessage,
    HeldContribution,
    Install,
    JoinRequest,
    LeaveReleased,
    Leaving,
    StateSnapshot,
    StepReached,
    decode_group_message_untrusted,
    encode_group_message,
    step_of_untrusted,
)
from sphtp.core.group.seats import (
    Key,
    OnDeath,
    Seat,
    Seats,
    coordinator_of,
    find_seat,
    giver_of_state,
    has_quorum,
    in_order,
    living,
    merged,
    seats_after,
    with_end,
    with_newcomers,
    without_ended,
)
from sphtp.core.group.steps import WINDOW, GroupStep, StepExchange
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

AGREEMENT_TIMEOUT: Final = 30.0
"""Seconds without agreement after which a member that has lost others fails."""

MOST_HELD: Final = 1 << 16
"""The most HELDs of one sender in one change."""

FOUNDING_DELAY: Final = 1.0
"""Seconds for which a client waits for others before it founds a group alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTerms:
    """The group that a member joins, with the member's terms.

    Raises ``SettingsError`` if ``size`` is out of range.
    """

    group: str
    name: str
    on_death: OnDeath = OnDeath.RAISE
    size: int = 1
    """The least number of members that found the group."""
    has_state: bool = False
    """True if this member gives newcomers the state of the simulation."""

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 1 << 16:
            raise SettingsError(f"size is {self.size}; allowed is 1 to 65536")


class SeatTaken(NamedTuple):
    """Event: a new member takes part from ``seat.start`` on."""

    seat: Seat


class SeatEnded(NamedTuple):
    """Event: a member has left or died, and takes no part from ``seat.end`` on."""

    seat: Seat


Held = dict[tuple[Key, int], bytes]
"""Contributions by member and step."""


class _MemberLink:
    """A channel to another client that is in the group, or wants to join it."""

    __slots__ = ("connected", "held", "hello", "known", "left_at", "number", "outgoing", "peer_id",
                 "progress")  # fmt: skip

    def __init__(self, number: int, peer_id: int) -> None:
        self.number = number
        self.peer_id = peer_id
        self.outgoing: deque[Contribution] = deque()
        self.hello: GroupHello | None = None
        # The content of its last JOIN.
        self.known: frozenset[Key] = frozenset()
        self.connected: frozenset[Key] = frozenset()
        # The contributions of its HELDs, for its next STATE or INSTALL.
        self.held: Held = {}
        self.left_at: int | None = None
        # The step of its last PROGRESS. Its contributions do not count: it may owe the state of
        # the step to which it has contributed.
        self.progress = -1

    @property
    def key(self) -> Key | None:
        return None if self.hello is None else self.hello.member


class _Flush:
    """A round of this member as the coordinator, or as a founder."""

    __slots__ = ("asked", "held", "joiners", "number", "removed", "states")

    def __init__(
        self, number: int, removed: frozenset[Key], joiners: tuple[Key, ...], asked: frozenset[Key]
    ) -> None:
        self.number = number
        self.removed = removed
        self.joiners = joiners
        self.asked = asked
        self.states: dict[Key, FlushState] = {}
        self.held: Held = {}


class GroupMachine:
    """One member of a group.

    After each input or command, take all outputs from ``ready``, ``closing``, ``events`` and
    ``steps.results``, and read ``failure`` and ``poll_timeout``. ``now`` is in seconds.
    """

    def __init__(self, now: float, key: Key, terms: GroupTerms) -> None:
        self.key = key
        self.terms = terms
        self.state = GroupState.FORMING
        self.failure: SphtpError | None = None
        """The error of every further step: this member has ended, or the policy is RAISE and a
        member has died; else None."""
        self.snapshot: bytes | None = None
        """The state of the simulation at this member's first step, as msgpack; None if none came.
        """
        self._snapshot_step = -1
        self.epoch = 0
        """The number of the last change that this member has installed; 0 before the first."""
        self.counters = {"malformed": 0}
        self.steps = StepExchange(key, terms.on_death)
        """The exchange of the steps. Only ``contribute`` opens a step."""
        self._founder: Key | None = None
        self._links: dict[int, _MemberLink] = {}
        self._by_key: dict[Key, _MemberLink] = {}
        self.ready: dict[int, deque[Contribution]] = {}
        """The channels with messages that have to leave, and these messages, oldest first. The
        caller removes both."""
        self.closing: deque[int] = deque()
        """The channels to close after all their messages have left."""
        self.events: deque[SeatTaken | SeatEnded] = deque()
        """The changes of the members, oldest first."""
        # Members whose channel was lost here, members in COMPLAINTs of others, and the ids that the
        # servers report as gone.
        self._lost: set[Key] = set()
        self._complaints: set[Key] = set()
        self._departed: set[int] = set()
        # The round that keeps this member from beginning steps, by its coordinator.
        self._frozen_by: tuple[Key, int] | None = None
        # This member's own round, and the number of the last one.
        self._flush: _Flush | None = None
        self._round = 0
        # FLUSHes without an answer, since their senders are not this member's coordinator.
        self._kept_requests: dict[Key, FlushRequest] = {}
        # The last COMPLAINT with its receiver, and the last JOIN, so that neither is sent twice.
        self._complained: tuple[Key, frozenset[Key]] | None = None
        self._announced: JoinRequest | None = None
        # The founder that this member follows, and the members that have installed this one.
        self._promised: Key | None = None
        self._admitted_by: set[Key] = set()
        # Newcomers that may still need the state, with their first steps, and the newcomers to
        # which this member has given it.
        self._newcomers: dict[Key, int] = {}
        self._supplied: set[Key] = set()
        # The step of this member's last PROGRESS that passes on the duty to give the state.
        self._passed_on_at = -1
        # The end of this member's seat if it leaves, and the members that have released it; and the
        # ends of other leaving members that this member has not released.
        self._left_at: int | None = None
        self._releases: set[Key] = set()
        self._leavers: dict[Key, int] = {}
        self._gives_up_at: float | None = None
        self._settles_at: float | None = now + FOUNDING_DELAY

    # Getters

    @property
    def has_ended(self) -> bool:
        """True if this member is ENDED, so that its channels may be closed.

        With RAISE, the death of another member fails the steps, and does not end this member.
        """
        return self.state is GroupState.ENDED

    @property
    def step(self) -> int:
        """The number of the open step, or, between two steps, of the next one."""
        return self.steps.step

    @property
    def seats(self) -> Seats:
        """All seats that this member still needs."""
        return self.steps.seats

    @property
    def members(self) -> Seats:
        """The members of the present step, in order."""
        return self.steps.view.members

    @property
    def awaited(self) -> list[int]:
        """The numbers of the channels to members whose contributions the open step lacks."""
        links, opened = self._by_key, self.steps.opened
        missing = opened.missing if opened is not None else ()
        return [links[key].number for key in missing if key in links]

    @property
    def wants_state(self) -> bool:
        """True if ``give_state`` must be called, with the state at the beginning of ``step``."""
        return bool(self._newcomers) and bool(self._unsupplied())

    # Commands

    def contribute(self, data: Contribution, neighbours: Collection[Key] | None = None) -> None:
        """Contribute to the present step, for all members or only for some neighbours.

        ``data`` is ``contribution_head(step)`` followed by a value as msgpack.

        Raises as ``check``. Raises ``StateError``, too, if a step is open or its result was not
        taken, and ``LocalError`` for a neighbour that is no member.
        """
        steps = self.steps
        self.check()
        if steps.opened is not None or steps.results:
            raise StateError(f"step {self.step} is under way")
        places = None
        if neighbours is not None:
            known = {seat.key: seat.place for seat in self.members}
            for key in neighbours:
                if key not in known:
                    raise LocalError(f"{key[0]:#010x} is no member at step {self.step}")
            places = frozenset(known[key] for key in neighbours if key != self.key)
        steps.opened = GroupStep(steps.step, data, places)
        self._begin()

    def check(self) -> None:
        """Raise the error that ended the group, or ``StateError`` for a client that is no member.

        A client is no member before it has entered the group, and after ``leave``.
        """
        if self.failure is not None:
            raise self.failure
        if self.state is not GroupState.MEMBER:
            raise StateError(f"a member that is {self.state.value} makes no steps")

    def leave(self, now: float) -> None:
        """Leave the group before the first step that this member has not begun.

        ``state`` becomes ENDED when all others have released this member, and at once while it is
        FORMING.
        """
        if self.state in (GroupState.LEAVING, GroupState.ENDED):
            return
        _RUNNER.step(self, GroupEvent.LEAVE)
        if self.has_ended:
            self._close_all()
            return
        self._flush = None
        self.steps.is_placed = True
        end = self._left_at = max(self.steps.begun + 1, self.step)
        self._set_end(self.key, end)
        for link in self._links.values():
            self._send(link, Leaving(end))
        self._consider(now)

    def die(self, why: str) -> None:
        """End at once. The other members count this one as dead. DYING carries ``why`` to them."""
        if self.state is not GroupState.ENDED:
            self._die(why, StateError("this member has ended"))

    def give_state(self, payload: bytes) -> None:
        """Give newcomers the state at the beginning of the present step."""
        for key in self._unsupplied():
            self._supplied.add(key)
            self._send_to(key, StateSnapshot(self.step, payload))
        self._begin()

    # Inputs

    def handle_link_opened(self, now: float, number: int, peer_id: int) -> None:
        """Handle a new channel to a peer that has announced this group, or that opened the channel.

        ``number`` identifies the channel. ``peer_id`` is the peer's id in the cluster.
        """
        if self.state is GroupState.ENDED:
            self.closing.append(number)
            return
        link = self._links[number] = _MemberLink(number, peer_id)
        self._send(link, self._hello())

    def handle_link_lost(self, now: float, number: int) -> None:
        """Handle the end of a channel."""
        link = self._links.pop(number, None)
        self.ready.pop(number, None)
        if link is None or link.hello is None or self.state is GroupState.ENDED:
            return
        key = link.hello.member
        if self._by_key.get(key) is link:
            del self._by_key[key]
            self._kept_requests.pop(key, None)
            self.steps.forget_progress(key)
            seat = find_seat(self.seats, key)
            if seat is not None and self._is_needed(seat):
                self._lose(now, key)
            self._announce_connections()
        self._consider(now)

    def handle_departed(self, now: float, peer_id: int) -> None:
        """Handle a report of the servers that a client is gone."""
        if any(seat.id == peer_id for seat in self.seats):
            self._departed.add(peer_id)
            self._consider(now)

    def handle_message_untrusted(self, now: float, number: int, data: bytes | memoryview) -> bool:
        """Handle a message. Return False if it has no effect but on ``steps``.

        A contribution rarely has another one; then there are no outputs to take. Raises
        ``RemoteError`` if the caller has to end the channel for the message.
        """
        link = self._links.get(number)
        if link is None or self.state is GroupState.ENDED:
            return False
        step = step_of_untrusted(data)
        if step is not None:
            if link.hello is None:
                raise RemoteError("a contribution of somebody who sent no HELLO")
            key = link.hello.member
            self.steps.take_untrusted(key, step, data)
            if self._newcomers:
                self._newcomers.pop(key, None)
            opened = self.steps.opened
            if opened is not None and not opened.is_begun:
                self._begin()
            elif self._leavers:
                self._release()
            return bool(self.ready)
        message = decode_group_message_untrusted(data)
        if isinstance(message, GroupHello):
            self._handle_hello(now, link, message)
            return True
        if link.hello is None:
            raise RemoteError(f"a {type(message).__name__} of somebody who sent no HELLO")
        key = link.hello.member
        match message:
            case JoinRequest(known, connected):
                link.known, link.connected = frozenset(known), frozenset(connected)
                self._announce_connections()
            case FlushRequest():
                self._kept_requests[key] = message
            case HeldContribution(member, contribution):
                if len(link.held) >= MOST_HELD:
                    raise RemoteError(f"more than {MOST_HELD} contributions for one change")
                link.held[member, step_of_untrusted(contribution) or 0] = contribution
            case FlushState():
                self._handle_state(now, link, key, message)
            case Install():
                self._handle_install(now, link, key, message)
            case Abandon():
                self._handle_abandon(key, message)
            case Admitted():
                if self.state in (GroupState.FORMING, GroupState.ENTERING):
                    self._admitted_by.add(key)
            case Complaint(keys):
                # A COMPLAINT about this member has no effect: see the package. A client that is no
                # member here yet repeats its COMPLAINT after the next INSTALL.
                alive = {seat.key for seat in living(self.seats)}
                if find_seat(self.seats, key) is not None:
                    self._complaints |= alive.intersection(keys) - {self.key}
            case Exclusion(why):
                by = link.hello.name or hex(key[0])
                self._fail(ExcludedError(f"excluded by {by}: {why}"))
            case Dying():
                self._departed.add(key[0])
                self.handle_link_lost(now, number)
                self.closing.append(number)
                return True
            case Leaving(end):
                self._handle_leaving(link, key, end)
            case LeaveReleased():
                self._releases.add(key)
            case StateSnapshot(at, payload):
                if self.state in (GroupState.FORMING, GroupState.ENTERING):
                    self.snapshot, self._snapshot_step = payload, at
            case StepReached(reached):
                self.steps.note_reached(key, reached)
                link.progress = reached
                self._newcomers.pop(key, None)
                self._begin()
        self._consider(now)
        return True

    def handle_timeout(self, now: float) -> None:
        """Perform the timers that are due by ``now``."""
        if self._gives_up_at is not None and now >= self._gives_up_at:
            self._gives_up_at = None
            names = ", ".join(self._name_of(key) for key in sorted(self._lost | self._complaints))
            self._fail(ExcludedError(f"no agreement on the members: {names} cannot be reached, and "
                                     "may go on without this one"))  # fmt: skip
        if self._settles_at is not None and now >= self._settles_at:
            self._settles_at = None
            self._consider(now)

    # Outputs

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is due; None if no timer is set."""
        if self.state is GroupState.ENDED:
            return None
        return earliest(self._gives_up_at, self._settles_at)

    # Steps

    def _begin(self) -> None:
        """Begin the open step, unless a change is under way or this member cannot make steps."""
        steps, links = self.steps, self._by_key
        opened = steps.opened
        if opened is None or opened.is_begun or self.state is not GroupState.MEMBER:
            return
        if self._frozen_by is not None or self._flush is not None or self._fails_here():
            return
        if self._newcomers:
            # The step before may have completed while a newcomer waited for its state.
            self._pass_on_state()
            if self._unsupplied():
                # First ``give_state``: among neighbours the step may complete at once.
                return
        for key, data in steps.begin().items():
            link = links.get(key)
            if link is not None:
                link.outgoing.append(data)
                self.ready[link.number] = link.outgoing
        if self._leavers:
            self._release()

    def _fails_here(self) -> bool:
        """Fail the open step if a member has died before it and ``on_death`` is RAISE.

        This member goes on answering others, which reach the same step. Return True if there is a
        failure.
        """
        if self.terms.on_death is not OnDeath.RAISE or self.failure is not None:
            return self.failure is not None
        seat = self.steps.view.death
        if seat is None:
            return False
        self.failure = MemberDiedError(seat.name or f"{seat.id:#010x}", seat.end or 0, seat.id)
        self.steps.fail()
        return True

    # Links

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
        if hello.member[0] != link.peer_id:
            raise RemoteError(f"{link.peer_id:#010x} calls itself {hello.member[0]:#010x}")
        if link.key not in (None, hello.member):
            raise RemoteError("it is somebody else than before")
        is_new = link.hello is None
        link.hello = hello
        key = hello.member
        if key in self.steps.dead:
            self._exclude(link)
            return
        self._check_terms(hello)
        if self.state is GroupState.ENDED:
            return
        if is_new:
            if key in self._by_key and find_seat(self.seats, key) is not None:
                # Messages of the first channel may have been lost with it.
                self._lose(now, key)
            self._by_key[key] = link
            self.steps.forget_progress(key)
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
        """Fail if a member, or a client with a lower key, has another ``on_death``."""
        if hello.on_death == self.terms.on_death.value or self.state is not GroupState.FORMING:
            return
        if hello.founder is not None or hello.member < self.key:
            self._fail(RefusedError(
                f"on_death is {self.terms.on_death.value!r} here and {hello.on_death!r} at "
                f"{hello.name or hex(hello.member[0])}; all members need the same", "on_death",
            ))  # fmt: skip

    def _announce_connections(self) -> None:
        """Send JOIN to all others if this client's connections have changed."""
        if self.state not in (GroupState.FORMING, GroupState.ENTERING):
            return
        connected = [key for key, link in self._by_key.items() if self.key in link.known]
        request = JoinRequest(tuple(sorted(self._by_key)), tuple(sorted(connected)))
        if request != self._announced:
            self._announced = request
            for link in self._by_key.values():
                self._send(link, request)

    def _lose(self, now: float, key: Key) -> None:
        if key not in self._lost:
            self._lost.add(key)
            self._gives_up_at = now + AGREEMENT_TIMEOUT

    def _lose_unreachable(self, now: float) -> None:
        """Count the living members to which there is no channel as lost."""
        for seat in living(self.seats):
            if seat.key != self.key and seat.key not in self._by_key:
                self._lose(now, seat.key)

    def _is_needed(self, seat: Seat) -> bool:
        """Return True if the members have to agree on a member whose channel was lost."""
        if seat.key in self.steps.dead:
            return False
        if seat.end is None:
            return True
        return self.step < seat.end and self.steps.last_from(seat.key) < seat.end - 1

    def _name_of(self, key: Key) -> str:
        seat = find_seat(self.seats, key)
        return seat.name if seat is not None and seat.name else f"{key[0]:#010x}"

    # Changes

    def _consider(self, now: float) -> None:
        """Choose the next action from the state: see the docstring of the module."""
        if self.state is GroupState.FORMING:
            self._consider_founding(now)
            return
        if self.state is GroupState.ENDED:
            return
        self._check_admitted()
        if self.has_ended:
            return
        self._pass_on_state()
        if self.state is GroupState.LEAVING and self._is_released():
            _RUNNER.step(self, GroupEvent.RELEASED)
            self._close_all()
            return
        suspects = self._suspects()
        if not suspects and self._frozen_by is None and self._flush is None:
            self._gives_up_at = None
        coordinator = coordinator_of(self.seats, self._lost)
        if coordinator is None and self.state is GroupState.ENTERING:
            self._fail(ExcludedError("the members that admitted this one are gone"))
            return
        if coordinator == self.key and self.state is not GroupState.LEAVING:
            if self._may_coordinate:
                self._coordinate(now, suspects)
            return
        self._flush = None
        if coordinator is None or coordinator == self.key:
            return
        complaint = (coordinator, frozenset(suspects))
        if suspects and self._complained != complaint:
            self._complained = complaint
            self._send_to(coordinator, Complaint(tuple(sorted(suspects))))
        self._answer_request(coordinator)

    @property
    def _may_coordinate(self) -> bool:
        """True for a member, or a founder; other members may not have installed a newcomer yet."""
        return self.state is GroupState.MEMBER or (
            self.state is GroupState.ENTERING and self.step == 0
        )

    def _suspects(self) -> set[Key]:
        """Return the lost members, here or elsewhere, on whose end the members have to agree."""
        # A member that refuses contributions of another one may lack some, so the latter has to go.
        suspects = self._lost | self._complaints | self.steps.refused
        if not suspects:
            return suspects
        return {seat.key for seat in self.seats if seat.key in suspects} - self.steps.dead.keys()

    def _answer_request(self, coordinator: Key) -> None:
        """Answer the flush of the coordinator."""
        request = self._kept_requests.pop(coordinator, None)
        if request is None:
            return
        self._frozen_by = (coordinator, request.round)
        self.steps.refuse(request.removed)
        state, held = self._flush_state(request.round)
        self._send_behind(coordinator, held, state)

    def _flush_state(self, number: int) -> tuple[FlushState, Held]:
        heights, held = self.steps.report(self.steps.refused)
        begun = self.steps.begun
        state = FlushState(number, self.epoch, begun, self.seats, heights, self._founder)
        return state, held

    def _coordinate(self, now: float, suspects: set[Key]) -> None:
        """Begin a change if one is needed, begin it anew if it is outdated, or try to decide it."""
        flush = self._flush
        if flush is not None and not self._is_outdated(flush, suspects):
            self._decide(now, flush)
            return
        removed = frozenset(suspects)
        joiners = self._eligible(removed)
        if not removed and not joiners and flush is None and self._frozen_by is None:
            return
        if not has_quorum(self.seats, removed, self._departed):
            self._flush = None
            self._frozen_by = (self.key, self._round)
            return
        # The members that stay, and the leaving ones that can still answer: one of them may be the
        # only one with the last contribution of a dead member.
        asked = {
            seat.key
            for seat in self.seats
            if seat.key != self.key
            and seat.key not in removed
            and seat.key not in self.steps.dead
            and (seat.end is None or (seat.has_left and seat.key in self._by_key))
        }
        unreachable = asked - self._by_key.keys()
        for key in unreachable:
            self._lose(now, key)
        if unreachable:
            self._coordinate(now, suspects | unreachable)
            return
        self._start_round(now, removed, joiners, asked)

    def _start_round(
        self, now: float, removed: frozenset[Key], joiners: tuple[Key, ...], asked: Iterable[Key]
    ) -> None:
        self._round += 1
        self._frozen_by = (self.key, self._round)
        self.steps.refuse(removed)
        flush = self._flush = _Flush(self._round, removed, joiners, frozenset(asked))
        for key in flush.asked:
            self._send_to(key, FlushRequest(self._round, tuple(sorted(removed))))
        flush.states[self.key], held = self._flush_state(self._round)
        flush.held.update(held)
        self._decide(now, flush)

    def _is_outdated(self, flush: _Flush, suspects: set[Key]) -> bool:
        """Return True if a further member or a newcomer was lost, or there is a new member."""
        if not suspects <= flush.removed or not flush.asked <= self._by_key.keys():
            return True
        if not set(flush.joiners) <= self._by_key.keys():
            return True
        known = {seat.key for seat in living(self.seats)} - {self.key}
        return not known <= flush.asked | flush.removed

    def _eligible(self, removed: frozenset[Key]) -> tuple[Key, ...]:
        """Return the clients that want to join, and have channels to all remaining members."""
        if self.failure is not None:
            return ()
        need = {seat.key for seat in living(self.seats)} - removed
        if self.terms.on_death is OnDeath.RAISE and any(seat.has_died for seat in self.seats):
            return ()
        known = {seat.key for seat in self.seats}
        return tuple(sorted(
            key
            for key, link in self._by_key.items()
            if key not in known
            and key not in self.steps.dead
            and link.hello is not None
            and link.hello.on_death == self.terms.on_death.value
            and need - {self.key} <= link.connected
            and self.key in link.known
            and link.hello.founder in (None, self._founder)
            and link.left_at is None
        ))  # fmt: skip

    def _handle_state(self, now: float, link: _MemberLink, key: Key, state: FlushState) -> None:
        held, link.held = link.held, {}
        flush = self._flush
        if flush is None or state.round != flush.number or key not in flush.asked:
            return
        steps = [state.begun, *[height for _, height in state.heights]]
        _check_steps([*steps, *_steps_of(state.seats)], self.step)
        flush.states[key] = state
        flush.held.update(held)
        if self.state is GroupState.FORMING:
            # A founder that is gone has made this client a member, by INSTALLs to others.
            if state.founder is not None and any(seat.key == self.key for seat in state.seats):
                self._flush = None
                self._apply(now, Install(0, state.epoch, state.founder, state.seats), {})
            return
        self.steps.seats = merged(self.seats, state.seats, self.steps.dead)
        self._lose_unreachable(now)

    def _decide(self, now: float, flush: _Flush) -> None:
        """Decide the change, and install it, when all answers have arrived."""
        # The answer of a member with an end in another answer is not needed.
        dead = {seat.key for seat in self.seats if seat.has_died}
        if not flush.asked - dead <= flush.states.keys():
            return
        states = list(flush.states.values())
        heights: dict[Key, int] = {}
        for state in states:
            for key, height in state.heights:
                heights[key] = max(height, heights.get(key, -1))
        begun = [state.begun for state in states]
        seats = seats_after(
            self.seats,
            flush.removed,
            heights,
            self._newcomer_seats(flush.joiners),
            max(begun),
            self.terms.on_death,
        )
        needed = {seat.key for state in states for seat in state.seats if seat.end is None}
        install = Install(
            flush.number,
            max(state.epoch for state in states) + 1,
            self._founder or self.key,
            without_ended(seats, min(begun), needed, self.terms.on_death),
        )
        for key in (*flush.asked, *flush.joiners):
            self._send_behind(key, flush.held, install)
        self._apply(now, install, flush.held)

    def _newcomer_seats(self, keys: Iterable[Key]) -> list[Seat]:
        """Return seats for newcomers, without their places."""
        seats = []
        for key in keys:
            link = self._by_key.get(key)
            hello = self._hello() if key == self.key else link.hello if link is not None else None
            if hello is not None:
                seats.append(Seat(*key, hello.name, 0, (0, 0), hello.has_state))
        return seats

    def _handle_install(self, now: float, link: _MemberLink, key: Key, install: Install) -> None:
        held, link.held = link.held, {}
        mine = find_seat(install.seats, self.key)
        if self.state is GroupState.FORMING:
            if mine is None:
                return
        elif self.state is GroupState.ENTERING and self.step:
            if mine is None or install.epoch < self.epoch:
                return
        elif self._frozen_by != (key, install.round):
            return
        here = self.step if self.steps.is_placed or mine is None else mine.start
        _check_steps(_steps_of(install.seats), here)
        if mine is None:
            self._fail(ExcludedError("the others have agreed to go on without this member"))
            return
        self._apply(now, install, held)

    def _apply(self, now: float, install: Install, held: Held) -> None:
        """Install the seats of a change."""
        known = {seat.key: seat for seat in self.seats}
        is_first = self.state is GroupState.FORMING
        _RUNNER.step(self, GroupEvent.INSTALLED)
        self.epoch, self._founder = install.epoch, install.founder
        self.steps.seats = in_order(install.seats)
        # Apply the ends that members have announced since they answered this flush.
        if self._left_at is not None:
            self._set_end(self.key, self._left_at)
        for seat in living(self.seats):
            link = self._by_key.get(seat.key)
            if link is not None and link.left_at is not None:
                self._set_end(seat.key, link.left_at)
        self._lose_unreachable(now)
        mine = find_seat(self.seats, self.key)
        if mine is not None and self.state is GroupState.ENTERING:
            self.steps.start_at(mine.start)
            if self._snapshot_step < mine.start:
                self.snapshot = None
        self.steps.install(held)
        self._report(known, is_first=is_first)
        self._frozen_by = self._flush = None
        self._complained = self._announced = self._promised = None
        self._forget_former()
        self._welcome(known)
        if self.steps.opened is not None and not self._fails_here():
            self._begin()
            self.steps.refresh()
        if self._leavers:
            self._release()
        self._consider(now)

    def _forget_former(self) -> None:
        """Drop all records of former members but ``dead``, so that no table grows with changes."""
        dead, keys = self.steps.dead, {seat.key for seat in self.seats}
        self._lost = (self._lost & keys) - dead.keys()
        self._complaints = (self._complaints & keys) - dead.keys()
        self._departed &= {seat.id for seat in self.seats}
        self._supplied &= keys
        for key in (self._newcomers.keys() - keys) | (self._newcomers.keys() & dead.keys()):
            del self._newcomers[key]
        for key in self._kept_requests.keys() & dead.keys():
            del self._kept_requests[key]

    def _report(self, known: dict[Key, Seat], *, is_first: bool) -> None:
        """Report new and ended seats as events; at the first install, report none."""
        if is_first:
            return
        for seat in self.seats:
            old = known.get(seat.key)
            if old is None and seat.end is None:
                self.events.append(SeatTaken(seat))
            if seat.end is not None and (old is None or old.end is None):
                self.events.append(SeatEnded(seat))

    def _welcome(self, known: dict[Key, Seat]) -> None:
        """Send messages after a change: to newcomers, to excluded clients, and to other clients.

        Newcomers get ADMITTED and contributions, former members EXCLUDED, and other clients HELLO.
        ``known`` has the seats before the change.
        """
        keys = {seat.key for seat in self.seats}
        for seat in living(self.seats):
            if seat.key in known or seat.key == self.key:
                continue
            if seat.start:
                self._newcomers[seat.key] = seat.start
            link = self._by_key.get(seat.key)
            if link is None:
                continue
            self._send(link, Admitted(self.epoch))
            # Steps that began before the change, if the newcomer takes the place of a dead member.
            for step, data in self.steps.own_from(seat.start):
                link.outgoing.append(data)
                self.steps.note_reported(seat.key, step)
        for link in tuple(self._links.values()):
            if link.key in self.steps.dead:
                self._exclude(link)
            elif link.key not in keys:
                self._send(link, self._hello())

    def _exclude(self, link: _MemberLink) -> None:
        self._send(link, Exclusion("it could not be reached, and the group went on"))
        key = link.key
        if key is not None and self._by_key.get(key) is link:
            del self._by_key[key]
        self.closing.append(link.number)

    # Founding

    def _consider_founding(self, now: float) -> None:
        """Found a group, or follow a founder."""
        hellos = [link.hello for link in self._by_key.values() if link.hello is not None]
        if any(hello.founder is not None for hello in hellos):
            # There is a group, whose coordinator has to admit this client.
            self._abandon()
            return
        if min([self.key, *self._by_key]) != self.key:
            self._abandon()
            if self._promised not in self._by_key:
                self._promised = None
            if self._promised is None and self._kept_requests:
                self._promised = key = min(self._kept_requests)
                request = self._kept_requests.pop(key)
                self._send_to(key, self._flush_state(request.round)[0])
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
            founders = self._newcomer_seats((self.key, *sorted(flush.asked)))
            seats = with_newcomers((), founders, 0, self.terms.on_death)
            install = Install(flush.number, 1, self.key, seats)
            for key in flush.asked:
                self._send_to(key, install)
            self._apply(now, install, {})

    def _choose_founders(self) -> list[Key]:
        """Return this client and others, in the order of their ids, with channels to each other."""
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

    def _check_admitted(self) -> None:
        """Become a member when all others have installed this one, and the state has arrived."""
        if self.state is not GroupState.ENTERING or self._fails_here():
            return
        others = {seat.key for seat in living(self.seats)} - {self.key} - self._lost
        if not others <= self._admitted_by:
            return
        if self._snapshot_step != self.step:
            if self._giver_at(self.step) is not None:
                return
            if giver_of_state(self.seats, self._lost, before=self.step) is not None:
                why = (
                    f"no member has the state at the beginning of step {self.step} any more, from "
                    "which this one would take part: those with `state` are ahead"
                )
                self._die(why, RefusedError(why, "state"))
                return
            self.snapshot = None
        _RUNNER.step(self, GroupEvent.ADMITTED)
        self._admitted_by.clear()
        self.steps.is_placed = True
        self._settles_at = None
        self._begin()

    def _unsupplied(self) -> list[Key]:
        """Return the newcomers to which this member has to give the state now."""
        step = self.step
        if self.steps.opened is None or self._giver_at(step) != self.key:
            return []
        return [key for key, start in self._awaiting_state() if start == step]

    def _awaiting_state(self) -> list[tuple[Key, int]]:
        """Return the newcomers to which this member has not given the state, with their starts."""
        alive = {seat.key for seat in living(self.seats)}
        return [
            (key, start)
            for key, start in self._newcomers.items()
            if key in alive and key not in self._supplied
        ]

    def _giver_at(self, step: int) -> Key | None:
        """Return the member that gives newcomers the state at the beginning of a step, if any.

        It is the oldest one that has not reported to be past the step. Only among neighbours can
        members be past a newcomer's first step: the newcomer takes the place of a dead member, or
        the member that had to give it the state has died, or gives it late.
        """
        past = {key for key, link in self._by_key.items() if link.progress > step}
        if self._passed_on_at > step:
            past.add(self.key)
        return giver_of_state(self.seats, self._lost | past, before=step)

    def _pass_on_state(self) -> None:
        """Report this member's step to all if it is past the one whose state it has to give."""
        step = self.step
        if self._newcomers and any(
            start < step and self._giver_at(start) == self.key
            for _, start in self._awaiting_state()
        ):
            self._passed_on_at = step
            for seat in living(self.seats):
                self._send_to(seat.key, StepReached(step))

    def _handle_leaving(self, link: _MemberLink, key: Key, end: int) -> None:
        if self.steps.is_placed and end > _last_step_from(self.step):
            # No member can have reached this step, or the others went on while this process did not
            # run. In the latter case another member's EXCLUDED will follow.
            return
        link.left_at = end
        seat = find_seat(self.seats, key)
        if seat is not None and seat.end is None:
            self._set_end(key, end)
            self.events.append(SeatEnded(seat._replace(end=end, has_left=True)))
        self._leavers[key] = end
        self.steps.refresh()
        self._release()

    def _set_end(self, key: Key, end: int) -> None:
        self.steps.seats = with_end(self.seats, key, end)

    def _release(self) -> None:
        """Send RELEASED to leaving members of which this member needs no more contributions."""
        is_over = self.failure is not None or self.state not in (
            GroupState.ENTERING,
            GroupState.MEMBER,
        )
        for key, end in list(self._leavers.items()):
            if self.step >= end or is_over:
                del self._leavers[key]
                self._send_to(key, LeaveReleased(end))

    def _is_released(self) -> bool:
        others = {seat.key for seat in living(self.seats)}
        return others & self._by_key.keys() <= self._releases

    def _die(self, why: str, error: SphtpError) -> None:
        for link in self._links.values():
            self._send(link, Dying(why))
        self._fail(error)

    def _fail(self, error: SphtpError) -> None:
        if self.state is GroupState.ENDED:
            return
        _RUNNER.step(self, GroupEvent.FAILED)
        self.failure = self.failure or error
        self._close_all()

    def _close_all(self) -> None:
        self.steps.end()
        self.closing.extend(self._links)

    # Sending

    def _send(self, link: _MemberLink, message: GroupMessage) -> None:
        link.outgoing.append(encode_group_message(message))
        self.ready[link.number] = link.outgoing

    def _send_to(self, key: Key, message: GroupMessage) -> None:
        if (link := self._by_key.get(key)) is not None:
            self._send(link, message)

    def _send_behind(self, key: Key, held: Held, message: GroupMessage) -> None:
        for (member, _), data in sorted(held.items()):
            self._send_to(key, HeldContribution(member, data))
        self._send_to(key, message)


def _last_step_from(here: int) -> int:
    """Return the last step that another member of the same group can have reached.

    No member is further from this one than the window, and a newcomer starts two steps later.
    Without this bound, a false step of one member would spread in the messages of others, and
    receivers would reject these.
    """
    return here + 2 * WINDOW


def _check_steps(steps: Iterable[int], here: int) -> None:
    """Raise ``RemoteError`` for a step that cannot be reached while a member is at ``here``."""
    most = _last_step_from(here)
    if any(step > most for step in steps):
        raise RemoteError(f"members at steps beyond {most}, seen from step {here}")


def _steps_of(seats: Seats) -> list[int]:
    return [step for seat in seats for step in (seat.start, seat.end or 0)]


_RUNNER: Final = Runner[GroupState, GroupEvent, GroupAction](
    GROUP,
    {},
    raised=(GroupEvent.LEAVE,),
    ignored=(
        GroupEvent.INSTALLED, GroupEvent.ADMITTED, GroupEvent.RELEASED, GroupEvent.FAILED,
    ),
)  # fmt: skip
