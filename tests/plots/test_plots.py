"""Plots: what they draw adds up to the file, and a reader can tell what is what."""

from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from sphtp.observe import QlogWriter
from sphtp.testing import Faults, Pair
from sphtp_client.plot.qlog_figure import choose, draw_channel, read_channels
from sphtp_client.plot.recording_figure import collect, draw_recording
from sphtp_client.recording.mcap_file import RecordingWriter, read_recording
from sphtp_client.recording.values import encode_message, message_tree, schema_of
from tests.qlog_drafts import read_qlog

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a channel on a bad network, in virtual time."""
    path = tmp_path_factory.mktemp("plots") / "here.sqlog"
    with QlogWriter(path, title="here") as qlog:
        pair = Pair(5, Faults(loss=0.1, delay=0.02), instrument=qlog)
        left, right = pair.open()
        pair.transfer(left, right, [bytes(800)] * 500)
        pair.run(2)
    return path


def recording(messages: int, *topics: str) -> bytes:
    """Sines of two peers on each topic, a hundred times a second."""
    file = BytesIO()
    writer = RecordingWriter(file)
    for topic in topics:
        for phase, peer in enumerate(("ada", "bob")):
            about = {"name": topic, "peer": peer, "kind": "topic"}
            schema = schema_of(message_tree({"x": np.zeros(2)}))
            channel = writer.add_channel(f"{topic}/{peer}", schema, about)
            for number in range(messages):
                at = number / 10
                value = {"x": np.array([np.sin(at + phase), np.cos(at)]), "name": "text"}
                time = 5 * SECOND + number * SECOND // 100
                writer.add_message(channel, number, time, encode_message(value))
    writer.add_metadata("sphtp.lost", {"name": topics[0], "peer": "ada", "count": "3"})
    writer.close()
    return file.getvalue()


def call(*options: object) -> Result:
    # Each worker collects all tests, and few draw: matplotlib takes a second to load.
    from sphtp_client.plot.command import plot

    return CliRunner().invoke(plot, list(map(str, options)))


def test_the_points_of_a_channel_are_the_events_of_its_log(log):
    _, events = read_qlog(log)
    names = Counter(event["name"] for event in events)
    channel = choose(read_channels(log), None)
    assert len(channel.sent) + len(channel.resent) == names["transport:packet_sent"] > 200
    assert len(channel.lost) == names["recovery:packet_lost"] > 10
    # Each packet that is lost was sent at that place, and what it carried is sent again.
    assert set(channel.lost) <= {*channel.sent, *channel.resent}
    assert len(channel.resent) >= len(channel.lost) / 2
    windows = [it["data"] for it in events if "congestion_window" in it["data"]]
    assert [size for _, size in channel.window] == [it["congestion_window"] for it in windows]
    assert channel.acked == sorted(channel.acked)


def test_the_picture_of_a_channel_names_axes_units_and_lines(log):
    channel = choose(read_channels(log), None)
    panels = draw_channel(channel, "title").axes
    assert [axes.get_ylabel() for axes in panels] == [
        "sequence (packets)", "bytes (KiB)", "round trip (ms)",
    ]  # fmt: skip
    assert panels[-1].get_xlabel() == "time since the log began (s)"
    words = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in panels]
    assert words == [
        ["highest acknowledged", "sent", "sent again", "lost"],
        ["window", "in flight"],
        ["measured", "smoothed", "shortest"],
    ]
    for axes in panels:
        colours = [line.get_color() for line in axes.lines]
        assert len(set(colours)) == len(colours)


def test_a_log_that_is_cut_is_drawn_up_to_there(log, tmp_path):
    cut = tmp_path / "cut.sqlog"
    cut.write_bytes(log.read_bytes()[:50_000])
    whole, part = (choose(read_channels(path), None) for path in (log, cut))
    assert part.sent == whole.sent[: len(part.sent)]
    assert part.sent


def test_the_same_file_gives_the_same_picture(log, tmp_path):
    pictures = [tmp_path / f"{name}.svg" for name in "ab"]
    for picture in pictures:
        found = call(log, "--output", picture)
        assert (found.exit_code, found.stdout) == (0, f"{picture} is written\n")
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    assert "congestion window" in pictures[0].read_text(encoding="utf-8")


def test_the_lines_of_a_recording_are_its_numbers():
    found = collect(read_recording(recording(50, "wave", "other")), ["wave"], ["x[0]"])
    ((topic, lines),) = found.items()
    assert (topic, sorted(map(str, lines))) == ("wave", ["ada x[0]", "bob x[0]"])
    for line, points in lines.items():
        phase = line.peer == "bob"
        times, values = np.array(points).T
        assert np.allclose(times, np.arange(50) / 100)
        assert np.allclose(values, np.sin(np.arange(50) / 10 + phase))


def test_the_picture_of_a_recording_has_a_panel_for_each_topic():
    figure, left_out = draw_recording(read_recording(recording(50, "wave", "other")), "title")
    assert left_out is None
    assert [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes] == [
        "wave, 3 messages lost", "other",
    ]  # fmt: skip
    assert [len(axes.lines) for axes in figure.axes] == [4, 4]
    assert figure.axes[-1].get_xlabel() == "time since the recording began (s)"


def test_what_finds_no_room_is_said():
    many = read_recording(recording(2, *map(str, range(10))))
    figure, left_out = draw_recording(many, "title")
    assert len(figure.axes) == 8
    assert left_out is not None
    assert left_out.startswith("2 topics and 0 lines are left out")


def test_a_cut_recording_is_drawn_and_said_to_be_cut(tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(recording(50, "wave")[:-100])
    found = call(path)
    assert found.exit_code == 0
    assert "the file is cut" in found.stdout
    assert (tmp_path / "a.mcap.png").exists()


@pytest.mark.parametrize(
    ("content", "options", "code", "part"),
    [
        (b"no log", (), 3, "does not begin as a log in qlog does"),
        (b"", (), 3, "no channel"),
        (b'{"qlog_version":"0.3"}\n[]\n', (), 3, "line 2 is no event"),
        (b'{"qlog_version":"0.3"}\n', ("--channel", "7"), 3, "no channel 7; it has none"),
        (recording(0, "a"), (), 3, "there are no numbers to draw"),
        (recording(2, "a"), ("--topic", "a*b"), 2, "a*b"),
        (recording(2, "a"), ("--output", "a.jpeg"), 2, "ends in none of .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_drawn_is_named(content, options, code, part, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    found = call(path, *options)
    assert found.exit_code == code
    assert part in found.stderr
