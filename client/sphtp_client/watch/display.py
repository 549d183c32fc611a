"""How watching is shown: a live table on a terminal, plain lines, or JSON for programs."""

from collections.abc import Callable, Mapping
from math import hypot
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sphtp.core.printable import printable
from sphtp_client.cluster.display import LINE_EVERY
from sphtp_client.program import write_line
from sphtp_client.simulation.frames import Momentum
from sphtp_client.watch.events import FramesLost, SlabEnded, SlabJoined, WatchEvent, WatchSummary
from sphtp_client.watch.view import SimulationView, SlabView

NUMBERS = ("slab", "step", "spheres", "kinetic\nJ", "|p|\nkg m/s", "lag", "age\ns", "lost")


def render(now: float, scene: SimulationView) -> RenderableType:
    """Draw the slabs, and below them the last state that was seen of all of them."""
    run = scene.run
    table = Table(
        title=Text(f"{run.slabs} slabs, {run.steps} steps, scenario {printable(run.scenario[:8])}"),
        title_justify="left",
    )
    for heading in NUMBERS:
        table.add_column(heading, justify="right")
    table.add_column("state", no_wrap=True)
    for slab in sorted(scene.slabs):
        table.add_row(*_slab(now, scene, slab), end_section=slab == max(scene.slabs))
    table.add_row(*_all(scene))
    return table


def line(scene: SimulationView) -> str:
    """Say in one line how far the simulation is."""
    run, whole = scene.run, scene.whole
    parts = [f"step {scene.newest}/{run.steps}", f"slabs {len(scene.steps)}/{run.slabs}"]
    if whole is not None:
        parts += [f"{whole.spheres} spheres", f"kinetic {_energy(whole.kinetic)} J"]
    if scene.losses:
        parts += [f"losses {scene.losses}"]
    return "  ".join(parts)


def _slab(now: float, scene: SimulationView, slab: int) -> tuple[str, ...]:
    sight = scene.slabs[slab]
    what = ("", "", "", "")
    if sight.frame is not None:
        frame = sight.frame
        motion = _energy(frame.kinetic), _size(frame.momentum)
        what = (str(frame.step), str(len(frame)), *motion)
    when = "" if sight.heard is None else f"{now - sight.heard:.1f}"
    return (str(slab), *what, str(scene.lag_of(slab)), when, str(sight.losses), _state(sight))


def _all(scene: SimulationView) -> tuple[str, ...]:
    whole = scene.whole
    if whole is None:
        return ("all",)
    motion = _energy(whole.kinetic), _size(whole.momentum)
    what = (str(whole.step), str(whole.spheres), *motion)
    return ("all", *what, "", "", str(scene.losses), whole.state_sha256[:8])


def _state(sight: SlabView) -> str:
    if sight.ended is not None:
        return "ended"
    return "joining" if sight.frame is None else "watched"


def _energy(value: float) -> str:
    return f"{value:.6g}"


def _size(momentum: Momentum) -> str:
    return f"{hypot(*momentum):.4g}"


class WatchDisplay(Protocol):
    """Shows a scene; the times are of one clock, in seconds."""

    def say(self, news: WatchEvent) -> None:
        """Take note of what is new."""
        ...

    def show(self, now: float, scene: SimulationView) -> None:
        """Take a look at the scene; called often."""
        ...

    def finish(self, now: float, scene: SimulationView, summary: WatchSummary) -> None:
        """Take the last look."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class JsonWatchDisplay:
    """One JSON object per line, for all that is new."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def say(self, news: WatchEvent) -> None:
        """Write one line."""
        write_line(self._stream, news.model_dump_json())

    def show(self, now: float, scene: SimulationView) -> None:
        """Write nothing."""

    def finish(self, now: float, scene: SimulationView, summary: WatchSummary) -> None:
        """Write the last line."""
        self.say(summary)


class PlainWatchDisplay:
    """Happenings as they come, a line every few seconds, and the table at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def say(self, news: WatchEvent) -> None:
        """Write what is worth a line of its own."""
        sentence = SENTENCES.get(type(news))
        if sentence is not None:
            write_line(self._stream, sentence(news))

    def show(self, now: float, scene: SimulationView) -> None:
        """Write a line unless that was done a moment ago."""
        if scene.steps and now - self._shown >= LINE_EVERY:
            self._shown = now
            write_line(self._stream, line(scene))

    def finish(self, now: float, scene: SimulationView, summary: WatchSummary) -> None:
        """Write the table and the last line."""
        # A log has no colours, wherever it ends up.
        console = Console(file=self._stream, no_color=True, force_terminal=False)
        with console.capture() as drawn:
            console.print(render(now, scene))
        write_line(self._stream, drawn.get().rstrip())
        self.say(summary)


class LiveWatchDisplay:
    """A table that lives on a terminal, with happenings above it."""

    def __init__(self, console: Console) -> None:
        # Drawn by us and not by Live's own thread, so that a drawing never sees half a change.
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def say(self, news: WatchEvent) -> None:
        """Print what is worth a line of its own."""
        sentence = SENTENCES.get(type(news))
        if sentence is not None:
            self._live.console.print(printable(sentence(news)), markup=False, highlight=False)

    def show(self, now: float, scene: SimulationView) -> None:
        """Draw the table."""
        self._live.update(render(now, scene), refresh=True)

    def finish(self, now: float, scene: SimulationView, summary: WatchSummary) -> None:
        """Draw the table once more, and say how it ended."""
        self.show(now, scene)
        self.say(summary)


def _joined(news: SlabJoined) -> str:
    return f"slab {news.slab} of {news.slabs}: joined the stream of id {news.id:#010x}"


def _lost(news: FramesLost) -> str:
    return f"slab {news.slab}: lost {news.first} to {news.last}: {news.text}"


def _ended(news: SlabEnded) -> str:
    return f"slab {news.slab}: {news.reason}"


def _summary(news: WatchSummary) -> str:
    step = "no step" if news.step is None else f"step {news.step}"
    return f"{news.outcome}: {step}, {news.frames} frames, {news.losses} losses"


SENTENCES: Mapping[type[Any], Callable[[Any], str]] = {
    SlabJoined: _joined,
    FramesLost: _lost,
    SlabEnded: _ended,
    WatchSummary: _summary,
}
