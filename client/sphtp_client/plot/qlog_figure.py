"""A channel from a log in qlog: sequence, window and round trip over time.

The first panel has a dot for each sent packet, at its time and its sequence number; the slope is
the rate. A packet counts as a retransmission if one of its stream frames ends at or before the end
of an earlier frame of the same stream. A lost packet has a cross at the time when it was sent. The
line below the dots is the highest acknowledged sequence number; its horizontal distance from the
dots is the round trip.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphtp.errors import SphtpError
from sphtp.shell.qlog import NODE, SEPARATOR
from sphtp_client.plot import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, PURPLE, ORANGE = COLOURS[:5]
KIB = 1024
POINTS = list[tuple[float, float]]


class LogError(SphtpError):
    """A log cannot be read, or has no such channel."""


@dataclass
class ChannelLog:
    """The events of a channel as points: the time in seconds, and the value of each field."""

    id: str
    sent: POINTS = field(default_factory=list)
    resent: POINTS = field(default_factory=list)
    lost: POINTS = field(default_factory=list)
    acked: POINTS = field(default_factory=list)
    """The highest sequence that was acknowledged so far."""
    window: POINTS = field(default_factory=list)
    """The congestion window in bytes."""
    in_flight: POINTS = field(default_factory=list)
    latest_rtt: POINTS = field(default_factory=list)
    """Round trips in milliseconds, like the next two fields."""
    smoothed_rtt: POINTS = field(default_factory=list)
    min_rtt: POINTS = field(default_factory=list)
    _times: dict[int, float] = field(default_factory=dict)
    _ends: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, time: float, name: str, data: dict[str, Any]) -> None:
        """Add the points of an event; ``time`` is in seconds."""
        match name:
            case "transport:packet_sent":
                self._add_sent(time, data)
            case "transport:packets_acked":
                highest = max(data["packet_numbers"])
                if not self.acked or highest > self.acked[-1][1]:
                    self.acked.append((time, highest))
            case "recovery:packet_lost":
                sequence = data["header"]["packet_number"]
                self.lost.append((self._times.get(sequence, time), sequence))
            case "recovery:metrics_updated":
                self._add_metrics(time, data)

    def _add_sent(self, time: float, data: dict[str, Any]) -> None:
        sequence = data["header"]["packet_number"]
        self._times[sequence] = time
        is_resent = False
        for frame in data.get("frames", ()):
            if frame["frame_type"] == "stream":
                stream, end = frame["stream_id"], frame["offset"] + frame["length"]
                is_resent |= end <= self._ends[stream]
                self._ends[stream] = max(self._ends[stream], end)
        (self.resent if is_resent else self.sent).append((time, sequence))

    def _add_metrics(self, time: float, data: dict[str, Any]) -> None:
        for name, points in (
            ("congestion_window", self.window),
            ("bytes_in_flight", self.in_flight),
            ("latest_rtt", self.latest_rtt),
            ("smoothed_rtt", self.smoothed_rtt),
            ("min_rtt", self.min_rtt),
        ):
            if name in data:
                points.append((time, data[name]))


def read_channels(path: Path) -> dict[str, ChannelLog]:
    """Read the channels of a log, up to its last complete event; return them by id.

    Raises ``LogError`` if the file is not a qlog in the form of a JSON text sequence, or a complete
    line is malformed, and ``OSError``.
    """
    channels: dict[str, ChannelLog] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file):
            try:
                record = json.loads(line.lstrip(SEPARATOR))
                if number == 0:
                    record["qlog_version"]
                    continue
                group, time = record["group_id"], record["time"] / 1000
                if group != NODE:
                    channel = channels.setdefault(group, ChannelLog(group))
                    channel.add(time, record["name"], record["data"])
            except (ValueError, TypeError, LookupError) as error:
                if number == 0:
                    why = "it does not begin as a log in qlog does"
                    raise LogError(f"{path}: {why} (JSON text sequence, version 0.3)") from error
                if line.endswith("\n"):
                    raise LogError(f"{path}: line {number + 1} is no event: {error}") from error
    return channels


def choose(channels: dict[str, ChannelLog], wanted: str | None) -> ChannelLog:
    """Return the channel with an id; for None the one with the most sent packets.

    Raises ``LogError`` if there is no such channel.
    """
    if wanted is None and channels:
        return max(channels.values(), key=lambda it: len(it.sent) + len(it.resent))
    if wanted is None or wanted not in channels:
        known = ", ".join(channels) or "none"
        raise LogError(f"the log has no channel {wanted or ''}; it has {known}")
    return channels[wanted]


def draw_channel(channel: ChannelLog, title: str) -> "Figure":
    """Return a figure of a channel with three panels over one axis of time."""
    # Imported here, so that reading a file does not load it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 8), layout="constrained")
    sequence, window, trip = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": (3, 2, 2)}
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    sent, resent, lost = len(channel.sent), len(channel.resent), len(channel.lost)
    sequence.set_title(f"{sent + resent} packets sent, {resent} of them again, {lost} lost")
    _line(sequence, channel.acked, "highest acknowledged", GREEN, "-")
    _dots(sequence, channel.sent, "sent", BLUE, ".", 3)
    _dots(sequence, channel.resent, "sent again", ORANGE, "^", 5)
    _dots(sequence, channel.lost, "lost", VERMILION, "x", 6)
    sequence.set_ylabel("sequence (packets)")
    window.set_title("congestion window, and what of it is used")
    _line(window, [(at, it / KIB) for at, it in channel.window], "window", PURPLE, "-")
    in_flight = [(at, it / KIB) for at, it in channel.in_flight]
    _line(window, in_flight, "in flight", BLUE, "--")
    window.set_ylabel("bytes (KiB)")
    trip.set_title("round trip")
    _dots(trip, channel.latest_rtt, "measured", BLUE, ".", 3)
    _line(trip, channel.smoothed_rtt, "smoothed", VERMILION, "-")
    _line(trip, channel.min_rtt, "shortest", GREEN, "--")
    trip.set_ylabel("round trip (ms)")
    trip.set_xlabel("time since the log began (s)")
    for axes in (sequence, window, trip):
        axes.set_ylim(bottom=0)
        if axes.has_data():
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=1.6)
    return figure


def _dots(axes: "Axes", points: POINTS, label: str, colour: str, marker: str, size: float) -> None:
    if points:
        times, values = zip(*points, strict=True)
        axes.plot(
            times, values, marker, label=label, color=colour, markersize=size, rasterized=True
        )


def _line(axes: "Axes", points: POINTS, label: str, colour: str, dashes: str) -> None:
    if points:
        times, values = zip(*points, strict=True)
        axes.step(times, values, dashes, where="post", label=label, color=colour, linewidth=1.3)
