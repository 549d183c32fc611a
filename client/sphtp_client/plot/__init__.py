"""The verb ``sphtp plot``: pictures of logs of channels, and of recordings.

``qlog_figure`` draws a channel from a log in qlog, ``recording_figure`` draws the numbers of a
recording, and both share the style that stands here.
"""

from collections.abc import Mapping
from typing import Final

COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
"""Colours that people who do not tell red from green tell apart (Okabe and Ito, 2002)."""

DASHES: Final = ("-", "--", "-.", ":")
"""Lines differ by their dashes as well, so that one on top of another shows both."""

STYLE: Final[Mapping[str, object]] = {
    "figure.dpi": 110,
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    # Letters in an SVG stay letters, and the same figure gives the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "sphtp",
}
