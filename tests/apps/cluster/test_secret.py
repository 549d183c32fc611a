"""The secret of a cluster run: fresh, private, shared by its processes, and gone afterwards."""

from pathlib import Path

from sphtp import load_secret
from sphtp.core.secure.identity import format_key
from sphtp_client.cluster.plan import ClusterPlan
from sphtp_client.cluster.secret import secret_file


def test_it_is_fresh_and_nobody_else_can_get_at_it() -> None:
    with secret_file() as first, secret_file() as second:
        assert load_secret(first) != load_secret(second)
        assert first.parent.stat().st_mode & 0o777 == 0o700
        assert first.stat().st_mode & 0o777 == 0o600
    assert not first.parent.exists()


def test_every_process_that_speaks_is_told_where_it_is_and_not_what_it_is() -> None:
    with secret_file() as file:
        plan = ClusterPlan(2, 2, Path("gas.toml"), 10, secret_file=file)
        jobs = [plan.server(1, None), plan.server(2, "tcp://a:1"), plan.client(0, ["tcp://a:1"])]
        for job in jobs:
            assert job.command[job.command.index("--secret-file") + 1] == str(file)
            assert not any(format_key(load_secret(file)) in word for word in job.command)
        assert "--secret-file" not in plan.reference().command
