"""What people and programs are shown."""

import io
import json

import pytest
from rich.console import Console

from sphtp import Loss, LossReason
from sphtp_client.watch.display import JsonWatchDisplay, LiveWatchDisplay, PlainWatchDisplay
from sphtp_client.watch.view import SimulationView


@pytest.fixture
def scene(run, make_frame):
    """One slab is ahead, one has a loss and has ended, one has not said anything."""
    scene = SimulationView(run)
    for slab in range(3):
        scene.expect(slab)
    scene.take(1.0, 0, make_frame(0, 8))
    scene.take(1.5, 1, make_frame(1, 4))
    scene.lose(1, Loss(3, 4, LossReason.TIMEOUT))
    scene.end(1, "its stream ended")
    return scene


@pytest.fixture
def whole_scene(scene, make_frame):
    scene.take(2.0, 1, make_frame(1, 8))
    scene.take(2.0, 2, make_frame(2, 8))
    return scene


def shown(display, output, scene, part):
    with display:
        display.say(scene.join(part, 9))
        display.show(2.0, scene)
        display.say(scene.lose(0, Loss(7, 7, LossReason.WINDOW)))
        display.say(scene.end(0, "[b]gone"))
        display.finish(2.0, scene, scene.summary("broken off"))
    return output.getvalue()


HOSTILE = "\x1b]0;o\x07\x9b2J\u202e[red]"


def test_what_peers_say_steers_no_terminal(run, part, make_frame):
    scene = SimulationView(run._replace(scenario=HOSTILE))
    scene.expect(0)
    scene.take(1.0, 0, make_frame(0, 8))
    for display in (
        PlainWatchDisplay,
        JsonWatchDisplay,
        lambda output: LiveWatchDisplay(Console(file=output)),
    ):
        output = io.StringIO()
        with display(output) as shown:
            shown.say(scene.end(0, HOSTILE))
            shown.show(2.0, scene)
            shown.finish(2.0, scene, scene.summary("broken off"))
        said = output.getvalue().replace("\n", "")
        assert "o" in said
        assert said.isprintable()
    with_tags = SimulationView(run._replace(scenario="[red]ab"))
    output = io.StringIO()
    PlainWatchDisplay(output).finish(2.0, with_tags, with_tags.summary("broken off"))
    assert "scenario [red]ab" in output.getvalue()


def test_programs_get_a_line_for_each_thing(scene, part):
    output = io.StringIO()
    lines = shown(JsonWatchDisplay(output), output, scene, part).splitlines()
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


def test_a_log_gets_sentences_and_the_table_at_the_end(scene, part):
    output = io.StringIO()
    text = shown(PlainWatchDisplay(output), output, scene, part)
    assert "slab 1 of 3: joined the stream of id 0x00000009\n" in text
    assert "step 8/30  slabs 2/3  losses 1\n" in text
    assert "slab 0: lost 7 to 7: the source's transmission window moved on\n" in text
    assert "slab 0: [b]gone\n" in text
    assert text.index("slab 0: [b]gone") < text.index("kg m/s")
    assert text.endswith("broken off: step 8, 2 frames, 2 losses\n")


def test_a_terminal_gets_a_table_that_lives(whole_scene, part):
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    text = shown(LiveWatchDisplay(console), output, whole_scene, part)
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
