"""TLS of the bus: OpenSSL where it listens, and NNG's own where it dials.

NNG accepts wrong files silently, or with an error that explains nothing.
"""

import ssl
from typing import Any
from urllib.parse import urlsplit

import pynng
from pynng import TLSConfig

from sphtp.errors import SettingsError
from sphtp.shell.tls import Tls, is_tls


def for_listening(tls: Tls | None, url: str) -> ssl.SSLContext | None:
    """Return the configuration to listen with, or None without TLS. Raises ``SettingsError``."""
    if not _wanted(tls, url, "listen on"):
        return None
    assert tls is not None
    if tls.cert is None:
        raise SettingsError(f"to listen on {url} needs a TLS certificate and its key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Nobody resumes a session of the bus, and a ticket is a reason to read before the greeting.
    context.num_tickets = 0
    ca, _, _ = tls.read_ca(), tls.read_cert(), tls.read_key()
    try:
        # Without a password of ours, OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(tls.cert, tls.key, password="")
        if ca is not None:
            context.load_verify_locations(cadata=ca)
    except (OSError, ValueError) as error:
        raise _unusable(tls, str(error)) from error
    if tls.mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def for_dialling(tls: Tls | None, url: str) -> Any:
    """Return the configuration to dial with, or None without TLS. Raises ``SettingsError``."""
    if not _wanted(tls, url, "dial"):
        return None
    assert tls is not None
    if tls.ca is None:
        raise SettingsError(f"to dial {url} needs a TLS authority (ca) that vouches for it")
    config = _config(TLSConfig.MODE_CLIENT, tls)
    config.set_auth_mode(TLSConfig.AUTH_MODE_REQUIRED)
    # Without it, NNG refuses every certificate.
    config.set_server_name(urlsplit(url).hostname)
    return config


def _wanted(tls: Tls | None, url: str, doing: str) -> bool:
    if is_tls(url) and tls is None:
        raise SettingsError(f"to {doing} {url} needs TLS files, and none are given")
    if tls is not None and not is_tls(url):
        # An address without TLS, learnt from somebody, must not lead around it.
        raise SettingsError(f"TLS files are given, and {url} is no tls+tcp address")
    return tls is not None


def _config(mode: int, tls: Tls) -> Any:
    try:
        return TLSConfig(
            mode,
            ca_string=tls.read_ca(),
            own_cert_string=tls.read_cert(),
            own_key_string=tls.read_key(),
        )
    except pynng.NNGException as error:
        raise _unusable(tls, str(error.args[0])) from error


def _unusable(tls: Tls, why: str) -> SettingsError:
    files = ", ".join(str(path) for path in (tls.ca, tls.cert, tls.key) if path is not None)
    return SettingsError(f"TLS: {files} cannot be used: {why}")
