"""The search for peers: by id, by name, or by a function of the program.

Servers introduce peers a moment after this client has registered, and programs start in any order.
So a search waits. A search by id also requests the peer from the servers, because the client may
watch only some groups. Such a client requests its callers as well: peers that open a channel to it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import trio

from sphtp.core.control.client import ClientMachine
from sphtp.core.control.records import Peer
from sphtp.core.control.vocabulary import is_client_id
from sphtp.core.datagrams import Address
from sphtp.core.printable import peer_label
from sphtp.core.token_bucket import TokenBucket
from sphtp.errors import UnreachableError
from sphtp.shell.registration import Registration

PATIENCE: Final = 5.0
"""Seconds after which a wait is logged, with the wanted peer."""

LOOKUPS_PER_SECOND: Final = 16
"""The most callers that are looked up per second, and at once. There has to be a limit, because
anybody may claim any id."""

log: Final = logging.getLogger("sphtp.client")

Wanted = int | str | Callable[[Peer], bool]
Reachable = Peer | int | str


class PeerMatcher:
    """The search for a wanted peer, by its id, its name, or the program's function.

    If the function raises an error for a peer, that peer is not the wanted one. Raises
    ``TypeError`` if ``wanted`` is neither id nor name nor function.
    """

    def __init__(self, wanted: Wanted) -> None:
        if not isinstance(wanted, int | str) and not callable(wanted):
            raise TypeError(f"{wanted!r} is neither id nor name of a peer nor a function of a peer")
        self._wanted = wanted
        self._failures: dict[int, Exception] = {}

    def find(self, peers: Mapping[int, Peer]) -> Peer | None:
        """Return the wanted peer, or None. Raises errors of the function that no data can cause."""
        if isinstance(self._wanted, int):
            return peers.get(self._wanted)
        if isinstance(self._wanted, str):
            return named(peers, self._wanted)
        self._failures.clear()
        for peer in tuple(peers.values()):
            try:
                if self._wanted(peer):
                    return peer
            except Exception as error:
                if _is_of_function(error):
                    raise
                self._failures[peer.id] = error
        return None

    def describe(self, others: int, time: str = "") -> str:
        """Return the text for a missing peer, with the last error of the function if it raised."""
        name = "the wanted peer"
        if isinstance(self._wanted, int):
            name = f"peer {self._wanted:#010x}"
        elif isinstance(self._wanted, str):
            name = f"peer {self._wanted!r}"
        text = (
            f"{name} did not appear{time}; {others} other{'s are' if others != 1 else ' is'} here"
        )
        if not self._failures:
            return text
        *_, last = self._failures.values()
        return f"{text}; the function raised for {len(self._failures)} of them, last {last!r}"


def named(peers: Mapping[int, Peer], name: str) -> Peer | None:
    """Return the peer of this name; of several the one that entered last."""
    if not name:
        return None
    last = None
    for peer in peers.values():
        if peer.name == name:
            last = peer
    return last


def _is_of_function(error: Exception) -> bool:
    """Return True if no data can cause the error: a misspelt name, or a wrong signature."""
    if isinstance(error, AttributeError):
        return isinstance(error.obj, Peer)
    # The first entry of the traceback is this module's call. If the call reached the function,
    # there is a second.
    was_called = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    return isinstance(error, NameError) or (isinstance(error, TypeError) and not was_called)


class PeerSearch:
    """The searches of one client among ``peers``. ``timeout`` bounds ``reach``, in seconds."""

    def __init__(
        self,
        peers: Mapping[int, Peer],
        machine: ClientMachine,
        registration: Registration,
        timeout: float,
    ) -> None:
        self._peers = peers
        self._machine = machine
        self._registration = registration
        self._timeout = timeout

    def look_up_caller(self, peer_id: int) -> None:
        """Request a caller from the servers, if this client watches only some groups."""
        if self._machine.is_restricted:
            self._look_up(peer_id)

    async def wait_for(self, wanted: Wanted) -> Peer:
        """Wait for a peer; see ``Client.wait_for_peer``."""
        matcher = PeerMatcher(wanted)
        self._look_up(wanted)
        try:
            with trio.move_on_after(PATIENCE):
                return await self._find(matcher)
            log.warning("%s", matcher.describe(len(self._peers)))
            return await self._find(matcher)
        except trio.Cancelled:
            log.warning("a wait was cancelled: %s", matcher.describe(len(self._peers)))
            raise

    async def reach(self, peer: Reachable) -> tuple[int, tuple[Address, ...]]:
        """Wait until the servers have introduced a peer, and return its id and addresses.

        Raises ``UnreachableError`` if they do not introduce it in time, or it has no address, and
        ``TypeError`` if ``peer`` is neither a peer nor its id or name. Raises otherwise as
        ``Registration.wait``.
        """
        wanted = peer.id if isinstance(peer, Peer) else peer
        if not isinstance(wanted, int | str):
            raise TypeError(f"{peer!r} is neither a peer nor its id or name")
        matcher, found = PeerMatcher(wanted), None
        self._look_up(wanted)
        with trio.move_on_after(self._timeout):
            found = await self._find(matcher)
        if found is None:
            time = f" within {self._timeout:g} s"
            raise UnreachableError(matcher.describe(len(self._peers), time))
        if not found.addresses:
            label = peer_label(found.name, found.id)
            raise UnreachableError(f"peer {label} has announced no address")
        return found.id, tuple(found.addresses)

    def _look_up(self, wanted: Wanted) -> None:
        if isinstance(wanted, int) and wanted not in self._peers:
            self._machine.lookup(trio.current_time(), wanted)
            self._registration.flush()

    async def _find(self, matcher: PeerMatcher) -> Peer:
        found: list[Peer] = []

        def is_here() -> bool:
            peer = matcher.find(self._peers)
            found.extend([peer] if peer is not None else [])
            return peer is not None

        await self._registration.wait(is_here)
        return found[0]


class CallersIntroduced(Mapping[int, Peer]):
    """The peers that servers introduced.

    If a client's id is not among them, ``look_up`` is called with it, ``LOOKUPS_PER_SECOND`` times
    a second at most. Peers of other groups may call a client that watches only some groups. The
    handshake asks such a caller to repeat its attempt. By then the servers usually have answered.
    """

    def __init__(self, peers: Mapping[int, Peer]) -> None:
        self._peers = peers
        self._lookups = TokenBucket(LOOKUPS_PER_SECOND)
        self.look_up: Callable[[int], None] | None = None

    def __getitem__(self, number: int) -> Peer:
        peer = self._peers.get(number)
        if peer is not None:
            return peer
        look_up = self.look_up
        if look_up is not None and is_client_id(number) and self._lookups.take(trio.current_time()):
            look_up(number)
        raise KeyError(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self._peers)

    def __len__(self) -> int:
        return len(self._peers)
