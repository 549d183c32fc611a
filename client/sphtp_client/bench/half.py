"""One of the two processes of a measurement: ``python -m sphtp_client.bench.half PART``."""

import os
import sys
import threading
from importlib import import_module

from sphtp_client.bench.part import Part

STDIN = 0


def main() -> None:
    """Play the part, which does not end by itself."""
    # A thread, because some of the systems block theirs; it sleeps as long as anything is measured.
    threading.Thread(target=end_with_stdin, daemon=True).start()
    part = Part.read(sys.argv[1])
    module = import_module(f"sphtp_client.bench.systems.{part.module}")
    getattr(module, part.role)(part)


def end_with_stdin() -> None:
    """End this process, whatever it is doing, when its parent has gone or wants it to."""
    while os.read(STDIN, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
