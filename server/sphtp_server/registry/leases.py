"""A server's two leases in etcd, and the times until which they are certain to be live.

The lease of the *member* ends one expiry after its last renewal: from then on, the other servers do
not wait for this one. The lease of its *registrations* ends after two expiries and a second. Both
times are rounded up to whole seconds, two at least. A client relies on a server for one expiry
after the last heartbeat that it has received from the server. The server sends no heartbeat later
than one expiry after the start of its last renewal. So no client relies on a registration whose
lease has ended.

A renewal proves that the lease was live when the request *started*, not when the reply was read:
the reply may have been delayed, and this process may have been stopped before it read the reply.
"""

import math
from enum import Enum

from sphtp_server.registry.keyspace import JsonObject

NEVER = -math.inf


class LeaseKind(Enum):
    """The kinds of leases."""

    MEMBER = "member"
    REGISTRATIONS = "registrations"


class Lease:
    """One lease: its number in etcd, and the times of its last proof and of its next renewal."""

    def __init__(self, kind: LeaseKind, expiry: float) -> None:
        self.kind = kind
        held = expiry if kind is LeaseKind.MEMBER else 2 * expiry + 1
        self.seconds = max(2, math.ceil(held))
        """The time to live, in seconds: a whole number, at least 2, as etcd requires."""
        self.number = ""
        """Its number; empty if there is no lease."""
        self.proven = NEVER
        """The start of the last request whose reply proved that the lease was live."""
        self.due = NEVER
        """The time of the next renewal."""

    def handle_live(self, number: str, started: float, renew_after: float) -> bool:
        """Note that etcd has granted or renewed the lease. Return True if its number changed."""
        is_new, self.number = number != self.number, number
        self.proven = started
        self.due = started + renew_after
        return is_new

    def handle_suspension(self, seconds: float) -> None:
        """Move all times back by a suspension of the machine, which its clock does not count."""
        self.proven -= seconds
        self.due -= seconds

    def handle_ended(self) -> None:
        """Note that the lease has ended, so that the next request is for a new lease."""
        self.number, self.proven, self.due = "", NEVER, NEVER

    def request(self) -> tuple[str, JsonObject]:
        """Return the path and the body of the request that grants or renews the lease."""
        if self.number:
            return "/v3/lease/keepalive", {"ID": self.number}
        return "/v3/lease/grant", {"TTL": str(self.seconds)}
