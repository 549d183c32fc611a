"""Lines of a run that does not end for lack of room, or of readers."""

import os
import sys
from typing import TextIO

from sphtp.core.printable import printable_lines


def write_line(stream: TextIO, line: str) -> None:
    """Write a line at once, and nothing in it that steers a terminal.

    When that fails, say why where errors go, and write no more there.
    """
    try:
        print(printable_lines(line), file=stream, flush=True)
    except OSError as error:
        # Python flushes once more at its end and must find somebody there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if not isinstance(error, BrokenPipeError) and stream is not sys.stderr:
            write_line(sys.stderr, f"{stream.name}: {error.strerror}; no more is written")
