"""Discovery: servers announce themselves, and clients without an address find them.

A program that starts other programs may name the servers in their environment, as ``sphtp run``
does. Then the clients do not search.

On one host an announcement is a file in a folder of the user, which its server keeps locked. That
needs neither a network nor a library. When a server is killed, its file loses the lock, and the
next reader deletes the file. On one network announcements are DNS-SD over multicast DNS (RFC 6762,
6763), by ``zeroconf``, which runs in threads of its own. A server that only its own host can reach
does not announce itself to the network.
"""

import fcntl
import json
import logging
import os
import stat
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import trio

from sphtp.core.control.announcement import Announcement, clusters_of, decode_untrusted
from sphtp.core.control.records import ServerAddress
from sphtp.core.control.settings import ControlTimers
from sphtp.errors import RemoteError, SettingsError, UnreachableError
from sphtp.shell.addresses import is_loopback
from sphtp.shell.config import UNPROTECTED, ClusterSecurity, Config
from sphtp.shell.keys import load_secret
from sphtp.shell.lifetime import running

if TYPE_CHECKING:
    from zeroconf import Zeroconf

    from sphtp.shell.server import Server

SERVICE: Final = "_sphtp._tcp.local."

SEARCH: Final = 3.0
"""Seconds for a search, unless ``start_timeout`` is longer. Multicast DNS sends three requests,
within the first two seconds (RFC 6762, 5.2).
"""

LOOK: Final = 0.2
"""The most seconds between two readings of the folder of this host during a search."""

SETTLE: Final = 0.3
"""Seconds for which a search waits for further servers on the network after the first."""

RESOLVE: Final = 1000
"""Milliseconds for the TXT record of a service whose name is known."""

MOST_RESOLVED: Final = 16
"""The most services whose TXT records are requested at once; each request takes a thread."""

MOST_OFFERED: Final = 256
"""The most names of services that wait to be resolved; further ones are dropped."""

MOST_SERVERS: Final = 256
"""The most servers of the network that a search remembers."""

NO_LIBRARY: Final = (
    "the network was not searched: pip install 'sphtp[discovery]' brings zeroconf, which does that"
)

MOST_FILE: Final = 16_384
"""The most characters that are read of a file; an announcement is shorter."""

MOST_LABEL: Final = 63
"""The most bytes of an instance's name (RFC 6763, 4.1.1)."""

log: Final = logging.getLogger("sphtp.discovery")

Interfaces = Sequence[str] | None
"""The addresses of the interfaces for multicast DNS; None for all interfaces."""


@asynccontextmanager
async def announced(
    server: "Server", config: Config, interfaces: Interfaces = None
) -> AsyncIterator[None]:
    """Announce a server for the length of the block, as soon as it is active."""
    async with running(partial(_announce, server, config.cluster.secret, interfaces)):
        yield


async def _announce(server: "Server", secret: bytes | None, interfaces: Interfaces) -> None:
    host = urlsplit(server.advertised.pub).hostname or ""
    to_network = interfaces is not None or not is_loopback(host)
    with suppress(trio.ClosedResourceError), server.events() as events:
        await server.wait_active()
        with _own_file() as write:
            async with _own_service(interfaces, is_on=to_network) as register:
                while True:
                    # Servers that enter or leave may change the number of the cluster.
                    members = [member.id for member in server.view.members]
                    found = Announcement.make(server.advertised, min([server.id, *members]), secret)
                    write(found)
                    await register(found)
                    await anext(events)


# In the environment


SERVER: Final = "SPHTP_CLIENT_SERVER"
KEY_FILE: Final = "SPHTP_CLIENT_SECRET_FILE"
TIMERS: Final = {"heartbeat": "SPHTP_CLIENT_HEARTBEAT", "expiry": "SPHTP_CLIENT_EXPIRY"}


def config_of_environment(config: Config, environ: Mapping[str, str]) -> Config:
    """Return a config in which the environment sets the secret and the timers that it lacks.

    Raises ``SettingsError``, which names the variable, for a wrong value.
    """
    file = environ.get(KEY_FILE, "")
    if file and config.cluster == UNPROTECTED:
        with _naming(KEY_FILE):
            config = replace(config, cluster=ClusterSecurity(secret=load_secret(file)))
    given = {key: environ[name] for key, name in TIMERS.items() if environ.get(name)}
    if given and config.timers is None:
        with _naming(", ".join(TIMERS[key] for key in given)):
            values = {key: float(text) for key, text in given.items()}
            config = replace(config, timers=ControlTimers(**values))
    return config


def servers_of_environment(environ: Mapping[str, str]) -> list[ServerAddress]:
    """Return the servers that the environment names, separated by spaces.

    Raises ``SettingsError``, which names the variable, for a wrong value.
    """
    with _naming(SERVER):
        return [ServerAddress.parse(text) for text in environ.get(SERVER, "").split()]


@contextmanager
def _naming(variable: str) -> Iterator[None]:
    try:
        yield
    except (SettingsError, ValueError) as error:
        raise SettingsError(f"environment variable {variable}: {error}") from error


# By their announcements


async def find_servers(config: Config, interfaces: Interfaces = None) -> list[ServerAddress]:
    """Return the servers of the one cluster on this host, or else on this network.

    Raises:
        UnreachableError: the search found no usable server in time, or several clusters. The
            message names the servers that were found, with the cause why each is not used.
    """
    patience = max(SEARCH, config.timers.start_timeout if config.timers else 0.0)
    found = _Found(config)
    with trio.move_on_after(patience):
        found.on_host(read_files())
        if not found.followed:
            # A server that has just become active announces itself in the next turn.
            await trio.sleep(LOOK)
            found.on_host(read_files())
        if not found.followed:
            # Only a search of the network loads zeroconf.
            async with _browsed(found, interfaces):
                while not found.followed:
                    await found.wait_for_more(LOOK)
                    found.on_host(read_files())
                await trio.sleep(SETTLE)
    if not found.followed:
        # A process that was suspended may have had no time to read the folder.
        found.on_host(read_files())
    return found.choose(patience)


class _Found:
    """The announcements that a search has found."""

    def __init__(self, config: Config) -> None:
        self._secret = config.cluster.secret
        self._has_tls = config.cluster.tls is not None
        self._on_host: Sequence[Announcement] = ()
        # By the names of their services, because each change of a service appears again.
        self._on_network: dict[str, Announcement] = {}
        self._changed = trio.Event()
        self.complaints = list[str]()

    @property
    def followed(self) -> list[Announcement]:
        """The announcements of servers that this client can use."""
        return [each for each in self._all if not self._obstacle(each)]

    def on_host(self, announcements: Sequence[Announcement]) -> None:
        self._on_host = announcements

    def add(self, name: str, announcement: Announcement) -> None:
        """Add the announcement of a service of the network, up to ``MOST_SERVERS``."""
        known = self._on_network
        if name not in known and len(known) >= MOST_SERVERS:
            # A usable server takes the place of an unusable one.
            useless = next((it for it, each in known.items() if self._obstacle(each)), None)
            if useless is None or self._obstacle(announcement):
                return
            del known[useless]
        known[name] = announcement
        self._changed.set()

    async def wait_for_more(self, seconds: float) -> None:
        """Wait for the next announcement of the network, for ``seconds`` at most."""
        self._changed = trio.Event()
        with trio.move_on_after(seconds):
            await self._changed.wait()

    def choose(self, patience: float) -> list[ServerAddress]:
        """Return the servers to use. Raises ``UnreachableError``."""
        clusters = clusters_of(self.followed)
        if len(clusters) == 1:
            return clusters[0]
        if clusters:
            named = "; ".join(", ".join(map(str, each)) for each in clusters)
            raise UnreachableError(
                f"found {len(clusters)} clusters: {named}; give the address of a server of the "
                "right one"
            )
        seen = [f"found a server at {each.address} {self._obstacle(each)}" for each in self._all]
        why = "; ".join([*dict.fromkeys(seen), *self.complaints]) or "none is announced"
        raise UnreachableError(f"no server found within {patience:g} s: {why}")

    @property
    def _all(self) -> list[Announcement]:
        return [*self._on_host, *self._on_network.values()]

    def _obstacle(self, announcement: Announcement) -> str:
        return announcement.obstacle(self._secret, has_tls=self._has_tls)


# On this host


def folder() -> Path:
    """Return the folder with the announcements of this user's servers on this host."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "sphtp"
    return Path(tempfile.gettempdir()) / f"sphtp-{os.getuid()}"


class LocalServer(NamedTuple):
    """A server of this user on this host: its process, and its announcement."""

    pid: int
    announcement: Announcement


def read_files() -> list[Announcement]:
    """Return the announcements on this host, and delete the files of servers that have ended."""
    return [each.announcement for each in local_servers()]


def local_servers() -> list[LocalServer]:
    """Return the announced servers of this user on this host; delete the files of ended ones."""
    place = folder()
    try:
        _require_own(place)
        files = sorted(place.glob("*.server"))
    except OSError:
        return []
    found = list[LocalServer]()
    for file in files:
        with suppress(OSError, ValueError, RecursionError, RemoteError):
            text = _read_locked(file)
            values = json.loads(text) if text is not None else None
            if isinstance(values, dict):
                texts = {str(key): str(value) for key, value in values.items()}
                pid = int(file.name.partition("-")[0])
                found.append(LocalServer(pid, decode_untrusted(texts)))
    return found


def _read_locked(file: Path) -> str | None:
    """Return the text of a file that its server keeps locked. Delete a file without a lock."""
    with file.open(encoding="utf-8") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return opened.read(MOST_FILE)
        file.unlink(missing_ok=True)
        return None


def _require_own(place: Path) -> None:
    """Raise ``OSError`` unless a folder belongs to this user alone: all users can write to /tmp."""
    status = place.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_own or status.st_mode & 0o022:
        raise PermissionError(f"{place} is not a folder that only this user can write to")


@contextmanager
def _own_file() -> Iterator[Callable[[Announcement], None]]:
    """Keep a locked file for the length of the block. Yield the function that writes to it.

    A server calls the function at each of its events; an unchanged text is not written again.
    Without a folder of its own, the function does nothing.
    """
    place = folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(place)
        number, name = tempfile.mkstemp(suffix=".new", prefix=f"{os.getpid()}-", dir=place)
    except OSError as error:
        log.warning("not announced on this host: %s", error)
        yield lambda _: None
        return
    # The file gets its final name when it is locked and written, so that no reader deletes it.
    hidden, shown = Path(name), Path(name).with_suffix(".server")
    written = b""

    def write(announcement: Announcement) -> None:
        nonlocal written
        text = json.dumps(announcement.encode()).encode()
        if text == written:
            return
        written = b""
        try:
            os.pwrite(number, text, 0)
            os.ftruncate(number, len(text))
            if hidden.exists():
                hidden.rename(shown)
            written = text
        except OSError as error:
            # A full disk must not end the server. The next event causes another attempt.
            log.warning("not announced on this host: %s", error)

    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield write
    finally:
        hidden.unlink(missing_ok=True)
        shown.unlink(missing_ok=True)
        os.close(number)


# On this network

Register = Callable[[Announcement], Any]


async def _register_nothing(_: Announcement) -> None:
    await trio.lowlevel.checkpoint()


@asynccontextmanager
async def _own_service(interfaces: Interfaces, *, is_on: bool) -> AsyncIterator[Register]:
    """Offer a DNS-SD service for the length of the block. Yield the function that registers it."""
    if not is_on:
        yield _register_nothing
        return
    try:
        from zeroconf import Error, ServiceInfo
    except ModuleNotFoundError:
        log.warning(
            "announced on this host only: pip install 'sphtp[discovery]' brings what announces "
            "servers to the network"
        )
        yield _register_nothing
        return
    async with _zeroconf(interfaces) as zeroconf:
        if zeroconf is None:
            yield _register_nothing
            return
        offered = list[Any]()

        async def register(announcement: Announcement) -> None:
            try:
                info = _service_info(ServiceInfo, announcement)
                if offered and offered[0] == (info.name, info.text):
                    return
                change = zeroconf.update_service if offered else zeroconf.register_service
                offered[:] = [(info.name, info.text)]
                # The call takes a second. A server that ends meanwhile does not wait for it.
                await trio.to_thread.run_sync(change, info, abandon_on_cancel=True)
            except (OSError, TimeoutError, ValueError, Error) as error:
                log.warning("not announced to the network: %r", error)

        yield register


def _service_info(make: Any, announcement: Announcement) -> Any:
    parts = urlsplit(announcement.address.pub)
    host, port = parts.hostname or "", parts.port or 0
    # The name follows from the address. Clients dial the address in the TXT record.
    name = f"{host.replace('.', '-').replace(':', '-')}-{port}"
    if len(name) > MOST_LABEL:
        name = f"{name[: MOST_LABEL - 17]}-{sha256(name.encode()).hexdigest()[:16]}"
    with suppress(ValueError):
        return make(
            SERVICE,
            f"{name}.{SERVICE}",
            port,
            properties=announcement.encode(),
            server=f"{name}.local.",
            addresses=[ip_address(host).packed],
        )
    return make(
        SERVICE, f"{name}.{SERVICE}", port, properties=announcement.encode(), server=f"{host}."
    )


@asynccontextmanager
async def _browsed(found: _Found, interfaces: Interfaces) -> AsyncIterator[None]:
    """Add announced servers of this network to ``found``, for the length of the block."""
    try:
        from zeroconf import BadTypeInNameException, ServiceBrowser
    except ModuleNotFoundError:
        found.complaints.append(NO_LIBRARY)
        yield
        return
    token = trio.lowlevel.current_trio_token()
    names, names_out = trio.open_memory_channel[str](MOST_OFFERED)
    # If the network offers too many names, the oldest are dropped. Trio would keep each call of
    # ``run_sync_soon``, so one call passes on all names.
    noted = deque[str](maxlen=MOST_OFFERED)

    def note(*, name: str, **_: object) -> None:
        noted.append(name)
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(offer, idempotent=True)

    def offer() -> None:
        while noted:
            with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                names.send_nowait(noted.popleft())

    async def resolve(zeroconf: "Zeroconf", name: str) -> None:
        get = partial(zeroconf.get_service_info, SERVICE, name, RESOLVE)
        try:
            info = await trio.to_thread.run_sync(get, abandon_on_cancel=True)
        except BadTypeInNameException:
            return  # Any program may offer any name.
        if info is not None:
            with suppress(RemoteError):
                found.add(name, decode_untrusted(texts_untrusted(info.properties)))

    async def resolve_some(zeroconf: "Zeroconf") -> None:
        async for name in names_out:
            await resolve(zeroconf, name)

    async def resolve_all(zeroconf: "Zeroconf") -> None:
        # Several tasks, so that a service that does not answer holds up no other.
        async with trio.open_nursery() as nursery:
            for _ in range(MOST_RESOLVED):
                nursery.start_soon(resolve_some, zeroconf)

    async with _zeroconf(interfaces) as zeroconf:
        if zeroconf is None:
            found.complaints.append("the network cannot be searched; see the log sphtp.discovery")
            yield
            return
        browser = await trio.to_thread.run_sync(
            partial(ServiceBrowser, zeroconf, SERVICE, handlers=[note])
        )
        try:
            async with running(partial(resolve_all, zeroconf)):
                yield
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(browser.cancel)


def texts_untrusted(properties: Mapping[bytes, bytes | None]) -> dict[str, str]:
    """Return a TXT record as text. Malformed bytes become U+FFFD, which the decoder rejects."""
    return {
        key.decode(errors="replace"): (value or b"").decode(errors="replace")
        for key, value in properties.items()
    }


@asynccontextmanager
async def _zeroconf(interfaces: Interfaces) -> AsyncIterator["Zeroconf | None"]:
    """Run multicast DNS for the length of the block. Yield None if this machine has none."""
    from zeroconf import InterfaceChoice, Zeroconf

    choice = InterfaceChoice.All if interfaces is None else list(interfaces)
    try:
        zeroconf = await trio.to_thread.run_sync(partial(Zeroconf, interfaces=choice))
    except OSError as error:
        log.warning("no multicast DNS: %s", error)
        yield None
        return
    try:
        yield zeroconf
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(_close, zeroconf)


def _close(zeroconf: "Zeroconf") -> None:
    """End the calls that are under way, of which asyncio would complain later, and close."""
    import asyncio

    async def end_calls() -> None:
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=1)

    if zeroconf.loop is not None and zeroconf.loop.is_running():
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(end_calls(), zeroconf.loop).result(timeout=2)
    zeroconf.close()
