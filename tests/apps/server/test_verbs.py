"""The command `sphtp`: verbs are found among installed packages, and imported when called."""

from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner, Result

from sphtp import __main__ as program


@click.command()
@click.argument("name", default="world")
def greet(name: str) -> None:
    """Say hello."""
    click.echo(f"hello {name}")


NOT_A_COMMAND = "just a text"

POINTS = {
    "greet": f"{__name__}:greet",
    "absent": "no_such_module_anywhere:verb",
    "odd": f"{__name__}:NOT_A_COMMAND",
}


@pytest.fixture
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, value, program.GROUP) for name, value in POINTS.items()]
    monkeypatch.setattr(program, "entry_points", lambda group: points)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(program.main, arguments)


@pytest.mark.usefixtures("_plugins")
class TestPlugins:
    def test_a_verb_runs(self) -> None:
        result = call("greet", "you")
        assert (result.exit_code, result.output) == (0, "hello you\n")

    def test_every_verb_is_listed_with_its_help_even_beside_broken_ones(self) -> None:
        output = call("--help").output
        assert "Say hello." in output
        assert "Cannot be loaded" in output

    def test_a_broken_verb_says_what_is_wrong_with_it_and_where_it_comes_from(self) -> None:
        result = call("absent", "--any", "thing")
        assert result.exit_code == 1
        assert "absent (no_such_module_anywhere:verb) cannot be loaded" in result.output
        assert "ModuleNotFoundError" in result.output

    def test_something_else_than_a_command_is_broken_too(self) -> None:
        result = call("odd")
        assert result.exit_code == 1
        assert "not a click command" in result.output

    def test_an_unknown_verb_is_a_wrong_call(self) -> None:
        assert call("nonsense").exit_code == 2


def test_the_version_is_that_of_the_package() -> None:
    result = call("--version")
    assert result.exit_code == 0
    assert result.output.startswith("sphtp 0.")


def test_the_installed_verbs_are_listed() -> None:
    listed = program.main.list_commands(click.Context(program.main))
    assert {"server", "status"} <= set(listed)
