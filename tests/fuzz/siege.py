"""A node that talks with an honest peer while somebody between them forges, changes and repeats.

Whatever comes, the node raises nothing, comes to an end with what it says, is woken for nothing
never, and holds no more than its limits. If it is sealed, it believes nothing that was forged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.lifecycle import State
from sphtp.core.channel.settings import MOST_LANES, Delivery
from sphtp.core.datagrams import Address, Datagrams
from sphtp.testing.network import DeliveredDatagram, rows
from tests.fuzz.choices import Choices
from tests.fuzz.forgery import Forger
from tests.fuzz.nodes import SETTINGS, SUBJECTS, Application, Subject, Wish, make_node

NODE: Final[Address] = ("10.0.0.1", 1000)
PEER: Final[Address] = ("10.0.0.2", 2000)
STRANGERS: Final = tuple((f"10.9.{number >> 8}.{number & 255}", 9) for number in range(4096))

PATIENCE: Final = 64
"""How often two nodes answer each other before time goes on."""

WAITS: Final = (0.0, 0.001, 0.001, 0.01, 0.01, 0.03, 0.03, 0.1, 0.1, 0.3, 1.0, 3.0, 30.0)
SIZES: Final = (0, 1, 10, 10, 100, 1000, 5000, 60_000)
MOST_UNHEARD: Final = 10_000
DELIVERIES: Final = (
    Delivery.RELIABLE,
    Delivery.RELIABLE,
    Delivery.UNRELIABLE,
    Delivery.SEQUENCED,
)


class Siege:
    """The node, its peer, and the forger; ``step`` does one thing out of all that may happen.

    ``inputs`` counts the datagrams that were made up, which ``watch`` is called with, and
    ``messages`` what the node's application was given.
    """

    def __init__(self, choices: Choices, subject: Subject = SUBJECTS["clear"]) -> None:
        self.now = 0.0
        self.inputs = 0
        self.messages = 0
        self.watch: Callable[[bytes], None] = lambda _: None
        self._choices = choices
        self._subject = subject
        self._node = Application(make_node(subject, "node", 1), self._believe)
        self._peer = Application(make_node(subject, "peer", 3), lambda *_: None)
        self._forger = Forger(choices)
        # The latest words of the peer that were not heard: number, and size.
        self._unheard: dict[int, int] = {}
        self._number = 0
        self._carried = 0
        self._reads = True
        self.redial()

    @property
    def node(self) -> object:
        """What is besieged."""
        return self._node.node

    def step(self) -> None:
        """Let one thing happen, and see that the node is well."""
        self._choices.pick(HAPPENINGS)(self)
        self._settle()

    # What may happen

    def attack(self) -> None:
        """Datagrams come that claim to be the peer's."""
        if self._choices.below(8):
            self.redial()
            self._forger.follow({it.connection_id for it in self._node.node.connections})
        self._throw(PEER)

    def attack_from_elsewhere(self) -> None:
        """Datagrams come from where nobody is known."""
        self._throw(self._choices.pick(STRANGERS))

    def wait(self) -> None:
        """Time passes."""
        self._pass_time(self._choices.pick(WAITS))

    def wait_for_timer(self) -> None:
        """Time passes until the node has something to do."""
        due = self._node.node.poll_timeout()
        self._pass_time(0.0 if due is None else max(0.0, due - self.now))

    def talk(self) -> None:
        """Both sides say something, and both hear it."""
        self.redial()
        for side in (self._peer, self._node):
            for _ in range(self._choices.below(4)):
                self._say(side)
        self._converse()

    def redial(self) -> None:
        """The peer opens a channel, if there is none."""
        if not any(map(_is_open, self._node.node.connections)):
            self._peer.open(self.now, [NODE])
            self._converse()

    def dial(self) -> None:
        """The node opens a channel, and the peer may open one at once."""
        self._node.open(self.now, [self._choices.pick((PEER, *STRANGERS[:2]))])
        if self._choices.below(2):
            self._converse()

    def leave(self) -> None:
        """The node closes one of its channels, or gives it up."""
        if not self._node.channels:
            return
        channel = self._choices.pick(self._node.channels)
        if self._choices.below(2):
            channel.close(self.now)
        else:
            channel.abort(self.now, "?" * self._choices.below(200))
        self._node.node.touch(channel)

    def stop_reading(self) -> None:
        """The node's application reads no more, or does again."""
        self._reads = not self._reads

    def shrink(self) -> None:
        """The host of the node says that a datagram was too large."""
        address = self._choices.pick((PEER, STRANGERS[0]))
        self._node.node.handle_too_large(self.now, address, self._choices.below(10_000))

    # How it happens

    def _throw(self, address: Address) -> None:
        datagrams = self._forger.datagrams()
        self.inputs += len(datagrams)
        for datagram in datagrams:
            self.watch(datagram)
        self._node.node.handle_rows_untrusted(self.now, list(_rows(address, datagrams)))

    def _say(self, side: Application) -> None:
        if not side.channels:
            return
        choices = self._choices
        self._number += 1
        payload = self._number.to_bytes(8, "little") + bytes(choices.pick(SIZES))
        deadline = None if choices.below(4) else self.now + choices.pick(WAITS)
        wish = Wish(choices.pick(DELIVERIES), choices.below(3), deadline, choices.below(3))
        is_sent = side.send(self.now, choices.pick(side.channels), payload, wish)
        if is_sent and side is self._peer and self._subject.is_sealed:
            self._unheard[self._number] = len(payload)
            if len(self._unheard) > MOST_UNHEARD:
                del self._unheard[next(iter(self._unheard))]

    def _converse(self) -> None:
        for _ in range(PATIENCE):
            to_node = [row.data for row in self._said(self._peer, NODE)]
            to_peer = [row.data for row in self._said(self._node, PEER)]
            if not to_node and not to_peer:
                return
            self._pass_time(0.001)

    def _said(self, side: Application, to: Address) -> list[Datagrams]:
        """Carry what one side sends to the other; what it sends to strangers is lost.

        Rows arrive whole, as with the kernel's offload, or as single datagrams, in turns.
        """
        rows = [row for row in side.transmissions(self.now) if row.address == to]
        if not rows:
            return rows
        source, receiver = (PEER, self._node) if to == NODE else (NODE, self._peer)
        if to == NODE:
            for row in rows:
                for datagram in row.datagrams:
                    self._forger.hear(datagram)
        self._carried += 1
        if self._carried & 1:
            arriving = [Datagrams(source, row.data, row.size) for row in rows]
        else:
            arriving = [Datagrams.of(source, one) for row in rows for one in row.datagrams]
        receiver.node.handle_rows_untrusted(self.now, arriving)
        return rows

    def _pass_time(self, seconds: float) -> None:
        self.now += seconds
        for side in (self._node, self._peer):
            side.node.handle_timeout(self.now)
            side.look(self.now, reads=self._reads or side is self._peer)

    def _settle(self) -> None:
        """Let the node say what it has to, twice: then it must be at rest."""
        for _ in range(2):
            self._say_all()
            self._node.look(self.now, reads=self._reads)
            self._node.node.handle_timeout(self.now)
        self._say_all()
        due = self._node.node.poll_timeout()
        assert due is None or due > self.now, f"due at {due}, busy at {self.now}"
        self._check_bounds()

    def _say_all(self) -> None:
        for _ in self._said(self._node, PEER):
            pass

    def _check_bounds(self) -> None:
        connections = self._node.node.connections
        assert len(connections) <= 4 * SETTINGS.backlog, f"{len(connections)} connections"
        for connection in connections:
            figures = connection.port.statistics()
            assert figures.waiting <= SETTINGS.send_buffer * len(SETTINGS.lanes)
            unreliable = MOST_LANES * SETTINGS.unreliable_buffer
            assert figures.unread <= SETTINGS.receive_buffer + unreliable

    def _believe(self, _: Connection, payload: bytes) -> None:
        self.messages += 1
        if self._subject.is_sealed:
            size = self._unheard.pop(int.from_bytes(payload[:8], "little"), None)
            assert size == len(payload), "a forgery was believed, or a message came twice"


def _is_open(connection: Connection) -> bool:
    return connection.state is State.OPEN and connection.address == PEER


def _rows(address: Address, datagrams: Sequence[bytes]) -> Iterator[Datagrams]:
    for _, row in rows([DeliveredDatagram(address, NODE, datagram) for datagram in datagrams]):
        yield row


_SHARES: Final[Mapping[Callable[[Siege], None], int]] = {
    Siege.attack: 20,
    Siege.attack_from_elsewhere: 3,
    Siege.wait: 2,
    Siege.wait_for_timer: 3,
    Siege.talk: 4,
    Siege.dial: 1,
    Siege.leave: 1,
    Siege.stop_reading: 1,
    Siege.shrink: 1,
}

HAPPENINGS: Final = tuple(it for it, share in _SHARES.items() for _ in range(share))
