"""What a person sees while a cluster runs: a table that lives, plain lines, or nothing."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live

from sphtp.core.printable import printable
from sphtp_client.cluster.run_status import Board
from sphtp_client.cluster.table import render, summary
from sphtp_client.lines import write_line

LIVE_EVERY = 0.25  # seconds between two drawings
LINE_EVERY = 2.0  # seconds between two summaries


class Display(Protocol):
    """Shows a board; ``changed`` is called often and decides itself when to draw."""

    def changed(self) -> None:
        """Take note of a change of the board."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PlainDisplay:
    """Happenings as they come, and a summary every few seconds."""

    def __init__(
        self, board: Board, steps: int, clock: Callable[[], float], stream: TextIO
    ) -> None:
        self._board = board
        self._steps = steps
        self._clock = clock
        self._stream = stream
        self._began = clock()
        self._drawn = self._began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._tell_news()

    def changed(self) -> None:
        """Write what is new."""
        self._tell_news()
        now = self._clock()
        # Servers that go home one by one would look like servers that are lost.
        if now - self._drawn >= LINE_EVERY and not self._board.is_ending:
            self._drawn = now
            write_line(self._stream, summary(self._board, self._steps, now - self._began))

    def _tell_news(self) -> None:
        while self._board.news:
            write_line(self._stream, self._board.news.popleft())


class LiveDisplay:
    """A table that lives on a terminal, with happenings above it."""

    def __init__(
        self, board: Board, steps: int, clock: Callable[[], float], console: Console
    ) -> None:
        self._board = board
        self._steps = steps
        self._clock = clock
        self._began = clock()
        self._drawn = float("-inf")
        # Drawn by us and not by Live's own thread, so that a drawing never sees half a change.
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._draw(self._clock())
        self._live.stop()

    def changed(self) -> None:
        """Draw again unless that was done a moment ago."""
        now = self._clock()
        if now - self._drawn >= LIVE_EVERY:
            self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn = now
        while self._board.news:
            news = printable(self._board.news.popleft())
            self._live.console.print(news, markup=False, highlight=False)
        self._live.update(render(self._board, self._steps, now - self._began), refresh=True)


class NoDisplay:
    """Nothing at all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def changed(self) -> None:
        """Say nothing."""
