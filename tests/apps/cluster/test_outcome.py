import json

import pytest

from sphtp_client.cluster.outcome import document, judge, judge_standing
from sphtp_client.cluster.run_status import ProcessRole, RunStatus
from sphtp_client.program import ExitStatus
from sphtp_client.simulation.reports import Failed, PeerGone, Started


def test_equal_states_are_verified(good_board):
    outcome = judge(good_board(), verify=True)
    assert outcome.verdict is ExitStatus.VERIFIED
    assert outcome.verdict.code == 0
    assert outcome.sentence == "verified: bit-identical"


def test_without_verification_a_run_is_finished(good_board):
    assert judge(good_board(reference=None), verify=False).verdict is ExitStatus.FINISHED


def test_different_states_are_a_mismatch_that_names_both(good_board):
    outcome = judge(good_board(state="aa", reference="bb"), verify=True)
    assert outcome.verdict.code == 1
    assert "aa" in outcome.sentence
    assert "bb" in outcome.sentence


@pytest.mark.parametrize("name", ["client 0", "client 1", "reference"])
def test_a_worker_that_fails_fails_the_run(good_board, name):
    status = good_board()
    status.exited(status.processes[name], 3, asked=False)
    outcome = judge(status, verify=True)
    assert outcome.verdict.code == 3
    assert outcome.sentence.startswith(f"{name} failed: exit code 3")


def test_the_cause_is_named_before_its_consequences(good_board):
    status = good_board()
    status.note_event(status.processes["client 0"], PeerGone(slab=1, id=9, reason="timed out"))
    status.note_event(
        status.processes["client 0"], Failed(message="slab 1 (id 0x00000009) left: timed out")
    )
    status.exited(status.processes["client 0"], 3, asked=False)
    status.exited(status.processes["client 1"], -9, asked=False)
    outcome = judge(status, verify=True)
    assert outcome.sentence == "client 1 failed: killed by SIGKILL"
    assert outcome.remarks == ("client 0 failed: slab 1 (id 0x00000009) left: timed out",)


def test_the_last_word_on_standard_error_explains_a_silent_death(good_board):
    status = good_board()
    status.note_error_line(status.processes["client 1"], "ValueError: nonsense")
    status.note_error_line(status.processes["client 1"], "")
    status.exited(status.processes["client 1"], 1, asked=False)
    assert "exit code 1 (ValueError: nonsense)" in judge(status, verify=True).sentence


def test_a_lost_server_is_a_remark(good_board):
    status = good_board()
    status.exited(status.processes["server 1"], -9, asked=False)
    outcome = judge(status, verify=True)
    assert outcome.verdict is ExitStatus.VERIFIED
    assert outcome.remarks == ("server 1 was lost: killed by SIGKILL",)


def test_a_server_that_never_listened_fails_the_run(good_board):
    status = good_board()
    status.take("server 3", ProcessRole.SERVER)
    status.spawned(status.processes["server 3"], 103)
    status.exited(status.processes["server 3"], 2, asked=False)
    assert judge(status, verify=True).sentence == "server 3 failed: exit code 2"


def test_a_client_that_ends_without_its_result_fails_the_run(good_board):
    status = good_board()
    status.processes["client 0"].result = None
    assert judge(status, verify=True).sentence == "client 0 failed: it ended without a result"


@pytest.mark.parametrize(
    ("verdict", "code"), [(ExitStatus.INTERRUPTED, 130), (ExitStatus.TERMINATED, 143)]
)
def test_a_signal_outweighs_what_it_caused(good_board, verdict, code):
    status = good_board()
    status.exited(status.processes["client 0"], -15, asked=True)
    outcome = judge(status, verify=True, stopped_by=verdict)
    assert outcome.verdict.code == code
    assert "before the end" in outcome.sentence


def test_the_document_holds_what_a_program_wants_to_know(good_board):
    status = good_board()
    outcome = judge(status, verify=True)
    text = json.dumps(document(outcome, status, {"servers": 2, "clients": 2, "steps": 30}, 1.5))
    found = json.loads(text)
    assert found["verified"] is True
    assert (found["servers"], found["clients"], found["steps"]) == (2, 2, 30)
    assert found["seconds"] == 1.5
    assert found["state_sha256"] == found["reference_sha256"] == "aa"
    assert found["start"] == {"count": 60, "energy": 1.5, "momentum": [0.0, 0.25, -1.0]}
    assert found["links"][0] == {
        "from": 0,
        "to": 1,
        "sent": 200,
        "received": 180,
        "lost": 20,
        "resent": 25,
        "rtt_ms": 0.75,
    }
    pids = {process["name"]: process["pid"] for process in found["processes"]}
    assert pids["server 2"] == 102
    assert pids["client 1"] == 201


def test_the_document_of_a_run_that_never_began_is_still_whole():
    status = RunStatus()
    status.take("server 1", ProcessRole.SERVER)
    found = document(judge(status, verify=True), status, {}, 0.1)
    assert found["exit_code"] == 3
    assert found["verified"] is None
    assert found["state_sha256"] is None
    assert found["processes"][0]["failure"] == "it was never started"


def test_servers_that_stood_until_ctrl_c_are_finished():
    def standing(code: int, *, asked: bool) -> RunStatus:
        status = RunStatus()
        status.take("server 1", ProcessRole.SERVER)
        status.spawned(status.processes["server 1"], 100)
        status.note_event(
            status.processes["server 1"], Started(id=2, pub="tcp://h:1", sub="tcp://h:2")
        )
        status.exited(status.processes["server 1"], code, asked=asked)
        return status

    ended = judge_standing(standing(0, asked=True), ExitStatus.INTERRUPTED)
    assert (ended.verdict.code, ended.remarks) == (0, ())
    lost = judge_standing(standing(-9, asked=False), None)
    assert (lost.verdict.code, lost.sentence) == (3, "no server is left")
