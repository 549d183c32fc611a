"""The verb ``sphtp bench stream``: streams beside publishers and subscribers of other systems."""

from typing import Final

from sphtp_benchmarks.comparison import comparing
from sphtp_benchmarks.stream.catalog import STREAMS

HEAD: Final = """\
# Benchmarks of streams

Written by one run of `sphtp bench stream --markdown FILE`; not edited by hand.

One process that sends and one for each receiver, on the loopback interface, the same for every
system; the systems take turns, and each round begins with another one. The sender begins when all
receivers are there and sends as fast as it may. A receiver counts what arrives, from the end of
the warm-up to the last message: rates are those of receiving. Systems that drop messages repeat
the last one until it is heard. `delivered` is the share of the messages sent that arrived,
`reported lost` the share that the receiver was told of, in its place and with the reason; what is
in neither, nobody hears of.

Each system sends the way its interface makes fastest. A stream of SphTP takes many messages in one
call; ZeroMQ and nng take one message per call, and part of what a small message costs there is the
call. The sender's CPU is its processor time per message sent, dropped or not; a receiver's is per
message that arrived.
"""


@comparing(STREAMS, HEAD)
def stream() -> None:
    """Measure a stream from one process to others, and other systems in turn with it.

    ZeroMQ comes with pip install --editable '.[bench]'; a system that is not installed is
    reported as absent. Exit codes: 0 all measured, 2 usage, 3 a measurement failed, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
