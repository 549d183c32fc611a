"""What the documents tell people to type is understood: every command line parses."""

import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import click
import pytest

from sphtp.errors import SettingsError
from sphtp_client.run.run_file import load_run_file
from sphtp_client.simulation.command import client
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_server.settings import SOURCES
from tests.house.pages import ROOT, blocks, documents, name_of, sections

SEPARATORS = re.compile(r"^[();<>|&]+$")
LINK_TO_HEADING = re.compile(r"\]\((?!\w+://)([^)#\s]*)#([^)\s]+)\)")
PROMPT = re.compile(r"\w*\$ ")
ASSIGNMENT = re.compile(r"^[A-Z_][A-Z0-9_]*=")


@pytest.mark.parametrize("page", documents("*.md", "docs/**/*.md"), ids=name_of)
def test_files_of_the_page_are_as_it_says_and_command_lines_parse_where_they_are(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    monkeypatch.chdir(tmp_path)
    for name, text in files_of(page):
        (tmp_path / name).write_text(text, encoding="utf-8")
        refusal = refusal_of(name)
        assert (refusal is not None) == name.startswith("wrong"), f"{page.name}: {refusal}"
        assert (refusal or "") in page.read_text(encoding="utf-8")
    wrong = [
        f"{block.where}: {complaint}"
        for block in blocks(page, "console")
        for complaint in complaints(block.text)
    ]
    assert not wrong, "\n".join(wrong)


def refusal_of(name: str) -> str | None:
    """Load a file of a server, client, run or scenario, by its name; return why it was refused."""
    try:
        if name.startswith("server"):
            SOURCES.load({}, {}, Path(name))
        elif name.startswith("client"):
            client.make_context("client", ["--config", name])
        elif name.startswith("run"):
            load_run_file(Path(name), os.environ)
        else:
            load_scenario(name)
    except (SettingsError, click.UsageError) as error:
        return str(error)
    return None


def test_links_lead_to_headings_that_exist() -> None:
    lost = [
        f"{name_of(page)}: {target}"
        for page in documents("*.md", "docs/**/*.md")
        for target in LINK_TO_HEADING.findall(page.read_text(encoding="utf-8"))
        if not leads_to_heading(page, *target)
    ]
    assert not lost, "\n".join(lost)


def leads_to_heading(page: Path, target: str, anchor: str) -> bool:
    return anchor in anchors((page.parent / target).resolve() if target else page)


@functools.cache
def anchors(page: Path) -> set[str]:
    return {anchor_of(section.title) for section in sections(page)}


def anchor_of(title: str) -> str:
    """Return what a heading is called in links, as forges make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def files_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the TOML files that a page shows: the first line of each is a comment, its name."""
    for block in blocks(page, "toml"):
        first, *_ = block.text.splitlines()
        assert re.fullmatch(r"# [\w-]+\.toml", first), f"{block.where}: {first} is no file name"
        yield first.removeprefix("# "), block.text


def complaints(session: str) -> Iterator[str]:
    """Yield what is wrong with the lines that a console block has after its `$` or `host$`."""
    for line in session.replace("\\\n", " ").splitlines():
        if typed := PROMPT.match(line):
            for words in commands(line[typed.end() :]):
                complaint = complaint_about(words)
                if complaint:
                    yield f"{shlex.join(words)}: {complaint}"


def commands(line: str) -> Iterator[list[str]]:
    """Cut a line at pipes, redirections and the like, and drop settings of the environment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, ";"]:
        if not SEPARATORS.match(token):
            words.append(token)
            continue
        while words and ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words:
            yield words
        words = []


def complaint_about(words: list[str]) -> str | None:
    check = CHECKS.get(Path(words[0]).name)
    return check(words[1:]) if check else None


def complaint_of_sphtp(arguments: list[str]) -> str | None:
    """Parse a command line as the program would, and stop short of running it."""
    if arguments in ([], ["--help"], ["--version"]):
        return None
    verb, *rest = arguments
    if verb not in verbs():
        return f"there is no verb {verb}"
    command: click.Command = verbs()[verb].load()
    try:
        command.make_context(verb, rest)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()
    return None


@functools.cache
def verbs() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="sphtp.commands")}


def complaint_of_make(arguments: list[str]) -> str | None:
    """Ask make what it would do."""
    done = subprocess.run(
        ["make", "--dry-run", "--silent", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stderr if done.returncode else None


CHECKS = {"sphtp": complaint_of_sphtp, "make": complaint_of_make}
