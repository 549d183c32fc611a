"""The command `sphtp`: verbs are found among installed packages, and imported when called."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import click
import pytest
from click.shell_completion import BashComplete
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
    "bench": "sphtp_benchmarks:bench",
    "simulate": "numpy:simulate",
}

# As on a machine where nobody has installed click.
WITHOUT_CLICK = """
import runpy, sys
sys.modules["click"] = None
runpy.run_module("sphtp", run_name="__main__")
"""


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

    @pytest.mark.parametrize(
        ("verb", "module", "sentence"),
        [
            ("bench", "sphtp_benchmarks", "sphtp bench comes with the source and not with"),
            (
                "simulate",
                "numpy",
                "sphtp simulate needs numpy: pip install 'sphtp[sim]' brings it.",
            ),
        ],
    )
    def test_a_verb_that_is_not_installed_says_how_to_get_it(
        self, verb: str, module: str, sentence: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        result = call(verb, "latency", "--rounds", "3")
        assert (result.exit_code, result.output.count("\n")) == (2, 1)
        assert sentence in result.output
        described = call(verb, "--help")
        assert described.exit_code == 0
        assert sentence in " ".join(described.output.split())

    def test_an_unknown_verb_is_a_wrong_call(self) -> None:
        result = call("nonsense")
        assert result.exit_code == 2
        assert "mean" not in result.output

    @pytest.mark.parametrize("verb", ["gret", "Greet", "greeet"])
    def test_for_a_misspelt_verb_there_is_a_suggestion(self, verb: str) -> None:
        result = call(verb, "you")
        assert result.exit_code == 2
        assert result.output.endswith(f"No such command {verb!r}. Did you mean 'greet'?\n")

    def test_a_shell_completes_verbs(self) -> None:
        shell = BashComplete(program.main, {}, "sphtp", "_SPHTP_COMPLETE")
        assert [found.value for found in shell.get_completions([], "gre")] == ["greet"]


def test_without_its_extra_the_command_says_which_one_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLICK], capture_output=True, text=True, check=False
    )
    sentence = "sphtp needs click: pip install 'sphtp[cli]' brings it.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)


def test_the_version_is_that_of_the_package() -> None:
    result = call("--version")
    assert result.exit_code == 0
    assert result.output.startswith("sphtp 0.")


def test_the_installed_verbs_are_listed() -> None:
    listed = program.main.list_commands(click.Context(program.main))
    assert {"server", "status"} <= set(listed)
