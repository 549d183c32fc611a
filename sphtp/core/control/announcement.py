"""Announcements: the addresses of servers, for programs that search for one.

An announcement is a set of keys with text values, in a TXT record of DNS-SD (RFC 6763, 6.3), or in
a file on the server's host. A client takes only an address from it. All later checks are those for
an address that a user has given. So where a secret or TLS protects the cluster, the client refuses
the server of a forged announcement. The fingerprint prevents mistakes, not attacks: by it a client
ignores servers of clusters with another secret. It reveals nothing about the secret.
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from sphtp.core.control.records import ServerAddress
from sphtp.errors import RemoteError, SettingsError

VERSION: Final = "1"
LABEL: Final = b"sphtp announcement 1"

MOST_TEXT: Final = 255
"""The most bytes of a key, the sign "=" and a value in a TXT record (RFC 6763, 6.1)."""


_CLUSTER: Final = re.compile("[0-9a-fA-F]{8}")


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement of one server."""

    address: ServerAddress
    cluster: int
    """The smallest id of the servers in its view, which is the same in its whole cluster."""
    fingerprint: str = ""
    """A MAC of address and cluster with the cluster's secret; empty without a secret."""

    @classmethod
    def make(cls, address: ServerAddress, cluster: int, secret: bytes | None) -> "Announcement":
        """Return the announcement of a server, with its fingerprint."""
        return cls(address, cluster, _fingerprint(address, cluster, secret))

    def encode(self) -> dict[str, str]:
        """Return the keys and values of a TXT record."""
        return {
            "version": VERSION,
            "address": str(self.address),
            "cluster": f"{self.cluster:08x}",
            "fingerprint": self.fingerprint,
        }

    def obstacle(self, secret: bytes | None, *, has_tls: bool) -> str:
        """Return the reason for which a client cannot use the server, in words; empty if it can."""
        if self.address.pub.startswith("tls") and not has_tls:
            return "that wants TLS, for which this client has no certificates"
        if hmac.compare_digest(
            self.fingerprint.encode(), _fingerprint(self.address, self.cluster, secret).encode()
        ):
            return ""
        if secret is None:
            return "that has a secret, and this client has none"
        return "that has another secret" if self.fingerprint else "that has no secret"


def decode_untrusted(values: Mapping[str, str]) -> Announcement:
    """Return the announcement in the keys and values of a TXT record.

    Raises ``RemoteError`` if it is malformed or of another version.
    """
    if values.get("version") != VERSION:
        raise RemoteError(f"an announcement of version {values.get('version', '')[:20]!r}")
    if any(len(key) + len(value) >= MOST_TEXT for key, value in values.items()):
        raise RemoteError("an announcement that is too long")
    if not all(value.isascii() for value in values.values()):
        raise RemoteError("an announcement that is not ASCII")
    try:
        address, cluster = ServerAddress.parse(values["address"]), values["cluster"]
    except (KeyError, SettingsError) as error:
        raise RemoteError(f"a malformed announcement: {error}") from error
    # ``int`` takes signs, spaces and underscores as well.
    if _CLUSTER.fullmatch(cluster) is None:
        raise RemoteError(f"an announcement of the cluster {cluster[:20]!r}")
    if not address.is_dialable:
        raise RemoteError(f"an announcement of {address}, which has no port")
    return Announcement(address, int(cluster, 16), values.get("fingerprint", ""))


def clusters_of(announcements: Sequence[Announcement]) -> list[list[ServerAddress]]:
    """Return the addresses of the servers of each cluster, ordered by cluster and address."""
    clusters = dict[int, set[str]]()
    for each in announcements:
        clusters.setdefault(each.cluster, set()).add(str(each.address))
    return [
        [ServerAddress.parse(text) for text in sorted(clusters[number])]
        for number in sorted(clusters)
    ]


def _fingerprint(address: ServerAddress, cluster: int, secret: bytes | None) -> str:
    if secret is None:
        return ""
    signed = b"%b\0%b\0%b\0%08x" % (LABEL, address.pub.encode(), address.sub.encode(), cluster)
    return hmac.new(secret, signed, sha256).hexdigest()[:32]
