"""The measurement: a node, a peer that times its answers, and later a process that floods it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Final

import trio

from sphtp_benchmarks.flood.task import FloodSide, FloodTask
from sphtp_benchmarks.pair import MeasurementError, open_process

MODULE: Final = "sphtp_benchmarks.flood.side"
GRACE: Final = 30.0
US: Final = 1e6


@dataclass(frozen=True, kw_only=True)
class Flood:
    """Medians over rounds, but the largest ``growth_bytes``. Round trips are in microseconds.

    ``junk_per_s`` is the rate of junk datagrams that the node received, ``slower`` the ratio of the
    median round trip under the flood to that in quiet, ``growth_bytes`` the growth of the node's
    process. ``messages`` is the number of round trips under the flood, all of them in order.
    """

    junk_per_s: float
    quiet_p50_us: float
    quiet_p99_us: float
    flooded_p50_us: float
    flooded_p99_us: float
    slower: float
    growth_bytes: float
    messages: float

    @classmethod
    def of(cls, rounds: list[Mapping[str, float]]) -> "Flood":
        """Return the figures from the reports of the friend."""
        return cls(
            junk_per_s=median(said["rate"] for said in rounds),
            quiet_p50_us=median(said["quiet_p50"] * US for said in rounds),
            quiet_p99_us=median(said["quiet_p99"] * US for said in rounds),
            flooded_p50_us=median(said["loud_p50"] * US for said in rounds),
            flooded_p99_us=median(said["loud_p99"] * US for said in rounds),
            slower=median(said["loud_p50"] / said["quiet_p50"] for said in rounds),
            growth_bytes=max(said["growth"] for said in rounds),
            messages=median(said["questions"] for said in rounds),
        )

    def document(self) -> dict[str, Any]:
        """Return the figures as a document for JSON."""
        return asdict(self)


async def measure(task: FloodTask, rounds: int, starting: Callable[[str], None]) -> Flood:
    """Measure in rounds. Raises ``MeasurementError``. No process remains, whatever happens."""
    heard = []
    for number in range(1, rounds + 1):
        starting(f"round {number}/{rounds}")
        heard.append(await _listen(replace(task, seed=task.seed + number)))
    return Flood.of(heard)


async def _listen(task: FloodTask) -> Mapping[str, float]:
    with trio.move_on_after(GRACE + 4 * task.seconds):
        victim = replace(task, side=FloodSide.VICTIM)
        async with open_process(victim.side, MODULE, victim.written()) as answering:
            port = int((await answering.hear("port"))["port"])
            friend = replace(task, side=FloodSide.FRIEND, port=port)
            async with open_process(friend.side, MODULE, friend.written()) as asking:
                await asking.hear("quiet")
                enemy = replace(task, side=FloodSide.FLOOD, port=port)
                async with open_process(enemy.side, MODULE, enemy.written()):
                    return await asking.hear("loud_p50")
    raise MeasurementError(f"not done after {GRACE + 4 * task.seconds:.0f} s")
