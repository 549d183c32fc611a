"""The daemon: run a server, log its events, and end at a signal or a closed standard input."""

import errno
import os
import signal
import termios
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from sphtp import Identity, Server
from sphtp.core.control.counters import Count
from sphtp.events import ServerState
from sphtp.security import Security
from sphtp.shell.keys import draw_identity
from sphtp.shell.lifetime import ending
from sphtp_server.descriptors import raise_limit
from sphtp_server.drain import wait_drained
from sphtp_server.event_log import EventLog
from sphtp_server.logs import Id, Log, LogTarget
from sphtp_server.page import look_on
from sphtp_server.reload import ClientPredicate, Reloader
from sphtp_server.service_manager import ALIVE, READY, STOPPING, ServiceManager
from sphtp_server.settings import ServerSettings

if TYPE_CHECKING:
    from sphtp.web import Web

STDIN: Final = 0

EVERYDAY: Final = frozenset(
    (
        Count.FOREIGN,
        Count.FOREIGN_PIPE,
        Count.NOT_REGISTERED,
        Count.REFUSED_BY_STATE,
        Count.REPLAYED,
        Count.STALE_NONCE,
        Count.UNPROVEN,
    )
)
"""Counters that rise in ordinary operation: when servers and clients join and leave, or if one is
reached at two addresses."""

LIMITS: Final = {
    Count.OVER_MAX_CLIENTS: "max_clients",
    Count.OVER_ANNOUNCES_PER_SECOND: "announces_per_second",
    Count.OVER_LOOKUPS_PER_SECOND: "lookups_per_second",
    Count.OVER_STUN_PER_SECOND: "stun_per_second",
    Count.OVER_DATA_PER_SECOND: "data_per_second",
    Count.OVER_MAX_ANSWERS: "max_answers",
    Count.OVER_MAX_CONNECTIONS: "max_connections",
    Count.OVER_MAX_HANDSHAKES: "max_handshakes",
    Count.OVER_HANDSHAKE_TIMEOUT: "handshake_timeout",
}
"""The setting of each counter of a limit."""

FIXED_LIMITS: Final = {
    Count.OVER_CHECKS_PER_SECOND: "requests of a client for checks of its addresses",
    Count.OVER_STATUS_ANSWERS: "status replies at the same time",
    Count.OVER_TIME_ANSWERS: "processor time for replies with the cluster's time",
}
"""The description of each limit that has a counter but no setting."""


async def serve(
    settings: ServerSettings, log: Log, target: LogTarget, load: Callable[[], ServerSettings]
) -> None:
    """Run a server until a signal, or with ``exit_with_stdin`` until standard input closes.

    SIGHUP reloads the settings, which ``load`` returns. SIGUSR1 drains the server before its end.

    Raises:
        BusError: the server cannot listen at its address.
        UdpAddressError: with ``stun``, the server cannot use its UDP port.
        SettingsError: a file of the settings is wrong, or an address cannot be used.
        ModuleNotFoundError: a package for metrics, the page, STUN or the registry is missing.
    """
    manager = ServiceManager(os.environ)
    has_terminal = os.isatty(STDIN)
    # Signals are caught before the first log line, whose reader may send a signal at once.
    with trio.open_signal_receiver(*ending()) as signals:
        raise_limit(log, settings.limits().connections)
        admission = ClientPredicate(settings.admit())
        # The identity of the page's client, which its own server always admits.
        identity = draw_identity()
        async with (
            settings.open(lambda peer: peer.key == identity.public or admission(peer)) as server,
            settings.open_web(server) as web,
            settings.open_page(server) as page,
            trio.open_nursery() as nursery,
        ):
            reloader = Reloader(settings, load, server, admission, log, target)
            _log_start(server, settings, log, metrics=web, page=page)
            looking = trio.CancelScope()
            if page is not None:
                nursery.start_soon(_look_on, page, server, settings, identity, looking, log)
            nursery.start_soon(_log_events, server, log)
            nursery.start_soon(_log_drops, server, reloader, log)
            nursery.start_soon(_notify_manager, server, manager)
            if settings.exit_with_stdin:
                nursery.start_soon(_leave_with_stdin, nursery.cancel_scope, log)
            is_draining = False
            async for number in signals:
                if number == signal.SIGHUP and not (has_terminal and _has_hung_up()):
                    # A READY before the first one would report readiness too soon.
                    if server.state is ServerState.ACTIVE:
                        manager.notify_reloading()
                    reloader.reload()
                    if server.state is ServerState.ACTIVE:
                        manager.notify(READY)
                elif number == signal.SIGUSR1 and not is_draining:
                    is_draining = True
                    for one in (web, page):
                        if one is not None:
                            one.unready = "draining"
                    # The client of the page ends first, so that the drain does not wait for it.
                    looking.cancel()
                    nursery.start_soon(_drain, server, reloader, manager, nursery.cancel_scope, log)
                elif number != signal.SIGUSR1:
                    log.info("leaving", because=signal.Signals(number).name)
                    break
            manager.notify(STOPPING)
            nursery.cancel_scope.cancel()
        log.info("left", id=Id(server.id))


def _has_hung_up() -> bool:
    """Return True if the terminal is gone, so that SIGHUP is not a request for a reload."""
    try:
        termios.tcgetattr(STDIN)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


async def _drain(
    server: Server,
    reloader: Reloader,
    manager: ServiceManager,
    scope: trio.CancelScope,
    log: Log,
) -> None:
    log.info("draining", clients=len(server.clients))
    config = reloader.settings.config()
    with trio.move_on_after(reloader.settings.drain_time) as drain:
        await wait_drained(server, config)
    if drain.cancelled_caught:
        log.warning(
            "not all clients have reached another server; they wait until they find one",
            clients=len(server.clients),
        )
    log.info("leaving", because="drain_time is over" if drain.cancelled_caught else "drained")
    manager.notify(STOPPING)
    scope.cancel()


async def _notify_manager(server: Server, manager: ServiceManager) -> None:
    """Notify the service manager when the server is active, and then at intervals."""
    await server.wait_active()
    manager.notify_status(_describe(server), READY)
    while True:
        await trio.sleep(manager.interval)
        manager.notify_status(_describe(server), ALIVE)


def _describe(server: Server) -> str:
    servers, clients = len(server.view.members), len(server.clients)
    return f"{server.state.value}, {servers} servers, {clients} clients"


async def _look_on(
    page: "Web",
    server: Server,
    settings: ServerSettings,
    identity: Identity,
    scope: trio.CancelScope,
    log: Log,
) -> None:
    def complain(reason: str) -> None:
        log.warning("the page shows only the data of this server", why=reason)

    # The config is made now, because the files may change before the server is active.
    config = replace(settings.config(), security=Security(identity=identity))
    with scope:
        await server.wait_active()
        await look_on(page, [server.advertised], config, complain)


def _log_start(server: Server, settings: ServerSettings, log: Log, **pages: "Web | None") -> None:
    log.info(
        "started",
        id=Id(server.id),
        pub=server.address.pub,
        sub=server.address.sub,
        advertised=str(server.advertised),
        state=server.state.value,
        pid=os.getpid(),
        **{name: web.url for name, web in pages.items() if web is not None},
    )
    if settings.makes_servers_of_members:
        log.warning(
            "every holder of the secret can pretend to be a server: give servers keys with "
            "--signing-key-file (sphtp keygen --server)"
        )
    if server.state is ServerState.JOINING and settings.join:
        log.info(
            "joining: admits no new client until another server is found",
            join=[str(address) for address in settings.join],
        )
    elif server.state is ServerState.JOINING:
        # The line names --new, because the user may not know it.
        log.warning(
            "joining: admits no new client until another server is found, or for this many "
            "seconds; if no client holds an id yet, start with --new",
            seconds=settings.timers().joining,
        )


async def _log_events(server: Server, log: Log) -> None:
    event_log = EventLog(log, server.view, lambda: server.id)
    async for event in server.events():
        event_log.record(event)


async def _log_drops(server: Server, reloader: Reloader, log: Log) -> None:
    before = server.statistics().counters
    while True:
        await trio.sleep(reloader.settings.log_interval)
        counts = server.statistics().counters
        grown = {name: count - before.get(name, 0) for name, count in counts.items()}
        log_drops(log, {name: count for name, count in grown.items() if count})
        before = counts


def log_drops(log: Log, counts: Mapping[str, int]) -> None:
    """Log the increases of counters: as warnings, or for ``EVERYDAY`` with level debug."""
    ordinary = {name: count for name, count in counts.items() if name in EVERYDAY}
    usual = {*EVERYDAY, *LIMITS, *FIXED_LIMITS, Count.OUT_OF_DESCRIPTORS, Count.OVERSLEPT}
    unusual = {name: count for name, count in counts.items() if name not in usual}
    for name, setting in LIMITS.items():
        if count := counts.get(name):
            log.warning("a limit was reached", setting=setting, times=count)
    for name, limit in FIXED_LIMITS.items():
        if count := counts.get(name):
            log.warning("a fixed limit was reached", limit=limit, times=count)
    if count := counts.get(Count.OUT_OF_DESCRIPTORS):
        log.warning("out of descriptors: raise the limit of the process (ulimit -Hn)", times=count)
    if count := counts.get(Count.OVERSLEPT):
        log.warning("the server did not run for a while: expiries are postponed", times=count)
    if ordinary:
        log.debug("messages dropped in ordinary operation", **ordinary)
    if unusual:
        log.warning("messages dropped or refused", **unusual)


async def _leave_with_stdin(scope: trio.CancelScope, log: Log) -> None:
    while await _read_stdin():
        pass
    log.info("leaving", because="standard input closed")
    scope.cancel()


async def _read_stdin() -> bytes:
    # Trio cannot wait for a regular file, whose reading never blocks.
    with suppress(PermissionError):
        await trio.lowlevel.wait_readable(STDIN)
    try:
        return os.read(STDIN, 4096)
    except OSError:
        return b""
