"""Opening a client: its node, its registration, and what it says of itself."""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from sphtp.core.channel.gate.security import Security
from sphtp.core.channel.gate.settings import GateSettings
from sphtp.core.channel.gate.trust import Roster
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.limits import ClientLimits
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.control.timers import ControlTimers
from sphtp.core.packing import pack
from sphtp.core.row import Address
from sphtp.core.secure.identity import Identity
from sphtp.errors import SettingsError
from sphtp.shell.addresses import Outlook
from sphtp.shell.client import Client
from sphtp.shell.impairment import UNIMPAIRED, Impairment
from sphtp.shell.keys import draw_identity
from sphtp.shell.lifetime import running
from sphtp.shell.opening import open_node
from sphtp.shell.peer import Peer
from sphtp.shell.randomness import SECRETS, decisions
from sphtp.shell.registration import open_bus
from sphtp.shell.tls import Tls, require_tls

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec


@asynccontextmanager
async def open_client(
    servers: str | Sequence[str | ServerAddress],
    *,
    data: Any = None,
    host: str | None = None,
    port: int = 0,
    advertise: Sequence[Address] = (),
    timeout: float = 30.0,
    timers: ControlTimers | None = None,
    channel_settings: ChannelSettings | None = None,
    instruments: Sequence[Instrument] = (),
    messages: "MessageCodec | None" = None,
    impairment: Impairment = UNIMPAIRED,
    seed: int | None = None,
    ids: Iterator[int] | None = None,
    identity: Identity | None = None,
    secret: bytes | None = None,
    server_keys: Collection[bytes] = (),
    tls: Tls | None = None,
    gate_settings: GateSettings | None = None,
    limits: ClientLimits | None = None,
) -> AsyncIterator[Client]:
    """Register with a cluster for the length of the block, which begins when all servers agreed.

    Args:
        servers: one server's address is enough, ``"tcp://host:8764"``; it tells the others'.
        data, limits: msgpack of up to 4096 bytes that peers learn of it; how much it remembers.
        host, port: where to bind the UDP socket; by default the address that faces the servers.
        advertise: where peers reach that socket, should that differ from where it is bound.
        timeout, timers, ids: seconds to wait until registered; the servers' periods; ids to try.
        channel_settings, gate_settings: of its node; messages, instruments, impairment, seed: too.
        identity, secret, tls: who this client is (else somebody new), and what servers ask for.
        server_keys: public keys of servers, or of clusters that vouch for them: no other is heard.

    Raises ``SettingsError``, ``UdpAddressError``, ``UnreachableError``, ``RefusedError``.
    """
    outlook, peers = Outlook(addresses := _parse(servers, tls), timeout), dict[int, Peer]()
    async with open_node(
        host or await outlook.where_to_bind(),
        port,
        settings=channel_settings,
        messages=messages,
        security=_secure(identity := identity or draw_identity(), peers, gate_settings),
        instruments=instruments,
        impairment=impairment,
        seed=seed,
    ) as node:
        where = await outlook.candidates_of(node.address, advertise)
        machine = _make_machine(seed, timers, addresses, where, data, ids, identity, limits)
        with open_bus(secret, tls, server_keys) as bus:
            async with _registered(Client(node, machine, bus, identity, peers), outlook) as it:
                yield it


def _secure(identity: Identity, peers: dict[int, Peer], gate: GateSettings | None) -> Security:
    return Security(identity=identity, trust=Roster(peers), limits=gate or GateSettings())


@asynccontextmanager
async def _registered(client: Client, outlook: Outlook) -> AsyncIterator[Client]:
    registration = client._registration  # noqa: SLF001 - the two halves of one thing
    async with running(registration.run):
        try:
            await registration.wait_established(outlook.timeout, outlook.deadline)
            yield client
        finally:
            with trio.CancelScope(shield=True):
                await registration.leave()


def _make_machine(
    seed: int | None,
    timers: ControlTimers | None,
    servers: Sequence[ServerAddress],
    candidates: Sequence[Candidate],
    data: Any,
    ids: Iterator[int] | None,
    identity: Identity,
    limits: ClientLimits | None,
) -> ClientMachine:
    return ClientMachine(
        decisions(seed),
        timers or ControlTimers(),
        secrets=SECRETS,
        servers=servers,
        candidates=candidates,
        data=b"" if data is None else pack(data),
        ids=ids,
        key=identity.public,
        limits=limits or ClientLimits(),
    )


def _parse(servers: str | Sequence[str | ServerAddress], tls: Tls | None) -> list[ServerAddress]:
    if not servers:
        raise SettingsError("servers is empty; allowed is one address or more")
    if isinstance(servers, str):
        servers = [servers]
    parsed = [
        server if isinstance(server, ServerAddress) else ServerAddress.parse(server)
        for server in servers
    ]
    require_tls(parsed, tls)
    return parsed
