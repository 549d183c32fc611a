"""The measurement: pairs of processes, one round after the other, and their reports."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Final

import trio

from sphtp_benchmarks.company.task import CompanySide, CompanyTask
from sphtp_benchmarks.pair import MeasurementError, open_process

MODULE: Final = "sphtp_benchmarks.company.side"
GRACE: Final = 60.0
"""Seconds for starting, opening the channels, and letting them settle."""


@dataclass(frozen=True, kw_only=True)
class Company:
    """Medians over rounds, but ``traced_bytes`` of one run. Memory is per idle channel at one side.

    ``resident_bytes`` is the growth of the process, ``traced_bytes`` the memory that Python
    allocated. ``kept`` is the share of its rate alone that the busy channel keeps, ``idle_cpu`` the
    share of a processor that both ends of the idle ones take together when nothing else happens.
    """

    channels: int
    resident_bytes: float
    traced_bytes: float
    alone_per_s: float
    beside_per_s: float
    kept: float
    idle_cpu: float

    @classmethod
    def of(
        cls, channels: int, rounds: list[Mapping[str, float]], traced: Mapping[str, float]
    ) -> "Company":
        """Return the figures from the reports of the hosts."""
        return cls(
            channels=channels,
            resident_bytes=median(said["bytes"] for said in rounds),
            traced_bytes=traced["bytes"],
            alone_per_s=median(said["alone"] for said in rounds),
            beside_per_s=median(said["beside"] for said in rounds),
            kept=median(said["beside"] / said["alone"] for said in rounds),
            idle_cpu=median(said["idle"] for said in rounds),
        )

    def document(self) -> dict[str, Any]:
        """Return the figures as a document for JSON."""
        return asdict(self)


async def measure(task: CompanyTask, rounds: int, starting: Callable[[str], None]) -> Company:
    """Measure in rounds, and once more with allocations traced.

    Raises ``MeasurementError``. No process remains, whatever happens.
    """
    heard = []
    for number in range(1, rounds + 1):
        starting(f"round {number}/{rounds}")
        heard.append(await _listen(task))
    starting("memory, traced")
    traced = await _listen(replace(task, traced=True))
    return Company.of(task.channels, heard, traced)


async def _listen(task: CompanyTask) -> Mapping[str, float]:
    longest = GRACE + 4 * task.seconds + 6 * task.interval
    with trio.move_on_after(longest):
        guest = replace(task, side=CompanySide.GUEST)
        async with open_process(guest.side, MODULE, guest.written()) as answering:
            host = replace(task, port=int((await answering.hear("port"))["port"]))
            async with open_process(host.side, MODULE, host.written()) as dialling:
                return await dialling.hear("bytes")
    raise MeasurementError(f"not done after {longest:.0f} s")
