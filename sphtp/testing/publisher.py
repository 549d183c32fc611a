"""A source of a stream at its address, and the addresses of its receivers."""

from collections.abc import Iterator, Sequence

from sphtp.core.entropy import Secrets
from sphtp.core.stream.events import ALL_RECEIVERS, OutgoingBodies, SourceEvent
from sphtp.core.stream.retention import FetchServer
from sphtp.core.stream.sealing import envelope
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.source import SourceState, SourceTransport
from sphtp.core.stream.wire import FEEDBACK_HEADER, decode_feedback_header_untrusted, stream_header
from sphtp.errors import RemoteError
from sphtp.testing.network import Address


class Publisher:
    """A source on the network, in the clear.

    ``is_on_air`` is true while its node exists. ``events`` are the events of the source.
    ``foreign`` counts datagrams for another session. Several publishers may share an address. With
    ``shared``, its receivers are a group.
    """

    def __init__(
        self,
        secrets: Secrets,
        settings: StreamSettings,
        address: Address,
        *,
        now: float,
        topics: int = 1,
        first: int = 1,
        shared: bool = False,
    ) -> None:
        self.settings = settings
        self.address = address
        self.source = SourceTransport(
            secrets,
            settings,
            now=now,
            topics=topics,
            first=first,
            envelope=envelope(is_sealed=False),
            shared=shared,
        )
        self.is_on_air = True
        self.events: list[SourceEvent] = []
        self.foreign = 0
        self._topics = topics
        self._front = stream_header(self.source.session, 0)
        self._places: dict[int, Address] = {}
        self._joined = 0

    @property
    def session(self) -> int:
        """The id of the source's session."""
        return self.source.session

    @property
    def is_over(self) -> bool:
        """True if the source has ended."""
        return self.source.state is SourceState.CLOSED

    def places(self, receiver: int) -> Sequence[Address]:
        """Return the address of a receiver, or the distinct addresses of all."""
        if receiver != ALL_RECEIVERS:
            return (self._places[receiver],)
        return tuple(dict.fromkeys(self._places.values()))

    def join(self, now: float, place: Address) -> int:
        """Add a receiver; return its number."""
        self._joined += 1
        self._places[self._joined] = place
        self.source.handle_joined(now, self._joined)
        return self._joined

    def leave(self, now: float, receiver: int) -> None:
        """Remove a receiver."""
        del self._places[receiver]
        self.source.handle_left(now, receiver)

    def fetch_server(self) -> FetchServer:
        """Return the server of one connection to the history, limited to the rate of repairs."""
        source, rate = self.source, self.settings.repair_rate
        return FetchServer(source.history, source.session, self._topics, source.part, rate)

    def handle_datagram(self, now: float, sender: Address, datagram: bytes) -> None:
        """Handle a datagram of a receiver; count one of another session or a wrong address."""
        try:
            session, receiver = decode_feedback_header_untrusted(datagram)
        except RemoteError:
            self.foreign += 1
            return
        if session != self.session or self._places.get(receiver) != sender:
            self.foreign += 1
            return
        self.source.handle_feedback_untrusted(now, receiver, datagram[FEEDBACK_HEADER.size :])

    def handle_timeout(self, now: float) -> None:
        """Do what is due by now."""
        self.source.handle_timeout(now)

    def poll_timeout(self) -> float | None:
        """Return when ``handle_timeout`` is due; None if never."""
        return self.source.poll_timeout() if self.is_on_air else None

    def poll_transmit(self, now: float) -> Iterator[OutgoingBodies]:
        """Yield the bodies to send, with their receivers, until none may leave now."""
        while self.is_on_air and (outgoing := self.source.poll_transmit(now)) is not None:
            yield outgoing
        while (event := self.source.poll_event()) is not None:
            self.events.append(event)

    def datagrams(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return bodies as datagrams."""
        return [self._front + body for body in bodies]
