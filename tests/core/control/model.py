"""Every order of messages, and of faults, in a small cluster where two clients want one id.

The real machines run. Only the network and time are models:

- A link is a queue. A message on it arrives, is lost, or arrives twice; one link keeps its order,
  as a connection does, and between links there is no order.
- A tick lets one heartbeat of time pass at every node. Within a tick every message arrives or is
  lost, but for the ticks in ``Case.delays``, which may pass while messages are on their way.
- A fault may happen at any moment, as often as the case allows.

A moment is the state of every node, and what is on its way. The search begins in one moment and
walks over all that follow from it, each once: so a rule that holds in each of them holds in every
run of the case. The rules are these:

1. **One owner.** No two clients believe that they own one id. While the network is divided, both
   may, each with servers of its own side; their views share no server then. When it is whole again
   they may for ``GRACE`` ticks, until both sides have heard each other. If only the messages of one
   direction are lost, their views may share a server; then they are not both established, for one
   knows that no server has confirmed the id.
2. **It stays owned.** An id whose owner does not leave has an owner at any time: no fault of the
   network, and no restart, takes it from a client unless another one has it. A network that was
   divided for two expiries is an exception: of two owners that meet both may lose the id.
3. **In the end all agree.** When nothing goes wrong any more, each client gets an id of its own.
   Every server is active, and has these clients and no others on its list. The search tries that
   from each moment in which nothing is on its way. Each other moment leads to such a one.

A node's next step depends on its state and its input alone. So each such step is computed once, by
a machine that replays its inputs, and the search walks over numbers: of states, and of messages. If
two histories lead to one state, each step from there is computed by both, and has to be the same.

The search remembers the moments that it has passed by their hashes of 64 bits. Two of ten million
moments have one hash in one of 370,000 searches; then the later one is not walked over.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from sphtp.core.control.client_table import ClientState
from sphtp.core.control.records import Holder
from sphtp.core.control.server_table import ServerState
from tests.core.control.model_world import (
    BELIEVERS,
    CLIENTS,
    EXPIRY,
    WANTED,
    Given,
    Input,
    Node,
    World,
    describe_input,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small case: its nodes, and the faults that may happen, each at any moment."""

    name: str
    servers: str = "AB"
    late: str = ""
    """The servers that are not there at first; each may join."""
    has_announced: bool = True
    """False if no client has heard of a server at first."""
    is_established: bool = False
    """True if the first client owns the id before anything happens."""
    lower: str = "X"
    """The client with the lower nonce."""
    wishes: int = 2
    """The times that each client draws the same id before it draws one of its own."""
    foreign_answers: bool = False
    """True if an answer with the nonce of one client reaches the other client, too. It has no
    effect, so the other cases leave these answers out."""
    ticks: int = 0
    delays: int = 0
    """The ticks that may pass while messages are on their way."""
    losses: int = 0
    duplicates: int = 0
    restarts: int = 0
    leaves: int = 0
    compactions: int = 0
    """The times that a store forgets earlier changes, if there is one."""
    partition: str = ""
    """The nodes of one side of a network that may divide once, and heals."""
    is_one_way: bool = False
    """True if only the messages from that side are lost, and those to it arrive."""
    most: int | None = None
    """The moments after which the search ends; None if it is to pass all of them."""
    divided_before: int = 0
    """The ticks for which the network has been divided before the second client comes."""

    def stays_owned(self, too_long: int) -> bool:
        """Return True if the id has an owner from the first moment on.

        A network that is divided for too long, in ticks, takes it away.
        """
        is_long = bool(self.partition) and self.ticks + self.divided_before >= too_long
        return self.is_established and not self.leaves and not is_long


class Budget(NamedTuple):
    """The faults that may still happen."""

    ticks: int
    delays: int
    losses: int
    duplicates: int
    restarts: int
    leaves: int
    compactions: int
    late: str
    network: int
    """Minus one before the network divides, 0 while it is divided; else the ticks since."""


Links = tuple[tuple[int, ...], ...]


class Moment(NamedTuple):
    """The state of every node, by number, and what is on its way."""

    nodes: tuple[int, ...]
    links: Links
    budget: Budget


class Facts(NamedTuple):
    """The part of a node's state that the rules speak of."""

    state: ClientState | ServerState
    owned: Holder | None
    """The id that a client believes to own."""
    view: frozenset[int]
    """The servers of a client's view."""
    listed: frozenset[Holder]
    """The clients on a server's list."""


Step = tuple[str, int]
"""The kind of a step, and the number of its link or node; 0 if it has neither."""
Sends = tuple[tuple[int, tuple[int, ...]], ...]
History = tuple[str, int, tuple[Given, ...]]
"""The name of a node, the number of its start, and its inputs since then."""


class ViolationError(AssertionError):
    """A moment that breaks a rule. ``way`` leads there: see ``Explorer.replay``."""

    def __init__(self, rule: str, way: tuple[int, ...]) -> None:
        super().__init__(f"{rule}, after {len(way)} steps")
        self.way = way


class AbstractionError(AssertionError):
    """Two histories with one state, and one input that leads to different ones."""


CONNECTED: Final = 0
TICK: Final = -1
LEAVE: Final = -2
COMPACT: Final = -3
ABSENT: Final = -1
_GIVEN: Final = {TICK: Input.TICK, LEAVE: Input.LEAVE, COMPACT: Input.COMPACT}

GRACE: Final = 3
"""The ticks in which two owners may meet after the network was divided. In the first, both sides
hear each other; in the second, each client announces its id to all servers; their answers arrive
before the third."""
MOST_TICKS: Final = 12 * EXPIRY
"""The ticks within which all have to agree once there are no more faults."""


_MOST_KEPT: Final = 256
"""The latest machines are kept: often the next step is one of theirs, and nothing is replayed."""


class Explorer:
    """Walks over every moment of a case, and checks each."""

    others = ""
    """The nodes that are neither clients nor servers; they come last."""
    too_long = 2 * EXPIRY
    """The ticks of a divided network after which an owner may lose its id."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.moments = 0
        """The moments passed so far."""
        self.ends = 0
        """Those of them in which nothing is on its way."""
        self.depth = 0
        """The most steps from the first moment."""
        self.names = CLIENTS + case.servers + case.late + self.others
        self._end_of_servers = len(self.names) - len(self.others)
        self._world = World(
            case.servers, case.late, case.lower, case.wishes, foreign_answers=case.foreign_answers
        )
        self._ways = [
            (one, other)
            for one in self.names
            for other in self.names
            if one != other and self._are_linked(one, other)
        ]
        self._link = {way: index for index, way in enumerate(self._ways)}
        self._to = [self.names.index(target) for _, target in self._ways]
        sides = [(one in case.partition, other in case.partition) for one, other in self._ways]
        self._is_cut = [one > other if case.is_one_way else one != other for one, other in sides]
        self._messages: list[Given] = [Input.CONNECTED]
        self._message_numbers: dict[bytes, int] = {}
        self._numbers: dict[Hashable, int] = {}
        self._histories: list[History] = []
        self._facts: list[Facts] = []
        self._owned: list[int] = []
        self._steps: dict[tuple[int, int], tuple[int, Sends]] = {}
        self._first: dict[tuple[str, int], tuple[int, Sends]] = {}
        self._kept: dict[History, Node] = {}
        self._inputs: dict[int, list[int]] = {}
        self._twins: dict[int, History] = {}
        self._unchecked: list[tuple[int, int]] = []
        self._settled = set[int]()
        self._stays_owned = case.stays_owned(self.too_long)
        self._start = self._first_moment()

    def run(self) -> None:
        """Walk over all moments. Raises ``ViolationError``."""
        seen = {hash(self._start)}
        path = [self._start]
        branches = [self._after(self._start)]
        while branches and (self.case.most is None or self.moments < self.case.most):
            _, after = next(branches[-1], _NOTHING)
            if after is None:
                branches.pop()
                path.pop()
                continue
            mark = hash(after)
            if mark in seen:
                continue
            seen.add(mark)
            self.moments = len(seen)
            path.append(after)
            branches.append(self._after(after))
            self.depth = max(self.depth, len(path))
            self._check(path)

    def hunt(self, chance: Random, ways: int) -> None:
        """Walk some random ways to their ends. Raises ``ViolationError``.

        Where there are violations, this finds one sooner than ``run``, and a shorter way to it.
        """
        for _ in range(ways):
            path = [self._start]
            while following := [after for _, after in self._after(path[-1])]:
                path.append(chance.choice(following))
                self.moments += 1
                self.depth = max(self.depth, len(path))
                self._check(path)

    def replay(self, way: Sequence[int]) -> Iterator[str]:
        """Yield a line for each step of a way: of those possible, the one with this index."""
        moment = self._start
        for branch in way:
            before = moment
            step, moment = list(self._after(before))[branch]
            changed = [
                self._describe_node(number)
                for old, number in zip(before.nodes, moment.nodes, strict=True)
                if old != number
            ]
            yield f"{self._describe_step(step, before):<44} {'; '.join(changed)}"

    # What another kind of cluster changes

    def _make(self, name: str, start: int) -> Node:
        return Node(name, start, self._world)

    def _are_linked(self, one: str, other: str) -> bool:
        return not (one in CLIENTS and other in CLIENTS)

    def _is_bus(self, way: tuple[str, str]) -> bool:
        return True

    # The rules

    def _check(self, path: list[Moment]) -> None:
        moment = path[-1]
        if (rule := self._broken_rule(moment)) is not None:
            raise ViolationError(rule, self._way(path))
        if not any(moment.links):
            self.ends += 1
            if (rule := self._broken_rule_later(moment)) is not None:
                rule = f"{rule}, later"
                raise ViolationError(rule, self._way(path))

    def _broken_rule(self, moment: Moment) -> str | None:
        nodes, network = moment.nodes, moment.budget.network
        one, other = self._owned[nodes[0]], self._owned[nodes[1]]
        if one and one == other:
            if network < 0 or network > GRACE:
                return "two clients own one id"
            x, y = (self._facts[number] for number in nodes[: len(CLIENTS)])
            if self.case.is_one_way:
                if x.state is y.state is ClientState.ESTABLISHED:
                    return "two clients are established with one id"
            elif network == 0 and x.view & y.view:
                return "two clients of one server own one id"
        if self._stays_owned and WANTED not in (one, other):
            return "an owned id has no owner any more"
        return None

    def _broken_rule_later(self, moment: Moment) -> str | None:
        passed: list[int] = []
        if moment.budget.network == 0:
            moment = self._heal(moment)
        for _ in range(MOST_TICKS):
            while any(moment.links):
                link = next(index for index, queue in enumerate(moment.links) if queue)
                moment = self._deliver(moment, link)
                if (rule := self._broken_rule(moment)) is not None:
                    return rule
            mark = hash((moment.nodes, moment.budget.network))
            if mark in self._settled or self._is_settled(moment):
                self._settled.update(passed, (mark,))
                return None
            passed.append(mark)
            moment = self._tick(moment)
        return "not all agree"

    def _is_settled(self, moment: Moment) -> bool:
        facts = [self._facts[number] for number in moment.nodes if number != ABSENT]
        clients, servers = facts[: len(CLIENTS)], facts[len(CLIENTS) : self._end_of_servers]
        staying = [it for it in clients if it.state is not ClientState.LEFT]
        owned = frozenset(it.owned for it in staying if it.owned is not None)
        return (
            all(it.state is ClientState.ESTABLISHED for it in staying)
            and len({it.id for it in owned}) == len(staying)
            and all(it.state is ServerState.ACTIVE and it.listed == owned for it in servers)
        )

    # The steps

    def _after(self, moment: Moment) -> Iterator[tuple[Step, Moment]]:
        budget, links = moment.budget, moment.links
        is_quiet = True
        for link, queue in enumerate(links):
            if not queue:
                continue
            is_quiet = False
            yield ("deliver", link), self._deliver(moment, link)
            if queue[0] == CONNECTED or not self._is_bus(self._ways[link]):
                continue
            if budget.losses:
                rest = (*links[:link], queue[1:], *links[link + 1 :])
                spent = budget._replace(losses=budget.losses - 1)
                yield ("lose", link), Moment(moment.nodes, rest, spent)
            if budget.duplicates:
                spent = budget._replace(duplicates=budget.duplicates - 1)
                copied = moment._replace(budget=spent)
                yield ("duplicate", link), self._give(copied, self._to[link], queue[0])
        if budget.ticks and (is_quiet or budget.delays):
            delays = budget.delays - (not is_quiet)
            spent = budget._replace(ticks=budget.ticks - 1, delays=delays)
            yield ("tick", 0), self._tick(moment._replace(budget=spent))
        if budget.restarts:
            spent = budget._replace(restarts=budget.restarts - 1)
            for index in range(len(CLIENTS), self._end_of_servers):
                if moment.nodes[index] != ABSENT:
                    yield ("restart", index), self._begin(moment._replace(budget=spent), index)
        if budget.late:
            spent = budget._replace(late=budget.late[1:])
            index = self.names.index(budget.late[0])
            yield ("join", index), self._begin(moment._replace(budget=spent), index)
        if budget.leaves and self._owned[moment.nodes[0]]:
            spent = budget._replace(leaves=budget.leaves - 1)
            yield ("leave", 0), self._give(moment._replace(budget=spent), 0, LEAVE)
        if budget.compactions:
            spent = budget._replace(compactions=budget.compactions - 1)
            last = len(moment.nodes) - 1
            yield ("compact", last), self._give(moment._replace(budget=spent), last, COMPACT)
        if self.case.partition and is_quiet:
            if budget.network == -1:
                yield ("divide", 0), moment._replace(budget=budget._replace(network=0))
            elif budget.network == 0:
                yield ("heal", 0), self._heal(moment)

    def _deliver(self, moment: Moment, link: int) -> Moment:
        return self._give(moment, self._to[link], moment.links[link][0], link)

    def _tick(self, moment: Moment) -> Moment:
        for index, number in enumerate(moment.nodes):
            if number != ABSENT:
                moment = self._give(moment, index, TICK)
        network = moment.budget.network
        if 0 < network <= GRACE:
            moment = moment._replace(budget=moment.budget._replace(network=network + 1))
        return moment

    def _heal(self, moment: Moment) -> Moment:
        links = list(moment.links)
        for link, is_cut in enumerate(self._is_cut):
            if is_cut and not self.case.is_one_way and self._is_bus(self._ways[link]):
                links[link] = (*links[link], CONNECTED)
        return Moment(moment.nodes, tuple(links), moment.budget._replace(network=1))

    def _begin(self, moment: Moment, index: int) -> Moment:
        """Start a node, or start it again: all that was on its way from and to it is lost."""
        name = self.names[index]
        old = moment.nodes[index]
        start = 0 if old == ABSENT else self._histories[old][1] + 1
        links = list(moment.links)
        for link, way in enumerate(self._ways):
            if name in way:
                other = moment.nodes[self.names.index(way[0] if way[1] == name else way[1])]
                is_cut = moment.budget.network == 0 and self._is_cut[link]
                is_silent = other == ABSENT or is_cut or not self._is_bus(way)
                links[link] = () if is_silent else (CONNECTED,)
        if (name, start) not in self._first:
            node = self._make(name, start)
            sends = self._sends(node)
            self._first[name, start] = self._number(node, (name, start, ())), sends
        number, sends = self._first[name, start]
        nodes = (*moment.nodes[:index], number, *moment.nodes[index + 1 :])
        return Moment(nodes, self._sent(nodes, links, moment.budget, sends), moment.budget)

    def _give(self, moment: Moment, index: int, given: int, link: int | None = None) -> Moment:
        """Give a node an input: the first message on a link, unless ``link`` is None."""
        # Nearly all time is spent here and in ``_step``.
        nodes, links, budget = moment
        number, sends = self._step(nodes[index], given)
        if number != nodes[index]:
            nodes = (*nodes[:index], number, *nodes[index + 1 :])
        after = list(links)
        if link is not None:
            after[link] = after[link][1:]
        return Moment(nodes, self._sent(nodes, after, budget, sends), budget)

    def _sent(
        self, nodes: tuple[int, ...], links: list[tuple[int, ...]], budget: Budget, sends: Sends
    ) -> Links:
        for link, messages in sends:
            is_cut = budget.network == 0 and self._is_cut[link]
            if nodes[self._to[link]] != ABSENT and not is_cut:
                links[link] += messages
        return tuple(links)

    # The steps of single nodes

    def _step(self, number: int, given: int) -> tuple[int, Sends]:
        known = self._steps.get((number, given))
        if known is None:
            known = self._steps[number, given] = self._compute(self._histories[number], given)
            self._inputs.setdefault(number, []).append(given)
            self._unchecked.append((number, given))
            self._check_twins()
        return known

    def _compute(self, history: History, given: int) -> tuple[int, Sends]:
        name, start, inputs = history
        node = self._kept.pop(history, None) or self._replayed(history)
        it = self._messages[given] if given >= 0 else _GIVEN[given]
        node.take(it)
        sends = self._sends(node)
        after = name, start, (*inputs, it)
        self._kept[after] = node
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return self._number(node, after), sends

    def _replayed(self, history: History) -> Node:
        name, start, inputs = history
        node = self._make(name, start)
        node.drain()
        for given in inputs:
            node.take(given)
            node.drain()
        return node

    def _number(self, node: Node, history: History) -> int:
        mark = history[1], node.print()
        number = self._numbers.get(mark)
        if number is None:
            number = self._numbers[mark] = len(self._histories)
            facts = _facts(node)
            self._histories.append(history)
            self._facts.append(facts)
            self._owned.append(0 if facts.owned is None else facts.owned.id)
        elif number not in self._twins and history != self._histories[number]:
            self._twins[number] = history
            self._unchecked += [(number, given) for given in self._inputs.get(number, ())]
        return number

    def _check_twins(self) -> None:
        """Check that the other history of a state leads to the same step."""
        while self._unchecked:
            number, given = self._unchecked.pop()
            twin = self._twins.get(number)
            if twin is not None and self._compute(twin, given) != self._steps[number, given]:
                it = self._describe_input(given)
                raise AbstractionError(f"{self._describe_node(number)}, given {it}")

    def _sends(self, node: Node) -> Sends:
        sends: dict[int, tuple[int, ...]] = {}
        for target, data in node.drain():
            link = self._link.get((node.name, target))
            if link is not None:
                sends[link] = (*sends.get(link, ()), self._number_of(data))
        return tuple(sends.items())

    def _number_of(self, data: bytes) -> int:
        number = self._message_numbers.setdefault(data, len(self._messages))
        if number == len(self._messages):
            self._messages.append(data)
        return number

    # The first moment

    def _first_moment(self) -> Moment:
        """Return the moment in which the clients have announced, or are about to hear servers.

        The servers agree on their view."""
        case = self.case
        budget = Budget(
            case.ticks,
            case.delays,
            case.losses,
            case.duplicates,
            case.restarts,
            case.leaves,
            case.compactions,
            case.late,
            -1,
        )
        moment = Moment((ABSENT,) * len(self.names), ((),) * len(self._ways), budget)
        servers = range(len(CLIENTS), len(CLIENTS + case.servers))
        for index in (*range(self._end_of_servers, len(self.names)), *servers):
            moment = self._begin(moment, index)
        for _ in range(2):
            moment = self._tick(self._quiet(moment))
        moment = self._begin(self._quiet(moment), 0)
        if case.is_established:
            moment = self._quiet(self._tick(self._quiet(moment)))
            assert self._owned[moment.nodes[0]] == WANTED
        if case.divided_before:
            moment = moment._replace(budget=budget._replace(network=0))
            for _ in range(case.divided_before):
                moment = self._quiet(self._tick(moment))
        moment = self._tick(self._quiet(self._begin(moment, 1)))
        return self._quiet(moment, but_for=CLIENTS) if case.has_announced else moment

    def _quiet(self, moment: Moment, but_for: str = "") -> Moment:
        """Deliver all messages, but for those of some nodes."""
        senders = [one for one, _ in self._ways]
        while links := [
            link
            for link, queue in enumerate(moment.links)
            if queue and senders[link] not in but_for
        ]:
            moment = self._deliver(moment, links[0])
        return moment

    # Words for people

    def _way(self, path: Iterable[Moment]) -> tuple[int, ...]:
        return tuple(
            next(index for index, (_, it) in enumerate(self._after(before)) if it == after)
            for before, after in pairwise(path)
        )

    def _describe_step(self, step: Step, before: Moment) -> str:
        kind, index = step
        if kind in ("deliver", "lose", "duplicate"):
            one, other = self._ways[index]
            return f"{kind} {one} to {other}: {self._describe_input(before.links[index][0])}"
        has_node = kind in ("restart", "join", "leave", "compact")
        return f"{kind} {self.names[index]}" if has_node else kind

    def _describe_input(self, given: int) -> str:
        return describe_input(self._messages[given] if given >= 0 else _GIVEN[given])

    def _describe_node(self, number: int) -> str:
        name, start, _ = self._histories[number]
        state, owned, _, listed = self._facts[number]
        holders = sorted(listed) if owned is None else [owned]
        held = ", ".join(f"{holder.id} (nonce {holder.nonce})" for holder in holders)
        return f"{name}{start or ''} {state.value} {held}".rstrip()


_NOTHING: Final = (("", 0), None)


def _facts(node: Node) -> Facts:
    machine = node.machine
    if not hasattr(machine, "state"):
        return Facts(ServerState.ACTIVE, None, frozenset(), frozenset())
    if node.name in CLIENTS:
        owned = Holder(machine.id, machine.nonce) if machine.state in BELIEVERS else None
        view = frozenset(member.id for member in machine.view.members)
        return Facts(machine.state, owned, view, frozenset())
    listed = frozenset(Holder(record.id, record.nonce) for record in machine.clients.values())
    return Facts(machine.state, None, frozenset(), listed)
