"""TLS as NNG wants it. It takes wrong files without a word, or with one that says nothing."""

from typing import Any, Final
from urllib.parse import urlsplit

import pynng
from pynng import TLSConfig

from sphtp.errors import SettingsError
from sphtp.shell.tls import Tls, is_tls

_AUTH: Final = {True: TLSConfig.AUTH_MODE_REQUIRED, False: TLSConfig.AUTH_MODE_NONE}


def for_listening(tls: Tls | None, url: str) -> Any:
    """Return the configuration to listen with, or None without TLS. Raises ``SettingsError``."""
    if not _wanted(tls, url, "listen on"):
        return None
    assert tls is not None
    if tls.cert is None:
        raise SettingsError(f"to listen on {url} needs a TLS certificate and its key")
    config = _config(TLSConfig.MODE_SERVER, tls)
    # Given to the constructor, "none" counts as not given.
    config.set_auth_mode(_AUTH[tls.mutual])
    return config


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
        files = ", ".join(str(path) for path in (tls.ca, tls.cert, tls.key) if path is not None)
        raise SettingsError(f"TLS: {files} cannot be used: {error.args[0]}") from error
