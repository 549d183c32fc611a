"""A client's registration with the servers, which drives ``ClientMachine`` over the bus."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import trio

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.counters import Count
from sphtp.core.control.outputs import (
    BusCommand,
    ClientEvent,
    Dial,
    HangUp,
    Refused,
    Subscribe,
    Unsubscribe,
)
from sphtp.core.control.records import ServerAddress, check_groups
from sphtp.core.control.vocabulary import MemberState
from sphtp.errors import BusError, RefusedError, SettingsError
from sphtp.shell.bus_dialing import PubSocket, SubSocket
from sphtp.shell.driver import LINGER, Wakeup, drive
from sphtp.shell.feed import Feed
from sphtp.shell.instruments import LimitLog
from sphtp.shell.lifetime import running
from sphtp.shell.probe import FaultKind, ServerFault, ServerWait, find_fault
from sphtp.shell.tls import Tls
from sphtp.shell.vouching import Vouching, vouching


@dataclass(frozen=True, slots=True)
class ClientBus:
    """The two sockets of a client, their wake-up, and the checks of messages."""

    publisher: PubSocket
    subscriber: SubSocket
    wakeup: Wakeup
    vouching: Vouching


@contextmanager
def open_bus(
    secret: bytes | None = None, tls: Tls | None = None, server_keys: Collection[bytes] = ()
) -> Iterator[ClientBus]:
    """Open both sockets for the length of the block. The machine decides which servers to dial.

    Raises ``SettingsError`` for a wrong secret or key.
    """
    wakeup, trust = Wakeup(), vouching(secret, server_keys)
    with (
        PubSocket(on_connected=wakeup.wake, tls=tls) as publisher,
        SubSocket(on_connected=wakeup.wake, tls=tls) as subscriber,
    ):
        yield ClientBus(publisher, subscriber, wakeup, trust)


class Registration:
    """The registration of one client.

    ``on_event`` is called with every event before a listener gets the event.
    """

    def __init__(
        self, machine: ClientMachine, bus: ClientBus, on_event: Callable[[ClientEvent], None]
    ) -> None:
        self.machine = machine
        self.feed: Feed[ClientEvent] = Feed()
        self._bus = bus
        self._on_event = on_event
        self._changed = trio.lowlevel.ParkingLot()
        self._refusal: Refused | None = None
        self._has_left = False
        self._dialled: list[ServerAddress] = []
        self._limits = LimitLog(machine.counters)
        self._fault: ServerFault | None = None

    async def run(self) -> None:
        """Run the registration until cancelled."""
        self.machine.handle_start(trio.current_time())
        self.flush()
        bus = self._bus
        async with running(bus.publisher.redial_stalled), running(bus.subscriber.redial_stalled):
            await drive(self.machine, bus.subscriber, bus.vouching, bus.wakeup, self.flush)

    async def leave(self) -> None:
        """Send LEAVE, end the listeners, and give the sockets ``LINGER`` seconds to send it.

        A client that the servers have refused sends none.
        """
        self._has_left = True
        if self._refusal is None:
            self.machine.leave(trio.current_time())
        self.flush()
        self.feed.close()
        await trio.sleep(LINGER)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that messages of servers change.

        If it does not hold, raises ``RefusedError`` when the servers refuse the client, and
        ``trio.ClosedResourceError`` when the client was closed before the call or during it.
        """
        await trio.lowlevel.checkpoint()
        while not condition():
            if self._has_left:
                raise trio.ClosedResourceError("this client was closed")
            if self._refusal is not None:
                reason = self._refusal.reason.name.lower()
                raise RefusedError(f"the servers refuse this client: {reason}", reason)
            await self._changed.park()

    async def next_change(self) -> None:
        """Wait for the next ``flush``, which follows every input of the machine."""
        await self._changed.park()

    async def wait_established(self, server_wait: ServerWait, tls: Tls | None) -> None:
        """Wait until the servers of the view have acknowledged the id.

        Raises ``RefusedError`` if they refuse the client, and ``UnreachableError`` with the cause
        as soon as waiting cannot help, at the latest at the deadline of ``server_wait``.
        """
        async with running(partial(self._look_for_trouble, server_wait, tls)):
            with trio.CancelScope(deadline=server_wait.deadline):
                await self.wait(lambda: self.machine.state is ClientState.ESTABLISHED)
                return
            raise server_wait.give_up(self._what_is_missing())

    def flush(self) -> None:
        """Perform the machine's outputs: messages, connections and events."""
        while (command := self.machine.poll_bus()) is not None:
            self._perform(command)
        while (data := self.machine.poll_transmit()) is not None:
            marked = self._bus.vouching.mark(data)
            self.machine.clock.handle_departure(trio.current_time())
            self._bus.publisher.send(marked)
        while (event := self.machine.poll_event()) is not None:
            if isinstance(event, Refused):
                self._refusal = event
            self._on_event(event)
            self.feed.publish(event)
        self._changed.unpark_all()
        self._limits.look(trio.current_time())

    async def _look_for_trouble(self, server_wait: ServerWait, tls: Tls | None) -> None:
        await trio.sleep(server_wait.first_look)
        while True:
            self._fault = await self._find_trouble(tls)
            server_wait.note(self._fault)
            await trio.sleep(server_wait.pause)

    async def _find_trouble(self, tls: Tls | None) -> ServerFault | None:
        if (secrets := self._bus.vouching.secret_fault) is not None:
            return ServerFault(FaultKind.PERMANENT, secrets)
        if self.machine.servers:
            held_up = self._are_all_joining or self.machine.last_refusal is not None
            return ServerFault(FaultKind.SILENT, self._what_is_missing()) if held_up else None
        if self._bus.publisher.connections and self._bus.subscriber.connections:
            return None
        return await find_fault(self._dialled, tls)

    @property
    def _are_all_joining(self) -> bool:
        members = self.machine.servers.values()
        return all(member.state is MemberState.JOINING for member in members)

    def _what_is_missing(self) -> str:
        servers = self.machine.servers
        if not servers:
            tried = ", ".join(map(str, self._dialled))
            why = "" if self._fault is None else f"; {self._fault.text}"
            return f"no server answered; dialled {tried}{why}"
        live = _listed(servers)
        if self._are_all_joining:
            return f"servers {live} acknowledge no new id while they are JOINING"
        if self.machine.last_refusal is not None:
            return (
                f"servers {live} are live; the last refusal said {self.machine.last_refusal.name}"
            )
        refused = self._bus.vouching.why_refused
        reason = "" if refused is None else f"; {refused}"
        return f"servers {live} are live, but not all of the view acknowledged the id{reason}"

    def _perform(self, command: BusCommand) -> None:
        match command:
            case Subscribe(topic):
                self._bus.subscriber.subscribe(topic)
            case Unsubscribe(topic):
                self._bus.subscriber.unsubscribe(topic)
            case HangUp(address):
                self._dialled.remove(address)
                # A server that was restarted may have kept one of its two ports.
                if all(other.sub != address.sub for other in self._dialled):
                    self._bus.publisher.hang_up(address.sub)
                if all(other.pub != address.pub for other in self._dialled):
                    self._bus.subscriber.hang_up(address.pub)
            case Dial(address):
                self._dial(address)

    def _dial(self, address: ServerAddress) -> None:
        self._dialled.append(address)
        try:
            self._bus.publisher.dial(address.sub)
            self._bus.subscriber.dial(address.pub)
        except (BusError, SettingsError):
            # The address may come from a stranger, and must not end this client.
            self.machine.counters.add(Count.UNDIALABLE)


class OwnGroups:
    """The groups of a client: those that its program has set, and groups in lock step.

    The two sets change independently. A client is in a group as long as one of them has it.
    """

    def __init__(self, registration: Registration) -> None:
        self._registration = registration
        self._chosen: tuple[str, ...] = ()
        self._joined: list[str] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The groups of both sets, each once."""
        return tuple(dict.fromkeys([*self._chosen, *self._joined]))

    def choose(self, groups: Iterable[str]) -> None:
        """Replace the groups that the program has set. Raises as ``Client.set_groups``."""
        given = check_groups(groups)
        # Programs pass ``client.groups``, which has joined groups, too. This does not set them.
        chosen = tuple(name for name in given if name in self._chosen or name not in self._joined)
        self._replace(chosen, self._joined)

    @contextmanager
    def joined(self, group: str) -> Iterator[None]:
        """Be in a group for the length of the block. Raises as ``Client.set_groups``."""
        self._replace(self._chosen, [*self._joined, group])
        try:
            yield
        finally:
            rest = list(self._joined)
            rest.remove(group)
            self._replace(self._chosen, rest)

    def _replace(self, chosen: tuple[str, ...], joined: list[str]) -> None:
        names = check_groups(dict.fromkeys([*chosen, *joined]))
        before, self._chosen, self._joined = self.names, chosen, joined
        if names != before:
            self._registration.machine.set_groups(trio.current_time(), names)
            self._registration.flush()


def _listed(servers: Iterable[int]) -> str:
    return ", ".join(f"{server:#010x}" for server in sorted(servers))
