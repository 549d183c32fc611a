"""The observer of a cluster: a client that requests the status of the other clients.

While there is a viewer, such as a browser, the observer sends a request to each peer about once a
second, or less often if there are more than ``MOST_PER_SECOND`` peers. ``cluster_status`` makes a
document of the answers.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from sphtp.core.control.records import Peer
from sphtp.core.printable import peer_label, printable
from sphtp.errors import (
    RefusedError,
    RemoteError,
    SphtpError,
    StateError,
    UnreachableError,
)
from sphtp.shell.client import Client
from sphtp.shell.cluster_status import (
    PACE,
    ClusterStatus,
    PeerAnswers,
    ServerLine,
    cluster_status,
)
from sphtp.shell.config import DEFAULTS, Config
from sphtp.shell.metrics import metric_rows, server_rows
from sphtp.shell.server import Server
from sphtp.shell.status import (
    LONGEST_IDLE,
    METRICS_KIND,
    STATUS_KIND,
    ClientStatus,
    client_status,
    fetch_status,
    is_status_served,
    read_client_status_untrusted,
    read_metrics_untrusted,
    serve_status,
    status_service,
)
from sphtp.shell.stream_admission import GONE

if TYPE_CHECKING:
    from sphtp.core.group.steps import StepStatistics

MOST_PER_SECOND: Final = 50
"""The most requests in a second. With more peers, each gets fewer requests."""

PATIENCE: Final = 5.0
"""The most seconds from a request to its answer."""

RETRY: Final = 5.0
"""Seconds from a failed request to the next one to the same peer."""


class Viewers:
    """The number of viewers, for work that is done only while there are any."""

    def __init__(self) -> None:
        self._number = 0
        self._changed = trio.lowlevel.ParkingLot()

    @contextmanager
    def viewing(self) -> Iterator[None]:
        """Count a viewer for the length of the block."""
        self._number += 1
        self._changed.unpark_all()
        try:
            yield
        finally:
            self._number -= 1
            self._changed.unpark_all()

    async def work(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task while there are viewers; cancel it after the last one."""
        while True:
            while not self._number:
                await self._changed.park()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(task)
                while self._number:
                    await self._changed.park()
                nursery.cancel_scope.cancel()


class ClusterObserver:
    """The observer: it requests the status of peers while there are viewers.

    Without a client, its documents have only the servers of this process, and the clients that are
    registered there, without the status of these clients.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        clients: Sequence[Client],
        steps: "Mapping[str, StepStatistics[Any]] | None" = None,
        config: Config = DEFAULTS,
    ) -> None:
        self._config = config
        self._servers = servers
        self._clients = [*clients]
        self._steps = steps
        self._own: Client | None = None
        self._answers: dict[int, PeerAnswers] = {}
        self._answered_at: dict[int, float] = {}
        self.viewers = Viewers()
        """The viewers of the documents."""
        self.changed = trio.lowlevel.ParkingLot()
        """The tasks that wait for a new document."""
        self.number = 0
        """A number that grows with each new document."""
        self.problem: str | None = None
        """The reason why a part of the cluster is missing in the documents, or None."""

    @property
    def client(self) -> Client | None:
        """The client that sends the requests; None if there is none."""
        return self._own or (self._clients[0] if self._clients else None)

    @property
    def pause(self) -> float:
        """The seconds from a peer's answer to the next request to it."""
        count = 0 if self.client is None else len(self.client.peers)
        return max(PACE, count / MOST_PER_SECOND)

    @contextmanager
    def asking_with(self, client: Client) -> Iterator[None]:
        """Send the requests by this client, which only observes, for the length of the block."""
        service = status_service(_refuse)
        client.node.services.add(service)
        self._own = client
        try:
            yield
        finally:
            self._own = None
            client.node.services.remove(service)

    async def run(self) -> None:
        """Send requests while there are viewers, and serve the status of the process's own clients.

        Runs until cancelled.
        """
        async with trio.open_nursery() as nursery:
            for client in self._clients:
                if not is_status_served(client):
                    nursery.start_soon(self._serve, client)
            await self.viewers.work(self._look)

    async def _serve(self, client: Client) -> None:
        with suppress(StateError):  # The program has begun to serve the status meanwhile.
            await serve_status(client, steps=self._steps)

    async def _look(self) -> None:
        try:
            await self._ask_peers()
        finally:
            self._answers.clear()
            self._answered_at.clear()
            # The next viewer must not get the old document.
            self.number += 1

    async def _ask_peers(self) -> None:
        followed: set[int] = set()
        async with trio.open_nursery() as nursery:
            while True:
                for client in self._clients:
                    self._note(client.id, client_status(client, self._steps))
                asking = self.client
                if asking is not None:
                    own = {client.id for client in self._clients}
                    for peer_id in asking.peers.keys() - followed - own:
                        followed.add(peer_id)
                        nursery.start_soon(self._follow, asking, peer_id, followed)
                self.number += 1
                self.changed.unpark_all()
                await trio.sleep(PACE)

    async def _follow(self, client: Client, peer_id: int, followed: set[int]) -> None:
        """Send requests to a peer until it is gone."""
        service = status_service(_refuse)
        try:
            while (peer := client.peers.get(peer_id)) is not None and client is self.client:
                try:
                    opening = client.node.services.open(service, peer.addresses, peer_id)
                    async with opening as channel:
                        while True:
                            answer = await _ask(channel, STATUS_KIND)
                            self._note(peer_id, read_client_status_untrusted(answer))
                            if self.pause > LONGEST_IDLE / 2:
                                break
                            await trio.sleep(self.pause)
                    # With thousands of peers, the pause is so long that a peer closes the channel.
                    await trio.sleep(self.pause)
                    continue
                except RefusedError:
                    self._note_problem(peer_id, "its program does not serve its status")
                except (SphtpError, trio.TooSlowError, *GONE) as error:
                    self._note_problem(peer_id, str(error) or "it does not answer")
                await trio.sleep(RETRY)
        finally:
            followed.discard(peer_id)
            self._answers.pop(peer_id, None)
            self._answered_at.pop(peer_id, None)

    def _note(self, peer_id: int, status: ClientStatus) -> None:
        last = self._answers.get(peer_id, PeerAnswers()).last
        self._answers[peer_id] = PeerAnswers(status, last)
        self._answered_at[peer_id] = trio.current_time()

    def _note_problem(self, peer_id: int, problem: str) -> None:
        answers = self._answers.get(peer_id, PeerAnswers())
        self._answers[peer_id] = answers._replace(problem=printable(problem))

    async def fetch_metrics(self, peer_id: int) -> list[list[Any]]:
        """Return the metrics of a peer or server, a row for each value.

        Raises ``UnreachableError`` if there is no such peer, or it does not answer;
        ``RefusedError`` if its program does not serve its status; ``RemoteError`` or, for a server,
        ``WireError`` if the answer is malformed; and for a server also as ``fetch_status``.
        """
        client = self.client
        if client is not None and client.id == peer_id:
            return metric_rows([client])
        server = None if client is None else client.servers.get(peer_id)
        if server is not None and server.address is not None:
            return server_rows(await fetch_status(server.address, config=self._config))
        peer = None if client is None else client.peers.get(peer_id)
        if client is None or peer is None:
            raise UnreachableError(f"there is no peer {peer_id:#010x}")
        try:
            service = status_service(_refuse)
            async with client.node.services.open(service, peer.addresses, peer_id) as channel:
                return read_metrics_untrusted(await _ask(channel, METRICS_KIND))
        except (trio.TooSlowError, *GONE) as error:
            label = peer_label(peer.name, peer_id)
            raise UnreachableError(f"{label} does not answer") from error

    def status(self) -> ClusterStatus:
        """Return the present document."""
        now, asking = trio.current_time(), self.client
        peers: dict[int, Peer] = {}
        for server in self._servers:
            peers |= server.clients
        for client in (*self._clients, *([self._own] if self._own else [])):
            peers |= client.peers
            peers[client.id] = _own_peer(client)
        answers = {
            number: answered._replace(age=now - self._answered_at[number])
            if number in self._answered_at
            else answered
            for number, answered in self._answers.items()
        }
        observer = None if self._own is None else self._own.id
        return cluster_status(
            self._server_lines(asking), peers.values(), answers, observer, self.pause, self.problem
        )

    def _server_lines(self, client: Client | None) -> list[ServerLine]:
        lines: dict[int, ServerLine] = {}
        if client is not None:
            for member in client.servers.values():
                lines[member.id] = {
                    "id": member.id,
                    "state": member.state.name.lower(),
                    "address": str(member.address or ""),
                    "clients": None,
                }
        for server in self._servers:
            lines[server.id] = {
                "id": server.id,
                "state": server.state.value,
                "address": str(server.advertised),
                "clients": len(server.clients),
            }
        return [lines[number] for number in sorted(lines)]


def _refuse(channel: Any) -> None:
    channel.abort("the status of this client is not served")


async def _ask(channel: Any, kind: str) -> Any:
    with trio.fail_after(PATIENCE):
        await channel.send(kind)
        answer = await channel.receive()
    # ``==`` of an array would compare its items.
    is_pair = isinstance(answer, list) and len(answer) == 2 and type(answer[0]) is str
    if not is_pair or answer[0] != kind:
        raise RemoteError("the answer does not belong to the request")
    return answer[1]


def _own_peer(client: Client) -> Peer:
    topics = [topic for each in client.node.streams.dispatcher.sources for topic in each.topics]
    return Peer(
        id=client.id,
        packed=b"",
        addresses=(client.address,),
        nonce=0,
        topics=tuple(topics),
        name=client.name,
        groups=client.groups,
    )
