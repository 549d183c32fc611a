"""One of the processes of a measurement: ``python -m sphtp_benchmarks.half TASK``."""

import sys
import threading
from importlib import import_module

from sphtp_benchmarks.meters import end_with_stdin
from sphtp_benchmarks.process_task import ProcessTask


def main() -> None:
    """Perform the task, which does not end by itself."""
    # A thread, because some of the systems block theirs; it sleeps as long as anything is measured.
    threading.Thread(target=end_with_stdin, daemon=True).start()
    part = ProcessTask.read(sys.argv[1])
    module = import_module(f"sphtp_benchmarks.systems.{part.module}")
    getattr(module, part.role)(part)


if __name__ == "__main__":
    main()
