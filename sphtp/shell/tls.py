"""Certificates for ``tls+tcp``: their files, and the checks of these files."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sphtp.core.control.records import ServerAddress
from sphtp.errors import SettingsError
from sphtp.shell.keys import read_own

SCHEME: Final = "tls+tcp://"


@dataclass(frozen=True)
class Tls:
    """The PEM files for TLS of the control plane. They are read when a socket listens or dials.

    A server needs ``cert`` and ``key``. A client needs ``ca``, and so does a server that dials
    others. Raises ``SettingsError`` if only one of ``cert`` and ``key`` is given, or ``mutual``
    without ``ca``.
    """

    ca: Path | None = None
    """The certificates of the authorities that sign the other side's certificate."""
    cert: Path | None = None
    """This side's own certificate, followed by those between it and the authority, if any."""
    key: Path | None = None
    """The private key of ``cert``."""
    mutual: bool = False
    """True if all that dial this server must have a certificate that ``ca`` has signed."""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise SettingsError("TLS needs a certificate and its key: only one of them is given")
        if self.mutual and self.ca is None:
            raise SettingsError("mutual TLS needs the authority (ca) that certificates come from")

    def read_ca(self) -> str | None:
        """Return the content of ``ca``, or None without one. Raises as ``check``."""
        return _read(self.ca, "authority", Path.read_bytes)

    def read_cert(self) -> str | None:
        """Return the content of ``cert``, or None without one. Raises as ``check``."""
        return _read(self.cert, "certificate", Path.read_bytes)

    def read_key(self) -> str | None:
        """Return the content of ``key``, or None without one. Raises as ``check``."""
        return _read(self.key, "key", read_own)

    def check(self) -> None:
        """Raise ``SettingsError`` if one of the files is missing, unreadable, or not PEM.

        Raises it, too, if others have access to the file of the key.
        """
        for read in (self.read_ca, self.read_cert, self.read_key):
            read()


def is_tls(url: str) -> bool:
    """Return True for a ``tls+tcp`` URL of the bus."""
    return url.startswith(SCHEME)


def require_tls(servers: Iterable[ServerAddress], tls: Tls | None) -> None:
    """Raise ``SettingsError`` if TLS files are missing for these servers, or do not fit them."""
    for url in (url for server in servers for url in (server.pub, server.sub)):
        if is_tls(url) and (tls is None or tls.ca is None):
            raise SettingsError(f"dialling {url} needs a TLS authority (ca) for its certificate")
        if tls is not None and not is_tls(url):
            raise SettingsError(f"TLS files are given, and {url} is no {SCHEME} address")
    if tls is not None:
        tls.check()


def _read(path: Path | None, what: str, read: Callable[[Path], bytes]) -> str | None:
    if path is None:
        return None
    try:
        text = read(path).decode("ascii")
    except OSError as error:
        raise SettingsError(f"cannot read the TLS {what} {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the TLS {what} {path} is not PEM") from error
    if "-----BEGIN " not in text:
        raise SettingsError(f"the TLS {what} {path} is not PEM")
    return text


def is_wanted(tls: Tls | None, url: str, doing: str) -> bool:
    """Return True if an address is for TLS. Raises ``SettingsError`` if the files do not fit it."""
    if is_tls(url) and tls is None:
        raise SettingsError(f"to {doing} {url} needs TLS files, and none are given")
    if tls is not None and not is_tls(url):
        # An address from the network must not lead to a connection without TLS.
        raise SettingsError(f"TLS files are given, and {url} is no tls+tcp address")
    return tls is not None


def unusable(tls: Tls, why: str) -> SettingsError:
    """Return the error for files that OpenSSL or NNG rejects."""
    files = ", ".join(str(path) for path in (tls.ca, tls.cert, tls.key) if path is not None)
    return SettingsError(f"TLS: {files} cannot be used: {why}")
