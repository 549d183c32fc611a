"""The verb ``sphtp plot``: pictures of logs of channels, and of recordings.

``qlog_figure`` draws a channel from a log in qlog, and ``recording_figure`` draws the numbers of a
recording. Both use the style in this module.
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
"""Colours that people with colour blindness can distinguish (Okabe and Ito, 2002)."""

DASHES: Final = ("-", "--", "-.", ":")
"""The dash patterns of lines, so that two lines at the same place are both visible."""

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
