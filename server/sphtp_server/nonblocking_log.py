"""A log writer that never waits for room in its stream, which may be full, stalled or closed."""

import os
import select
from collections.abc import Callable
from typing import Final, TextIO

ATOM: Final = select.PIPE_BUF
"""The bytes that a writable pipe takes without blocking."""

MOST_WAITING: Final = 256 * 1024
"""The most bytes that wait for room; further lines are dropped, and counted."""


class NonBlockingLog:
    """Writes each line at once if the stream has room for it, and never waits for room.

    A stream has no room when a disk is full, or when the reader of a pipe pauses. Lines then wait,
    and each later call of ``write`` tries to write them first. When ``MOST_WAITING`` bytes wait,
    further lines are dropped. When all waiting lines are written, ``on_lost`` is called with the
    number of dropped lines. When a pipe has no reader any more, all lines are dropped.

    A write to a regular file takes as long as the disk needs.
    """

    def __init__(self, output: TextIO, on_lost: Callable[[int], object] = lambda _: None) -> None:
        self._output = output
        self._on_lost = on_lost
        self._waiting = b""
        self._lost = 0
        self._is_gone = False

    def write(self, line: str) -> None:
        """Write a line, given without its line break."""
        text = (line + "\n").encode(self._output.encoding, "backslashreplace")
        # Older lines that wait leave first.
        self._flush()
        if len(self._waiting) + len(text) > MOST_WAITING:
            self._lost += 1
            return
        self._waiting += text
        self._flush()
        if self._lost and not self._waiting:
            lost, self._lost = self._lost, 0
            self._on_lost(lost)

    def _flush(self) -> None:
        try:
            while self._waiting and self._has_room():
                written = os.write(self._output.fileno(), self._waiting[:ATOM])
                self._waiting = self._waiting[written:]
        except BrokenPipeError:
            self._is_gone = True
        except OSError:
            return  # the disk is full, perhaps only for now
        if self._is_gone:
            self._waiting = b""

    def _has_room(self) -> bool:
        return not self._is_gone and bool(select.select([], [self._output], [], 0)[1])
