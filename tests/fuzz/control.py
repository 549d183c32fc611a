"""A server and a client of the control plane, told whatever may come over the bus.

Whatever comes, they raise nothing, come to an end with what they say, are woken for nothing never,
and hold no more than their limits.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_messages import Announce, ClientData, Heartbeat, Leave, Lookup
from sphtp.core.control.codec import Message, Parameter
from sphtp.core.control.interest import group_topic
from sphtp.core.control.records import MAX_MEMBERS, Candidate, Digest, Holder, PeerRecord, Watch
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_messages import IdAck, IdNack, Peers
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.control.vocabulary import Command, DataId, Reason
from sphtp.errors import LocalError
from sphtp.testing.cluster import SimulatedCluster, server_address
from tests.core.control.samples import FROM_CLIENT, FROM_MEMBER, FROM_SERVER, GROUPS, TOPICS
from tests.fuzz.choices import Choices
from tests.fuzz.mutations import EDGES, mutate

Machine = ServerMachine | ClientMachine

LIMITS: Final = ServerLimits(max_clients=4)
MOST_SAID: Final = 2000
WAITS: Final = (0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 11.0, 100.0)
SENDERS: Final = (0, 1, 2, 4, 7, 8, 9, 99, 2**32 - 1, 2**32 - 2)
KEPT: Final = 64


class Lodge:
    """A machine, and what it is told; ``step`` does one thing out of all that may happen."""

    def __init__(self, choices: Choices, machine: Machine) -> None:
        self.now = 100.0
        self.machine = machine
        self.inputs = 0
        self._choices = choices
        self._said: list[bytes] = []
        machine.handle_start(self.now)
        self._settle()

    def step(self) -> None:
        """Let one thing happen, and see that the machine is well."""
        self._choices.pick(HAPPENINGS)(self)
        self._settle()

    # What may happen

    def hear_known(self) -> None:
        """A message that was said once somewhere."""
        self._hear(self._choices.pick(overheard()))

    def hear_changed(self) -> None:
        """One that was changed."""
        self._hear(mutate(self._choices, self._choices.pick(overheard()), overheard()))

    def hear_answer(self) -> None:
        """What the machine said itself comes back, from others or in part."""
        if self._said:
            self._hear(mutate(self._choices, self._choices.pick(self._said), overheard()))

    def hear_addressed(self) -> None:
        """Any command, about the ids that matter here."""
        choices = self._choices
        ids = (*SENDERS, self.machine.id)
        sender = choices.pick(ids)
        to = sender if choices.below(2) else choices.pick((0, *ids))
        parameters = [self._parameter() for _ in range(choices.below(5))]
        command = choices.pick((*Command, 0x0100, 0xFFFF))
        self._hear(Message(to, sender, command, tuple(parameters)).encode())

    def hear_what_it_hopes(self) -> None:
        """A server: that a client wants an id, or has it still. A client: that its id is good."""
        if isinstance(self.machine, ClientMachine):
            hope = client_hopes(self._choices, self.machine)
        else:
            hope = server_hopes(self._choices)
        self._hear(hope.encode())

    def hear_noise(self) -> None:
        """Bytes."""
        self._hear(self._choices.some_bytes(100))

    def wait(self) -> None:
        """Time passes, and perhaps nobody is woken in time."""
        self.now += self._choices.pick(WAITS)
        if self._choices.below(4):
            self.machine.handle_timeout(self.now)

    def wait_for_timer(self) -> None:
        """Time passes until something is due."""
        due = self.machine.poll_timeout()
        if due is not None:
            self.now = max(self.now, due)
            self.machine.handle_timeout(self.now)

    def connect(self) -> None:
        """The bus says that a connection came up."""
        self.machine.handle_connected(self.now)

    def command(self) -> None:
        """The application wants something; it is told so if that cannot be."""
        choices = self._choices
        wish = choices.pick(SERVER if isinstance(self.machine, ServerMachine) else CLIENT)
        with suppress(LocalError):
            wish(self.machine, self.now, choices)

    # How it happens

    def _hear(self, data: bytes) -> None:
        self.inputs += 1
        self.machine.handle_message(self.now, data)

    def _parameter(self) -> Parameter:
        choices = self._choices
        number = choices.pick(EDGES)
        value = choices.pick(
            (
                number.to_bytes(8, "little"),
                (number & 0xFFFFFFFF).to_bytes(4, "little"),
                (number & 0xFF).to_bytes(1, "little"),
                b"tcp://127.0.0.1:8766",
            )
        )
        return Parameter(
            choices.pick(tuple(DataId)), value if choices.below(4) else choices.some_bytes(40)
        )

    def _settle(self) -> None:
        machine = self.machine
        for poll in (machine.poll_bus, machine.poll_transmit, machine.poll_event):
            self._drain(poll)
        machine.handle_timeout(self.now)
        self._drain(machine.poll_transmit)
        due = machine.poll_timeout()
        assert due is None or due > self.now, f"due at {due}, busy at {self.now}"
        if isinstance(machine, ServerMachine):
            assert len(machine.clients) <= LIMITS.max_clients
        assert len(machine.view.members) <= MAX_MEMBERS

    def _drain(self, poll: Callable[[], Any]) -> None:
        for _ in range(MOST_SAID):
            said = poll()
            if said is None:
                return
            if (data := getattr(said, "data", said)) and isinstance(data, bytes):
                self._said = [*self._said[-KEPT:], data]
        raise AssertionError(f"still talking after {MOST_SAID} messages at {self.now} s")


def server_hopes(choices: Choices) -> Any:
    """An honest client, one of more than there is room for."""
    client, nonce = 2 * choices.below(2 * LIMITS.max_clients) + 3, 1 + choices.below(2)
    if not choices.below(4):
        topics, groups = TOPICS[: choices.below(3)], GROUPS[: choices.below(3)]
        revision, data = 1 + choices.below(3), bytes(choices.below(100))
        return ClientData(client, nonce, revision, data, topics, groups)
    if not choices.below(8):
        watches = tuple(Watch(group_topic(group), Digest(1, 1)) for group in GROUPS)
        return Lookup(client, nonce, None, None, (*watches, Watch(client, Digest(1, 1))))
    return choices.pick((Announce, Announce, Heartbeat, Heartbeat, Leave, Lookup))(client, nonce)


def client_hopes(choices: Choices, machine: ClientMachine) -> Any:
    """An honest server."""
    servers = (*machine.servers, 4, 8)
    kind = choices.below(3)
    if kind == 0:
        return IdAck(choices.pick(servers), (Holder(machine.id, machine.nonce),))
    if kind == 1:
        return IdNack(choices.pick(servers), machine.id, machine.nonce, choices.pick(tuple(Reason)))
    known = PeerRecord(2 * choices.below(100) + 3, 9, (), bytes(choices.below(100)), 3)
    return Peers(choices.pick(servers), 0, (known,))


def make_server() -> ServerMachine:
    """A server of a cluster of two that has no news of the other."""
    return ServerMachine(
        random.Random(1),
        ControlTimers(),
        secrets=random.Random(2),
        address=server_address(0),
        join=[server_address(1)],
        new_cluster=True,
        limits=LIMITS,
    )


def make_joining_server() -> ServerMachine:
    """A server that comes back, and does not know who its clients are."""
    return ServerMachine(
        random.Random(1),
        ControlTimers(),
        secrets=random.Random(2),
        address=server_address(0),
        join=[server_address(1)],
        limits=LIMITS,
    )


def make_client() -> ClientMachine:
    """A client of two servers."""
    return ClientMachine(
        random.Random(1),
        ControlTimers(),
        secrets=random.Random(2),
        servers=[server_address(0), server_address(1)],
        candidates=[Candidate("127.0.0.1", 5000)],
        data=b"spheres",
        ids=iter((99,)),
    )


@cache
def overheard() -> Sequence[bytes]:
    """What two servers and two clients said to each other, and one of every message."""
    bus = SimulatedCluster()
    nodes: list[Any] = [bus.server(0, new_cluster=True), bus.server(1, join=[0])]
    bus.run(1)
    for name, number in CLIENTS:
        nodes.append(bus.client(name, (0, 1), packed=b"spheres", ids=iter((number,))))
    bus.run(8)
    nodes[-1].machine.leave(bus.now)
    bus.pump(nodes[-1])
    nodes[1].machine.stop(bus.now)
    bus.pump(nodes[1])
    bus.run(12)
    said = dict.fromkeys(data for node in nodes for data in node.received)
    samples = [it.encode() for it in FROM_CLIENT + FROM_SERVER + FROM_MEMBER]
    return (*list(said)[:: max(1, len(said) // 128)], *samples)


CLIENTS: Final = (("x", 99), ("y", 7))

Wish = Callable[[Any, float, Choices], None]

SERVER: Final[Sequence[Wish]] = (
    lambda machine, now, choices: machine.publish(
        now, choices.pick(SENDERS), 0x0100, [Parameter(0x100, choices.some_bytes(20))]
    ),
    lambda machine, _, __: machine.status(),
    lambda machine, now, choices: None if choices.below(8) else machine.stop(now),
)

CLIENT: Final[Sequence[Wish]] = (
    lambda machine, now, choices: machine.lookup(now, choices.pick(SENDERS)),
    lambda machine, now, choices: machine.set_data(now, choices.some_bytes(5000)),
    lambda machine, now, choices: machine.set_topics(
        now, [str(number) * choices.below(40) for number in range(choices.below(80))]
    ),
    lambda machine, now, choices: machine.publish(now, 0x0100, [Parameter(0x100, b"")]),
    lambda machine, now, choices: None if choices.below(8) else machine.leave(now),
)

_SHARES: Final[Mapping[Callable[[Lodge], None], int]] = {
    Lodge.hear_known: 4,
    Lodge.hear_changed: 6,
    Lodge.hear_answer: 3,
    Lodge.hear_addressed: 4,
    Lodge.hear_what_it_hopes: 4,
    Lodge.hear_noise: 1,
    Lodge.wait: 2,
    Lodge.wait_for_timer: 3,
    Lodge.connect: 1,
    Lodge.command: 1,
}

HAPPENINGS: Final = tuple(it for it, share in _SHARES.items() for _ in range(share))
