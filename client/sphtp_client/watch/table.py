"""The scene as a table for a terminal, and as one line for a log."""

from math import hypot

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sphtp.core.printable import printable
from sphtp_client.simulation.frames import Momentum
from sphtp_client.watch.scene import Scene, Sight

NUMBERS = ("slab", "step", "spheres", "kinetic\nJ", "|p|\nkg m/s", "lag", "age\ns", "lost")


def render(now: float, scene: Scene) -> RenderableType:
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


def line(scene: Scene) -> str:
    """Say in one line how far the simulation is."""
    run, whole = scene.run, scene.whole
    parts = [f"step {scene.newest}/{run.steps}", f"slabs {len(scene.steps)}/{run.slabs}"]
    if whole is not None:
        parts += [f"{whole.spheres} spheres", f"kinetic {_energy(whole.kinetic)} J"]
    if scene.losses:
        parts += [f"losses {scene.losses}"]
    return "  ".join(parts)


def _slab(now: float, scene: Scene, slab: int) -> tuple[str, ...]:
    sight = scene.slabs[slab]
    what = ("", "", "", "")
    if sight.frame is not None:
        frame = sight.frame
        motion = _energy(frame.kinetic), _size(frame.momentum)
        what = (str(frame.step), str(len(frame)), *motion)
    when = "" if sight.heard is None else f"{now - sight.heard:.1f}"
    return (str(slab), *what, str(scene.lag_of(slab)), when, str(sight.losses), _state(sight))


def _all(scene: Scene) -> tuple[str, ...]:
    whole = scene.whole
    if whole is None:
        return ("all",)
    motion = _energy(whole.kinetic), _size(whole.momentum)
    what = (str(whole.step), str(whole.spheres), *motion)
    return ("all", *what, "", "", str(scene.losses), whole.state_sha256[:8])


def _state(sight: Sight) -> str:
    if sight.ended is not None:
        return "ended"
    return "joining" if sight.frame is None else "watched"


def _energy(value: float) -> str:
    return f"{value:.6g}"


def _size(momentum: Momentum) -> str:
    return f"{hypot(*momentum):.4g}"
