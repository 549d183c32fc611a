"""The reload of a running server's settings.

The settings in ``RELOADED`` take effect. Changed settings that need a restart are logged. All new
settings are read and checked before the first one changes. So a wrong file changes no setting, and
a reload takes effect as a whole.
"""

from collections.abc import Callable
from typing import Final

from sphtp import Peer, Server
from sphtp.errors import SettingsError
from sphtp_server.descriptors import raise_limit
from sphtp_server.logs import LEVELS, Log, LogTarget
from sphtp_server.settings import ServerSettings

LIMITS: Final = frozenset(
    (
        "max_clients", "announces_per_second", "lookups_per_second", "data_per_second",
        "stun_per_second", "max_answers", "max_connections", "max_handshakes", "handshake_timeout",
    )
)  # fmt: skip
CERTIFICATES: Final = frozenset(("tls_cert", "tls_key", "tls_ca", "tls_mutual"))
ADMISSION: Final = frozenset(("allow_key", "allow_file"))
RELOADED: Final = LIMITS | CERTIFICATES | ADMISSION | {"log_level", "log_interval", "drain_time"}
"""The settings that can change while a server runs. The content of their files is read again."""


_FIELDS: Final = frozenset(ServerSettings.model_fields)


class ClientPredicate:
    """The predicate that admits clients. A reload replaces ``admit``."""

    def __init__(self, admit: Callable[[Peer], bool]) -> None:
        self.admit = admit

    def __call__(self, peer: Peer) -> bool:
        """Return True if the server may admit a client."""
        return self.admit(peer)


class Reloader:
    """The settings of a running server. ``load`` reads them again, from the same sources."""

    def __init__(
        self,
        settings: ServerSettings,
        load: Callable[[], ServerSettings],
        server: Server,
        admission: ClientPredicate,
        log: Log,
        target: LogTarget,
    ) -> None:
        self.settings = settings
        """The present settings."""
        self._load = load
        self._server = server
        self._admission = admission
        self._log = log
        self._target = target

    def reload(self) -> None:
        """Reload the settings, reopen the log file, and log the changes, or the failure."""
        old = self.settings
        try:
            self._target.reopen()
            new = self._load()
            kept = {name: getattr(old, name) for name in _FIELDS - RELOADED}
            if (new.tls() is None) != (old.tls() is None):
                # To switch TLS on or off changes the addresses, which needs a restart.
                kept |= {name: getattr(old, name) for name in CERTIFICATES}
            effective = new.model_copy(update=kept)
            limits, admit, tls = effective.limits(), effective.admit(), effective.tls()
            # This is the first change, and the last step that can fail.
            if tls is not None:
                self._server.set_tls(tls)
        except (SettingsError, OSError) as error:
            self._log.error("not reloaded: all settings stay as they were", why=str(error))
            return
        self._server.set_limits(limits)
        self._admission.admit = admit
        self.settings = effective
        if limits != old.limits():
            raise_limit(self._log, limits.connections)
        # The outcome is logged if the old level or the new one allows it.
        levels = (old.log_level, effective.log_level)
        self._target.level = min(levels, key=LEVELS.index)
        self._log.info("reloaded", changed=_differing(old, effective))
        if left := _differing(effective, new):
            self._log.warning("these settings need a restart", settings=left)
        self._target.level = effective.log_level


def _differing(one: ServerSettings, other: ServerSettings) -> list[str]:
    return [name for name in type(one).model_fields if getattr(one, name) != getattr(other, name)]
