"""Who is told no, and in which words."""

from collections import deque

from sphtp.core.channel.accept_queue import AcceptQueue
from sphtp.core.channel.handshake import Accept, Connect, Refusal, Refuse, encode_refuse
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import EndpointCounters
from sphtp.core.datagrams import Address, Datagrams
from sphtp.core.schema import Mismatch, Schema

COUNTERS = {
    Refusal.FULL: "refused_full",
    Refusal.WRONG_PEER: "refused_wrong_peer",
    Refusal.GONE: "refused_closed",
    Refusal.SCHEMA: "refused_schema",
    Refusal.CLEAR: "refused_sealed",
}


class Refusals:
    """The REFUSEs to be sent, as many as the backlog: in a flood some get none, and ask again.

    None is longer than what it answers, or than what any path takes.
    """

    def __init__(
        self, settings: ChannelSettings, schema: Schema, counters: EndpointCounters
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._counters = counters
        self._queue: deque[Datagrams] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def refuse(self, address: Address, connect: Connect, why: Refusal) -> None:
        """Refuse a CONNECT."""
        counter = COUNTERS[why]
        setattr(self._counters, counter, getattr(self._counters, counter) + 1)
        mismatch = self._schema.compare(connect.digests) if why is Refusal.SCHEMA else None
        refuse = Refuse(connect.token, why, mismatch)
        room = min(connect.size, self._settings.base_datagram)
        self._say(address, encode_refuse(connect.offer.connection_id, refuse, room))

    def refuse_full(self, address: Address, connect: Connect, backlog: AcceptQueue) -> None:
        """Refuse a CONNECT because of too many channels: of those not taken yet, or of all."""
        counter = "over_backlog" if backlog.is_full else "over_max_channels"
        setattr(self._counters, counter, getattr(self._counters, counter) + 1)
        self.refuse(address, connect, Refusal.FULL)

    def refuse_sealed(self, address: Address, opener: int, token: int) -> None:
        """Refuse whoever wants a sealed channel of a side that has no keys."""
        self._counters.refused_sealed += 1
        self._say(address, encode_refuse(opener, Refuse(token, Refusal.CLEAR)))

    def decline(self, address: Address, accept: Accept, why: Refusal) -> None:
        """Refuse an ACCEPT: whoever waits for its data should know."""
        mismatch = Mismatch(self._schema.schema_hash) if why is Refusal.SCHEMA else None
        refuse = Refuse(accept.token, why, mismatch)
        self._say(address, encode_refuse(accept.offer.connection_id, refuse))

    def decline_schema(self, address: Address, accept: Accept) -> Refuse:
        """Decline for other types of messages; return what is as good as the peer's own refusal."""
        self.decline(address, accept, Refusal.SCHEMA)
        return Refuse(accept.token, Refusal.SCHEMA, Mismatch(accept.offer.schema_hash))

    def poll_transmit(self) -> Datagrams | None:
        """The next one to send."""
        return self._queue.popleft() if self._queue else None

    def _say(self, address: Address, datagram: bytes) -> None:
        if len(self._queue) < self._settings.backlog:
            self._queue.append(Datagrams.of(address, datagram))
