"""The verb ``sphtp plot``: a picture of a log of channels, or of a recording."""

import sys
from pathlib import Path

import click
from matplotlib import rc_context
from matplotlib.figure import Figure

from sphtp.errors import SettingsError, SphtpError
from sphtp_client.plot import STYLE
from sphtp_client.plot.qlog_figure import choose, draw_channel, read_channels
from sphtp_client.plot.recording_figure import draw_recording
from sphtp_client.program import ExitStatus
from sphtp_client.recording.mcap_file import MAGIC, read_recording

FORMATS = (".png", ".svg", ".pdf")


@click.command(short_help="Draw a log of channels, or a recording.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File of the picture; its suffix chooses PNG, SVG or PDF. Default: FILE.png.",
)
@click.option(
    "--channel", metavar="ID", help="For a log: the channel to draw. Default: the busiest one."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="PATTERN",
    help="For a recording: draw the topics that this pattern selects; repeatable. Default: all.",
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    metavar="PATTERN",
    help='For a recording: draw these fields, such as "x[0]" or "position.*"; repeatable. '
    "Default: all.",
)
def plot(
    file: Path,
    output: Path | None,
    channel: str | None,
    topics: tuple[str, ...],
    fields: tuple[str, ...],
) -> None:
    """Draw FILE, a log of channels in qlog or a recording of `sphtp record`, as a picture.

    The picture of a log shows one channel over time: packet numbers with losses and
    retransmissions, congestion window and bytes in flight, and the round trip. The picture of a
    recording shows the numbers in its messages over time.

    Exit codes: 0 the picture is written, 2 usage, 3 FILE cannot be read, has nothing to draw, or
    the picture cannot be written.
    """
    target = output or file.with_name(f"{file.name}.png")
    if target.suffix not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise click.BadParameter(f"{target} ends in none of {allowed}", param_hint="--output")
    try:
        with rc_context(dict(STYLE)):
            figure = _draw(file, channel, topics, fields)
            # Without a date in it, the same figure gives the same file.
            about = {"Date": None} if target.suffix == ".svg" else {}
            figure.savefig(target, metadata=about)
    except (SphtpError, OSError) as error:
        click.echo(f"failed: {error}", err=True)
        status = ExitStatus.USAGE if isinstance(error, SettingsError) else ExitStatus.FAILED
        sys.exit(status.code)
    click.echo(f"{target} is written")


def _draw(
    file: Path, channel: str | None, topics: tuple[str, ...], fields: tuple[str, ...]
) -> Figure:
    with file.open("rb") as opened:
        is_recording = opened.read(len(MAGIC)) == MAGIC
    if not is_recording:
        channels = read_channels(file)
        chosen = choose(channels, channel)
        others = len(channels) - 1
        if others and channel is None:
            click.echo(f"channel {chosen.id}; --channel draws one of the {others} others")
        return draw_channel(chosen, f"{file.name}, channel {chosen.id}")
    recording = read_recording(file)
    figure, left_out = draw_recording(recording, file.name, topics, fields)
    for sentence in (recording.cut, left_out):
        if sentence is not None:
            click.echo(sentence)
    return figure
