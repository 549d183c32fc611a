"""A server's two leases in etcd, and what they prove.

The lease of the *member* ends one expiry after its last renewal: then the other servers no longer
wait for this one. The lease of its *registrations* ends later, after two expiries and a second. A
client relies on a server for one expiry after the last heartbeat that it has received from it; the
server sends none later than one expiry after the start of its last renewal. So no client relies
on a registration whose lease has ended.

A renewal proves its lease from the moment at which the request *started*: the answer may have been
on its way for long, and this process may have been stopped before it read it.
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
    """One lease: its number in etcd, and the time to which it is proven."""

    def __init__(self, kind: LeaseKind, expiry: float) -> None:
        self.kind = kind
        held = expiry if kind is LeaseKind.MEMBER else 2 * expiry + 1
        self.seconds = max(2, math.ceil(held))
        """The seconds to live; etcd grants whole ones, and at least two."""
        self.number = ""
        """Its number; empty if there is none."""
        self.proven = NEVER
        """The start of the last request that has shown that it is live."""
        self.due = NEVER
        """The time from which on it is to be renewed."""

    def handle_live(self, number: str, started: float, renew_after: float) -> bool:
        """Note that etcd has granted or renewed it. Return True if it is another one now."""
        is_new, self.number = number != self.number, number
        self.proven = started
        self.due = started + renew_after
        return is_new

    def handle_suspension(self, seconds: float) -> None:
        """Note that the machine was suspended, which its clock does not count."""
        self.proven -= seconds
        self.due -= seconds

    def handle_ended(self) -> None:
        """Note that it has ended: a new one is to be granted."""
        self.number, self.proven, self.due = "", NEVER, NEVER

    def request(self) -> tuple[str, JsonObject]:
        """Return path and body of the request that grants or renews it."""
        if self.number:
            return "/v3/lease/keepalive", {"ID": self.number}
        return "/v3/lease/grant", {"TTL": str(self.seconds)}
