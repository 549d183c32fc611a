"""The verb ``sphtp bench stream``: streams beside publishers and subscribers of other systems."""

from typing import Final

from sphtp_benchmarks.comparison import comparing
from sphtp_benchmarks.stream.catalog import STREAMS

HEAD: Final = """\
# Benchmarks of streams

Written by one run of `sphtp bench stream --markdown FILE`; not edited by hand.

One process sends, and each receiver has a process of its own, on the loopback interface. This is
the same for every system. The systems take turns, and each round begins with another system. The
sender begins when all receivers have joined, and sends as fast as the system lets it. A receiver
counts the messages that arrive from the end of the warm-up to the last message, so that rates are
those of reception. Systems that drop messages repeat the last message until it has arrived.
`delivered` is the share of the sent messages that arrived. `reported lost` is the share whose loss
was reported to the receiver, in its place and with the reason. The rest was lost without a report.

Each system sends in the way that is fastest with its interface. A stream of SphTP takes many
messages in one call. ZeroMQ and nng take one message per call, so that the cost of a small message
includes the cost of a call. `sender's CPU` is the sender's processor time per message sent, dropped
or not. `receiver's CPU` is a receiver's processor time per message that arrived.
"""


@comparing(STREAMS, HEAD)
def stream() -> None:
    """Measure a stream from one process to others, and other systems in turn with it.

    ZeroMQ comes with pip install --editable '.[bench]'; a system that is not installed is
    reported as absent. Exit codes: 0 no measurement failed, 2 usage, 3 a measurement failed,
    130 after Ctrl-C, 143 after SIGTERM.
    """
