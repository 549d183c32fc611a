"""The outcome of a cluster run: an exit code, a sentence and a JSON document."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sphtp_client.cluster.run_status import ProcessRole, ProcessStatus, RunStatus
from sphtp_client.program import ExitStatus


@dataclass(frozen=True)
class RunOutcome:
    """The verdict, a sentence for people, and further remarks."""

    verdict: ExitStatus
    sentence: str
    remarks: tuple[str, ...] = ()


def judge(status: RunStatus, *, verify: bool, stopped_by: ExitStatus | None = None) -> RunOutcome:
    """Return the outcome of a run that is over.

    ``stopped_by`` is INTERRUPTED or TERMINATED if a signal ended it. A lost server causes a remark,
    not a failure, because a run with several servers survives it.
    """
    lost = (f"{process.name} was lost: {why(process)}" for process in _lost_servers(status))
    remarks = (*status.replaced, *lost)
    if stopped_by is not None:
        return RunOutcome(stopped_by, f"{stopped_by.word} before the end", remarks)
    failures = tuple(f"{process.name} failed: {why(process)}" for process in _failures(status))
    if failures:
        return RunOutcome(ExitStatus.FAILED, failures[0], (*failures[1:], *remarks))
    if not verify:
        return RunOutcome(ExitStatus.FINISHED, "finished", remarks)
    ours, theirs = state_of(status, ProcessRole.CLIENT), state_of(status, ProcessRole.REFERENCE)
    if ours == theirs:
        return RunOutcome(ExitStatus.VERIFIED, "verified: bit-identical", remarks)
    sentence = f"mismatch: the peers end in {ours}, one process ends in {theirs}"
    return RunOutcome(ExitStatus.MISMATCH, sentence, remarks)


def judge_standing(status: RunStatus, stopped_by: ExitStatus | None) -> RunOutcome:
    """Return the outcome of a run without clients.

    It is finished if a signal ended the run, and every server had started to listen.
    """
    outcome = judge(status, verify=False)
    if stopped_by is None and outcome.verdict is ExitStatus.FINISHED:
        return RunOutcome(ExitStatus.FAILED, "no server is left", outcome.remarks)
    return outcome


def state_of(status: RunStatus, role: ProcessRole) -> str | None:
    """Return the digest of the final state from a process of this role; None without one."""
    return next(
        (process.result.state_sha256 for process in status.of(role) if process.result), None
    )


def document(
    outcome: RunOutcome, status: RunStatus, settings: dict[str, Any], seconds: float
) -> Any:
    """Return the JSON document of a run; ``settings`` are the parameters to repeat in it."""
    result = next(
        (process.result for process in status.of(ProcessRole.CLIENT) if process.result), None
    )
    verified = {ExitStatus.VERIFIED: True, ExitStatus.MISMATCH: False}.get(outcome.verdict)
    return {
        "outcome": outcome.verdict.word,
        "exit_code": outcome.verdict.code,
        "message": outcome.sentence,
        "remarks": list(outcome.remarks),
        "verified": verified,
        **settings,
        "seconds": round(seconds, 3),
        "run_seconds": result and round(result.seconds, 3),
        "state_sha256": state_of(status, ProcessRole.CLIENT),
        "reference_sha256": state_of(status, ProcessRole.REFERENCE),
        "start": result and result.start.model_dump(mode="json"),
        "end": result and result.end.model_dump(mode="json"),
        "links": list(_links(status)),
        "processes": [_process(process) for process in status.processes.values()],
    }


def _failures(status: RunStatus) -> Iterable[ProcessStatus]:
    """Return the failed processes, likely causes first.

    Those that the supervisor ended come last, and before them those that report a lost peer.
    """
    failed = [process for process in status.processes.values() if _has_failed(process)]
    return sorted(
        failed,
        key=lambda process: (process.exit is not None and process.exit.asked, bool(process.left)),
    )


def _has_failed(process: ProcessStatus) -> bool:
    if process.role is ProcessRole.SERVER:
        return process.id is None
    return process.exit is None or process.exit.code != 0 or _owes_result(process)


def _owes_result(process: ProcessStatus) -> bool:
    reports = process.role is ProcessRole.REFERENCE or process.slab == 0
    return reports and process.result is None


def _lost_servers(status: RunStatus) -> list[ProcessStatus]:
    return [
        process
        for process in status.of(ProcessRole.SERVER)
        if process.id is not None
        and process.exit
        and process.exit.code != 0
        and not process.exit.asked
    ]


def why(process: ProcessStatus) -> str:
    """Return the reason for the failure of a process."""
    where = "" if process.place is None else f", on {process.place}"
    return f"{_reason(process)}{where}"


def _reason(process: ProcessStatus) -> str:
    if process.failure:
        return process.failure
    last_words = next((line for line in reversed(process.errors) if line.strip()), "")
    ending = _ending(process)
    return f"{ending} ({last_words.strip()})" if last_words else ending


def _ending(process: ProcessStatus) -> str:
    if process.exit is None:
        return "it was never started" if process.pid is None else "it never ended"
    if process.exit.asked:
        return f"it was still running and was ended, {process.exit}"
    return str(process.exit) if process.exit.code else "it ended without a result"


def _links(status: RunStatus) -> Iterable[dict[str, Any]]:
    for process in status.of(ProcessRole.CLIENT):
        for link in process.links:
            report = link.model_dump(mode="json", exclude={"peer", "slab"})
            yield {"from": process.slab, "to": link.slab, **report}


def _process(process: ProcessStatus) -> dict[str, Any]:
    return {
        "name": process.name,
        "role": process.role.value,
        "slab": process.slab,
        "pid": process.pid,
        "place": process.place,
        "id": process.id,
        "step": process.step,
        "exit_code": process.exit and process.exit.code,
        "failure": why(process) if _has_failed(process) else None,
        "peers_left": [left.model_dump(mode="json", exclude={"event"}) for left in process.left],
    }
