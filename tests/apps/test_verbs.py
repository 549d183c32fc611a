"""All verbs spell alike: JSON, and what is misspelt."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sphtp.__main__ import main

PRINT_NO_RECORDS = {
    "sphtp server": "its log has formats of its own: --log-format",
    "sphtp completion": "its output is a script",
    "sphtp convert": "its output is a file of a format: --to",
    "sphtp manifest": "its output is manifests, which are JSON",
    "sphtp plot": "its output is a picture",
}


def commands(name: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group, and of groups in it, with their full names."""
    with click.Context(group) as context:
        for verb in group.list_commands(context):
            command = group.get_command(context, verb)
            if isinstance(command, click.Group):
                yield from commands(f"{name} {verb}", command)
            elif command is not None:
                yield f"{name} {verb}", command


def flags(command: click.Command) -> set[str]:
    return {name for it in command.params if isinstance(it, click.Option) for name in it.opts}


def test_json_has_one_spelling() -> None:
    without = set()
    for name, command in commands("sphtp", main):
        spelled = {flag for flag in flags(command) if "json" in flag}
        assert spelled <= {"--json"}, name
        if not spelled:
            without.add(name)
        for option in command.params:
            words = getattr(option.type, "choices", ()) if "json" in str(option.opts) else ()
            assert not words, f"{name}: --json is a flag"
    assert without == PRINT_NO_RECORDS.keys()


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("peerz", "'peers'"),
        ("config chek", "'check'"),
        ("bench chanel", "'channel'"),
        ("peers --jsn", "'--json'"),
        ("config check --clint", "'--client'"),
        ("server --pub-prt 3", "'--pub-port'"),
    ],
)
def test_what_is_misspelt_has_a_suggestion(misspelt: str, meant: str) -> None:
    result = CliRunner().invoke(main, misspelt.split())
    assert result.exit_code == 2
    assert "Did you mean" in result.output
    assert meant in result.output
