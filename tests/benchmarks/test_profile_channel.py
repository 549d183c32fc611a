"""The script that profiles one process of a measurement."""

import importlib.util
from pathlib import Path

from click.testing import CliRunner

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "profile_channel.py"
SPEC = importlib.util.spec_from_file_location("profile_channel", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
profile_channel = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(profile_channel)


def test_a_role_without_another_side_is_a_wrong_argument() -> None:
    result = CliRunner().invoke(profile_channel.main, ["lockstep", "--role", "work"])
    assert result.exit_code == 2
    assert "'work' is not one of" in result.output
