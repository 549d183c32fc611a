"""Announcements: how a server says where it is to those who do not know its address.

An announcement is text, key by key, as the TXT record of DNS-SD carries it (RFC 6763, 6.3), and as
a file on the server's host does. Whoever reads one learns an address and no more: all that follows
is checked as if a user had given that address. So a forged announcement can lead a client to a
server that it then refuses, and nowhere else. The fingerprint keeps that from happening by
accident: it shows who has the cluster's secret, and says nothing to those who have it not.
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
"""The bytes of a key and its value in a TXT record, with the sign between them (RFC 6763, 6.1)."""


_CLUSTER: Final = re.compile("[0-9a-fA-F]{8}")


@dataclass(frozen=True, slots=True)
class Announcement:
    """The description that a server gives of itself to those who search for one."""

    address: ServerAddress
    cluster: int
    """The smallest id of the servers in its view, which its whole cluster has in common."""
    fingerprint: str = ""
    """Depends on the address, the cluster and the secret; empty for a cluster without secret."""

    @classmethod
    def make(cls, address: ServerAddress, cluster: int, secret: bytes | None) -> "Announcement":
        """Return the announcement of a server."""
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
        """Return in words why a client does not follow it; empty if it does."""
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
    """Return the announcement in the keys and values of a TXT record. Raises ``RemoteError``."""
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
    """Return the addresses of the servers of each cluster, in a fixed order."""
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
