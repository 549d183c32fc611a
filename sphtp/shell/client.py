"""A client: registered with the servers, introduced to peers, and in channels with some of them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import trio

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.client_table import ClientState
from sphtp.core.control.codec import Parameter
from sphtp.core.control.counters import Count
from sphtp.core.control.events import Established
from sphtp.core.control.records import Member
from sphtp.core.datagrams import Address
from sphtp.core.packing import pack
from sphtp.core.secure.identity import Identity
from sphtp.core.stream.settings import StreamSettings
from sphtp.errors import UnreachableError
from sphtp.shell.channel import Channel
from sphtp.shell.client_statistics import ClientStatistics
from sphtp.shell.feed import Listener
from sphtp.shell.lifetime import block
from sphtp.shell.node import Node
from sphtp.shell.peer import Peer
from sphtp.shell.presence import ClientEvent, PeerChanged, PeerEntered, PeerLeft
from sphtp.shell.registration import Bus, Registration
from sphtp.shell.search import Search, Wanted
from sphtp.shell.streams.group import Group
from sphtp.shell.streams.source import Source
from sphtp.shell.streams.stream import Stream
from sphtp.shell.streams.terms import Terms


class Client:
    """A registered client. Made by ``open_client``."""

    def __init__(
        self,
        node: Node,
        machine: ClientMachine,
        bus: Bus,
        identity: Identity,
        peers: dict[int, Peer],
    ) -> None:
        self._identity = identity
        self._node = node
        self._machine = machine
        self._peers = peers
        self._topics: Sequence[str] = ()
        self._registration = Registration(machine, bus, self._note)

    @property
    def id(self) -> int:
        """The odd number that all servers acknowledged last.

        After ``IdLost`` it stays until another one is acknowledged.
        """
        return self._node.peer_id

    @property
    def identity(self) -> Identity:
        """Who this client is; the servers tell its peers the public key."""
        return self._identity

    @property
    def state(self) -> ClientState:
        """Where it stands with the servers; SUSPENDED while none is heard."""
        return self._machine.state

    @property
    def address(self) -> Address:
        """Where its UDP socket is bound, with the real port."""
        return self._node.address

    @property
    def peers(self) -> Mapping[int, Peer]:
        """The other clients of the cluster, by id."""
        return MappingProxyType(self._peers)

    @property
    def servers(self) -> Mapping[int, Member]:
        """The servers that are heard, by id."""
        return self._machine.servers

    def statistics(self) -> ClientStatistics:
        """Return the figures so far."""
        counters = self._machine.counters
        return ClientStatistics(
            counters=counters.as_dict(),
            node=self._node.statistics(),
            events_dropped=self._registration.feed.dropped,
            undialable=counters[Count.UNDIALABLE],
        )

    def events(self) -> Listener[ClientEvent]:
        """Return an async iterator over what happens from now on; it ends with the client.

        ``with client.events() as events:`` closes it; it is also closed when it is dropped. A
        reader that falls 1024 events behind misses some; ``statistics`` counts them.
        """
        return self._registration.feed.listen()

    def set_data(self, data: Any) -> None:
        """Change what peers learn of this client."""
        self._machine.set_data(trio.current_time(), pack(data))
        self._registration.flush()

    def publish(self, command: int, parameters: Sequence[Parameter] = ()) -> None:
        """Send the servers a message of the application.

        Raises:
            StateError: command and parameters do not have numbers from 0x0100 to 0xffff, or no
                server is heard (``state``).
            MessageTooLargeError: a parameter is over 65,535 bytes, or all is over 65,536, of which
                22 and 4 for each parameter are taken; with a secret, another 36.
        """
        self._machine.publish(trio.current_time(), command, parameters)
        self._registration.flush()

    async def wait_for_peer(self, wanted: Wanted, *, timeout: float = 30.0) -> Peer:
        """Wait for a peer, named by its id or by what a function says of it.

        Peers tell of themselves what they like: where the function fails on a peer's data, that is
        not the one, and the function is asked again when the data has changed. What no data can
        cause, a name or an attribute of ``Peer`` that does not exist, leaves as it is.

        Raises ``UnreachableError`` when none has come after ``timeout`` seconds; if the function
        failed, it says so, and the last error is its cause.
        """
        if isinstance(wanted, int) and wanted not in self._peers:
            self._machine.lookup(trio.current_time(), wanted)
            self._registration.flush()
        search = Search(wanted)
        with trio.move_on_after(timeout):
            await self._registration.wait(lambda: search.find(self._peers) is not None)
        peer = search.find(self._peers)
        if peer is None:
            raise search.in_vain(timeout, len(self._peers))
        return peer

    @block
    async def open_channel(self, peer_id: int, *, timeout: float = 5.0) -> AsyncIterator[Channel]:
        """Open a channel to a peer for the length of the block; leaving it drains and closes.

        Raises:
            UnreachableError: the servers do not know the peer within ``timeout`` seconds, what it
                told them is no key, or it does not answer within ``connect_timeout``.
            RefusedError: the peer is full, another one now has its address, or its messages are
                of other types.
        """
        (host, port), *more = await self._addresses_of(peer_id, timeout)
        async with self._node.open_channel(host, port, *more, wanted=peer_id) as channel:
            yield channel

    @block
    async def open_source(
        self, *topics: str, settings: StreamSettings | None = None, group: Group | None = None
    ) -> AsyncIterator[Source]:
        """Open a source of one topic or more, of which all peers learn; see ``Node.open_source``.

        Peers find it by ``peer.topics`` and ``subscribe``.
        """
        async with self._node.open_source(*topics, settings=settings, group=group) as source:
            self._tell_topics([*self._topics, *topics])
            try:
                yield source
            finally:
                self._tell_topics([topic for topic in self._topics if topic not in topics])

    @block
    async def subscribe(
        self,
        peer_id: int,
        topic: str,
        *,
        late_join: bool | int = False,
        after: int | None = None,
        session: int | None = None,
        numbered: bool = False,
        ordered: bool = True,
        recover: bool = True,
        settings: StreamSettings | None = None,
        interface: str | None = None,
        timeout: float = 5.0,
    ) -> AsyncIterator[Stream]:
        """Subscribe to a topic of a peer for the length of the block.

        Args:
            peer_id, topic: whose; a peer's ``topics`` say which it has.
            late_join: messages sent before: all that the source keeps, or as many of the last.
            after: every message after the one with this number, or its loss, instead.
            session: the ``session`` of the stream that told this number.
            numbered: messages come as ``StreamMessage``, with their numbers.
            ordered: in the order of their sending; else as they arrive, each at most once.
            recover: whether what the stream does not repair is fetched over TCP.
            settings: timers and limits of this receiver, by default those of one network.
            interface: where to join a multicast group, by default where this client is bound.
            timeout: seconds to wait until the servers know the peer.

        Raises:
            UnreachableError: as ``open_channel``.
            RefusedError: the peer has no such topic, or all receivers that it may have, or its
                source began anew and ``session`` is no more.
            SettingsError: ``late_join`` is below 0, or ``after`` below -1.
        """
        terms = Terms(
            late_join=late_join,
            after=after,
            session=session,
            numbered=numbered,
            ordered=ordered,
            recover=recover,
            settings=settings or StreamSettings(),
            interface=interface or self.address[0],
        )
        (host, port), *more = await self._addresses_of(peer_id, timeout)
        async with self._node.subscribe(
            host, port, *more, topic=topic, wanted=peer_id, terms=terms
        ) as stream:
            yield stream

    async def accept(self) -> Channel:
        """Wait for the next channel that a peer opens."""
        return await self._node.accept()

    def incoming(self) -> AsyncIterator[Channel]:
        """Iterate over the channels that peers open."""
        return self._node.incoming()

    async def _addresses_of(self, peer_id: int, timeout: float) -> tuple[Address, ...]:
        peer = await self.wait_for_peer(peer_id, timeout=timeout)
        if not peer.addresses:
            raise UnreachableError(f"peer {peer_id:#010x} told no address")
        return tuple(peer.addresses)

    def _tell_topics(self, topics: Sequence[str]) -> None:
        """Let peers see which topics this client has."""
        self._topics = topics
        self._machine.set_topics(trio.current_time(), topics)
        self._registration.flush()

    def _note(self, event: ClientEvent) -> None:
        match event:
            case Established(client_id, _):
                self._node.peer_id = client_id
            case PeerEntered(peer) | PeerChanged(peer):
                self._peers[peer.id] = peer
            case PeerLeft(peer, _):
                self._peers.pop(peer.id, None)
            case _:
                pass
