"""The displays of ``sphtp watch``: a live table, plain lines, or JSON for programs."""

from collections.abc import Callable, Mapping
from math import hypot
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sphtp.core.printable import peer_label, printable
from sphtp_client.cluster.display import LINE_EVERY
from sphtp_client.program import write_line
from sphtp_client.simulation.frames import Momentum
from sphtp_client.watch.events import FramesLost, SlabEnded, SlabJoined, WatchEvent, WatchSummary
from sphtp_client.watch.view import SimulationView, SlabView

NUMBERS = ("slab", "step", "spheres", "kinetic\nJ", "|p|\nkg m/s", "lag", "age\ns", "lost")


def render(now: float, view: SimulationView) -> RenderableType:
    """Return a table of the slabs, and below them the last state of which all frames arrived."""
    run = view.run
    table = Table(
        title=Text(f"{run.slabs} slabs, {run.steps} steps, scenario {printable(run.scenario[:8])}"),
        title_justify="left",
    )
    for heading in NUMBERS:
        table.add_column(heading, justify="right")
    table.add_column("state", no_wrap=True)
    for slab in sorted(view.slabs):
        table.add_row(*_slab(now, view, slab), end_section=slab == max(view.slabs))
    table.add_row(*_all(view))
    return table


def line(view: SimulationView) -> str:
    """Return the progress of the simulation as one line."""
    run, whole = view.run, view.whole
    parts = [f"step {view.newest}/{run.steps}", f"slabs {len(view.steps)}/{run.slabs}"]
    if whole is not None:
        parts += [f"{whole.spheres} spheres", f"kinetic {_energy(whole.kinetic)} J"]
    if view.losses:
        parts += [f"losses {view.losses}"]
    return "  ".join(parts)


def _slab(now: float, view: SimulationView, slab: int) -> tuple[str, ...]:
    slab_view = view.slabs[slab]
    what = ("", "", "", "")
    if slab_view.frame is not None:
        frame = slab_view.frame
        motion = _energy(frame.kinetic), _size(frame.momentum)
        what = (str(frame.step), str(len(frame)), *motion)
    when = "" if slab_view.seen_at is None else f"{now - slab_view.seen_at:.1f}"
    return (
        str(slab),
        *what,
        str(view.lag_of(slab)),
        when,
        str(slab_view.losses),
        _state(slab_view),
    )


def _all(view: SimulationView) -> tuple[str, ...]:
    whole = view.whole
    if whole is None:
        return ("all",)
    motion = _energy(whole.kinetic), _size(whole.momentum)
    what = (str(whole.step), str(whole.spheres), *motion)
    return ("all", *what, "", "", str(view.losses), whole.state_sha256[:8])


def _state(slab_view: SlabView) -> str:
    if slab_view.ended is not None:
        return "ended"
    return "joining" if slab_view.frame is None else "watched"


def _energy(value: float) -> str:
    return f"{value:.6g}"


def _size(momentum: Momentum) -> str:
    return f"{hypot(*momentum):.4g}"


class WatchDisplay(Protocol):
    """The interface of displays of a simulation; times are Trio's, in seconds."""

    def show_event(self, event: WatchEvent) -> None:
        """Show an event."""
        ...

    def show(self, now: float, view: SimulationView) -> None:
        """Draw if the display is due for an update; called often."""
        ...

    def finish(self, now: float, view: SimulationView, summary: WatchSummary) -> None:
        """Show the final state."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class JsonWatchDisplay:
    """A display that writes each event as a line of JSON."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def show_event(self, event: WatchEvent) -> None:
        """Write the event as a JSON object, in one line."""
        write_line(self._stream, event.model_dump_json())

    def show(self, now: float, view: SimulationView) -> None:
        """Write nothing."""

    def finish(self, now: float, view: SimulationView, summary: WatchSummary) -> None:
        """Write the summary as the last line."""
        self.show_event(summary)


class PlainWatchDisplay:
    """A display of lines: events as they arrive, regular summaries, and a table at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def show_event(self, event: WatchEvent) -> None:
        """Write an event of a type in ``SENTENCES``."""
        sentence = SENTENCES.get(type(event))
        if sentence is not None:
            write_line(self._stream, sentence(event))

    def show(self, now: float, view: SimulationView) -> None:
        """Write the progress if there is a frame, and the last line is ``LINE_EVERY`` s old."""
        if view.steps and now - self._shown >= LINE_EVERY:
            self._shown = now
            write_line(self._stream, line(view))

    def finish(self, now: float, view: SimulationView, summary: WatchSummary) -> None:
        """Write the table and the last line."""
        # No colours, even if the stream is a terminal.
        console = Console(file=self._stream, no_color=True, force_terminal=False)
        with console.capture() as drawn:
            console.print(render(now, view))
        write_line(self._stream, drawn.get().rstrip())
        self.show_event(summary)


class LiveWatchDisplay:
    """A display of a table that is updated on a terminal, with events above it."""

    def __init__(self, console: Console) -> None:
        # Live draws in this thread, not in its own, so that it never draws during a change.
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def show_event(self, event: WatchEvent) -> None:
        """Print an event of a type in ``SENTENCES``."""
        sentence = SENTENCES.get(type(event))
        if sentence is not None:
            self._live.console.print(printable(sentence(event)), markup=False, highlight=False)

    def show(self, now: float, view: SimulationView) -> None:
        """Draw the table."""
        self._live.update(render(now, view), refresh=True)

    def finish(self, now: float, view: SimulationView, summary: WatchSummary) -> None:
        """Draw the table once more, and print the outcome."""
        self.show(now, view)
        self.show_event(summary)


def _joined(event: SlabJoined) -> str:
    who = peer_label(event.name, event.id)
    return f"slab {event.slab} of {event.slabs}: joined the stream of {who}"


def _lost(event: FramesLost) -> str:
    return f"slab {event.slab}: lost {event.first} to {event.last}: {event.text}"


def _ended(event: SlabEnded) -> str:
    return f"slab {event.slab}: {event.reason}"


def _summary(event: WatchSummary) -> str:
    step = "no step" if event.step is None else f"step {event.step}"
    return f"{event.outcome}: {step}, {event.frames} frames, {event.losses} losses"


SENTENCES: Mapping[type[Any], Callable[[Any], str]] = {
    SlabJoined: _joined,
    FramesLost: _lost,
    SlabEnded: _ended,
    WatchSummary: _summary,
}
