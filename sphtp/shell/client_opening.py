"""Opening a client: its node, its registration, and what it says of itself."""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.security import HandshakeLimits, RosterAuthenticator, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.control.client import ClientMachine
from sphtp.core.control.limits import ClientLimits
from sphtp.core.control.records import Candidate, ServerAddress
from sphtp.core.control.timers import ControlTimers
from sphtp.core.datagrams import Address
from sphtp.core.packing import pack
from sphtp.core.secure.identity import Identity
from sphtp.errors import SettingsError
from sphtp.shell.addresses import Outlook
from sphtp.shell.client import Client
from sphtp.shell.impairment import UNIMPAIRED, Impairment
from sphtp.shell.keys import draw_identity
from sphtp.shell.lifetime import block, running
from sphtp.shell.opening import open_node
from sphtp.shell.patience import Patience
from sphtp.shell.peer import Peer
from sphtp.shell.randomness import SECRETS, decisions
from sphtp.shell.registration import open_bus
from sphtp.shell.tls import Tls, require_tls

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec

Servers = str | ServerAddress | Sequence[str | ServerAddress | Address]


@block
async def open_client(
    servers: Servers,
    *,
    data: Any = None,
    host: str | None = None,
    port: int = 0,
    advertise: Sequence[Address] = (),
    timeout: float = 30.0,
    wait: float = 0.0,
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
    handshake_limits: HandshakeLimits | None = None,
    limits: ClientLimits | None = None,
) -> AsyncIterator[Client]:
    """Register with a cluster for the length of the block, which begins when all servers agreed.

    Args:
        servers: one server's address is enough, ``"tcp://host:8764"``; it tells the others'. A
            list may have several, as text, as ``ServerAddress`` or as pairs of host and port.
        data, limits: msgpack of up to 4096 bytes that peers learn of it; how much it remembers.
        host, port: where to bind the UDP socket; by default the address that faces the servers.
        advertise: where peers reach that socket, should that differ from where it is bound.
        timeout: seconds within which servers that are there have to acknowledge it.
        wait: seconds for servers that nobody can reach yet; by default one has to be there.
        timers, ids: the servers' periods; ids to try.
        channel_settings, handshake_limits: of its node.
        messages, instruments, impairment, seed: of its node, too.
        identity, secret, tls: who this client is (else somebody new), and what servers ask for.
        server_keys: public keys of servers, or of clusters that vouch for them: no other is heard.

    Raises:
        UnreachableError: no server is heard, and why: within a second where nobody listens and
            there is no ``wait``, or where a server has another secret or certificate. What may
            still come right is a warning in the log ``sphtp.client``, until time is up.
        RefusedError: the servers do not admit this client; ``reason`` is their word.
        SettingsError, UdpAddressError: an argument makes no sense, or its address no socket.
    """
    patience, peers = Patience(timeout, wait), dict[int, Peer]()
    outlook = Outlook(addresses := _parse(servers, tls), patience)
    async with open_node(
        host or await outlook.where_to_bind(),
        port,
        settings=channel_settings,
        messages=messages,
        security=_secure(identity := identity or draw_identity(), peers, handshake_limits),
        instruments=instruments,
        impairment=impairment,
        seed=seed,
    ) as node:
        where = await outlook.candidates_of(node.address, advertise)
        machine = _make_machine(seed, timers, addresses, where, data, ids, identity, limits)
        with open_bus(secret, tls, server_keys) as bus:
            it = Client(node, machine, bus, identity, peers)
            async with _registered(it, patience, tls):
                yield it


def _secure(identity: Identity, peers: dict[int, Peer], limits: HandshakeLimits | None) -> Security:
    return Security(
        identity=identity,
        authenticator=RosterAuthenticator(peers),
        limits=limits or HandshakeLimits(),
    )


@asynccontextmanager
async def _registered(client: Client, patience: Patience, tls: Tls | None) -> AsyncIterator[None]:
    registration = client._registration  # noqa: SLF001 - the two halves of one thing
    async with running(registration.run):
        try:
            await registration.wait_established(patience, tls)
            yield
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


def _parse(servers: Servers, tls: Tls | None) -> list[ServerAddress]:
    if not servers:
        raise SettingsError("servers is empty; allowed is one address or more")
    if isinstance(servers, str | ServerAddress):
        servers = [servers]
    parsed = [_parse_one(server) for server in servers]
    require_tls(parsed, tls)
    return parsed


def _parse_one(server: object) -> ServerAddress:
    match server:
        case ServerAddress():
            return server
        case str():
            return ServerAddress.parse(server)
        case (str(host), int(port)):
            bare = host.removeprefix("[").removesuffix("]")
            return ServerAddress.parse(f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}")
        case _:
            raise SettingsError(
                f"server address {server!r}: allowed is text such as 'tcp://host:8764', a "
                "ServerAddress, or a pair of host and port"
            )
