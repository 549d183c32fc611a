import io

from rich.console import Console

from sphtp_client.cluster.display import LINE_EVERY, LIVE_EVERY, LiveDisplay, PlainDisplay
from sphtp_client.cluster.run_status import Board, Role


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_tell_news_at_once_and_summaries_now_and_then():
    board, clock, stream = Board(), Clock(), io.StringIO()
    board.take("client 0", Role.CLIENT, slab=0)
    with PlainDisplay(board, 30, clock, stream) as display:
        board.spawned("client 0", 4711)
        display.changed()
        assert stream.getvalue() == "client 0: pid 4711\n"
        clock.now += LINE_EVERY
        display.changed()
        display.changed()
        board.exited("client 0", 3, asked=False)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "step 0/30" in lines[1]
    assert lines[2] == "client 0: pid 4711 ended, exit code 3"


def test_servers_that_go_home_are_not_told_like_servers_that_are_lost(good_board):
    board, clock, stream = good_board(), Clock(), io.StringIO()
    board.seats["server 2"].exit = None
    board.news.clear()
    with PlainDisplay(board, 30, clock, stream) as display:
        clock.now += LINE_EVERY
        display.changed()
    assert stream.getvalue() == ""


def test_the_living_table_is_drawn_at_most_four_times_a_second(good_board):
    clock, stream = Clock(), io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with LiveDisplay(good_board(), 30, clock, console) as display:
        display.changed()
        drawn = stream.getvalue()
        assert "client 1: 30 steps in 0.5 s" in drawn
        display.changed()
        assert stream.getvalue() == drawn
        clock.now += LIVE_EVERY
        display.changed()
        assert stream.getvalue() != drawn
