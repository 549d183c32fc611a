"""Write `share/man/man1` from the commands themselves: `make docs`. The wheel installs the pages.

`sphtp.1` has the list of verbs, and each verb has a page of its own, `sphtp-VERB.1`, as with `git`.
The benchmarks, which no wheel contains, have none. `--check` writes nothing and exits with 1 if a
page differs from its command.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points, version
from pathlib import Path

import click

from sphtp.__main__ import GROUP
from sphtp.__main__ import main as sphtp

FOLDER = Path(__file__).resolve().parents[2] / "share" / "man" / "man1"
NOT_IN_WHEELS = "sphtp_benchmarks"


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or compare them; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the folder of the pages")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    if not options.check:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.1"):
            old.unlink()
        for name, text in render().items():
            (folder / name).write_text(text, encoding="utf-8")
    elif wrong := stale(folder):
        sys.stderr.write(f"{', '.join(wrong)}: differ from the commands; run `make docs`\n")
        return 1
    return 0


def stale(folder: Path = FOLDER) -> list[str]:
    """Return the names of the pages that are missing or left over, or differ from the commands."""
    there = {page.name: page.read_text(encoding="utf-8") for page in folder.glob("*.1")}
    wanted = render()
    return sorted(
        name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name)
    )


@cache
def render() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    left_out = {it.name for it in entry_points(group=GROUP) if it.module.startswith(NOT_IN_WHEELS)}
    verbs = {name: command for name, command in commands(sphtp) if name not in left_out}
    pages = {"sphtp.1": overview(verbs)}
    for name, command in verbs.items():
        pages[f"sphtp-{name}.1"] = page(name, command)
    return pages


def commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group with their names."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield name, command


def overview(verbs: dict[str, click.Command]) -> str:
    """Return the page of the command with its list of verbs."""
    lines = [
        *head("sphtp", inspect.cleandoc(sphtp.help or "").partition(".\n")[0]),
        ".SH SYNOPSIS",
        ".B sphtp",
        ".I VERB",
        "[\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]",
        ".SH DESCRIPTION",
        *description(sphtp),
        ".SH VERBS",
    ]
    for name, command in verbs.items():
        lines += [".TP", f".BR sphtp\\-{escaped(name)} (1)", escaped(short(command))]
    lines += [".SH OPTIONS", *options(sphtp)]
    return "\n".join([*lines, ""])


def page(name: str, command: click.Command) -> str:
    """Return the page of one verb; a verb with verbs of its own has them in its page."""
    lines = [*head(f"sphtp-{name}", short(command)), ".SH SYNOPSIS"]
    members = {f"{name} {verb}": one for verb, one in members_of(command)} or {name: command}
    for full, member in members.items():
        lines += [f".B sphtp {escaped(full)}", usage(member), ".br"]
    lines += [".SH DESCRIPTION", *description(command)]
    for full, member in members.items():
        if member is not command:
            lines += [f".SS sphtp {escaped(full)}", *description(member)]
        title = ".SH OPTIONS" if member is command else ".PP\nOptions:"
        lines += [title, *options(member)]
    if codes := exit_codes(command):
        lines += [".SH EXIT STATUS", codes]
    lines += [".SH SEE ALSO", ".BR sphtp (1)"]
    return "\n".join([*lines, ""])


def members_of(command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands within a command, if it is a group."""
    if isinstance(command, click.Group):
        yield from commands(command)


def head(name: str, meaning: str) -> Iterator[str]:
    """Yield the lines that each page begins with; `apropos` finds a page by its section NAME."""
    yield '.\\" Written from the commands by docs/tools/manual_pages.py: `make docs`.'
    yield f'.TH {name.upper()} 1 "" "SphTP {version("sphtp")}" "SphTP"'
    yield ".SH NAME"
    yield f"{escaped(name)} \\- {escaped(meaning.rstrip('.'))}"


def short(command: click.Command) -> str:
    """Return the short help of a command, else the first sentence of its help; no full stop."""
    return (command.short_help or command.get_short_help_str(200)).rstrip(".")


def usage(command: click.Command) -> str:
    """Return the words behind the name of a command."""
    with click.Context(command) as context:
        pieces = [
            piece
            for parameter in command.params
            if isinstance(parameter, click.Argument)
            for piece in parameter.get_usage_pieces(context)
        ]
    return " ".join(["[\\fIOPTIONS\\fR]", *(f"\\fI{escaped(piece)}\\fR" for piece in pieces)])


def description(command: click.Command) -> Iterator[str]:
    """Yield the paragraphs of a command's help, up to its sentence on exit codes."""
    text = inspect.cleandoc(command.help or "").partition("Exit codes: ")[0]
    for paragraph in re.split(r"\n\n+", text.strip()):
        yield ".PP"
        yield escaped(" ".join(paragraph.split()))


def exit_codes(command: click.Command) -> str:
    """Return the sentence on the exit codes of a command, or of the first in it that has one."""
    for one in (command, *(member for _, member in members_of(command))):
        _, found, codes = inspect.cleandoc(one.help or "").partition("Exit codes: ")
        if found:
            return escaped(" ".join(codes.split()))
    return ""


def options(command: click.Command) -> Iterator[str]:
    """Yield the options with their meaning, as `--help` has them."""
    with click.Context(command) as context:
        # Without click's own option for help: a command keeps that of the first call.
        records = [
            parameter.get_help_record(context)
            for parameter in command.params
            if isinstance(parameter, click.Option)
        ]
    for record in (*records, ("-h, --help", "Show this message and exit.")):
        if record is not None:
            names, meaning = record
            yield ".TP"
            yield f".B {escaped(names)}"
            yield escaped(" ".join(meaning.split()))


def escaped(text: str) -> str:
    """Return a text escaped for roff, with the words in backquotes in bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"(`+)(.+?)\1", r"\\fB\2\\fR", text)
    return f"\\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    sys.exit(main())
