"""The daemon: a server, its log, and what ends it (two signals, or a closed standard input)."""

import os
import signal
from contextlib import suppress
from typing import Final

import trio

from sphtp.core.control.server_table import ServerState
from sphtp.core.control.timers import ControlTimers
from sphtp.shell.server import Server, open_server
from sphtp_server.happenings import log_event
from sphtp_server.logs import Log
from sphtp_server.settings import ServerSettings

STDIN: Final = 0


async def serve(settings: ServerSettings, log: Log) -> None:
    """Run a server until a signal says to leave, or standard input closes if that was asked for.

    Raises:
        BusError: it cannot listen there.
    """
    # Signals are caught before the first line is written: its reader may send one at once.
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_server(settings.options()) as server, trio.open_nursery() as nursery:
            _log_start(server, settings.timers(), log)
            nursery.start_soon(_log_events, server, log)
            nursery.start_soon(_log_drops, server, settings.log_interval, log)
            if settings.exit_with_stdin:
                nursery.start_soon(_leave_with_stdin, nursery.cancel_scope, log)
            async for number in signals:
                log.info("leaving", because=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel()
        log.info("left", id=server.id)


def _log_start(server: Server, timers: ControlTimers, log: Log) -> None:
    log.info(
        "started",
        id=server.id,
        pub=server.address.pub,
        sub=server.address.sub,
        advertised=str(server.advertised),
        state=server.state.name,
        pid=os.getpid(),
    )
    if server.state is ServerState.JOINING:
        log.warning(
            "joining: admits no new client until another server is found, or for this many "
            "seconds; where nobody holds an id yet, start with --new",
            seconds=timers.joining,
        )


async def _log_events(server: Server, log: Log) -> None:
    async for event in server.events():
        log_event(log, event)


async def _log_drops(server: Server, interval: float, log: Log) -> None:
    before = server.statistics().counters
    while True:
        await trio.sleep(interval)
        counts = server.statistics().counters
        grown = {name: count - before.get(name, 0) for name, count in counts.items()}
        news = {name: count for name, count in grown.items() if count}
        if news:
            log.warning("messages dropped or refused", **news)
        before = counts


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
