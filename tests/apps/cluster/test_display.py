"""What a person sees of a cluster run."""

import io

from rich.console import Console

from sphtp_client.cluster.display import (
    LINE_EVERY,
    LIVE_EVERY,
    LiveRunDisplay,
    PlainRunDisplay,
    render,
    summary,
)
from sphtp_client.cluster.run_status import ProcessRole, RunStatus
from sphtp_client.simulation.reports import ServerCame, ServerLost


def draw(status: RunStatus) -> str:
    stream = io.StringIO()
    Console(file=stream, width=120).print(render(status, 30, 1.25))
    return stream.getvalue()


def test_servers_and_peers_are_drawn_with_their_figures(good_board):
    lines = {
        line.split("│")[1].strip(): line for line in draw(good_board()).splitlines() if "│" in line
    }
    assert "101" in lines["server 1"]
    assert "5000" in lines["server 1"]
    for figure in ("200", "30/30", "120", "0.8 ms", "10.0%", "25", "finished"):
        assert figure in lines["client 0"]
    assert "300" in lines["reference"]


def test_a_server_shows_the_clients_that_it_knows(good_board):
    status = good_board()
    status.processes["server 1"].exit = None
    for slab in (0, 1):
        status.processes[f"client {slab}"].exit = None
    rows = [line for line in draw(status).splitlines() if "│ server" in line]
    assert "0 1" in rows[0]
    assert "0 1" not in rows[1]


def test_a_client_that_lost_a_server_is_not_shown_there(good_board):
    status = good_board()
    for process in status.processes.values():
        process.exit = None
    status.note_event(
        status.processes["client 1"], ServerLost(id=2, reason="expired", servers=(4,))
    )
    rows = [line for line in draw(status).splitlines() if "│ server" in line]
    assert "0 1" not in rows[0]
    assert "0 1" in rows[1]
    status.note_event(status.processes["client 1"], ServerCame(id=2, servers=(2, 4)))
    assert "0 1" in next(line for line in draw(status).splitlines() if "│ server 1" in line)


def test_a_speed_that_nobody_told_is_not_told():
    status = RunStatus()
    status.take("client 0", ProcessRole.CLIENT, slab=0)
    assert "steps/s" not in summary(status, 30, 1.0)


def test_deaths_are_told_by_their_signal(good_board):
    status = good_board()
    status.exited(status.processes["server 1"], -9, asked=False)
    assert "killed by SIGKILL" in draw(status)


def test_an_empty_board_can_be_drawn():
    status = RunStatus()
    status.take("client 0", ProcessRole.CLIENT, slab=0)
    assert "client 0" in draw(status)
    assert "step 0/30" in summary(RunStatus(), 30, 0.0)


def test_the_summary_is_one_line(good_board):
    line = summary(good_board(), 30, 1.25)
    assert "\n" not in line
    for part in ("1.2 s", "step 30/30", "120 steps/s", "loss 10.0%", "resent 50", "servers 0/2"):
        assert part in line


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_tell_news_at_once_and_summaries_now_and_then():
    status, clock, stream = RunStatus(), Clock(), io.StringIO()
    status.take("client 0", ProcessRole.CLIENT, slab=0)
    with PlainRunDisplay(status, 30, clock, stream) as display:
        status.spawned(status.processes["client 0"], 4711)
        display.changed()
        assert stream.getvalue() == "client 0: pid 4711\n"
        clock.now += LINE_EVERY
        display.changed()
        display.changed()
        status.exited(status.processes["client 0"], 3, asked=False)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "step 0/30" in lines[1]
    assert lines[2] == "client 0: pid 4711 ended, exit code 3"


def test_servers_that_go_home_are_not_told_like_servers_that_are_lost(good_board):
    status, clock, stream = good_board(), Clock(), io.StringIO()
    status.processes["server 2"].exit = None
    status.notices.clear()
    with PlainRunDisplay(status, 30, clock, stream) as display:
        clock.now += LINE_EVERY
        display.changed()
    assert stream.getvalue() == ""


def test_the_living_table_is_drawn_at_most_four_times_a_second(good_board):
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with LiveRunDisplay(good_board(), 30, clock, console) as display:
        display.changed()
        drawn = stream.getvalue()
        assert "client 1: 30 steps in 0.5 s" in drawn
        display.changed()
        assert stream.getvalue() == drawn
        clock.now += LIVE_EVERY
        display.changed()
        assert stream.getvalue() != drawn
