"""The numbers of a recording over time: a panel for each topic, a line for each field and peer."""

from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import cycle, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from sphtp.errors import SphtpError
from sphtp_client.plot import COLOURS, DASHES
from sphtp_client.recording.convert import rows
from sphtp_client.recording.mcap_file import NANOSECONDS, Recording
from sphtp_client.recording.values import fields_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS: Final = 8
MOST_LINES: Final = 12
"""The most topics of a figure, and the most lines of a topic."""

FEW: Final = 60
"""The most points of a line on which each has a marker."""


class NothingToDrawError(SphtpError):
    """A recording has no numbers in the selected topics and fields."""


class Line(NamedTuple):
    """The label of a line: the peer, and the path of the field."""

    peer: str
    path: str

    def __str__(self) -> str:
        return f"{self.peer} {self.path}".strip()


Points = list[tuple[float, float]]


def collect(
    recording: Recording, topics: Iterable[str], fields: Iterable[str]
) -> dict[str, dict[Line, Points]]:
    """Return the points of each line of each topic; times in seconds from the beginning.

    ``fields`` are patterns for the paths of fields, with the wildcards ``*`` and ``?``: ``x[*]``.
    """
    wanted, start = list(fields), recording.begin / NANOSECONDS
    # Brackets belong to the index of an array here, and are escaped for fnmatch.
    wanted = [pattern.replace("[", "[[]") for pattern in wanted]
    found: dict[str, dict[Line, Points]] = defaultdict(lambda: defaultdict(list))
    for row in rows(recording, topics):
        for name, value in fields_of(row.value):
            if not isinstance(value, bool | int | float):
                continue
            if not wanted or any(fnmatchcase(name, pattern) for pattern in wanted):
                found[row.topic][Line(row.peer, name)].append((row.time - start, float(value)))
    return found


def draw_recording(
    recording: Recording, title: str, topics: Iterable[str] = (), fields: Iterable[str] = ()
) -> "tuple[Figure, str | None]":
    """Return a figure of a recording, and a sentence on topics and lines that are left out.

    The sentence is None if all are in the figure. Raises ``NothingToDrawError``, and
    ``SettingsError`` for a malformed pattern of topics.
    """
    found = collect(recording, topics, fields)
    if not found:
        raise NothingToDrawError("there are no numbers to draw; --topic and --field choose them")
    left = max(len(found) - MOST_PANELS, 0)
    panels = list(islice(found.items(), MOST_PANELS))
    # Imported here, so that reading a file does not load it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.2 + 2.4 * len(panels)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
    hidden = 0
    for axes, (topic, lines) in zip(grid[:, 0], panels, strict=True):
        hidden += max(len(lines) - MOST_LINES, 0)
        _draw_topic(axes, topic, dict(islice(lines.items(), MOST_LINES)), recording)
    grid[-1, 0].set_xlabel("time since the recording began (s)")
    if not left and not hidden:
        return figure, None
    return figure, f"{left} topics and {hidden} lines are left out; --topic and --field choose"


def _draw_topic(axes: "Axes", topic: str, lines: dict[Line, Points], recording: Recording) -> None:
    lost = sum(
        int(properties.get("count", 0))
        for name, properties in recording.metadata
        if name == "sphtp.lost" and properties.get("name") == topic
    )
    axes.set_title(f"{topic}, {lost} messages lost" if lost else topic)
    # If all lines have the same field, the field names the axis.
    paths = {line.path for line in lines}
    axes.set_ylabel(f"{paths.pop()} (as sent)" if len(paths) == 1 else "value (as sent)")
    for (line, points), colour, dash in zip(
        lines.items(), cycle(COLOURS), cycle(DASHES), strict=False
    ):
        times, values = zip(*points, strict=True)
        marker = "." if len(points) <= FEW else None
        label = str(line)
        axes.plot(times, values, dash, marker=marker, color=colour, label=label, linewidth=1.2)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
