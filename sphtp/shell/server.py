"""A server on real sockets, which drives ``ServerMachine`` and decides nothing.

A server has three sockets of the bus: a PUB to clients, a SUB for clients and servers, and a PUB to
other servers. ``driver`` passes messages and the time to the machine. After each batch of messages
``_flush`` performs the machine's outputs: messages, connections and events.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import trio

from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.outputs import (
    BusAudience,
    HangUp,
    JoinFailing,
    ServerBusCommand,
    ServerEvent,
)
from sphtp.core.control.records import ClusterView, KnownPeers, Peer, PeerRecord, ServerAddress
from sphtp.core.control.registry import SharedRegistry
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_table import ServerState
from sphtp.core.control.settings import ControlTimers, ServerLimits
from sphtp.core.token_bucket import TokenBucket
from sphtp.errors import BusError, SettingsError
from sphtp.shell.addresses import is_loopback
from sphtp.shell.bus_dialing import PubSocket
from sphtp.shell.bus_handshakes import AcceptLimits, Handshakes
from sphtp.shell.bus_listening import ListeningPubSocket, ListeningSubSocket
from sphtp.shell.clock import Clock
from sphtp.shell.config import DEFAULTS, SECRETS, ClusterSecurity, Config, decisions
from sphtp.shell.driver import LINGER, Wakeup, drive
from sphtp.shell.feed import Feed, Listener
from sphtp.shell.lifetime import ScopedService, block, running
from sphtp.shell.probe import find_fault
from sphtp.shell.tls import SCHEME, Tls, is_tls, require_tls
from sphtp.shell.vouching import Vouching, server_vouching, trusted_by_server

Admit = Callable[[Peer], bool]

admission_log: Final = logging.getLogger("sphtp.server")


def everybody(_: Peer) -> bool:
    """Admit every client."""
    return True


def guarded_admission(admit: Admit) -> Callable[[PeerRecord], bool]:
    """Return a function that calls ``admit``, and that logs an error and treats it as a refusal."""

    def ask(record: PeerRecord) -> bool:
        try:
            return bool(admit(Peer.from_record(record)))
        except Exception:
            admission_log.exception("admit raised for client %#010x, which is denied", record.id)
            return False

    return ask


def require_protection(
    bind: ServerAddress, advertise: ServerAddress | None, cluster: ClusterSecurity
) -> None:
    """Raise ``SettingsError`` if other machines can reach an address and nothing protects it.

    ``insecure`` allows such an address. Raises the error, too, if the server has TLS and advertises
    an address without TLS.
    """
    _require_tls_throughout(advertise, cluster.tls)
    if cluster.insecure or cluster.secret is not None or cluster.tls is not None:
        return
    for url in (bind.pub, bind.sub):
        if not is_loopback(urlsplit(url).hostname or ""):
            raise SettingsError(
                f"{url} is open to other machines, and nothing protects it: give a secret "
                "or TLS certificates, or allow that with insecure"
            )


def require_agreement(
    bind: ServerAddress,
    advertise: ServerAddress | None,
    join: Sequence[ServerAddress],
    cluster: ClusterSecurity,
) -> None:
    """Raise ``SettingsError`` if addresses, keys and files of a server contradict each other."""
    require_protection(bind, advertise, cluster)
    require_tls(join, cluster.tls)
    _require_others(join, bind, advertise or bind)
    trusted_by_server(cluster.signing_key, cluster.server_keys)


def _require_tls_throughout(public: ServerAddress | None, tls: Tls | None) -> None:
    # With TLS, members do not dial an address without it, so that none would connect.
    if tls is not None and public is not None and not (is_tls(public.pub) and is_tls(public.sub)):
        raise SettingsError(
            f"TLS files are given, and {public} is advertised, which is no {SCHEME}"
        )


JOIN_REPORT_AFTER: Final = 0.5
"""Seconds until the first diagnosis of a server to join that is silent."""

JOIN_REPORT_EVERY: Final = 10.0
"""Seconds between two such diagnoses."""


@dataclass(frozen=True)
class ServerStatistics:
    """Statistics of one server since its start."""

    counters: Mapping[str, int]
    """The numbers of messages and connections that were dropped or refused, and of other rare
    events, by name.
    """
    publishing_to: int
    """The present number of connections of the PUB socket to clients."""
    receiving_from: int
    """The present number of connections of the SUB socket."""
    connections_ended: int
    """The number of connections of the SUB socket that ended after the greeting of the bus, for any
    reason. One reason is a message of more than 131,072 bytes.
    """
    connections_refused: int
    """The number of connections that were refused because there were ``max_connections``."""
    events_dropped: int
    """The number of events that listeners missed because they were too far behind."""
    undialable: int
    """The number of times that the bus could not dial an address of another server."""


LEAVE_TIMEOUT: Final = 1.0
"""The most seconds for which a leaving server waits for its shared registry."""

DEFAULT_BIND: Final = "tcp://127.0.0.1:8764"


@block
async def open_server(
    bind: str | ServerAddress = DEFAULT_BIND,
    *,
    advertise: str | ServerAddress | None = None,
    join: Sequence[str | ServerAddress] = (),
    new_cluster: bool = False,
    announce: bool = False,
    stun: bool = False,
    admit: Admit = everybody,
    config: Config = DEFAULTS,
) -> AsyncIterator["Server"]:
    """Run a server for the length of the block; leaving the block leaves the cluster's view.

    A new server acknowledges no new id until another server has sent it the state of the cluster,
    or twice ``timers.expiry`` has passed. With ``join``, it also waits until it has met another
    server, and meanwhile reports the servers to join that are silent by ``JoinFailing`` events.
    With ``new_cluster`` it reports them, too, but never waits.

    Args:
        bind: the address to listen at; port 0 takes any free port.
        advertise: the address that clients and servers dial, if it differs from ``bind``.
        join: the addresses of other servers of the cluster. One that runs is enough, and they may
            start later.
        new_cluster: True for a cluster in which no client holds an id yet.
        announce: True lets clients find this server without an address: those of this user on this
            host and, unless the address that clients dial is loopback, those on this network.
        stun: True answers STUN at the UDP port with the number of the PUB socket's port, so that
            peers behind NAT find each other. It needs the extra ``nat``.
        admit: a function that is called for each new client. If it returns False, the server
            refuses the client. If it raises an error, the server logs the traceback under
            ``sphtp.server`` and refuses the client. See ``sphtp.security.allow_only``.
        config: the behaviour of this server. A server uses ``cluster``, ``timers``,
            ``server_limits`` and ``seed``.

    Raises:
        BusAddressInUseError: a port is in use; the message names it.
        BusError: this process cannot listen at the address, or its host name is unknown.
        UdpAddressError: with ``stun``, the UDP port is in use.
        ModuleNotFoundError: with ``stun``, the extra is not installed.
        SettingsError: an address is malformed or contradicts ``tls``, the address is more than
            loopback and nothing protects it, a file of ``tls`` cannot be used, programs that accept
            only ``server_keys`` would drop this server's messages, or all addresses of ``join`` are
            this server's own.
    """
    async with open_shared_server(
        None,
        bind,
        advertise=advertise,
        join=join,
        new_cluster=new_cluster,
        announce=announce,
        stun=stun,
        admit=admit,
        config=config,
    ) as server:
        yield server


class SharedStore(Protocol):
    """The I/O of a registry that servers share: it performs the requests of the registry."""

    @property
    def registry(self) -> SharedRegistry:
        """The registry, which decides on the requests that this object performs."""
        ...

    def perform(self) -> None:
        """Start the requests that the registry has queued."""
        ...

    async def run(self, changed: Callable[[], None]) -> None:
        """Perform requests until cancelled; call ``changed`` after each response or failure."""
        ...

    async def leave(self) -> None:
        """Perform the last requests of the registry."""
        ...


@block
async def open_shared_server(
    store: SharedStore | None,
    bind: str | ServerAddress = DEFAULT_BIND,
    *,
    advertise: str | ServerAddress | None = None,
    join: Sequence[str | ServerAddress] = (),
    new_cluster: bool = False,
    announce: bool = False,
    stun: bool = False,
    admit: Admit = everybody,
    config: Config = DEFAULTS,
) -> AsyncIterator["Server"]:
    """Run a server with the registry of ``store``, and otherwise as ``open_server`` does.

    Without a store the registry is in the memory of the server.
    """
    cluster, tls = config.cluster, config.cluster.tls
    limits = config.server_limits or ServerLimits()
    at = _parse(bind)
    public = None if advertise is None else _parse(advertise)
    others = [_parse(other) for other in join]
    require_agreement(at, public, others, cluster)
    trust, among_servers = server_vouching(cluster.secret, cluster.signing_key, cluster.server_keys)
    wakeup = Wakeup()
    handshakes = Handshakes(_accept_limits(limits), secret=cluster.secret is not None)
    with (
        ListeningPubSocket(handshakes, on_connected=wakeup.wake, tls=tls) as clients,
        ListeningSubSocket(handshakes, tls=tls) as subscriber,
        PubSocket(on_connected=wakeup.wake, tls=tls) as servers,
    ):
        subscriber.subscribe(b"")
        bound = ServerAddress(pub=clients.listen(at.pub), sub=subscriber.listen(at.sub))
        advertised = public or bound
        machine = ServerMachine(
            decisions(config.seed),
            config.timers or ControlTimers(),
            secrets=SECRETS,
            address=advertised,
            join=others,
            new_cluster=new_cluster,
            limits=limits,
            registry=None if store is None else store.registry,
            asks_admission=admit is not everybody,
            answers_stun=stun,
        )
        bus = _ServerBus(
            subscriber,
            clients,
            servers,
            wakeup,
            trust,
            among_servers,
            handshakes,
            TokenBucket(limits.stun_per_second),
        )
        asked = guarded_admission(admit)
        async with (
            _answering_stun(bound if stun else None, bus.stun_rate, machine.counters),
            Server(machine, bound, advertised, bus, tls, asked, store) as server,
        ):
            if not announce:
                yield server
                return
            # Only servers that announce themselves load this module.
            from sphtp.shell.discovery import announced

            async with announced(server, config):
                yield server


@asynccontextmanager
async def _answering_stun(
    bound: ServerAddress | None, rate: TokenBucket, counters: ControlCounters
) -> AsyncIterator[None]:
    """Answer STUN beside the PUB socket for the length of the block, unless ``bound`` is None."""
    if bound is None:
        yield
        return
    # Only servers that answer STUN load this module.
    from sphtp.shell.nat import answering

    place = urlsplit(bound.pub)
    async with answering(place.hostname or "", place.port or 0, rate, counters):
        yield


def _parse(address: str | ServerAddress) -> ServerAddress:
    return ServerAddress.parse(address) if isinstance(address, str) else address


def _require_others(join: Sequence[ServerAddress], *own: ServerAddress) -> None:
    """Raise ``SettingsError`` if all servers to join are this one: it would found a new cluster.

    This server's own address is allowed beside others, because all servers may get the same list.
    """
    if join and all(address in own for address in join):
        raise SettingsError(f"join = {join[0]}: that is this server itself")


class Server(ScopedService):
    """A running server. Made by ``open_server``."""

    def __init__(
        self,
        machine: ServerMachine,
        address: ServerAddress,
        advertised: ServerAddress,
        bus: "_ServerBus",
        tls: Tls | None,
        admit: Callable[[PeerRecord], bool],
        store: SharedStore | None,
    ) -> None:
        self._machine = machine
        self._store = store
        self._clock = Clock(machine.clock, self._wait)
        self._admit = admit
        self._address = address
        self._advertised = advertised
        self._bus = bus
        self._tls = tls
        self._clients = KnownPeers(machine.clients)
        self._feed: Feed[ServerEvent] = Feed()
        self._changed = trio.lowlevel.ParkingLot()
        self._dialled: list[ServerAddress] = []
        machine.handle_start(trio.current_time())
        self._flush()

    def __repr__(self) -> str:
        return f"<Server {self.id:#010x} {self.state.name} at {self.address.pub}>"

    @property
    def id(self) -> int:
        """The id of this server in the cluster: an even random number."""
        return self._machine.id

    @property
    def address(self) -> ServerAddress:
        """The address at which this server listens, with real ports."""
        return self._address

    @property
    def advertised(self) -> ServerAddress:
        """The address that clients and other servers dial."""
        return self._advertised

    @property
    def state(self) -> ServerState:
        """The state of this server; only an ACTIVE one acknowledges new ids."""
        return self._machine.state

    @property
    def view(self) -> ClusterView:
        """The cluster's view: its servers. The active ones have to agree on every new id."""
        return self._machine.view

    @property
    def clock(self) -> Clock:
        """The clock that shows the cluster's time."""
        return self._clock

    @property
    def clients(self) -> Mapping[int, Peer]:
        """The clients that are registered, at this or another server, by id."""
        return self._clients

    def status(self) -> dict[str, Any]:
        """Return the document that ``sphtp status`` shows, ready for JSON."""
        self._note_refused()
        return self._machine.status()

    def statistics(self) -> ServerStatistics:
        """Return the statistics of this server since its start."""
        self._note_refused()
        counters = self._machine.counters
        return ServerStatistics(
            counters=counters.as_dict(),
            publishing_to=self._bus.clients.connections,
            receiving_from=self._bus.subscriber.connections,
            connections_ended=self._bus.subscriber.ended,
            connections_refused=counters[Count.OVER_MAX_CONNECTIONS],
            events_dropped=self._feed.dropped,
            undialable=counters[Count.UNDIALABLE],
        )

    def events(self) -> Listener[ServerEvent]:
        """Return an async iterator over the events from now on; it ends with the server.

        The end of ``with server.events() as events:`` closes the iterator, and so does dropping its
        last reference. A slow reader does not hold up the server: a reader that is 1024 events
        behind misses further ones, which ``statistics().events_dropped`` counts.
        """
        return self._feed.listen()

    def set_limits(self, limits: ServerLimits) -> None:
        """Change the limits of this server. Clients and connections beyond them stay."""
        self._machine.set_limits(limits)
        self._bus.handshakes.limits = _accept_limits(limits)
        self._bus.stun_rate.set_rate(limits.stun_per_second)

    def set_tls(self, tls: Tls) -> None:
        """Read certificates, and use them for new connections; open ones stay as they are.

        Raises ``SettingsError``, without any change, for a wrong file and for a server without TLS.
        """
        tls.check()
        uses = [each.prepare_tls(tls) for each in (self._bus.clients, self._bus.subscriber)]
        for use in uses:
            use()
        self._tls = self._bus.servers.tls = tls

    async def wait_active(self) -> None:
        """Wait until this server acknowledges new ids.

        Raises:
            trio.ClosedResourceError: this server was closed before the call or during it.
        """
        await self._wait(lambda: self.state is ServerState.ACTIVE)

    def send_command(
        self, simulation: int, command: int, parameters: Sequence[Parameter] = ()
    ) -> None:
        """Send a message of the application to the client with the id ``simulation``.

        The id 0 stands for all clients.

        Raises:
            StateError: the number of the command or of a parameter is not from 0x0100 to 0xffff.
            MessageTooLargeError: a parameter is over 65,535 bytes, or the message over 65,536. The
                message has 10 bytes besides the parameters, and 4 more for each parameter. A secret
                takes 36 more, and a signing key 248, with or without a secret.
            WireError: ``simulation`` is not a number of 32 bits.
            trio.ClosedResourceError: this server was closed.
        """
        self._machine.publish(trio.current_time(), simulation, command, parameters)
        self._flush()

    @asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        try:
            async with running(self._run):
                yield
        finally:
            with trio.CancelScope(shield=True):
                await self._leave()

    async def _run(self) -> None:
        bus = self._bus
        async with (
            running(bus.clients.run),
            running(bus.servers.redial_stalled),
            running(self._report_missing),
        ):
            driven = partial(
                drive, self._machine, bus.subscriber, bus.vouching, bus.wakeup, self._flush
            )
            if self._store is None:
                await driven()
            else:
                async with running(partial(self._store.run, self._on_registry)):
                    await driven()

    def _on_registry(self) -> None:
        """Handle a response of the shared registry, or the failure of a request to it."""
        self._machine.handle_registry(trio.current_time())
        self._flush()
        # The machine's next timer may be earlier now.
        self._bus.wakeup.interrupt()

    async def _report_missing(self) -> None:
        """Report at intervals why servers to join are silent."""
        met = False
        await trio.sleep(JOIN_REPORT_AFTER)
        while True:
            missing = self._machine.missing
            met = met or not missing
            # A server that has met the others reports their departure by other events.
            if not met or self.state is ServerState.JOINING:
                async with trio.open_nursery() as nursery:
                    for address in missing:
                        nursery.start_soon(self._diagnose_missing, address)
            await trio.sleep(JOIN_REPORT_EVERY)

    async def _diagnose_missing(self, address: ServerAddress) -> None:
        trouble = await find_fault([address], self._tls)
        if address in self._machine.missing:
            why = self._why_silent(address) if trouble is None else trouble.text
            self._feed.publish(JoinFailing(address, why))

    def _why_silent(self, address: ServerAddress) -> str:
        if dropped := self._machine.counters[Count.UNVOUCHED]:
            return f"{dropped} messages were not vouched for with this cluster's secret"
        return (
            f"{address} answers, but no message of it arrives: it may have another secret or other "
            f"server keys, be unable to reach {self._advertised}, or be this server itself"
        )

    async def _leave(self) -> None:
        self._machine.stop(trio.current_time())
        self._flush()
        self._feed.close()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, LINGER)
            if self._store is not None:
                with trio.move_on_after(LEAVE_TIMEOUT):
                    await self._store.leave()

    def _note_refused(self) -> None:
        """Add the connections that the bus refused to the counters."""
        counters, bus = self._machine.counters, self._bus.subscriber.counters
        for name, count in {
            Count.OVER_MAX_CONNECTIONS: bus.refused,
            Count.OVER_MAX_HANDSHAKES: bus.evicted,
            Count.OVER_HANDSHAKE_TIMEOUT: bus.timed_out,
            Count.HANDSHAKES_FAILED: bus.failed,
            Count.OUT_OF_DESCRIPTORS: bus.out_of_descriptors,
        }.items():
            if new := count - counters[name]:
                counters.add(name, new)

    def _flush(self) -> None:
        # Computed each time, because the wall clock may be stepped.
        self._machine.wall_ahead = time.time() - trio.current_time()
        self._note_refused()
        while (record := self._machine.poll_applicant()) is not None:
            is_admitted = self._admit(record)
            self._machine.handle_admission(trio.current_time(), record, is_admitted=is_admitted)
        while (command := self._machine.poll_bus()) is not None:
            self._perform(command)
        for_clients: list[bytes] = []
        was_detached = self.state is ServerState.DETACHED
        try:
            while (outgoing := self._machine.poll_transmit()) is not None:
                if outgoing.audience is BusAudience.CLIENTS:
                    for_clients.append(self._bus.vouching.mark(outgoing.data))
                else:
                    marked = self._bus.among_servers.mark(outgoing.data)
                    self._machine.clock.handle_departure(trio.current_time())
                    self._bus.servers.send(marked)
        finally:
            # This process may have been suspended since its last input, and its view may be old.
            is_over = not was_detached and self._machine.is_detached(trio.current_time())
            # If marking one message fails for its size, the others still leave.
            if for_clients and not is_over:
                self._bus.clients.send_many(for_clients)
        while (event := self._machine.poll_event()) is not None:
            self._feed.publish(event)
        self._changed.unpark_all()
        if self._store is not None:
            self._store.perform()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that messages change.

        If it does not hold, raises ``trio.ClosedResourceError`` when the server was closed before
        the call or during it.
        """
        await trio.lowlevel.checkpoint()
        while not condition():
            if self.state is ServerState.STOPPED:
                raise trio.ClosedResourceError("this server was closed")
            await self._changed.park()

    def _perform(self, command: ServerBusCommand) -> None:
        servers, address = self._bus.servers, command.address
        if isinstance(command, HangUp):
            self._dialled.remove(address)
            # A server that was restarted may have kept one of its two ports.
            if all(other.sub != address.sub for other in self._dialled):
                servers.hang_up(address.sub)
            return
        self._dialled.append(address)
        try:
            servers.dial(address.sub)
        except (BusError, SettingsError):
            # The address may come from a stranger, and must not end this server.
            self._machine.counters.add(Count.UNDIALABLE)


@dataclass(frozen=True)
class _ServerBus:
    """The three sockets of a server, their wake-up, and the checks of messages."""

    subscriber: ListeningSubSocket
    clients: ListeningPubSocket
    servers: PubSocket
    wakeup: Wakeup
    vouching: Vouching
    among_servers: Vouching
    """The marks of messages to servers, which have numbers and signatures of their own."""
    handshakes: Handshakes
    """The handshakes of both listening sockets, with their limits."""
    stun_rate: TokenBucket
    """The rate limit of answers to STUN requests."""


def _accept_limits(limits: ServerLimits) -> AcceptLimits:
    return AcceptLimits(limits.connections, limits.max_handshakes, limits.handshake_timeout)
