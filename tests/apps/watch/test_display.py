"""What people and programs are shown."""

import io
import json

import pytest
from rich.console import Console

from sphtp import Loss
from sphtp.streams import LossReason
from sphtp_client.watch.display import JsonWatchDisplay, LiveWatchDisplay, PlainWatchDisplay
from sphtp_client.watch.view import SimulationView


@pytest.fixture
def view(run, make_frame):
    """One slab is ahead, one has a loss and has ended, one has not said anything."""
    view = SimulationView(run)
    for slab in range(3):
        view.expect(slab)
    view.take(1.0, 0, make_frame(0, 8))
    view.take(1.5, 1, make_frame(1, 4))
    view.lose(1, Loss(3, 4, LossReason.TIMEOUT))
    view.end(1, "its stream ended")
    return view


@pytest.fixture
def whole_scene(view, make_frame):
    view.take(2.0, 1, make_frame(1, 8))
    view.take(2.0, 2, make_frame(2, 8))
    return view


def shown(display, output, view, published):
    with display:
        display.show_event(view.join(published, 9))
        display.show(2.0, view)
        display.show_event(view.lose(0, Loss(7, 7, LossReason.WINDOW)))
        display.show_event(view.end(0, "[b]gone"))
        display.finish(2.0, view, view.summary("broken off"))
    return output.getvalue()


HOSTILE = "\x1b]0;o\x07\x9b2J\u202e[red]"


def test_what_peers_say_steers_no_terminal(run, published, make_frame):
    view = SimulationView(run._replace(scenario=HOSTILE))
    view.expect(0)
    view.take(1.0, 0, make_frame(0, 8))
    for display in (
        PlainWatchDisplay,
        JsonWatchDisplay,
        lambda output: LiveWatchDisplay(Console(file=output)),
    ):
        output = io.StringIO()
        with display(output) as shown:
            shown.show_event(view.end(0, HOSTILE))
            shown.show(2.0, view)
            shown.finish(2.0, view, view.summary("broken off"))
        said = output.getvalue().replace("\n", "")
        assert "o" in said
        assert said.isprintable()
    with_tags = SimulationView(run._replace(scenario="[red]ab"))
    output = io.StringIO()
    PlainWatchDisplay(output).finish(2.0, with_tags, with_tags.summary("broken off"))
    assert "scenario [red]ab" in output.getvalue()


def test_programs_get_a_line_for_each_thing(view, published):
    output = io.StringIO()
    lines = shown(JsonWatchDisplay(output), output, view, published).splitlines()
    said = [json.loads(line) for line in lines]
    assert [one["event"] for one in said] == ["joined", "lost", "ended", "summary"]
    assert said[0]["slabs"] == 3
    assert said[1]["reason"] == "window"
    assert said[-1] == {
        "event": "summary",
        "outcome": "broken off",
        "step": 8,
        "frames": 2,
        "losses": 2,
        "malformed": 0,
    }


def test_a_log_gets_sentences_and_the_table_at_the_end(view, published):
    output = io.StringIO()
    text = shown(PlainWatchDisplay(output), output, view, published)
    assert "slab 1 of 3: joined the stream of id 0x00000009\n" in text
    assert "step 8/30  slabs 2/3  losses 1\n" in text
    assert "slab 0: lost 7 to 7: the source's transmission window moved on\n" in text
    assert "slab 0: [b]gone\n" in text
    assert text.index("slab 0: [b]gone") < text.index("kg m/s")
    assert text.endswith("broken off: step 8, 2 frames, 2 losses\n")


def test_a_terminal_gets_a_table_that_lives(whole_scene, published):
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    text = shown(LiveWatchDisplay(console), output, whole_scene, published)
    assert "slab 0: [b]gone" in text
    assert "3 slabs, 30 steps, scenario abababab" in text
    for word in ("watched", "ended", " 1.0 ", "60", whole_scene.whole.state_sha256[:8]):
        assert word in text


def test_lines_of_a_log_are_seldom(whole_scene):
    output = io.StringIO()
    display = PlainWatchDisplay(output)
    for now in (1.0, 1.25, 2.9, 3.1):
        display.show(now, whole_scene)
    assert len(output.getvalue().splitlines()) == 2
    assert "step 8/30  slabs 3/3  60 spheres  kinetic" in output.getvalue()


def test_before_anything_is_seen_a_log_stays_empty(run):
    output = io.StringIO()
    PlainWatchDisplay(output).show(1.0, SimulationView(run))
    assert output.getvalue() == ""
