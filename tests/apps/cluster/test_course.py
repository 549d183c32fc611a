"""A cluster run from its first process to its last."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from sphtp.core.secure.identity import format_key
from sphtp.security import load_secret
from sphtp_client.cluster.course import ClusterPlan, Replacements, run_cluster, secret_file
from sphtp_client.cluster.launcher import ProcessSpec
from sphtp_client.cluster.outcome import RunOutcome, judge
from sphtp_client.cluster.process import StopTimeouts
from sphtp_client.cluster.run_status import ProcessRole, RunStatus
from sphtp_client.cluster.supervisor import open_supervisor
from tests.apps.cluster.running import FakeLauncher, fake_slurm


def test_it_is_fresh_and_nobody_else_can_get_at_it() -> None:
    with secret_file() as first, secret_file() as second:
        assert load_secret(first) != load_secret(second)
        assert first.parent.stat().st_mode & 0o777 == 0o700
        assert first.stat().st_mode & 0o777 == 0o600
    assert not first.parent.exists()


def test_every_process_that_speaks_is_told_where_it_is_and_not_what_it_is() -> None:
    with secret_file() as file:
        plan = ClusterPlan(2, 2, Path("gas.toml"), 10, secret_file=file)
        jobs = [plan.server(1, []), plan.server(2, ["tcp://a:1"]), plan.client(0, ["tcp://a:1"])]
        for spec in jobs:
            assert spec.command[spec.command.index("--secret-file") + 1] == str(file)
            assert not any(format_key(load_secret(file)) in word for word in spec.command)
        assert "--secret-file" not in plan.reference().command


HEAD = """
import json, sys, time
def say(**event): print(json.dumps(event), flush=True)
def result(state):
    totals = dict(count=1, energy=1, momentum=[0, 0, 0])
    say(event="result", steps=3, seconds=1, state_sha256=state, start=totals, end=totals)
"""
SERVER = "say(event='started', id=2, pub='tcp://h:1', sub='tcp://h:2'); sys.stdin.read()"
GOOD = "print('noise'); result('aa')"
FAILING = "sys.exit(3)"
WAITING = "sys.stdin.read()"
PATIENCE = StopTimeouts(close=5.0, terminate=0.1, kill=5.0)


@dataclass(frozen=True)
class FakePlan(ClusterPlan):
    scripts: tuple[str, ...] = (GOOD, GOOD)
    server_script: str = SERVER
    reference_script: str = GOOD
    again: str = GOOD
    second_server: str = SERVER

    @property
    def grace(self) -> float:
        return 0.1

    def server(self, number: int, join: Sequence[str]) -> ProcessSpec:
        assert list(join) == ([] if number == 1 else ["tcp://h:1,tcp://h:2"])
        script = self.server_script if number == 1 else self.second_server
        return spec(f"server {number}", ProcessRole.SERVER, script)

    def client(self, slab: int, servers: object, attempt: int = 0) -> ProcessSpec:
        assert servers == ["tcp://h:1,tcp://h:2"] * self.servers
        script = self.again if attempt else self.scripts[slab]
        return spec(f"client {slab}", ProcessRole.CLIENT, script, slab)

    def reference(self) -> ProcessSpec:
        return spec("reference", ProcessRole.REFERENCE, self.reference_script)


def spec(name: str, role: ProcessRole, script: str, slab: int | None = None) -> ProcessSpec:
    return ProcessSpec(name, role, (sys.executable, "-S", "-c", HEAD + script), slab)


async def outcome_of(status: RunStatus | None = None, **changes: Any) -> RunOutcome:
    values: dict[str, Any] = {
        "servers": 2,
        "clients": 2,
        "scenario": Path("x"),
        "steps": 3,
        "verify": True,
    }
    plan = FakePlan(**(values | changes))
    status = status or RunStatus()
    with trio.fail_after(20):
        stopped_by = await run_cluster(plan, status, lambda: None, PATIENCE)
    assert not any(process.alive for process in status.processes.values())
    return judge(status, verify=True, stopped_by=stopped_by)


async def test_a_good_run_is_verified_and_its_servers_are_asked_to_leave():
    status = RunStatus()
    outcome = await outcome_of(status)
    assert outcome.sentence == "verified: bit-identical"
    for process in status.of(ProcessRole.SERVER):
        assert process.exit is not None
        assert (process.exit.code, process.exit.asked) == (0, True)


async def test_another_result_is_a_mismatch():
    outcome = await outcome_of(reference_script="result('bb')")
    assert outcome.verdict.code == 1


@pytest.mark.parametrize(
    "script", [FAILING, "raise SystemExit('not so')", "import os; os.kill(os.getpid(), 9)"]
)
async def test_a_server_that_cannot_start_ends_it_all(script):
    status = RunStatus()
    outcome = await outcome_of(status, server_script=script)
    assert outcome.verdict.code == 3
    assert outcome.sentence.startswith("server 1 failed")
    assert not status.of(ProcessRole.CLIENT)


async def test_who_waits_for_a_client_that_failed_is_ended_in_the_end():
    status = RunStatus()
    outcome = await outcome_of(status, scripts=(WAITING, FAILING))
    assert outcome.sentence == "client 1 failed: exit code 3"
    assert outcome.remarks == ("client 0 failed: it was still running and was ended, exit code 0",)
    waited = status.processes["client 0"].exit
    assert waited is not None
    assert waited.asked


async def test_a_reference_that_fails_fails_the_run():
    outcome = await outcome_of(reference_script="raise SystemExit('out of memory')")
    assert outcome.sentence == "reference failed: exit code 1 (out of memory)"


async def test_a_run_by_srun_is_verified_and_names_its_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_slurm(tmp_path, monkeypatch)
    for name, text in {"JOB_ID": "7", "JOB_NODELIST": "n1", "NTASKS": "3"}.items():
        monkeypatch.setenv(f"SLURM_{name}", text)
    status = RunStatus()
    outcome = await outcome_of(status, on="slurm", servers=1, clients=1, scripts=(GOOD,))
    assert outcome.sentence == "verified: bit-identical"
    assert {process.place for process in status.processes.values()} == {os.uname().nodename}


KILLED = "import os; os.kill(os.getpid(), 9)"


async def test_all_clients_start_again_for_one_that_was_lost():
    status = RunStatus()
    outcome = await outcome_of(status, scripts=(WAITING, KILLED), max_restarts=1)
    assert outcome.sentence == "verified: bit-identical"
    assert outcome.remarks == ("client 1 was lost: killed by SIGKILL; it was replaced",)
    notice = "client 1 was lost: killed by SIGKILL; all clients start again (1 of 1)"
    assert notice in status.notices


async def test_a_loss_too_many_ends_the_run_with_a_name():
    outcome = await outcome_of(scripts=(WAITING, KILLED), again=KILLED, max_restarts=2)
    assert outcome.sentence.endswith("failed: killed by SIGKILL")
    assert len(outcome.remarks) >= 2


async def test_a_client_that_fails_by_itself_is_not_replaced():
    outcome = await outcome_of(scripts=(GOOD, FAILING), max_restarts=5)
    assert outcome.sentence == "client 1 failed: exit code 3"


async def test_a_loss_that_the_engine_notices_late_is_replaced(autojump_clock):
    """A client misses its peer soon; that its machine is gone is known 29 s later."""
    plan, status = ClusterPlan(1, 2, Path("x"), 3, max_restarts=1), RunStatus()
    launcher = FakeLauncher((1.0, 3), (30.0, None), (1.0, 0), (1.0, 0), loss_time=20.0)
    assert plan.grace < 29.0 < plan.grace + launcher.loss_time
    async with open_supervisor(status, lambda: None, launcher=launcher) as supervisor:
        await Replacements(plan, supervisor, ["tcp://h:1"]).run()
    assert status.replaced == ["client 1 was lost: its machine is gone; it was replaced"]
    codes = [s.exit.code for s in status.of(ProcessRole.CLIENT) if s.exit is not None]
    assert codes == [0, 0]


async def test_a_server_that_is_lost_is_replaced_and_clients_go_on(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    dying = f"import os; p, q = {str(first)!r}, {str(second)!r}\n"
    dying += "say(event='started', id=4, pub='tcp://h:1', sub='tcp://h:2')\n"
    dying += "if os.path.exists(p): open(q, 'w'); sys.stdin.read()\n"
    dying += "else: open(p, 'w'); os.kill(os.getpid(), 9)"
    waiting = f"import os\nwhile not os.path.exists({str(second)!r}): time.sleep(0.01)\n{GOOD}"
    outcome = await outcome_of(
        scripts=(waiting, waiting), second_server=dying, server_script=SERVER, max_restarts=1
    )
    assert outcome.sentence == "verified: bit-identical"
    assert outcome.remarks == ("server 2 was lost: killed by SIGKILL; it was replaced",)


async def test_a_reference_that_is_lost_starts_again(tmp_path):
    once = tmp_path / "once"
    script = f"import os; p = {str(once)!r}\nif os.path.exists(p): result('aa')\n"
    script += "else: open(p, 'w').close(); os.kill(os.getpid(), 9)"
    outcome = await outcome_of(reference_script=script, max_restarts=1)
    assert outcome.sentence == "verified: bit-identical"
    assert outcome.remarks == ("reference was lost: killed by SIGKILL; it was replaced",)


def test_only_clients_of_one_attempt_work_together() -> None:
    plan = ClusterPlan(2, 2, Path("gas.toml"), 10)
    assert "--run" not in plan.client(0, ["tcp://a:1"]).command
    again = plan.client(0, ["tcp://a:1"], 2).command
    assert again[again.index("--run") + 1] == "2"


def test_servers_with_a_registry_find_each_other_there() -> None:
    plan = ClusterPlan(2, 2, Path("gas.toml"), 10, registry="etcd://h:1/a")
    for command in (plan.server(1, []).command, plan.server(2, ["tcp://a:1"]).command):
        assert command[command.index("--registry") + 1] == "etcd://h:1/a"
        assert not {"--new", "--join"} & {*command}


def test_each_process_serves_metrics_at_a_port_of_its_own() -> None:
    def ports(metrics: int | None) -> list[str]:
        plan = ClusterPlan(2, 2, Path("gas.toml"), 10, metrics=metrics)
        jobs = [plan.server(1, []), plan.server(2, ["tcp://a:1"])]
        jobs += [plan.client(slab, ["tcp://a:1"]) for slab in range(2)]
        assert "--metrics" not in plan.reference().command
        seen = [f"to see what waits: sphtp top {metrics}-{metrics + 3}"] if metrics else []
        assert [*plan.observing()] == seen
        commands = [spec.command for spec in jobs if "--metrics" in spec.command]
        return [command[command.index("--metrics") + 1] for command in commands]

    assert ports(None) == []
    assert ports(0) == ["0"] * 4
    assert ports(9464) == ["9464", "9465", "9466", "9467"]
