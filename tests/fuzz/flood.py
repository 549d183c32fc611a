"""Millions of made-up datagrams to one node: it neither raises nor hangs nor grows.

No fuzzer is needed for it, but a seed. The node is one for the whole run; channels come and go.
"""

import faulthandler
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from sphtp.core.timers import INFINITY
from tests.fuzz.choices import Dice
from tests.fuzz.nodes import SUBJECTS, Subject
from tests.fuzz.siege import Siege
from tests.fuzz.targets import check_size

MIB: Final = 2**20
GROWTH: Final = 20 * MIB
"""Memory of the process that may come on top after the warm-up."""

WARM_UP: Final = 0.1
"""The share of the inputs after which memory is measured for the first time."""

SLOWEST: Final = 5.0
"""Seconds of processor time within which a row of datagrams, and all that it leads to, is over."""

HANGS_AFTER: Final = 120.0
"""Seconds after which a step that is not over is shown, and the process ended."""

RENEWED_AFTER: Final = 1.0
"""Seconds after which going on counts again: it starts a thread, and most steps take less."""

BINS: Final = 2**28
"""Inputs are told apart by as many checksums: two of ten million seldom share one."""

SAMPLES: Final = 200
STDERR: Final = 2


@dataclass(frozen=True)
class Result:
    """What came of a flood."""

    seed: str
    inputs: int
    distinct: int
    messages: int
    seconds: float
    slowest: float
    grown: int
    virtual: float

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.inputs:,} inputs, {self.distinct:,} of them told apart, in "
            f"{self.seconds:.0f} s of the processor ({self.seconds / self.inputs * 1e6:.0f} us "
            f"each; the slowest step {self.slowest * 1e3:.0f} ms) and {self.virtual:.0f} s of its "
            f"own; {self.messages:,} messages; memory grown by {self.grown / MIB:.1f} MiB"
        )


def flood(
    seed: str,
    inputs: int,
    tell: Callable[[str], None],
    subject: Subject = SUBJECTS["clear"],
) -> Result:
    """Send a node so many inputs, no two alike; raises ``AssertionError`` when it is not well.

    Those that come again, as attackers repeat themselves, come on top.
    """
    siege, seen = Siege(Dice(seed), subject), _Seen()
    siege.watch = seen.add
    growth, slowest, begun = _Growth(seed), 0.0, time.process_time()
    with _shown_if_it_hangs() as go_on:
        for sample in range(1, SAMPLES + 1):
            while seen.distinct < inputs * sample // SAMPLES:
                at = time.process_time()
                siege.step()
                slowest = max(slowest, time.process_time() - at)
                assert slowest < SLOWEST, f"a step of {slowest:.1f} s; seed {seed}"
                go_on()
            check_size(siege.node)
            if sample >= WARM_UP * SAMPLES:
                growth.check(seen.distinct)
                tell(f"{seen.distinct:,} inputs, {growth.grown / MIB:.1f} MiB more")
    return Result(
        seed,
        siege.inputs,
        seen.distinct,
        siege.messages,
        time.process_time() - begun,
        slowest,
        growth.grown,
        siege.now,
    )


def memory() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


class _Growth:
    """What a process takes more than at its first check."""

    def __init__(self, seed: str) -> None:
        self.grown = 0
        self._seed = seed
        self._first: int | None = None

    def check(self, inputs: int) -> None:
        now = memory()
        if self._first is None:
            self._first = now
        self.grown = now - self._first
        assert self.grown < GROWTH, f"{self.grown:,} bytes at {inputs:,} inputs; seed {self._seed}"


class _Seen:
    """Counts inputs that were not seen before, or that share their checksum with none."""

    def __init__(self) -> None:
        self.distinct = 0
        # All of it now, so that it is not what grows.
        self._bits = bytearray(b"\xff" * (BINS // 8))

    def add(self, datagram: bytes) -> None:
        place = crc32(datagram) % BINS
        bit = 1 << place % 8
        if self._bits[place // 8] & bit:
            self._bits[place // 8] ^= bit
            self.distinct += 1


@contextmanager
def _shown_if_it_hangs() -> Iterator[Callable[[], None]]:
    """Show where a step hangs and end the process, unless told after each step to go on.

    Told only after many steps, it would end a process that merely gets little of the processor.
    """
    told = -INFINITY

    def go_on() -> None:
        nonlocal told
        if (now := time.monotonic()) < told + RENEWED_AFTER:
            return
        told = now
        # Where the process itself would write, whoever reads what tests write.
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True, file=STDERR)

    go_on()
    try:
        yield go_on
    finally:
        faulthandler.cancel_dump_traceback_later()
