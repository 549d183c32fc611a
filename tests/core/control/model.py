"""Two clients that want one id, two servers, and every order of messages between them.

The real machines run; only the network is a model: FIFO per link, any order across links. What a
machine does depends on what it holds and on its input alone, so each such step is computed once,
by a machine that replays its own inputs, and the search walks over the results.
"""

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import decode_message_untrusted
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.registry import ReservedIds
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_messages import IdAck
from sphtp.core.control.vocabulary import Command
from tests.core.control.model_world import CLIENTS, NAMES, REPEAT, SERVERS, Link, World

BELIEVERS = frozenset((ClientState.ESTABLISHED, ClientState.SUSPENDED, ClientState.RESUMING))
DECIDING = frozenset(
    (
        Command.ANNOUNCE,
        Command.ACK,
        Command.NACK,
        Command.LEAVE,
        Command.REGISTERED,
        Command.RELEASED,
    )
)
Links = dict[Link, tuple[bytes, ...]]


class Moment(NamedTuple):
    """What all machines hold, by number, and what is on its way."""

    holds: tuple[int, ...]
    links: tuple[tuple[Link, tuple[bytes, ...]], ...]
    budget: tuple[int, ...]
    """Announcements that X and Y may still repeat, and messages that may still be lost."""


class Explorer:
    """Walks over every moment that some order of messages leads to."""

    def __init__(self, lower: str, *, repeats: int = 0, losses: int = 0) -> None:
        self.lower = lower
        self.moments = 0
        self._budget = (repeats, repeats, losses)
        self._world = World(lower)
        self._nonces = {name: self._world.machines[name].nonce for name in CLIENTS}
        self._numbers: dict[Hashable, int] = {}
        self._histories: list[tuple[bytes, ...]] = []
        self._prints: list[Any] = []
        self._steps: dict[tuple[str, int, bytes], tuple[int, Links]] = {}

    def ends(self) -> Iterator[Moment]:
        """Yield each moment in which nothing is on its way; check every moment passed."""
        start = Moment(
            tuple(self._number(name, self._world, ()) for name in NAMES),
            tuple((link, tuple(queue)) for link, queue in sorted(self._world.links.items())),
            self._budget,
        )
        seen, stack = {start}, [start]
        while stack:
            moment = stack.pop()
            self._check(moment)
            following = list(self._after(moment))
            if not following:
                yield moment
            for after in following:
                if after not in seen:
                    seen.add(after)
                    stack.append(after)
        self.moments = len(seen)

    def rebuild(self, moment: Moment) -> World:
        """Return a world of real machines that hold what the moment says."""
        world = World(self.lower)
        world.links.clear()
        for name, number in zip(NAMES, moment.holds, strict=True):
            for data in self._histories[number]:
                world.feed(name, data)
            world.drain(name)
        return world

    def states(self, moment: Moment) -> tuple[ClientState, ...]:
        return tuple(self._prints[number][1] for number in moment.holds[: len(CLIENTS)])

    def _check(self, moment: Moment) -> None:
        owners = [state in BELIEVERS for state in self.states(moment)]
        assert not all(owners), "two clients believe to own one id"

    def _after(self, moment: Moment) -> Iterator[Moment]:
        links = dict(moment.links)
        for link, queue in moment.links:
            rest = {**links, link: queue[1:]}
            yield self._step(moment.holds, link[1], queue[0], rest, moment.budget)
            if moment.budget[-1]:
                yield self._settle(moment.holds, rest, _spend(moment.budget, -1))
        for index, name in enumerate(CLIENTS):
            announcing = self.states(moment)[index] is ClientState.ANNOUNCING
            if announcing and moment.budget[index]:
                yield self._step(moment.holds, name, REPEAT, links, _spend(moment.budget, index))

    def _step(
        self,
        holds: tuple[int, ...],
        name: str,
        data: bytes,
        links: Links,
        budget: tuple[int, ...],
    ) -> Moment:
        index = NAMES.index(name)
        number, said = self._transition(name, holds[index], data)
        after = (*holds[:index], number, *holds[index + 1 :])
        for link, queue in said.items():
            links = {**links, link: links.get(link, ()) + queue}
        return self._settle(after, links, budget)

    def _settle(self, holds: tuple[int, ...], links: Links, budget: tuple[int, ...]) -> Moment:
        for client, held in zip(CLIENTS, holds, strict=False):
            # Whoever withdrew hears no answer, as long as time stands still.
            if self._prints[held][3] == 0:
                links = {link: queue for link, queue in links.items() if link[1] != client}
        kept = tuple((link, queue) for link, queue in sorted(links.items()) if queue)
        return Moment(holds, kept, budget)

    def _transition(self, name: str, number: int, data: bytes) -> tuple[int, Links]:
        key = name, number, data
        if key not in self._steps:
            world = World(self.lower)
            history = (*self._histories[number], data)
            for each in history:
                world.drain(name)
                world.feed(name, each)
            said: Links = {}
            for target, message in world.drain(name):
                if self._matters(target, message):
                    said[name, target] = (*said.get((name, target), ()), message)
            self._steps[key] = self._number(name, world, history), said
        return self._steps[key]

    def _number(self, name: str, world: World, history: tuple[bytes, ...]) -> int:
        machine = world.machines[name]
        if name in CLIENTS:
            mark = _client_print(name, machine)
        else:
            mark = _server_print(name, machine, world.registries[name].reserved)
        if mark not in self._numbers:
            self._numbers[mark] = len(self._histories)
            self._histories.append(history)
            self._prints.append(mark)
        return self._numbers[mark]

    def _matters(self, target: str, data: bytes) -> bool:
        """Leave out what decides nothing, and answers to the other nonce: nobody reads them."""
        if decode_message_untrusted(data).command not in DECIDING:
            return False
        if target in SERVERS:
            return True
        answer: Any = MessageReader(ControlCounters(), for_client=True).take(data)
        holders = answer.holders if isinstance(answer, IdAck) else [answer]
        return any(holder.nonce == self._nonces[target] for holder in holders)


def _spend(budget: tuple[int, ...], index: int) -> tuple[int, ...]:
    left = list(budget)
    left[index] -= 1
    return tuple(left)


def _client_print(name: str, machine: ClientMachine) -> Hashable:
    alarms = frozenset(machine.alarms.pending())
    return name, machine.state, machine.id, machine.nonce, machine.acknowledged_by, alarms


def _server_print(name: str, machine: ServerMachine, reserved: ReservedIds) -> Hashable:
    told_by = {client["id"]: client["told_by"] for client in machine.status()["clients"]}
    return (
        name,
        frozenset((number, r.nonce, told_by[number]) for number, r in machine.clients.items()),
        frozenset((number, reserved.find(0.0, number)) for number in tuple(reserved)),
    )
