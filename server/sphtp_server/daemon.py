"""The daemon: runs a server, logs its events, and ends on signals or a closed standard input."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio

from sphtp import Server
from sphtp.core.control.counters import Count
from sphtp.events import ServerState
from sphtp.shell.signals import ending
from sphtp_server.descriptors import raise_limit
from sphtp_server.event_log import EventLog
from sphtp_server.logs import Id, Log
from sphtp_server.settings import ServerSettings

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
"""Counters that rise whenever servers and clients come and go, or are reached by two names."""

LIMITS: Final = {
    Count.OVER_MAX_CLIENTS: "max_clients",
    Count.OVER_ANNOUNCES_PER_SECOND: "announces_per_second",
    Count.OVER_LOOKUPS_PER_SECOND: "lookups_per_second",
    Count.OVER_DATA_PER_SECOND: "data_per_second",
    Count.OVER_MAX_ANSWERS: "max_answers",
    Count.OVER_MAX_CONNECTIONS: "max_connections",
    Count.OVER_MAX_HANDSHAKES: "max_handshakes",
    Count.OVER_HANDSHAKE_TIMEOUT: "handshake_timeout",
}
"""The setting behind each counter of a limit that took effect."""


async def serve(settings: ServerSettings, log: Log) -> None:
    """Run a server until a signal, or until standard input closes with ``exit_with_stdin``.

    Raises:
        BusError, SettingsError: it cannot listen there, or not with these files.
        ModuleNotFoundError: metrics are wanted, and what serves them is not installed.
    """
    # Signals are caught before the first line is written: its reader may send one at once.
    with trio.open_signal_receiver(*ending()) as signals:
        limits = settings.config().server_limits
        assert limits is not None
        raise_limit(log, limits.connections)
        async with (
            settings.open() as server,
            settings.open_web(server) as web,
            trio.open_nursery() as nursery,
        ):
            _log_start(server, settings, log, None if web is None else web.url)
            nursery.start_soon(_log_events, server, log)
            nursery.start_soon(_log_drops, server, settings.log_interval, log)
            if settings.exit_with_stdin:
                nursery.start_soon(_leave_with_stdin, nursery.cancel_scope, log)
            async for number in signals:
                log.info("leaving", because=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel()
        log.info("left", id=Id(server.id))


def _log_start(server: Server, settings: ServerSettings, log: Log, metrics: str | None) -> None:
    log.info(
        "started",
        id=Id(server.id),
        pub=server.address.pub,
        sub=server.address.sub,
        advertised=str(server.advertised),
        state=server.state.value,
        pid=os.getpid(),
        **({} if metrics is None else {"metrics": metrics}),
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
        # A user who gives neither --join nor --new may not know of them.
        log.warning(
            "joining: admits no new client until another server is found, or for this many "
            "seconds; if no client holds an id yet, start with --new",
            seconds=settings.timers().joining,
        )


async def _log_events(server: Server, log: Log) -> None:
    event_log = EventLog(log, server.view, lambda: server.id)
    async for event in server.events():
        event_log.record(event)


async def _log_drops(server: Server, interval: float, log: Log) -> None:
    before = server.statistics().counters
    while True:
        await trio.sleep(interval)
        counts = server.statistics().counters
        grown = {name: count - before.get(name, 0) for name, count in counts.items()}
        log_drops(log, {name: count for name, count in grown.items() if count})
        before = counts


def log_drops(log: Log, counts: Mapping[str, int]) -> None:
    """Log risen counters: as warnings, or for debugging if they are ordinary."""
    ordinary = {name: count for name, count in counts.items() if name in EVERYDAY}
    told = {*EVERYDAY, *LIMITS, Count.OUT_OF_DESCRIPTORS}
    unusual = {name: count for name, count in counts.items() if name not in told}
    for name, setting in LIMITS.items():
        if count := counts.get(name):
            log.warning("a limit was reached", setting=setting, times=count)
    if count := counts.get(Count.OUT_OF_DESCRIPTORS):
        log.warning("out of descriptors: raise the limit of the process (ulimit -Hn)", times=count)
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
    # Plain files cannot be waited for, and need not be: reading them never blocks.
    with suppress(PermissionError):
        await trio.lowlevel.wait_readable(STDIN)
    try:
        return os.read(STDIN, 4096)
    except OSError:
        return b""
