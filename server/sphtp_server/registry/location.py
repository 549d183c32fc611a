"""The address of a registry on etcd, as a user writes it, and the credentials for etcd."""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from sphtp.errors import SettingsError
from sphtp.shell.keys import read_own

DEFAULT_PORT: Final = 2379
DEFAULT_NAME: Final = "sphtp"

_ALLOWED: Final = (
    "allowed is etcd://host:2379, with further ones after commas, /name of the cluster after the "
    "last one, and tls+etcd:// for TLS"
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class EtcdLocation:
    """The members of etcd, and the name of the SphTP cluster, which is the prefix of its keys."""

    endpoints: tuple[tuple[str, int], ...]
    name: str = DEFAULT_NAME
    is_tls: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``etcd://host:port,host:port/name``. Raises ``SettingsError`` if malformed."""
        if "@" in text:
            # The error does not contain the text, because the part before the @ is secret.
            raise SettingsError(
                "registry: an address has no user and no password; give --registry-user and "
                f"--registry-password-file; {_ALLOWED}"
            )
        scheme, separator, rest = text.partition("://")
        hosts, slash, name = rest.partition("/")
        if not separator or scheme not in ("etcd", "tls+etcd") or not hosts:
            raise SettingsError(f"registry {text!r}: {_ALLOWED}")
        if slash and not _NAME.fullmatch(name):
            raise SettingsError(f"registry {text!r}: {name!r} is no name; {_ALLOWED}")
        endpoints = tuple(_endpoint(host, text) for host in hosts.split(","))
        return cls(endpoints, name or DEFAULT_NAME, scheme.startswith("tls"))

    def __str__(self) -> str:
        scheme = "tls+etcd" if self.is_tls else "etcd"
        hosts = ",".join(map(format_endpoint, self.endpoints))
        return f"{scheme}://{hosts}/{self.name}"


def _endpoint(text: str, whole: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError as error:
        raise SettingsError(f"registry {whole!r}: {error}; {_ALLOWED}") from error
    if not host or parts.query or parts.fragment or port == 0:
        raise SettingsError(f"registry {whole!r}: {text!r} is no host and port; {_ALLOWED}")
    return host, port or DEFAULT_PORT


def format_endpoint(endpoint: tuple[str, int]) -> str:
    """Return the address of a member of etcd as text, IPv6 in brackets."""
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True)
class EtcdAccess:
    """The certificate files and the user with which a server logs in to etcd.

    Raises ``SettingsError`` for a certificate without a key, a user without a password, and vice
    versa.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise SettingsError(
                "the registry needs a certificate and its key: only one of them is given"
            )
        if (self.user is None) != (self.password is None):
            raise SettingsError("the registry needs a user and a password: only one is given")

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context for connections. Raises ``SettingsError`` for wrong files."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise SettingsError(f"authority of the registry {self.ca}: {error}") from error
        if self.cert is not None and self.key is not None:
            try:
                read_own(self.key)
                # Without the argument, OpenSSL would prompt for a password on the terminal.
                context.load_cert_chain(self.cert, self.key, password=bytes)
            except OSError as error:
                raise SettingsError(
                    f"certificate {self.cert} and key {self.key} of the registry: {error}"
                ) from error
        return context
