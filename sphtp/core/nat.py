"""NAT traversal: find the public address of a socket, and open a path between two peers.

A NAT gives a socket behind it a public address, its *mapping*, and *filters* incoming datagrams
(RFC 4787). An endpoint-independent mapping is the same for all destinations; a symmetric NAT makes
another one for each destination. A filter lets in datagrams from any address (full cone), from a
host to which the socket has sent (address restricted), or only from an address and port to which
it has sent (port restricted, symmetric). So two peers find a path between them in three steps,
which are those of ICE (RFC 8445):

1. **Candidates.** A node sends STUN's Binding requests (RFC 8489) to servers, from the socket of
   its channels. The answer has the address from which the request came. The node announces this
   *server-reflexive candidate* after its *host candidates*, the addresses of its machine. The order
   of the candidates is that of their priority (section 5.1.2).
2. **Request.** A dialling node sends its handshake to all candidates of the peer. The filter of its
   own NAT lets answers in from then on. If no answer comes for ``REQUEST_AFTER`` seconds, the node
   requests checks: servers pass its candidates and a random token on to the peer.
3. **Checks.** The peer then sends a *connectivity check* to each of these candidates, from the
   socket of its channels. The check opens the filter of the peer's NAT for the handshake, which the
   dialling node repeats anyway. A check that arrives proves a path in the other direction. Its
   source may be an address that was not announced, the mapping of a symmetric NAT. This is a
   *peer-reflexive candidate*, and the handshake goes to it, too.

No candidate works if one NAT is symmetric and the other filters by port, or both are symmetric:
the peers cannot find out the port of the mapping. Such a pair needs a relay for one of the two: a
server of TURN (RFC 8656), at which the node allocates a public address, the *relayed candidate*.
The relay forwards datagrams to that address, from hosts that the node has permitted. A peer that is
reached through the node's own relay has another address, whose host ends in ``RELAYED``: to a
channel it is one more path to the peer. The node tries this path after ``RELAY_AFTER`` seconds, if
no other candidate has worked. While the node uses it, it looks for a direct path every ``RECHECK``
seconds.

The same request repairs a channel whose NAT has given the socket another address. Both sides go on
sending, and neither gets an answer, because the peer's filter does not let the new address in.
After ``STALL`` seconds, the node sends Binding requests and requests checks again. When the
peer's checks have opened the filter, packets arrive from the new address, and path validation (RFC
9000, section 8.2) moves the channel there.

Requests are repeated at the times of RFC 8489, section 6.2.1. The inputs and outputs of
``NatTraversal`` are decoded messages; ``shell.nat`` encodes and decodes them.
"""

import re
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from sphtp.core.datagrams import Address
from sphtp.core.entropy import Secrets
from sphtp.core.timers import ExpiringDict, TimerQueue, earliest
from sphtp.core.token_bucket import TokenBucket, TokenBuckets
from sphtp.errors import SettingsError

RTO: Final = 0.5
REQUESTS: Final = 7
LAST_WAIT: Final = 8.0
"""Seconds until a request of STUN or TURN is repeated, doubled each time; the most requests of a
transaction; and the seconds for which it waits after the last one (RFC 8489, section 6.2.1: RTO,
Rc, and Rm times RTO)."""

REFRESH: Final = 15.0
"""Seconds between two transactions with one server (RFC 8445, section 11: Tr). They also keep the
mapping alive: a NAT may drop one after two minutes (RFC 4787, REQ-5), and some do after 30 s."""

PACE: Final = 0.05
"""Seconds between the first checks of two candidates (RFC 8445, section 14.2: Ta)."""

REQUEST_AFTER: Final = 0.2
"""Seconds for which a dialling node waits for an answer before it requests checks. On a
network without NAT the answer comes sooner, and the node sends the servers no request."""

REQUEST_AGAIN: Final = 0.5
LONGEST_REQUEST: Final = 1.0
"""Seconds until a request for checks is repeated, doubled each time up to ``LONGEST_REQUEST``,
while the attempt lasts. After a NAT has got another address, a server may accept messages from a
new connection of the node only after half an expiry, 5 s: see ``SenderConnections``."""

CHECK_AGAIN: Final = 0.25
CHECKS: Final = 4
"""Seconds until a check is repeated, doubled each time, and the most checks for one candidate."""

RELAY_AFTER: Final = 1.0
"""Seconds for which a dialling node waits for a direct path before it dials through its relay."""

RECHECK: Final = 5.0
"""Seconds between two attempts to find a direct path while a channel uses the relay."""

STALL: Final = 1.0
"""Seconds without a packet of a peer that owes an ack, after which the path counts as broken.
A lost ack does not take so long: a probe leaves within 0.1 s, see ``channel.loss_detection``."""

LOOK: Final = 0.25
"""Seconds between two calls of ``NatTraversal.handle_paths``."""

MOST_SERVERS: Final = 2
"""The STUN servers that get requests: two are enough to detect a symmetric NAT."""

MOST_PENDING: Final = 64
MOST_PENDING_OF_PEER: Final = 16
"""The pending checks, in all and for one peer, from which on further requests are ignored."""

PER_SECOND: Final = 16
PER_PEER: Final = 4
"""The requests for checks that a node fulfils per second, and at once: of all peers, and of each
peer. A request of a member may name any addresses, up to eight, and costs up to ``CHECKS`` small
datagrams to each of them."""

MOST_REFLEXIVE: Final = 4
"""The most addresses whose checks count for one attempt: those of peer-reflexive candidates, and of
announced ones."""

REMEMBERED: Final = 256
OBEYED_AGAIN: Final = 2.0
"""The requests for checks that a node remembers, and the seconds for which it does: each server
passes on the same request. The last check of a request with eight candidates leaves 0.1 s later."""

TRANSACTION_BITS: Final = 96
TOKEN_BITS: Final = 64


class BindingRequest(NamedTuple):
    """A Binding request to send to a server; ``transaction`` is its id of 96 bits."""

    server: Address
    transaction: int


class CheckCredential(NamedTuple):
    """The proof that a check belongs to an attempt (RFC 8445, section 7.1.2).

    ``peer`` is the id of the other node: of the checking node at the side that dials, and of the
    dialling node at the side that checks. The side that dials draws the token.
    """

    peer: int
    token: int


class ConnectivityCheck(NamedTuple):
    """A check to send to a candidate of a node that requested it."""

    address: Address
    credential: CheckCredential


@dataclass(slots=True)
class _Binding:
    """The transactions with one server."""

    transaction: int = 0
    requests: int = 0
    mapped: Address | None = None


@dataclass(slots=True)
class _Attempt:
    """An attempt of this node to find a path to a peer."""

    peer: int
    check_requests: int = 0
    reflexive: set[Address] = field(default_factory=set)


@dataclass(slots=True)
class _Check:
    check: ConnectivityCheck
    sent: int = 0


class PathSample(NamedTuple):
    """The present state of an open channel's path.

    ``received_at`` is the time of the last packet of the peer, whose id is ``peer``. ``is_owed`` is
    True if the peer owes an ack.
    """

    channel: Hashable
    peer: int
    received_at: float
    is_owed: bool


class NatTraversal:
    """NAT traversal of one node: to peers behind NAT, and for peers to this node. Times in seconds.

    After any input or command, poll all outputs. ``secrets`` draws transactions and tokens.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._bindings: dict[Address, _Binding] = {}
        self._requests_due: TimerQueue[Address] = TimerQueue()
        self._attempts: dict[int, _Attempt] = {}
        self._check_requests_due: TimerQueue[int] = TimerQueue()
        self._relays_due: TimerQueue[int] = TimerQueue()
        self._relays: deque[int] = deque()
        self._checks: dict[int, _Check] = {}
        self._checks_due: TimerQueue[int] = TimerQueue()
        self._next_check = 0
        self._obeyed = TokenBucket(PER_SECOND)
        self._obeyed_of: TokenBuckets[int] = TokenBuckets(PER_PEER)
        self._seen: ExpiringDict[tuple[CheckCredential, tuple[Address, ...]], None] = ExpiringDict(
            REMEMBERED
        )
        self._looked: dict[Hashable, tuple[float, float]] = {}
        self._stalled: dict[Hashable, int] = {}
        self._requests: deque[BindingRequest] = deque()
        self._check_requests: deque[CheckCredential] = deque()
        self._ready_checks: deque[ConnectivityCheck] = deque()
        self._reflexive: tuple[Address, ...] = ()

    # Getters

    @property
    def reflexive(self) -> tuple[Address, ...]:
        """The server-reflexive candidates of this node; several if its NAT is symmetric."""
        return self._reflexive

    @property
    def has_servers(self) -> bool:
        """True if there are STUN servers, so that this node can detect a NAT."""
        return bool(self._bindings)

    @property
    def credentials(self) -> list[CheckCredential]:
        """The credentials of the present attempts of this node."""
        return [CheckCredential(it.peer, token) for token, it in self._attempts.items()]

    # Candidates

    def set_servers(self, now: float, servers: Iterable[Address]) -> None:
        """Send Binding requests to the first ``MOST_SERVERS`` of these servers from now on."""
        wanted = list(dict.fromkeys(servers))[:MOST_SERVERS]
        for gone in self._bindings.keys() - set(wanted):
            del self._bindings[gone]
            self._requests_due.set(gone, None)
        for server in wanted:
            if server not in self._bindings:
                self._bindings[server] = _Binding()
                self._ask(now, server)
        self._note_reflexive()

    def handle_binding(
        self, now: float, server: Address, transaction: int, mapped: Address
    ) -> bool:
        """Handle a Binding response: ``mapped`` is the source address of the request.

        Return True if the response answers a present request.
        """
        binding = self._bindings.get(server)
        if binding is None or not binding.requests or binding.transaction != transaction:
            return False
        binding.requests, binding.mapped = 0, mapped
        self._requests_due.set(server, now + REFRESH)
        self._note_reflexive()
        return True

    def _ask(self, now: float, server: Address) -> None:
        """Begin a transaction."""
        binding = self._bindings[server]
        binding.transaction, binding.requests = self._secrets.getrandbits(TRANSACTION_BITS), 0
        self._repeat_request(now, server)

    def _repeat_request(self, now: float, server: Address) -> None:
        binding = self._bindings[server]
        self._requests.append(BindingRequest(server, binding.transaction))
        binding.requests += 1
        self._requests_due.set(server, now + _wait_after(binding.requests))

    def _handle_request_due(self, now: float, server: Address) -> None:
        binding = self._bindings[server]
        if 0 < binding.requests < REQUESTS:
            self._repeat_request(now, server)
        elif binding.requests:
            # The silence of a server is no evidence about the mapping.
            binding.requests = 0
            self._requests_due.set(server, now + REFRESH)
        else:
            self._ask(now, server)

    def _note_reflexive(self) -> None:
        mapped = [binding.mapped for binding in self._bindings.values() if binding.mapped]
        self._reflexive = tuple(dict.fromkeys(mapped))

    # The side that dials

    def begin(self, now: float, peer: int, *, wait: float = REQUEST_AFTER) -> int:
        """Begin an attempt to find a path to a peer; return its token.

        After ``wait`` seconds the node requests checks of the peer, unless ``end`` is called
        before.
        """
        token = self._secrets.getrandbits(TOKEN_BITS)
        self._attempts[token] = _Attempt(peer)
        self._check_requests_due.set(token, now + wait)
        self._relays_due.set(token, now + RELAY_AFTER)
        return token

    def end(self, token: int) -> None:
        """End an attempt, because there is a path, or the program no longer wants one."""
        self._attempts.pop(token, None)
        self._check_requests_due.set(token, None)
        self._relays_due.set(token, None)

    def takes_check(self, source: Address, credential: CheckCredential) -> bool:
        """Handle a check from ``source``; return True if an attempt has to try that address.

        It has to if the credential is that of the attempt, unless checks for it have come from
        ``MOST_REFLEXIVE`` other addresses.
        """
        attempt = self._attempts.get(credential.token)
        if attempt is None or attempt.peer != credential.peer:
            return False
        if source not in attempt.reflexive and len(attempt.reflexive) >= MOST_REFLEXIVE:
            return False
        attempt.reflexive.add(source)
        return True

    def _request_checks(self, now: float, token: int) -> None:
        attempt = self._attempts[token]
        self._check_requests.append(CheckCredential(attempt.peer, token))
        wait = min(REQUEST_AGAIN * 2**attempt.check_requests, LONGEST_REQUEST)
        self._check_requests_due.set(token, now + wait)
        attempt.check_requests += 1

    # The side that checks

    def handle_check_request(
        self, now: float, credential: CheckCredential, candidates: Sequence[Address]
    ) -> None:
        """Handle a request for checks that a server passed on: check candidates in this order.

        A request that came within the last ``OBEYED_AGAIN`` seconds, too, is ignored, and so is one
        beyond the limits.
        """
        # Another server may pass on the same request. A request with new candidates is another one:
        # a node whose path broke finds out its new address a moment later.
        request = credential, tuple(candidates)
        self._seen.take_expired(now)
        if request in self._seen or self._has_too_many_of(credential.peer):
            return
        if not (self._obeyed_of.take(now, credential.peer) and self._obeyed.take(now)):
            return
        self._seen.put(request, None, now + OBEYED_AGAIN)
        for place, address in enumerate(candidates):
            number = self._next_check
            self._next_check += 1
            self._checks[number] = _Check(ConnectivityCheck(address, credential))
            self._checks_due.set(number, now + place * PACE)
        self.handle_timeout(now)

    def _has_too_many_of(self, peer: int) -> bool:
        own = sum(pending.check.credential.peer == peer for pending in self._checks.values())
        return own >= MOST_PENDING_OF_PEER or len(self._checks) >= MOST_PENDING

    def _handle_check_due(self, now: float, number: int) -> None:
        pending = self._checks[number]
        self._ready_checks.append(pending.check)
        self._checks_due.set(number, now + CHECK_AGAIN * 2**pending.sent)
        pending.sent += 1
        if pending.sent >= CHECKS:
            del self._checks[number]
            self._checks_due.set(number, None)

    # Channels whose path has broken

    def handle_paths(self, now: float, paths: Iterable[PathSample]) -> None:
        """Begin an attempt for each channel whose peer owes an ack and is silent for ``STALL`` s.

        The attempt ends when a packet of the peer arrives, or when the peer owes no ack any more,
        or when the channel is not among the samples.
        Call this method about every ``LOOK`` seconds with the samples of all open channels.
        """
        looked: dict[Hashable, tuple[float, float]] = {}
        for channel, peer, received_at, is_owed in paths:
            last = self._looked.get(channel)
            if not is_owed:
                pass
            elif last is None or last[0] != received_at:
                looked[channel] = received_at, now
            else:
                looked[channel] = last
                if now >= last[1] + STALL and channel not in self._stalled:
                    self._stalled[channel] = self.begin(now, peer, wait=0.0)
                    for server in self._bindings:
                        self._ask(now, server)
        self._looked = looked
        for channel in [it for it in self._stalled if it not in looked or looked[it][1] == now]:
            self.end(self._stalled.pop(channel))
        self.handle_timeout(now)

    @property
    def stalled(self) -> dict[Hashable, int]:
        """The channels whose path is broken, with the token of the attempt to find another."""
        return self._stalled

    # Time and outputs

    def handle_timeout(self, now: float) -> None:
        """Perform the timers that are due by now."""
        for server in self._requests_due.take_due(now):
            self._handle_request_due(now, server)
        self._relays.extend(self._relays_due.take_due(now))
        for token in self._check_requests_due.take_due(now):
            self._request_checks(now, token)
        for number in self._checks_due.take_due(now):
            self._handle_check_due(now, number)

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is next due; None if no timer is set."""
        return earliest(
            self._requests_due.next_due(),
            self._check_requests_due.next_due(),
            self._checks_due.next_due(),
            self._relays_due.next_due(),
        )

    def poll_request(self) -> BindingRequest | None:
        """Return the next Binding request to send, or None."""
        return self._requests.popleft() if self._requests else None

    def poll_check_request(self) -> CheckCredential | None:
        """Return the credential of the next request for checks to its peer, or None."""
        return self._check_requests.popleft() if self._check_requests else None

    def poll_relay(self) -> int | None:
        """Return the token of the next attempt that has to use the relay, too, or None."""
        return self._relays.popleft() if self._relays else None

    def poll_check(self) -> ConnectivityCheck | None:
        """Return the next check to send, or None."""
        return self._ready_checks.popleft() if self._ready_checks else None


# A relay: TURN (RFC 8656)

PERMISSION_REFRESH: Final = 240.0
"""Seconds between two CreatePermission requests for one host; a permission lasts 300 s (RFC 8656,
section 9)."""

BINDING_REFRESH: Final = 300.0
"""Seconds between two ChannelBind requests for one channel in use; the relay keeps a channel for
600 s (section 12)."""

RELEASE: Final = 900.0
"""Seconds from the time at which an unused channel is not bound again until its number is free. The
relay keeps the channel for 600 s after the last ChannelBind, also if its answer was lost. In the
next 300 s no other peer may get the number (section 12)."""

FIRST_CHANNEL: Final = 0x4000
LAST_CHANNEL: Final = 0x4FFF
"""The numbers of channels (section 12)."""

MOST_PERMISSIONS: Final = 64
"""The most hosts with a permission; the least recently used one makes room."""

TURN_PORT: Final = 3478

FAILED_AGAIN: Final = 30.0
"""Seconds from a failed request, for the allocation, a permission or a channel, to the next one."""

STALE_NONCE: Final = 438
UNAUTHENTICATED: Final = 401
"""The errors after which a request is repeated with the realm and nonce in them (RFC 8489, 9.2.5).
"""


@dataclass(frozen=True, slots=True)
class TurnServer:
    """A relay for peers without a direct path: a server of TURN (RFC 8656), such as coturn.

    The relay forwards packets as they are, and cannot decrypt sealed ones. Raises
    ``SettingsError`` for a missing host, user or password, and for an invalid port.
    """

    host: str
    """The name or address of the server."""
    user: str
    """The user of the long-term credential."""
    password: str = field(repr=False)
    """The password of the long-term credential."""
    port: int = TURN_PORT
    """The UDP port of the server."""

    def __post_init__(self) -> None:
        if not (self.host and self.user and self.password):
            raise SettingsError("a TURN server needs a host, a user and a password")
        if not 1 <= self.port <= 65_535:
            raise SettingsError(f"port is {self.port}; allowed is 1 to 65535")

    @classmethod
    def parse(cls, url: str, password: str) -> "TurnServer":
        """Parse ``turn://user@host`` or ``turn://user@host:port``.

        Raises ``SettingsError`` for any other text, an invalid port or an empty password.
        """
        match = _TURN_URL.fullmatch(url)
        if match is None:
            # The text itself may have a password, which belongs in no log.
            raise SettingsError("a relay is given as turn://user@host:port, without a password")
        host = match["ipv6"] or match["host"]
        return cls(host, match["user"], password, int(match["port"] or TURN_PORT))


_TURN_URL: Final = re.compile(
    r"turn://(?P<user>[^@:/]+)@(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[0-9A-Za-z._-]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


class TurnMethod(Enum):
    """The methods of TURN's requests (RFC 8656, section 17)."""

    ALLOCATE = "allocate"
    REFRESH = "refresh"
    CREATE_PERMISSION = "create permission"
    CHANNEL_BIND = "channel bind"


class TurnRequest(NamedTuple):
    """A request to the relay.

    ``peer`` is the address to permit, or to bind to ``channel``; None in a request for the
    allocation. ``realm`` and ``nonce`` are those of the relay's last error.
    """

    method: TurnMethod
    transaction: int
    peer: Address | None = None
    channel: int = 0
    realm: str = ""
    nonce: bytes = b""


class _RelayChannelState(Enum):
    REQUESTED = "requested"
    BOUND = "bound"
    RELEASED = "released"
    """Not bound yet; or not bound again, because nothing was sent: the relay may still know it."""


@dataclass(slots=True)
class _RelayChannel:
    """A channel at the relay, for the data to and from one peer."""

    number: int
    used_at: float
    state: _RelayChannelState = _RelayChannelState.RELEASED


@dataclass(slots=True)
class _Transaction:
    request: TurnRequest
    requests: int = 0
    is_repeated: bool = False


Due = tuple[str, object]


class RelayAllocation:
    """This node's allocation at a relay (RFC 8656): a public address for its socket.

    The relay lets in only hosts with a permission. Each peer's address to which this node sends
    gets a channel of TURN, so that a datagram grows by four bytes instead of 36. A channel on which
    nothing was sent for ``BINDING_REFRESH`` seconds is not bound again. Its number is free after
    ``RELEASE`` more.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._realm, self._nonce = "", b""
        self._transactions: dict[int, _Transaction] = {}
        self._due: TimerQueue[Due] = TimerQueue()
        self._permitted: dict[str, None] = {}
        self._channels: dict[Address, _RelayChannel] = {}
        self._peers: dict[int, Address] = {}
        self._requests: deque[TurnRequest] = deque()
        self.relayed: Address | None = None
        """The relayed candidate; None without an allocation."""
        self.failure = ""
        """The error of the relay, or ``no answer``, if the allocation failed; else empty."""

    def begin(self, now: float) -> None:
        """Request an allocation at the relay."""
        self._send(now, TurnMethod.ALLOCATE)

    def permit(self, now: float, hosts: Iterable[str]) -> None:
        """Permit these hosts to send to the relayed address, as soon as there is one."""
        for host in hosts:
            if self._touch(host):
                continue
            if len(self._permitted) >= MOST_PERMISSIONS:
                oldest = next(iter(self._permitted))
                del self._permitted[oldest]
                self._due.set(("permit", oldest), None)
            self._permitted[host] = None
            if self.relayed is not None:
                self._send(now, TurnMethod.CREATE_PERMISSION, (host, 0))

    def _touch(self, host: str) -> bool:
        """Mark a host as the most recently used; return False if it has no permission."""
        is_permitted = host in self._permitted
        if is_permitted:
            self._permitted[host] = self._permitted.pop(host)
        return is_permitted

    def channel_to(self, now: float, peer: Address) -> int | None:
        """Return the channel for data to a peer; None while the relay has not bound it, or if all
        numbers are taken.
        """
        self._touch(peer[0])
        channel = self._channels.get(peer)
        if channel is None:
            number = self._free_number()
            if number is None:
                return None
            channel = self._channels[peer] = _RelayChannel(number, now)
            self._peers[number] = peer
        channel.used_at = now
        if channel.state is _RelayChannelState.RELEASED:
            self._bind(now, peer, channel)
        return channel.number if channel.state is _RelayChannelState.BOUND else None

    def _free_number(self) -> int | None:
        if len(self._peers) > LAST_CHANNEL - FIRST_CHANNEL:
            return None
        return next(it for it in range(FIRST_CHANNEL, LAST_CHANNEL + 1) if it not in self._peers)

    def _bind(self, now: float, peer: Address, channel: _RelayChannel) -> None:
        channel.state = _RelayChannelState.REQUESTED
        self._due.set(("bind", peer), None)
        self._send(now, TurnMethod.CHANNEL_BIND, peer, channel.number)

    def _handle_binding_due(self, now: float, peer: Address) -> None:
        """Bind a channel again that is in use; release any other, and free its number later."""
        channel = self._channels[peer]
        if now - channel.used_at <= BINDING_REFRESH:
            self._send(now, TurnMethod.CHANNEL_BIND, peer, channel.number)
        elif channel.state is _RelayChannelState.RELEASED:
            del self._channels[peer], self._peers[channel.number]
        else:
            channel.state = _RelayChannelState.RELEASED
            self._due.set(("bind", peer), now + RELEASE)

    def peer_of(self, channel: int) -> Address | None:
        """Return the address of the peer that has the channel of this number; None if none has."""
        return self._peers.get(channel)

    def handle_success(
        self, now: float, transaction: int, relayed: Address | None = None, lifetime: int = 600
    ) -> bool:
        """Handle a success response; return True if it answers a present request.

        ``relayed`` is the relayed address in the response to an Allocate request, and ``lifetime``
        the seconds for which the relay keeps the allocation.
        """
        done = self._end(transaction)
        if done is None:
            return False
        request = done.request
        if request.method is TurnMethod.ALLOCATE:
            self.relayed, self.failure = relayed, ""
            for host in self._permitted:
                self._send(now, TurnMethod.CREATE_PERMISSION, (host, 0))
        if request.method in (TurnMethod.ALLOCATE, TurnMethod.REFRESH):
            self._due.set(("refresh", None), now + max(lifetime, 60) / 2)
        elif request.peer is not None and request.method is TurnMethod.CREATE_PERMISSION:
            if request.peer[0] in self._permitted:
                self._due.set(("permit", request.peer[0]), now + PERMISSION_REFRESH)
        elif request.peer is not None:
            self._channels[request.peer].state = _RelayChannelState.BOUND
            self._due.set(("bind", request.peer), now + BINDING_REFRESH)
        return True

    def handle_error(
        self, now: float, transaction: int, code: int, reason: str, realm: str, nonce: bytes
    ) -> bool:
        """Handle an error response; return True if it answers a present request."""
        done = self._end(transaction)
        if done is None:
            return False
        if code in (UNAUTHENTICATED, STALE_NONCE) and not done.is_repeated and nonce:
            self._realm, self._nonce = realm or self._realm, nonce
            request = done.request
            self._send(now, request.method, request.peer, request.channel, is_repeated=True)
        else:
            self._fail(now, done.request, f"{code} {reason}")
        return True

    def handle_timeout(self, now: float) -> None:
        """Send the requests that are due by now, for the first time or again."""
        for what, key in self._due.take_due(now):
            if what == "repeat" and isinstance(key, int):
                self._repeat(now, key)
            elif what == "refresh":
                self._send(now, TurnMethod.REFRESH)
            elif what == "allocate":
                self._send(now, TurnMethod.ALLOCATE)
            elif what == "permit" and isinstance(key, str):
                self._send(now, TurnMethod.CREATE_PERMISSION, (key, 0))
            elif isinstance(key, tuple):
                self._handle_binding_due(now, key)

    def poll_timeout(self) -> float | None:
        """Return the time at which ``handle_timeout`` is next due; None if no timer is set."""
        return self._due.next_due()

    def poll_request(self) -> TurnRequest | None:
        """Return the next request to send, or None."""
        return self._requests.popleft() if self._requests else None

    def _send(
        self,
        now: float,
        method: TurnMethod,
        peer: Address | None = None,
        channel: int = 0,
        *,
        is_repeated: bool = False,
    ) -> None:
        number = self._secrets.getrandbits(TRANSACTION_BITS)
        request = TurnRequest(method, number, peer, channel, self._realm, self._nonce)
        self._transactions[number] = _Transaction(request, is_repeated=is_repeated)
        self._repeat(now, number)

    def _repeat(self, now: float, number: int) -> None:
        pending = self._transactions[number]
        if pending.requests >= REQUESTS:
            self._end(number)
            self._fail(now, pending.request, "no answer")
            return
        self._requests.append(pending.request)
        pending.requests += 1
        self._due.set(("repeat", number), now + _wait_after(pending.requests))

    def _end(self, number: int) -> _Transaction | None:
        self._due.set(("repeat", number), None)
        return self._transactions.pop(number, None)

    def _fail(self, now: float, request: TurnRequest, why: str) -> None:
        """Schedule a request again, because the relay refused it or did not answer."""
        peer, again = request.peer, now + FAILED_AGAIN
        if peer is None:
            self._lose(now, why)
        elif request.method is TurnMethod.CHANNEL_BIND:
            self._channels[peer].state = _RelayChannelState.REQUESTED
            self._due.set(("bind", peer), again)
        elif peer[0] in self._permitted:
            self._due.set(("permit", peer[0]), again)

    def _lose(self, now: float, why: str) -> None:
        """Drop the allocation, which was refused or has ended, and schedule another request."""
        self.relayed, self.failure = None, why
        self._transactions.clear()
        while self._due.pop() is not None:
            pass
        self._channels.clear()
        self._peers.clear()
        self._due.set(("allocate", None), now + FAILED_AGAIN)


def _wait_after(requests: int) -> float:
    """Return the seconds for which a transaction waits after so many requests."""
    return RTO * 2 ** (requests - 1) if requests < REQUESTS else LAST_WAIT
