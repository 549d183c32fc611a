"""The script that profiles one process of a measurement."""

from click.testing import CliRunner

from tests.scripts import load_script

profile_channel = load_script("benchmarks/profile_channel.py")


def test_a_role_without_another_side_is_a_wrong_argument() -> None:
    result = CliRunner().invoke(profile_channel.main, ["lockstep", "--role", "work"])
    assert result.exit_code == 2
    assert "'work' is not one of" in result.output
