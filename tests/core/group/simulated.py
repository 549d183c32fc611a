"""Workers in lock step on a simulated network: channels that break, processes that die or freeze.

Channels keep the order of messages and lose none until they break, as real ones do; then each side
gets some of what was under way, and notices at a time of its own. What the workers compute depends,
bit by bit, on the contributions of each step and on their order. ``compute_alone`` does the same in
one process.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from random import Random
from struct import Struct
from typing import Any, Final

from sphtp.core.group.lifecycle import GroupState
from sphtp.core.group.machine import GroupMachine, GroupTerms, SeatEnded
from sphtp.core.group.messages import CONTRIBUTION, contribution_bytes, contribution_head
from sphtp.core.group.seats import Key, OnDeath
from sphtp.core.packing import Parts, pack, pack_parts, unpack
from sphtp.errors import ExcludedError, MemberDiedError, RemoteError
from sphtp.testing.network import Flight

STATE: Final = Struct("<dd")
DETECTION: Final = 10.0
"""Seconds after which a silent channel breaks."""

Field = tuple[float, float]
START: Final[Field] = (1.0, 0.5)


def contribution_of(name: str, step: int, field: Field) -> float:
    """What a worker contributes to a step."""
    return (len(name) + ord(name[-1]) * 0.37 + step * 0.001) * (1.0 + field[0] * 0.01) - field[1]


def advance(field: Field, values: Iterable[float]) -> Field:
    """Another order of the values gives other bits."""
    first, second = field
    for value in values:
        first = first * 0.87 + value * 0.013
        second = second * 0.91 - first * 0.11 + value * 0.007
    return first, second


def compute_alone(members: Sequence[Sequence[str]], field: Field = START) -> list[Field]:
    """Return the state at the beginning of each step, and at the end."""
    fields = [field]
    for step, names in enumerate(members):
        field = advance(field, [contribution_of(name, step, field) for name in names])
        fields.append(field)
    return fields


class Worker:
    """A process that joins a group and makes steps."""

    def __init__(self, world: "World", number: int, name: str) -> None:
        self.world = world
        self.id = number
        self.name = name
        self.field = START
        self.began_at: int | None = None
        self.began_field = START
        self.names: dict[int, tuple[str, ...]] = {}
        self.died: list[tuple[str, int | None]] = []
        self.members: set[Key] = set()
        """Those that it knew as the members of its step when it contributed."""
        self.links: dict[int, Worker] = {}
        self.inbox: list[tuple[Any, ...]] | None = None
        """What comes while it is frozen; None while it is not."""
        self.is_running = True
        self.is_leaving = False
        self.failure: Exception | None = None
        self.incarnation = world.draw()
        self.pause = 0.0
        self.gives_state = True
        """False while its call of ``exchange`` is cancelled: a later one gives the state."""
        self.machine = GroupMachine(world.now, self.key, self._terms())

    def _terms(self) -> GroupTerms:
        return GroupTerms(
            group="fluid",
            name=self.name,
            on_death=self.world.on_death,
            size=self.world.size,
            has_state=self.world.givers is None or self.name in self.world.givers,
        )

    @property
    def key(self) -> Key:
        return self.id, self.incarnation

    @property
    def step(self) -> int:
        return self.machine.step

    @property
    def is_out(self) -> bool:
        """True if it died or was excluded: the others went on without its last steps.

        One that was to leave while it was frozen may find that it has been excluded.
        """
        was_excluded = isinstance(self.failure, ExcludedError)
        return not self.is_running and (was_excluded or not self.is_leaving)

    @property
    def is_member(self) -> bool:
        return self.is_running and self.machine.state is GroupState.MEMBER

    def handle(self, event: tuple[Any, ...]) -> None:
        """Take an event, unless the process is frozen or dead."""
        if not self.is_running:
            return
        if self.inbox is not None:
            self.inbox.append(event)
            return
        kind, now, machine = event[0], self.world.now, self.machine
        if kind == "message":
            if event[1] in self.links:
                try:
                    machine.handle_message_untrusted(now, event[1], event[2])
                except RemoteError as error:
                    self.world.errors.append(f"{self.name}: {error}")
                    self.world.break_link(event[1])
        elif kind == "opened":
            self.links[event[1]] = event[2]
            machine.handle_link_opened(now, event[1], event[2].id)
        elif kind == "lost":
            if self.links.pop(event[1], None) is not None:
                machine.handle_link_lost(now, event[1])
        elif kind == "departed":
            machine.handle_departed(now, event[1])
        elif kind == "work":
            self._work()
        self.flush()

    def flush(self) -> None:
        """Perform what the machine wants."""
        machine, world = self.machine, self.world
        while True:
            ready = tuple(machine.ready.items())
            machine.ready.clear()
            for number, outgoing in ready:
                while outgoing:
                    data = outgoing.popleft()
                    if isinstance(data, Parts):
                        data = memoryview(data.join())
                    world.send(self, number, data)
            if machine.wants_state and self.gives_state:
                machine.give_state(pack(STATE.pack(*self.field)))
                continue
            break
        while machine.closing:
            world.close_link(self, machine.closing.popleft())
        while machine.events:
            event = machine.events.popleft()
            if isinstance(event, SeatEnded) and not event.seat.has_left:
                self.died.append((event.seat.name, event.seat.end))
        if machine.steps.results:
            done = machine.steps.results.popleft()
            values = [
                unpack(contribution_bytes(done.step, data), CONTRIBUTION.size)[0]
                for data in done.contributions
            ]
            self.names[done.step] = tuple(seat.name for seat in done.seats)
            if self.world.on_death is not OnDeath.WAIT:
                joined = {seat.key for seat in done.seats} - self.members
                self.world.errors += [
                    f"{self.name}: {key} joined step {done.step}" for key in joined
                ]
            self.field = advance(self.field, values)
            if done.step in world.triggers:
                world.trigger(done.step)
            self._work_soon()
        elif machine.state is GroupState.MEMBER and self.began_at is None:
            self.began_at = machine.step
            if machine.step == 0 and self.world.has_begun:
                self.world.errors.append(f"{self.name} began anew")
            if machine.snapshot is not None:
                first, second = STATE.unpack(unpack(machine.snapshot))
                self.field = self.began_field = first, second
            self._work_soon()
        if (due := machine.poll_timeout()) is not None:
            world.alarm(self, due)
        if machine.failure is not None and self.failure is None:
            self.failure = machine.failure
            if isinstance(self.failure, MemberDiedError):
                if self.is_leaving:
                    # It was to leave after this step, which has failed.
                    self._work()
                return
            world.ended(self)
        elif machine.has_ended and self.is_running:
            self.is_running = False

    def leave(self) -> None:
        """Leave the group as soon as the present step is over."""
        self.is_leaving = True
        if not self.machine.steps.opened:
            self._work()

    def _work_soon(self) -> None:
        if self.pause:
            self.world.later(self.pause, self, ("work",))
        else:
            self._work()

    def _work(self) -> None:
        machine = self.machine
        if self.is_leaving and (machine.failure or machine.steps.opened is None):
            machine.leave(self.world.now)
        elif machine.state is not GroupState.MEMBER or machine.steps.opened or machine.failure:
            return
        elif machine.step < self.world.last:
            self.members = {seat.key for seat in machine.members}
            value = contribution_of(self.name, machine.step, self.field)
            near = self.world.neighbours(self)
            head = contribution_head(machine.step)
            machine.contribute(pack_parts([value, self.world.padding], head), near)
        self.flush()


class World:
    """Virtual time, the channels, and who is there."""

    def __init__(self, seed: int, on_death: OnDeath, *, size: int, last: int) -> None:
        self.random = Random(seed)
        self.on_death = on_death
        self.size = size
        self.last = last
        self.now = 0.0
        self.errors: list[str] = []
        self.workers: list[Worker] = []
        self.excluded = 0
        self._flight: Flight[tuple[Worker, tuple[Any, ...]]] = Flight()
        self._links: dict[int, tuple[Worker, Worker]] = {}
        # The earliest arrival of the next message, by link and sender.
        self._arrivals: dict[tuple[int, int], float] = {}
        # From when on nothing arrives any more, by link and receiver.
        self._cuts: dict[tuple[int, int], float] = {}
        self._alarms: dict[Worker, float] = {}
        self._numbers = 0
        self.triggers: dict[int, list[Callable[[], None]]] = {}
        """What happens when somebody completes a step."""
        self.has_begun = False
        self.is_ring = self.is_alone = False
        self.givers: Container[str] | None = None
        """Who gives newcomers the state; None for all."""
        self.sent = self.largest = 0
        self.padding = b""
        """What contributions carry beside their numbers."""

    def neighbours(self, worker: Worker) -> list[Key] | None:
        """With whom a worker exchanges: the next and the one before in a ring, or all."""
        if self.is_alone:
            return []
        if not self.is_ring:
            return None
        keys = [seat.key for seat in worker.machine.members]
        place = keys.index(worker.key)
        return [keys[place - 1], keys[(place + 1) % len(keys)]]

    def draw(self) -> int:
        return self.random.getrandbits(32)

    def later(self, seconds: float, worker: Worker, event: tuple[Any, ...]) -> None:
        self._flight.add(self.now + seconds, (worker, event))

    def add(self, name: str, number: int | None = None) -> Worker:
        """Start a worker, which finds all others within a second."""
        used = {worker.id for worker in self.workers}
        while number is None or number in used:
            number = self.random.randrange(3, 4000, 2)
        worker = Worker(self, number, name)
        self.workers.append(worker)
        self._dial_all(worker)
        worker.flush()
        return worker

    def _dial_all(self, worker: Worker) -> None:
        for other in self.workers:
            if other is not worker and other.is_running:
                self._dial(worker, other, self.random.uniform(0.001, 0.5))

    def _dial(self, one: Worker, other: Worker, seconds: float) -> None:
        self._numbers += 1
        number = self._numbers
        self._links[number] = one, other
        for it, peer in ((one, other), (other, one)):
            when = self.now + seconds + self.random.uniform(0, 0.002)
            self._arrivals[number, it.id] = when
            self._flight.add(when, (it, ("opened", number, peer)))

    def send(self, sender: Worker, number: int, data: bytes | memoryview) -> None:
        self.sent += 1
        self.largest = max(self.largest, len(data))
        pair = self._links.get(number)
        if pair is None:
            return
        receiver = pair[1] if pair[0] is sender else pair[0]
        when = self.now + 0.0002 + self.random.random() * 0.0006
        where = number, receiver.id
        before = self._arrivals[where]
        if when < before:
            when = before
        self._arrivals[where] = when
        self._flight.add(when, (receiver, ("message", number, data)))

    def close_link(self, worker: Worker, number: int) -> None:
        """Close a channel behind what was sent."""
        pair = self._links.get(number)
        worker.links.pop(number, None)
        if pair is None:
            return
        other = pair[1] if pair[0] is worker else pair[0]
        when = max(self.now, self._arrivals[number, other.id]) + 0.001
        self._flight.add(when, (other, ("lost", number)))

    def break_link(self, number: int, *, gone: Worker | None = None, within: float = 3.0) -> None:
        """Break a channel: each side notices at a time of its own, and loses some messages."""
        pair = self._links.pop(number, None)
        if pair is None:
            return
        for it in pair:
            cut = self.now + self.random.choice((0.0, 0.0003, 0.0006, 0.002))
            self._cuts[number, it.id] = cut
            when = cut + self.random.uniform(0.0, within)
            self._flight.add(when, (it, ("lost", number)))
        one, other = pair
        if gone is None:
            self._flight.add(self.now + within + 1.0, (one, ("redial", other)))

    def trigger(self, step: int) -> None:
        """Let happen what the plan has for a step, within the next millisecond or two."""
        self.has_begun = True
        for action in self.triggers.pop(step):
            self.call_later(self.random.uniform(0, 0.0015), action)

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self.later(seconds, self.workers[0], ("call", action))

    def fail(self, worker: Worker) -> None:
        """End a process that can still say so."""
        worker.machine.die("an error")
        worker.flush()

    def links_of(self, worker: Worker) -> list[int]:
        return [number for number, pair in self._links.items() if worker in pair]

    def alarm(self, worker: Worker, due: float) -> None:
        if self._alarms.get(worker) != due:
            self._alarms[worker] = due
            self._flight.add(due, (worker, ("alarm", due)))

    def kill(self, worker: Worker) -> None:
        """End a process: some of its last messages arrive here and not there."""
        worker.is_running = False
        for number in self.links_of(worker):
            self.break_link(number, gone=worker)
        self._report_departed(worker, self.random.uniform(1.0, 12.0))

    def _report_departed(self, worker: Worker, seconds: float) -> None:
        for other in self.workers:
            if other.is_running and other is not worker:
                self.later(seconds, other, ("departed", worker.id))

    def freeze(self, worker: Worker, seconds: float) -> None:
        """Stop a process for a while; if that is long, its channels break."""
        if worker.inbox is not None:
            return
        worker.inbox = []
        self.later(seconds, worker, ("thaw",))
        if seconds > DETECTION:
            for number in self.links_of(worker):
                self.break_link(number, within=seconds - 1.0)
            self._report_departed(worker, self.random.uniform(1.0, seconds - 1.0))

    def cut(self, one: Worker, other: Worker) -> None:
        """Break the channel between two that both live."""
        for number in self.links_of(one):
            if other in self._links[number]:
                self.break_link(number)

    def ended(self, worker: Worker) -> None:
        """A worker that was excluded joins again, as a new one."""
        worker.is_running = False
        self.excluded += 1
        for number in self.links_of(worker):
            self.close_link(worker, number)
        # One that was excluded before it could leave is waited for.
        is_wanted = self.on_death is OnDeath.WAIT or (
            self.on_death is OnDeath.CONTINUE and not worker.is_leaving
        )
        if is_wanted and isinstance(worker.failure, ExcludedError):
            self.add(worker.name)

    def step(self) -> bool:
        """Handle the next event."""
        when = self._flight.next_time()
        if when is None:
            return False
        for worker, event in self._flight.take_due(when):
            self.now = when
            kind = event[0]
            if kind == "alarm":
                if self._alarms.get(worker) == event[1] and worker.inbox is None:
                    del self._alarms[worker]
                    if worker.is_running:
                        worker.machine.handle_timeout(when)
                        worker.flush()
            elif kind == "thaw":
                inbox, worker.inbox = worker.inbox or [], None
                for one in inbox:
                    worker.handle(one)
                if worker.is_running:
                    worker.machine.handle_timeout(when)
                    worker.flush()
            elif kind == "call":
                event[1]()
            elif kind == "redial":
                if worker.is_running and event[1].is_running:
                    self._dial(worker, event[1], 0.01)
            elif self._cuts and kind == "message":
                cut = self._cuts.get((event[1], worker.id))
                if cut is None or when < cut:
                    worker.handle(event)
            else:
                worker.handle(event)
        return True

    def run(self, until: Any, seconds: float = 5000.0) -> None:
        """Run until a condition holds; raises after so many seconds of virtual time."""
        deadline = self.now + seconds
        while not until():
            # Asking costs more than an event.
            is_going_on = all(self.step() for _ in range(50))
            if (not is_going_on and not until()) or self.now > deadline:
                raise AssertionError(f"stuck at {self.now:.3f}: {self.describe()}")

    def describe(self) -> str:
        return "; ".join(
            f"{it.name}({it.id}) {it.machine.state.name} step {it.step} "
            f"open {it.machine.steps.opened is not None} "
            f"running {it.is_running} frozen {it.inbox is not None} failure {it.failure!r}"
            for it in self.workers
        )

    @property
    def healthy(self) -> list[Worker]:
        """Those who can agree on something now."""
        return [it for it in self.workers if it.is_member and it.inbox is None and not it.failure]

    @property
    def present(self) -> list[Worker]:
        return [it for it in self.workers if it.is_running]


def agreed_names(workers: Iterable[Worker]) -> list[tuple[str, ...]]:
    """Return who was in each step; fail where two of these workers differ.

    Of one that died or was excluded, the last steps do not count: what the others agreed on without
    it, it cannot know.
    """
    names: dict[int, tuple[str, ...]] = {}
    for worker in workers:
        last = max(worker.names, default=-1) - 2 if worker.is_out else len(worker.names) + 10**6
        for step, those in worker.names.items():
            if step <= last:
                assert names.setdefault(step, those) == those, (step, worker.name, worker.died)
    return [names[step] for step in range(len(names))]
