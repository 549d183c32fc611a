"""The verb ``sphtp bench ordinary``: one message per call, beside other systems."""

from typing import Final

from sphtp_benchmarks.comparison import comparing
from sphtp_benchmarks.ordinary.catalog import ORDINARY

HEAD: Final = """\
# Benchmarks of ordinary calls

Written by one run of `sphtp bench ordinary --markdown FILE`; not edited by hand.

Two processes on the loopback interface. One sends messages of 64 bytes, one call for each, as
people write it; the other one takes them one by one. The systems take turns, and each round begins
with another one. Nothing is put together by hand.
"""


@comparing(ORDINARY, HEAD)
def ordinary() -> None:
    """Measure ordinary calls: one message of 64 bytes per call, and other systems in turn.

    ZeroMQ comes with pip install --editable '.[bench]'; a system that is not installed is
    reported as absent. Exit codes: 0 no measurement failed, 2 usage, 3 a measurement failed,
    130 after Ctrl-C, 143 after SIGTERM.
    """
