"""The conditions of a run, by which its figures can be judged."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sphtp_benchmarks.rounds import Plan

CPU_INFO: Final = Path("/proc/cpuinfo")


def conditions(plan: Plan) -> dict[str, Any]:
    """Describe machine, versions and run; the load is that before the run began."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(CPU_INFO),
        "cpu_count": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {
            system.distribution: system.version for system in plan.catalog.systems.values()
        },
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "warm_up": plan.warm_up,
    }


def cpu_model(info: Path) -> str:
    """Return the processor's name, or the architecture if no name can be read."""
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
