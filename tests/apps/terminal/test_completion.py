"""Candidates for the tab key, and the scripts that ask for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from sphtp.__main__ import main
from sphtp_client.terminal.completion import SHELLS, VARIABLE, completion
from tests.house.pages import ROOT

# Bash calls the function of a command with the words of the line so far.
PRESS_TAB = """
eval "$(sphtp completion bash)"
COMP_WORDS=(sphtp peers --sec) COMP_CWORD=2
_sphtp_completion sphtp --sec peers
printf '%s\\n' "${COMPREPLY[@]}"
"""


def candidates(*words: str) -> list[str]:
    *before, last = words
    shell = BashComplete(main, {}, "sphtp", VARIABLE)
    return [found.value for found in shell.get_completions(before, last)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("do",), ["doctor"]),
        (("config", ""), ["check"]),
        (("peers", "--sec"), ["--secret-file"]),
        (("completion", ""), [*SHELLS]),
        (("replay", "--on-death", "w"), ["wait"]),
        (("cluster", "--scenario", "ga"), ["gas", "ga"]),
    ],
)
def test_verbs_options_and_values_have_candidates(words: tuple[str, ...], expected: object) -> None:
    assert candidates(*words) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_and_a_file_that_asks_for_it(shell: str) -> None:
    script = CliRunner().invoke(completion, [shell]).stdout
    assert f"{VARIABLE}={shell}_complete" in script
    installed = ROOT / "share" / "completions" / f"sphtp.{shell}"
    assert f"sphtp completion {shell}" in installed.read_text(encoding="utf-8")


@pytest.mark.soak  # a second of a processor
def test_bash_asks_the_command(tmp_path: Path) -> None:
    command = tmp_path / "sphtp"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sphtp "$@"\n')
    command.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", PRESS_TAB], capture_output=True, text=True, check=True, env=environ
    )
    assert done.stdout.split() == ["--secret-file"], done.stderr
