from collections.abc import Callable

import pytest

from sphtp_client.cluster.run_status import ProcessRole, RunStatus
from sphtp_client.simulation.reports import (
    Connected,
    Finished,
    LinkReport,
    Result,
    Started,
    StepProgress,
    Totals,
)

TOTALS = Totals(count=60, energy=1.5, momentum=(0.0, 0.25, -1.0))


@pytest.fixture
def good_board() -> Callable[..., RunStatus]:
    """Make the board of a run of two servers, two clients and a reference that all ended well."""

    def make(*, reference: str | None = "aa", state: str = "aa") -> RunStatus:
        status = RunStatus()
        for number in (1, 2):
            name = f"server {number}"
            status.take(name, ProcessRole.SERVER)
            status.spawned(status.processes[name], 100 + number)
            status.note_event(
                status.processes[name],
                Started(id=2 * number, pub="tcp://127.0.0.1:5000", sub="tcp://127.0.0.1:5001"),
            )
        for slab in (0, 1):
            _good_client(status, slab)
        status.note_event(status.processes["client 0"], _result(state))
        status.exited(status.processes["client 0"], 0, asked=False)
        status.exited(status.processes["client 1"], 0, asked=False)
        for number in (1, 2):
            status.exited(status.processes[f"server {number}"], 0, asked=True)
        if reference is not None:
            status.take("reference", ProcessRole.REFERENCE)
            status.spawned(status.processes["reference"], 300)
            status.note_event(status.processes["reference"], _result(reference))
            status.exited(status.processes["reference"], 0, asked=False)
        return status

    return make


def _good_client(status: RunStatus, slab: int) -> None:
    name = f"client {slab}"
    link = LinkReport(
        peer=9 - 2 * slab, slab=1 - slab, sent=200, received=180, lost=20, resent=25, rtt_ms=0.75
    )
    status.take(name, ProcessRole.CLIENT, slab=slab)
    status.spawned(status.processes[name], 200 + slab)
    status.note_event(
        status.processes[name], Connected(id=7 + 2 * slab, slab=slab, slabs=2, servers=(2, 4))
    )
    progress = StepProgress(step=15, steps=30, steps_per_s=120.0, servers=(2, 4), links=(link,))
    status.note_event(status.processes[name], progress)
    status.note_event(status.processes[name], Finished(steps=30, seconds=0.5, links=(link,)))


def _result(state: str) -> Result:
    return Result(steps=30, seconds=0.5, state_sha256=state, start=TOTALS, end=TOTALS)
