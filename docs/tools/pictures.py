"""Draw docs/pictures: `make pictures`. Nothing is drawn by hand.

Two pictures come from runs on the simulated network, with a seed: every machine draws the same. The
charts come from the tables of the benchmarks. The spheres come from a scenario.

`--check` writes nothing, and exits with 1 if a picture differs from its data. The spheres are left
out there: their last digits may depend on the processor.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from random import Random
from typing import NamedTuple

from sphtp.core.channel.connection import Connection
from sphtp.core.stream.events import OutgoingBodies
from sphtp.core.stream.wire import (
    BodyFlag,
    Nak,
    StreamData,
    decode_body_untrusted,
    decode_feedback_untrusted,
)
from sphtp.testing import Broadcast, Faults
from sphtp.testing.broadcast import Observer
from sphtp.testing.pair import Crowd
from sphtp.testing.stream import Publisher, Subscriber
from sphtp_client.simulation.scenario_file import parse_scenario
from sphtp_client.simulation.slabs import Slab, borders

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"

# Each picture has a background of its own, so that it can be read on any page, and colours for a
# light and a dark scheme.
STYLE = """\
.ground{fill:#fff}.ink{fill:#1f2933}.soft{fill:#5c6773}.line{stroke:#9aa5b1;fill:none}
.a{fill:#1f6feb}.b{fill:#1a7f5a}.c{fill:#a15c00}.d{fill:#8b4fc0}.bar{fill:#b6c0cb}.wait{fill:#dde3e9}
.sent{stroke:#1f6feb;fill:none}.bad{stroke:#cf222e;fill:none}.asked{stroke:#a15c00;fill:none}
.again{stroke:#1a7f5a;fill:none}.badfill{fill:#cf222e}
text{font:13px system-ui,"Segoe UI",Helvetica,Arial,sans-serif}.small{font-size:11px}
.title{font-size:15px;font-weight:600}.end{text-anchor:end}.middle{text-anchor:middle}
@media (prefers-color-scheme:dark){
.ground{fill:#161b22}.ink{fill:#e6edf3}.soft{fill:#9da7b3}.line{stroke:#57606a}
.a{fill:#58a6ff}.b{fill:#3fb98a}.c{fill:#e0a03c}.d{fill:#bf93ee}.bar{fill:#57606a}.wait{fill:#2b323b}
.sent{stroke:#58a6ff}.bad{stroke:#ff7b72}.asked{stroke:#e0a03c}.again{stroke:#3fb98a}
.badfill{fill:#ff7b72}}
"""
COLOURS = "abcd"


class Drawing:
    """Shapes on a ground, as SVG. Lengths are in pixels."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._shapes = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"',
            f'width="{width:g}" height="{height:g}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<rect class="ground" width="{width:g}" height="{height:g}" rx="8"/>',
        ]

    def text(self, x: float, y: float, words: str, kind: str = "ink") -> None:
        """Write words from a point, up to it (``end`` in ``kind``), or around it (``middle``)."""
        self._shapes.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>')

    def bar(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a filled rectangle."""
        self._shapes.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"/>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str) -> None:
        """Draw a straight line."""
        self._shapes.append(f'<path class="{kind}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>')

    def dot(self, x: float, y: float, radius: float, kind: str) -> None:
        """Draw a filled circle."""
        self._shapes.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>')

    def __str__(self) -> str:
        return "\n".join([*self._shapes, "</svg>", ""])


# Workers in lock step, one of which enters late

WORKERS = 4
STEPS = 8
LATE = 3
"""The step at which the last worker enters."""


class Worker:
    """A worker in virtual time: computes, sends to all others, and waits for all of them."""

    def __init__(self, number: int, first: int) -> None:
        self.number = number
        self.step = first
        self.channels: dict[int, Connection] = {}
        self.arrived: dict[int, set[int]] = {}
        self.computed_at = 0.0
        self.work: list[tuple[float, float]] = []
        self.waits: list[tuple[float, float]] = []
        self._random = Random(f"work of {number}")

    def begin(self, now: float) -> None:
        """Begin the work of a step, which takes another time at each."""
        self.computed_at = now + self._random.uniform(0.008, 0.03)
        self.work.append((now, self.computed_at))

    def present(self) -> set[int]:
        """Return the workers whose arrays this one needs for its step."""
        return {other for other in self.channels if other != WORKERS - 1 or self.step >= LATE}


def draw_lock_step() -> Drawing:
    """Draw the times in which four workers compute and wait, over a path that loses a twentieth."""
    crowd = Crowd(11, WORKERS, Faults(delay=0.002, jitter=0.001, loss=0.05))
    workers = [Worker(number, LATE if number == WORKERS - 1 else 0) for number in range(WORKERS)]
    for here in workers:
        for there in workers[here.number + 1 :]:
            dialled, answered = crowd.open(here.number, there.number)
            here.channels[there.number], there.channels[here.number] = dialled, answered
    start = crowd.now
    sent = set[tuple[int, int]]()
    for worker in workers[:-1]:
        worker.begin(crowd.now)

    def turn(worker: Worker) -> None:
        for other, channel in worker.channels.items():
            for payload in crowd.receive(channel):
                worker.arrived.setdefault(payload[0], set()).add(other)
        if (worker.number, worker.step) not in sent:
            if not worker.work or crowd.now < worker.computed_at:
                return
            sent.add((worker.number, worker.step))
            for other in worker.present():
                crowd.send(worker.channels[other], bytes([worker.step]) * 1000)
        if worker.arrived.get(worker.step, set()) >= worker.present():
            worker.waits.append((worker.computed_at, crowd.now))
            worker.step += 1
            if worker.step < STEPS:
                worker.begin(crowd.now)
            # The newcomer begins when the first of the others begins the newcomer's first step.
            if worker.step == LATE and not workers[-1].work:
                workers[-1].begin(crowd.now)

    while any(worker.step < STEPS for worker in workers):
        crowd.run(0.0005)
        for worker in workers:
            if worker.step < STEPS:
                turn(worker)
    return chart_lock_step(workers, start, crowd.now)


def chart_lock_step(workers: Sequence[Worker], start: float, end: float) -> Drawing:
    """Draw a row of bars for each worker."""
    left, top, width, row = 92.0, 52.0, 640.0, 34.0
    drawing = Drawing(760, top + row * WORKERS + 62, "Four workers in lock step")
    drawing.text(20, 28, "Four workers in lock step; the last one enters at step 3", "ink title")

    def at(moment: float) -> float:
        return left + (moment - start) / (end - start) * width

    for worker in workers:
        y = top + row * worker.number
        drawing.text(20, y + 16, f"worker {worker.number}")
        first = STEPS - len(worker.work)
        for step, ((began, done), (_, over)) in enumerate(
            zip(worker.work, worker.waits, strict=True), first
        ):
            drawing.bar(at(began), y, at(done) - at(began), 24, COLOURS[worker.number])
            drawing.bar(at(done), y, at(over) - at(done), 24, "wait")
            drawing.line(at(over), y - 3, at(over), y + 27, "line")
            if at(done) - at(began) > 14:
                drawing.text((at(began) + at(done)) / 2, y + 16, f"{step}", "ground middle")
    foot = top + row * WORKERS + 14
    axis(drawing, at, start, end, foot, 0.05)
    drawing.bar(left, foot + 24, 14, 12, "a")
    drawing.text(left + 20, foot + 34, "computes a step (its number)", "soft small")
    drawing.bar(left + 220, foot + 24, 14, 12, "wait")
    drawing.text(left + 240, foot + 34, "waits for the arrays of the others", "soft small")
    return drawing


def axis(
    drawing: Drawing, at: Callable[[float], float], start: float, end: float, y: float, every: float
) -> None:
    """Draw an axis of time, in milliseconds from its start."""
    drawing.line(at(start), y, at(end), y, "line")
    for number in range(int((end - start) / every) + 1):
        moment = start + number * every
        drawing.line(at(moment), y, at(moment), y + 4, "line")
        drawing.text(at(moment), y + 16, f"{number * every * 1e3:.0f} ms", "soft small middle")


# A stream, and the repair of what it lost

SEED = 24
DELAY = 0.02
SPACING = 0.014
MESSAGES = 16


class Journal(Observer):
    """A record of the traffic between a source and one receiver, with the times."""

    def __init__(self) -> None:
        self.said_at: list[tuple[float, int, bool]] = []
        self.heard_at: list[tuple[float, int]] = []
        self.asked_at: list[float] = []
        self.told_at: list[tuple[float, int]] = []

    def bodies_sent(self, now: float, publisher: Publisher, outgoing: OutgoingBodies) -> None:
        """Record the datagrams with data; a flag marks repairs."""
        for body in outgoing.bodies:
            data = decode_body_untrusted(body, 0)
            if isinstance(data, StreamData):
                self.said_at.append((now, data.sqn, BodyFlag.REPAIR in data.flags))

    def bodies_received(self, now: float, subscriber: Subscriber, bodies: Sequence[bytes]) -> None:
        """Record the arrival of data."""
        found = [decode_body_untrusted(body, 0) for body in bodies]
        self.heard_at += [(now, data.sqn) for data in found if isinstance(data, StreamData)]

    def feedback_sent(self, now: float, subscriber: Subscriber, body: bytes) -> None:
        """Record a NAK."""
        if isinstance(decode_feedback_untrusted(body, 0), Nak):
            self.asked_at.append(now)

    def items_delivered(self, now: float, subscriber: Subscriber, items: Sequence[object]) -> None:
        """Record the times at which the program reads, and the number of messages each time."""
        self.told_at += [(now, len(getattr(item, "payloads", ()))) for item in items]


def draw_repair() -> Drawing:
    """Draw the datagrams of a stream, those that got lost, and their repairs."""
    journal = Journal()
    broadcast = Broadcast(SEED, 1, Faults(delay=DELAY, loss=0.2), observers=[journal])
    start = broadcast.now
    for number in range(MESSAGES):
        broadcast.send([b"%d" % number])
        broadcast.run(SPACING)
    broadcast.close()
    broadcast.run(1.0)
    end = max(now for now, count in journal.told_at if count) + 0.008
    left, top, bottom, width = 92.0, 76.0, 216.0, 640.0
    drawing = Drawing(760, 318, "Loss and repair of a stream")
    drawing.text(20, 28, "A stream loses a fifth of its datagrams, and repairs them", "ink title")

    def at(moment: float) -> float:
        return left + (moment - start) / (end - start) * width

    for y, name in ((top, "source"), (bottom, "receiver"), (bottom + 30, "program")):
        drawing.text(20, y + 4, name)
        drawing.line(left, y, left + width, y, "line")
    arrivals = list(journal.heard_at)
    for now, number, again in journal.said_at:
        if now > end:
            continue
        arrival = next((pair for pair in arrivals if pair[1] == number and pair[0] >= now), None)
        came = arrival is not None and arrival[0] - now < DELAY * 1.5
        if arrival is not None and came:
            arrivals.remove(arrival)
            drawing.line(at(now), top, at(arrival[0]), bottom, "again" if again else "sent")
        else:
            x, y = (at(now) + at(now + DELAY)) / 2, (top + bottom) / 2
            drawing.line(at(now), top, x, y, "bad")
            drawing.dot(x, y, 3.5, "badfill")
        drawing.text(at(now), top - (20 if again else 6), f"{number}", "soft small middle")
    for now in journal.asked_at:
        drawing.line(at(now), bottom, at(now + DELAY), top, "asked")
    for now, count in journal.told_at:
        if count:
            drawing.dot(at(now), bottom + 30, 3 + count / 2, "b")
    axis(drawing, at, start, end, bottom + 50, 0.05)
    legend = (
        ("sent", "a datagram"),
        ("bad", "lost"),
        ("asked", "a NAK: the receiver asks"),
        ("again", "a repair"),
    )
    x = left
    for kind, words in legend:
        drawing.line(x, 298, x + 18, 298, kind)
        drawing.text(x + 24, 302, words, "soft small")
        x += 44 + 7 * len(words)
    drawing.dot(x + 6, 298, 4, "b")
    drawing.text(x + 16, 302, "messages read, in order", "soft small")
    return drawing


# Charts of the benchmarks


class Chart(NamedTuple):
    """One table of a page, by its heading, and the column of figures to draw."""

    page: str
    heading: str
    column: str
    title: str


SPEED = (
    Chart("benchmarks", "64B", "messages/s", "64 bytes: thousands of messages a second"),
    Chart("benchmarks", "64KiB", "messages/s", "64 KiB: thousands of messages a second"),
    Chart(
        "benchmarks",
        "rtt",
        "round trip p50",
        "Round trip of 64 bytes: microseconds (less is better)",
    ),
)
LOCK_STEP = (
    Chart("lockstep-benchmarks", "4x4kB", "steps/s", "4 workers, arrays of 4 kB: steps a second"),
    Chart(
        "lockstep-benchmarks", "4x400kB", "steps/s", "4 workers, arrays of 400 kB: steps a second"
    ),
)
OURS = {"sphtp", "sealed", "clear"}


def draw_charts(charts: Sequence[Chart], heading: str) -> Drawing:
    """Draw a bar for each system of each table; ours are in colour."""
    tables = [list(figures(chart)) for chart in charts]
    height = 44 + sum(34 + 20 * len(table) + 14 for table in tables)
    drawing = Drawing(760, height, heading)
    drawing.text(20, 28, heading, "ink title")
    y = 58.0
    for chart, table in zip(charts, tables, strict=True):
        drawing.text(20, y, chart.title, "soft")
        y += 12
        most = max(figure for _, figure, _ in table)
        for system, figure, shown in table:
            length = figure / most * 460
            drawing.text(130, y + 12, system, "ink end")
            drawing.bar(140, y, max(length, 1), 14, "a" if system in OURS else "bar")
            drawing.text(148 + length, y + 12, shown, "soft small")
            y += 20
        y += 36
    return drawing


def figures(chart: Chart) -> Iterator[tuple[str, float, str]]:
    """Yield each system of the table under a heading, its figure, and the text of the figure."""
    text = (ROOT / "docs" / "reference" / f"{chart.page}.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {chart.heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and not set(line) <= set("|-: ")
    ]
    column = rows[0].index(chart.column)
    for row in rows[1:]:
        figure = float(re.sub(r"[^\d.]", "", row[column]))
        shown = figure / 1000 if "thousands" in chart.title else figure
        yield row[0], figure, f"{shown:,.1f}" if shown < 100 else f"{shown:,.0f}"


# The spheres

FRAMES = (0, 900, 1800, 3600)
SLABS = 4


def draw_spheres() -> Drawing:
    """Draw a rack of balls at four moments, each ball in the colour of the peer that has it."""
    values = tomllib.loads((ROOT / "scenarios" / "billiard.toml").read_text(encoding="utf-8"))
    values["box"] = [2.4, 1.2, 0.0578]
    rack, first, second = values["spheres"]
    rack.update(rows=12, apex=[1.1, 0.6, 0.0289])
    first.update(position=[0.5, 0.62, 0.0289])
    second.update(position=[0.2, 0.3, 0.0289])
    scenario = parse_scenario(values, "billiard.toml")
    edges = borders(scenario, SLABS)
    slab = Slab(scenario)
    drawing = Drawing(760, 470, "Spheres that four peers simulate")
    drawing.text(
        20, 28, "Two balls break a rack; the colour is the peer that has a ball", "ink title"
    )
    scale = 350 / values["box"][0]
    for place, frame in enumerate(FRAMES):
        while slab.step < frame:
            slab.drift()
            slab.kick()
        x, y = 20 + place % 2 * 370, 56 + place // 2 * 206
        drawing.text(x, y, f"after {frame * values['dt'] * 1e3:.0f} ms", "soft small")
        y += 8
        drawing.bar(x, y, 350, values["box"][1] * scale, "wait")
        for edge in inner(edges, values["box"][0]):
            drawing.line(x + edge * scale, y, x + edge * scale, y + 175, "line")
        spheres = slab.spheres
        for position, radius in zip(spheres.x.tolist(), spheres.radius.tolist(), strict=True):
            owner = sum(position[0] >= edge for edge in inner(edges, values["box"][0]))
            drawing.dot(
                x + position[0] * scale, y + position[1] * scale, radius * scale, COLOURS[owner]
            )
    return drawing


def inner(edges: Sequence[float], width: float) -> list[float]:
    """Return the borders between peers, without the walls of the box."""
    return [edge for edge in edges if 0 < edge < width]


# Files

FRESH: dict[str, Callable[[], Drawing]] = {
    "lock-step": draw_lock_step,
    "stream-repair": draw_repair,
    "benchmarks": lambda: draw_charts(SPEED, "A channel beside other systems"),
    "lock-step-benchmarks": lambda: draw_charts(
        LOCK_STEP, "Workers in lock step, beside other systems"
    ),
}
PICTURES_BY_NAME = {**FRESH, "spheres": draw_spheres}


def main(arguments: list[str] | None = None) -> int:
    """Write the pictures, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--directory", type=Path, default=PICTURES, help="folder of the pictures")
    options = parser.parse_args(arguments)
    if options.check:
        names = stale(options.directory)
        for name in names:
            sys.stderr.write(f"docs/pictures/{name}.svg is stale; run `make pictures`\n")
        return 1 if names else 0
    options.directory.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES_BY_NAME.items():
        (options.directory / f"{name}.svg").write_text(str(draw()), encoding="utf-8")
    return 0


def stale(directory: Path) -> list[str]:
    """Return the pictures that are missing, or differ from their data."""
    pictures = {name: directory / f"{name}.svg" for name in FRESH}
    return [
        name
        for name, path in pictures.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != str(FRESH[name]())
    ]


if __name__ == "__main__":
    sys.exit(main())
