"""The servers that are heard, by their heartbeats; clients and servers both keep such a list."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from sphtp.core.control.liveness import Liveness
from sphtp.core.control.records import MAX_MEMBERS, Member, ServerAddress
from sphtp.core.control.server_messages import ServerHeartbeat


class Hearing(NamedTuple):
    """What a heartbeat changed."""

    entered: Member | None = None
    left: Member | None = None
    is_repeated: bool = False
    """It says of servers what the one before said."""


class Neighbours:
    """Living servers with their last heartbeats, at most ``capacity``."""

    def __init__(self, expiry: float, capacity: int = MAX_MEMBERS) -> None:
        self._capacity = capacity
        self._heartbeats: dict[int, ServerHeartbeat] = {}
        self._liveness = Liveness(expiry)

    @property
    def heartbeats(self) -> Mapping[int, ServerHeartbeat]:
        """The last heartbeat of each living server."""
        return MappingProxyType(self._heartbeats)

    @property
    def members(self) -> Mapping[int, Member]:
        """What each living server tells about itself."""
        return {number: heartbeat.member for number, heartbeat in self._heartbeats.items()}

    def __contains__(self, number: int) -> bool:
        return number in self._heartbeats

    def __len__(self) -> int:
        return len(self._heartbeats)

    def addresses(self) -> Iterable[ServerAddress | None]:
        """Return the addresses of all servers that living servers tell of."""
        for heartbeat in self._heartbeats.values():
            for member in heartbeat.view.members:
                yield member.address

    def hear(self, now: float, heartbeat: ServerHeartbeat) -> Hearing | None:
        """Note a heartbeat; None when there are too many servers to note another one."""
        number = heartbeat.member.id
        known = self._heartbeats.get(number)
        if known is None and len(self) >= self._capacity:
            return None
        self._heartbeats[number] = heartbeat
        self._liveness.refresh(now, number)
        if known is None:
            return Hearing(entered=heartbeat.member)
        if known.member.nonce != heartbeat.member.nonce:
            return Hearing(entered=heartbeat.member, left=known.member)
        is_repeated = known.view == heartbeat.view and known.member == heartbeat.member
        return Hearing(is_repeated=is_repeated)

    def refresh(self, now: float, number: int) -> None:
        """Note that a known server said something else."""
        if number in self._heartbeats:
            self._liveness.refresh(now, number)

    def leave(self, number: int, nonce: int) -> Member | None:
        """Drop a server that said good-bye; return it if it was known."""
        known = self._heartbeats.get(number)
        if known is None or known.member.nonce != nonce:
            return None
        self._liveness.forget(number)
        return self._heartbeats.pop(number).member

    def forgive(self, lag: float) -> None:
        """Postpone every expiry."""
        self._liveness.forgive(lag)

    def take_expired(self, now: float) -> list[Member]:
        """Drop and return the servers that fell silent."""
        self._liveness.take_suspects(now)
        return [self._heartbeats.pop(number).member for number in self._liveness.take_expired(now)]

    def next_due(self) -> float | None:
        """Return the time at which somebody may have to be dropped."""
        return self._liveness.next_due()
