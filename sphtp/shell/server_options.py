"""What a server is told at its start, and what it does not start with."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sphtp.core.control.limits import ServerLimits
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.timers import ControlTimers
from sphtp.core.secure.signing import ServerKey
from sphtp.errors import SettingsError
from sphtp.shell.addresses import is_loopback
from sphtp.shell.admitting import everybody
from sphtp.shell.peer import Peer
from sphtp.shell.tls import SCHEME, Tls, is_tls


@dataclass(frozen=True)
class ServerOptions:
    """What a server is told at its start."""

    bind: ServerAddress = field(
        default_factory=lambda: ServerAddress.parse("tcp://127.0.0.1:8764,8765")
    )
    """Where to listen; port 0 takes any that is free."""
    advertise: ServerAddress | None = None
    """Where others reach it, should that differ from where it listens."""
    join: tuple[ServerAddress, ...] = ()
    """Other servers of the cluster; one that is up is enough, and none needs to be up yet.

    As long as no other server is heard, this one founds no cluster of its own: it waits, and tells
    what for by ``JoinFailing``. With ``new_cluster`` it does not wait, and tells.
    """
    new_cluster: bool = False
    """Nobody holds an id yet, so there is nothing to wait for."""
    timers: ControlTimers = field(default_factory=ControlTimers)
    limits: ServerLimits = field(default_factory=ServerLimits)
    admit: Callable[[Peer], bool] = everybody
    """Asked about each new client; False refuses it, and so does an error, which is logged with
    where it came from under ``sphtp.server``. See ``allow_only``."""
    secret: bytes | None = field(default=None, repr=False)
    """The cluster's secret, 32 bytes: only what its holders say is heard."""
    signing_key: ServerKey | None = field(default=None, repr=False)
    """What this server signs all it says with. Whoever has the secret is a member, and without
    signatures every member can pretend to be a server."""
    server_keys: Collection[bytes] = ()
    """Public keys of the servers that this one hears, or of clusters that vouch for servers. With
    ``signing_key`` and none of these: the key that vouches for it."""
    tls: Tls | None = None
    """Certificates, for addresses ``tls+tcp``."""
    insecure: bool = False
    """Listen on more than loopback with neither ``secret`` nor ``tls``."""
    seed: int | None = None
    """Makes the random choices, ids among them, repeatable, for tests; no nonce follows from it."""


def require_protection(options: ServerOptions) -> None:
    """Raise ``SettingsError`` where nothing protects what is open to others."""
    _require_tls_throughout(options)
    if options.insecure or options.secret is not None or options.tls is not None:
        return
    for url in (options.bind.pub, options.bind.sub):
        if not is_loopback(urlsplit(url).hostname or ""):
            raise SettingsError(
                f"{url} is open to more than this machine, and nothing protects it: give a secret "
                "or TLS certificates, or say that it is to be insecure"
            )


def _require_tls_throughout(options: ServerOptions) -> None:
    # Members refuse to dial in the clear what has to be TLS, so that nobody would come.
    told = options.advertise
    if options.tls is not None and told is not None and not (is_tls(told.pub) and is_tls(told.sub)):
        raise SettingsError(f"TLS files are given, and {told} is advertised, which is no {SCHEME}")
