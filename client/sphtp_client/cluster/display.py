"""The displays of ``sphtp cluster`` and ``sphtp run``: live tables, lines, a document, or none."""

import json
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sphtp.core.printable import printable
from sphtp_client.cluster.run_status import ProcessRole, ProcessStatus, RunStatus
from sphtp_client.program import write_line
from sphtp_client.simulation.reports import LinkReport


def render(status: RunStatus, steps: int, seconds: float) -> RenderableType:
    """Return tables of servers and peers; ``seconds`` is the time since the start of the run."""
    return Group(_servers(status), _peers(status, steps, seconds))


def summary(status: RunStatus, steps: int, seconds: float) -> str:
    """Return the progress of the run as one line."""
    clients = status.of(ProcessRole.CLIENT)
    servers = status.of(ProcessRole.SERVER)
    parts = [
        f"{seconds:6.1f} s",
        f"step {_slowest(clients)}/{steps}",
        *_about_speed(clients),
        *_about_links([link for process in clients for link in process.links]),
        f"servers {sum(process.alive for process in servers)}/{len(servers)}",
        *(f"reference step {process.step}" for process in status.of(ProcessRole.REFERENCE)),
    ]
    return "  ".join(parts)


def _servers(status: RunStatus) -> Table:
    table = Table(title="servers", title_justify="left")
    table.add_column("server")
    for heading in ("pid", "id"):
        table.add_column(heading, justify="right")
    for heading in ("address", "clients", "state"):
        table.add_column(heading)
    for process in status.of(ProcessRole.SERVER):
        url = (process.address or "").partition(",")[0]
        row = (
            process.name,
            _text(process.pid),
            _hex(process.id),
            Text(printable(url)),
            _clients_of(process, status),
        )
        table.add_row(*row, _state(process))
    return table


def _peers(status: RunStatus, steps: int, seconds: float) -> Table:
    table = Table(title=f"peers, {seconds:.1f} s", title_justify="left")
    table.add_column("peer")
    for heading in ("pid", "id", "step", "steps/s", "round trip", "loss", "resent"):
        table.add_column(heading, justify="right")
    table.add_column("state")
    for process in (*status.of(ProcessRole.CLIENT), *status.of(ProcessRole.REFERENCE)):
        speed = f"{process.steps_per_s:.0f}" if process.steps_per_s else ""
        row = (process.name, _text(process.pid), _hex(process.id), f"{process.step}/{steps}", speed)
        table.add_row(*row, *_figures(process.links), _state(process))
    return table


def _figures(links: Iterable[LinkReport]) -> tuple[str, str, str]:
    known = list(links)
    if not known:
        return "", "", ""
    return _round_trips(known), f"{loss_share(known):.1%}", str(sum(link.resent for link in known))


def _round_trips(links: list[LinkReport]) -> str:
    times = [f"{link.rtt_ms:.1f}" for link in links if link.rtt_ms is not None]
    ends = sorted({min(times, key=float), max(times, key=float)}, key=float) if times else []
    return "-".join(ends) + " ms" if ends else ""


def loss_share(links: Iterable[LinkReport]) -> float:
    """Return the share of sent packets that were lost on the way."""
    sent, lost = 0, 0
    for link in links:
        sent, lost = sent + link.sent, lost + link.lost
    return lost / sent if sent else 0.0


def _about_speed(clients: list[ProcessStatus]) -> Iterable[str]:
    slowest = min((process.steps_per_s for process in clients), default=0.0)
    if slowest:  # zero if a client has not reported its speed yet
        yield f"{slowest:.0f} steps/s"


def _about_links(links: list[LinkReport]) -> Iterable[str]:
    if links:
        yield f"round trip {_round_trips(links)}"
        yield f"loss {loss_share(links):.1%}  resent {sum(link.resent for link in links)}"


def _slowest(clients: list[ProcessStatus]) -> int:
    return min((process.step for process in clients), default=0)


def _clients_of(server: ProcessStatus, status: RunStatus) -> str:
    slabs = [
        str(process.slab)
        for process in status.of(ProcessRole.CLIENT)
        if process.alive and server.alive and server.id in process.servers
    ]
    return " ".join(slabs)


def _state(process: ProcessStatus) -> str:
    if process.finished:
        return "finished"
    if process.exit is not None:
        return "ended" if process.exit.code == 0 else str(process.exit)
    return "starting" if process.id is None and process.step == 0 else "running"


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def _hex(value: int | None) -> str:
    return "" if value is None else f"{value:#010x}"


LIVE_EVERY = 0.25  # least seconds between two drawings
LINE_EVERY = 2.0  # least seconds between two summaries


class RunDisplay(Protocol):
    """The interface of displays of a run; ``changed`` is called often and decides when to draw."""

    def changed(self) -> None:
        """Note a change of the status."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PlainDisplay:
    """A display of lines: notices as they arrive, and every few seconds a changed summary.

    ``summary`` gets the seconds since the start, and returns a line, or None for no summary.
    """

    def __init__(
        self,
        notices: deque[str],
        summary: Callable[[float], str | None],
        clock: Callable[[], float],
        stream: TextIO,
    ) -> None:
        self._notices = notices
        self._summary = summary
        self._clock = clock
        self._stream = stream
        self._began = clock()
        self._drawn = self._began
        self._written: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._write_notices()

    def changed(self) -> None:
        """Write new notices, and the summary if it is due and has changed."""
        self._write_notices()
        now = self._clock()
        if now - self._drawn >= LINE_EVERY:
            line = self._summary(now - self._began)
            if line is not None and line != self._written:
                self._drawn, self._written = now, line
                write_line(self._stream, line)

    def _write_notices(self) -> None:
        while self._notices:
            write_line(self._stream, self._notices.popleft())


class PlainRunDisplay(PlainDisplay):
    """A display of lines: the events of a simulation, and its progress."""

    def __init__(
        self, status: RunStatus, steps: int, clock: Callable[[], float], stream: TextIO
    ) -> None:
        def progress(seconds: float) -> str | None:
            # Servers that end one by one would look like lost servers.
            return None if status.is_ending else summary(status, steps, seconds)

        super().__init__(status.notices, progress, clock, stream)


class LiveDisplay:
    """A drawing that is updated on a terminal, with notices above it.

    ``draw`` gets the seconds since the start, and returns the drawing. ``style`` formats a notice.
    """

    def __init__(
        self,
        notices: deque[str],
        draw: Callable[[float], RenderableType],
        clock: Callable[[], float],
        console: Console,
        style: Callable[[str], Text] = Text,
    ) -> None:
        self._notices = notices
        self._draw_at = draw
        self._clock = clock
        self._style = style
        self._began = clock()
        self._drawn = float("-inf")
        # Live draws in this thread, not in its own, so that it never draws during a change.
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._draw(self._clock())
        self._live.stop()

    def changed(self) -> None:
        """Draw again, unless the last drawing was less than ``LIVE_EVERY`` seconds ago."""
        now = self._clock()
        if now - self._drawn >= LIVE_EVERY:
            self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn = now
        while self._notices:
            notice = self._style(printable(self._notices.popleft()))
            self._live.console.print(notice, highlight=False)
        self._live.update(self._draw_at(now - self._began), refresh=True)


class LiveRunDisplay(LiveDisplay):
    """A display with tables of servers and peers on a terminal."""

    def __init__(
        self, status: RunStatus, steps: int, clock: Callable[[], float], console: Console
    ) -> None:
        super().__init__(
            status.notices, lambda seconds: render(status, steps, seconds), clock, console
        )


class StandingDisplay:
    """A display of one JSON document, when all servers of a run without clients listen."""

    def __init__(self, status: RunStatus, stream: TextIO) -> None:
        self._status = status
        self._stream = stream
        self._has_written = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def changed(self) -> None:
        """Write the document, once."""
        if self._status.standing is not None and not self._has_written:
            self._has_written = True
            write_line(self._stream, json.dumps(self._status.standing))


class NoRunDisplay:
    """A display that shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def changed(self) -> None:
        """Write nothing."""
