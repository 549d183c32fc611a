"""The verdict on a cluster run: from the board to an exit code, a sentence and a JSON document."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sphtp_client.cluster.run_status import ProcessRole, ProcessStatus, RunStatus
from sphtp_client.program import ExitStatus


@dataclass(frozen=True)
class RunOutcome:
    """The verdict, a sentence for people, and what else they should know."""

    verdict: ExitStatus
    sentence: str
    remarks: tuple[str, ...] = ()


def judge(board: RunStatus, *, verify: bool, stopped_by: ExitStatus | None = None) -> RunOutcome:
    """Judge a run whose processes have all ended.

    ``stopped_by`` is INTERRUPTED or TERMINATED when a person ended it. A server lost on the way is
    remarked upon and fails nothing: surviving that is what several servers are for.
    """
    remarks = tuple(f"{seat.name} was lost: {_why(seat)}" for seat in _lost_servers(board))
    if stopped_by is not None:
        return RunOutcome(stopped_by, f"{stopped_by.word} before the end", remarks)
    failures = tuple(f"{seat.name} failed: {_why(seat)}" for seat in _failures(board))
    if failures:
        return RunOutcome(ExitStatus.FAILED, failures[0], (*failures[1:], *remarks))
    if not verify:
        return RunOutcome(ExitStatus.FINISHED, "finished", remarks)
    ours, theirs = state_of(board, ProcessRole.CLIENT), state_of(board, ProcessRole.REFERENCE)
    if ours == theirs:
        return RunOutcome(ExitStatus.VERIFIED, "verified: bit-identical", remarks)
    sentence = f"mismatch: the peers end in {ours}, one process ends in {theirs}"
    return RunOutcome(ExitStatus.MISMATCH, sentence, remarks)


def state_of(board: RunStatus, role: ProcessRole) -> str | None:
    """Return the digest of the final state that a role reported."""
    return next((seat.result.state_sha256 for seat in board.of(role) if seat.result), None)


def document(
    outcome: RunOutcome, board: RunStatus, settings: dict[str, Any], seconds: float
) -> Any:
    """Return the JSON document of a run; ``settings`` are the values it was started with."""
    result = next((seat.result for seat in board.of(ProcessRole.CLIENT) if seat.result), None)
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
        "state_sha256": state_of(board, ProcessRole.CLIENT),
        "reference_sha256": state_of(board, ProcessRole.REFERENCE),
        "start": result and result.start.model_dump(mode="json"),
        "end": result and result.end.model_dump(mode="json"),
        "links": list(_links(board)),
        "processes": [_process(seat) for seat in board.seats.values()],
    }


def _failures(board: RunStatus) -> Iterable[ProcessStatus]:
    """Return who failed, causes first: a peer that died, those it left, those we ended then."""
    failed = [seat for seat in board.seats.values() if _has_failed(seat)]
    return sorted(
        failed, key=lambda seat: (seat.exit is not None and seat.exit.asked, bool(seat.left))
    )


def _has_failed(seat: ProcessStatus) -> bool:
    if seat.role is ProcessRole.SERVER:
        return seat.id is None
    return seat.exit is None or seat.exit.code != 0 or _owes_result(seat)


def _owes_result(seat: ProcessStatus) -> bool:
    reports = seat.role is ProcessRole.REFERENCE or seat.slab == 0
    return reports and seat.result is None


def _lost_servers(board: RunStatus) -> list[ProcessStatus]:
    return [
        seat
        for seat in board.of(ProcessRole.SERVER)
        if seat.id is not None and seat.exit and seat.exit.code != 0 and not seat.exit.asked
    ]


def _why(seat: ProcessStatus) -> str:
    if seat.failure:
        return seat.failure
    last_words = next((line for line in reversed(seat.errors) if line.strip()), "")
    ending = _ending(seat)
    return f"{ending} ({last_words.strip()})" if last_words else ending


def _ending(seat: ProcessStatus) -> str:
    if seat.exit is None:
        return "it was never started" if seat.pid is None else "it never ended"
    if seat.exit.asked:
        return f"it was still running and was ended, {seat.exit}"
    return str(seat.exit) if seat.exit.code else "it ended without a result"


def _links(board: RunStatus) -> Iterable[dict[str, Any]]:
    for seat in board.of(ProcessRole.CLIENT):
        for link in seat.links:
            report = link.model_dump(mode="json", exclude={"peer", "slab"})
            yield {"from": seat.slab, "to": link.slab, **report}


def _process(seat: ProcessStatus) -> dict[str, Any]:
    return {
        "name": seat.name,
        "role": seat.role.value,
        "slab": seat.slab,
        "pid": seat.pid,
        "id": seat.id,
        "step": seat.step,
        "exit_code": seat.exit and seat.exit.code,
        "failure": _why(seat) if _has_failed(seat) else None,
        "peers_left": [left.model_dump(mode="json", exclude={"event"}) for left in seat.left],
    }
