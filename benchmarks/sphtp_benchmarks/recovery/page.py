"""The page of recovery times as Markdown."""

from collections.abc import Sequence
from typing import Final

from sphtp_benchmarks.markdown import filled, table
from sphtp_benchmarks.recovery.trial import DATAGRAMS, RATE, ROUND_TRIP, Recovery
from sphtp_benchmarks.simulated.experiment import percent

TITLE: Final = "# How long recovery takes"
HEAD: Final = f"""\
Written by `sphtp bench recovery --markdown FILE`; not edited by hand. One source sends {RATE:,}
datagrams a second, {DATAGRAMS:,} in all, over a round trip of {ROUND_TRIP * 1e3:g} ms; data,
repairs, NAKs and NCFs are lost with the same probability. The times are from the moment when a lost
datagram would have arrived until its repair arrives, over all repairs. With several receivers, a
datagram of the source is lost for all of them or for none, as on the line to a multicast group. The
networks are simulated in virtual time: with the same random seed, here {{seed}}, every machine
computes the same figures.
"""
AFTER: Final = """\
`lan` has the defaults of `StreamSettings()`, and `um` the timers of Ultra Messaging's defaults.
With `um`, the second NAK for a datagram mostly falls into the interval in which it is ignored. In a
group, the wait before the first NAK is the same in both profiles. A loss event is a message that
was given up.
"""
HEADINGS: Final = (
    "profile",
    "lost",
    "receivers",
    "half within",
    "99 % within",
    "all within",
    "loss events",
    "NAKs per loss",
)


def page(found: Sequence[Recovery], seed: int) -> str:
    """Return the whole page."""
    rows = "\n".join(table(HEADINGS, [cells(one) for one in found]))
    parts = (TITLE, filled(HEAD.format(seed=seed)), rows, filled(AFTER))
    return "\n\n".join(parts) + "\n"


def cells(found: Recovery) -> tuple[str, ...]:
    """Return a line of the table."""
    return (
        found.profile,
        percent(found.loss),
        str(found.receivers),
        f"{found.p50_ms:.0f} ms",
        f"{found.p99_ms:.0f} ms",
        f"{found.longest_ms:.0f} ms",
        str(found.loss_events),
        f"{found.naks_per_loss:.2f}",
    )
