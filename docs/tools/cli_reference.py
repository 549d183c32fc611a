"""Write `docs/reference/cli.md` from the commands themselves: `make docs`.

`--check` writes nothing, and exits with 1 if the page differs from the commands.
"""

import argparse
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from sphtp.__main__ import main as sphtp

PAGE = Path(__file__).resolve().parents[1] / "reference" / "cli.md"

HEAD = """\
# Commands

<!-- Written from the commands by docs/tools/cli_reference.py: change their help, `make docs`. -->

The command `sphtp` has verbs. `sphtp --version` prints its version, and each verb takes `--help`.
Your own package can add a verb: an entry point of the group `sphtp.commands` that is a click
command.
"""


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or compare it with the commands; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--page", type=Path, default=PAGE, help="the file of the page")
    options = parser.parse_args(arguments)
    if not options.check:
        options.page.write_text(render(), encoding="utf-8")
    elif stale(options.page):
        sys.stderr.write(f"{options.page} differs from the commands; run `make docs`\n")
        return 1
    return 0


def stale(page: Path) -> bool:
    """Return True if a page is missing or differs from the commands."""
    return not page.exists() or page.read_text(encoding="utf-8") != render()


@cache
def render() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *(section(name, verb) for name, verb in verbs("", sphtp))])


def verbs(prefix: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group and of the groups in it, with their full names."""
    with click.Context(group) as context:
        found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    for name, command in found.items():
        if isinstance(command, click.Group):
            yield from verbs(f"{prefix}{name} ", command)
        elif command is not None:
            yield prefix + name, command


def section(name: str, command: click.Command) -> str:
    """Return the section of a verb."""
    values = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    options = [option for option in command.params if isinstance(option, click.Option)]
    with click.Context(command) as context:
        pieces = [piece for value in values for piece in value.get_usage_pieces(context)]
    usage = " ".join(["sphtp", name, *pieces])
    lines = [
        f"## sphtp {name}",
        "",
        f"`{usage}{' [OPTIONS]' if options else ''}`",
        "",
        inspect.cleandoc(command.help or ""),
        "",
    ]
    if options:
        lines += [
            "| option | value | default | meaning |",
            "|---|---|---|---|",
            *(row(option) for option in options if not option.hidden),
            "",
        ]
    return "\n".join(lines)


def row(option: click.Option) -> str:
    """Return the row of an option."""
    names = " / ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    cells = (names, value(option), default(option), (option.help or "").replace("|", "\\|"))
    return "| " + " | ".join(cells) + " |"


def value(option: click.Option) -> str:
    """Return the allowed values of an option in words; empty for a flag."""
    return "" if option.is_flag else ", ".join(words(option))


def words(option: click.Option) -> Iterator[str]:
    """Yield the allowed values of an option, and ``required`` or ``repeatable`` if it is."""
    kind = option.type
    if isinstance(kind, click.Choice):
        yield " or ".join(f"`{choice}`" for choice in kind.choices)
    elif isinstance(kind, click.IntRange | click.FloatRange):
        yield limits(kind)
    else:
        yield (option.metavar or kind.name).lower().replace("|", " or ")
    if option.required:
        yield "required"
    if option.multiple:
        yield "repeatable"


def limits(kind: click.IntRange | click.FloatRange) -> str:
    """Return a range in words."""
    low = None if kind.min is None else f"{'more than' if kind.min_open else 'at least'} {kind.min}"
    high = None if kind.max is None else f"{'less than' if kind.max_open else 'at most'} {kind.max}"
    return " and ".join(bound for bound in (low, high) if bound)


def default(option: click.Option) -> str:
    """Return the default; empty for a flag, and if the help does not show one.

    The settings of the server have theirs in their help.
    """
    if option.is_flag or option.default is None or not option.show_default:
        return ""
    shown = option.default
    return ", ".join(f"`{one}`" for one in (shown if isinstance(shown, list | tuple) else [shown]))


if __name__ == "__main__":
    sys.exit(main())
