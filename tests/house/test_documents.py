"""What the documents tell people to type works: programs run, command lines parse."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import click
import trio

from sphtp.core.control.records import ServerAddress
from sphtp.shell.server import ServerOptions, open_server

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 60.0

# Documents say where a server listens by default; here it listens wherever a port is free.
DEFAULT_ADDRESS = "tcp://127.0.0.1:8764"

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
SEPARATORS = re.compile(r"^[();<>|&]+$")
ASSIGNMENT = re.compile(r"^[A-Z_][A-Z0-9_]*=")


class Block(NamedTuple):
    """A fenced piece of a document."""

    where: str
    text: str


def documents(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def blocks(page: Path, language: str) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for fence in FENCE.finditer(text):
        if fence["language"] == language:
            line = text.count("\n", 0, fence.start()) + 1
            unindented = re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.M)
            yield Block(f"{page.name}:{line}", unindented)


async def test_programs_in_the_readme_and_the_tutorial_run() -> None:
    programs = [
        block
        for page in documents("README.md", "docs/tutorial/*.md")
        for block in blocks(page, "python")
    ]
    options = ServerOptions(bind=ServerAddress.parse("tcp://127.0.0.1:0"), new_cluster=True)
    async with open_server(options) as server:
        await server.wait_active()
        for program in programs:
            address = str(server.address)
            failure = await failure_of(program.text.replace(DEFAULT_ADDRESS, address))
            assert failure is None, f"{program.where}: {failure}"


async def failure_of(program: str) -> str | None:
    """Run a program in an interpreter of its own; return what went wrong."""
    with trio.move_on_after(DEADLINE):
        done = await trio.run_process(
            [sys.executable, "-W", "error", "-c", program],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
        return done.stderr.decode() if done.returncode else None
    return f"still running after {DEADLINE:.0f} s"


async def test_a_program_that_fails_is_caught() -> None:
    assert await failure_of("print('fine')") is None
    assert "ZeroDivisionError" in (await failure_of("1 / 0") or "")


def test_command_lines_in_the_documents_parse() -> None:
    wrong = [
        f"{block.where}: {complaint}"
        for page in documents("*.md", "docs/**/*.md")
        for block in blocks(page, "console")
        for complaint in complaints(block.text)
    ]
    assert not wrong, "\n".join(wrong)


def complaints(session: str) -> Iterator[str]:
    """Yield what is wrong with the lines that a console block has after its `$`."""
    for line in session.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            for words in commands(line.removeprefix("$ ")):
                complaint = complaint_about(words)
                if complaint:
                    yield f"{shlex.join(words)}: {complaint}"


def commands(line: str) -> Iterator[list[str]]:
    """Cut a line at pipes, redirections and the like, and drop settings of the environment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
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
    found = entry_points(group="sphtp.commands", name=verb)
    if not found:
        return f"there is no verb {verb}"
    command: click.Command = next(iter(found)).load()
    try:
        command.make_context(verb, rest)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()
    return None


def complaint_of_make(arguments: list[str]) -> str | None:
    """Ask make what it would do."""
    done = subprocess.run(
        ["make", "--dry-run", "--silent", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stderr if done.returncode else None


CHECKS = {"sphtp": complaint_of_sphtp, "make": complaint_of_make}


def test_a_wrong_line_is_caught() -> None:
    session = "$ sphtp serve\n$ A=1 .venv/bin/sphtp server --prot 1 | cat\n$ make tea\nsphtp x\n"
    verb, option, target = complaints(session)
    assert "there is no verb serve" in verb
    assert "--prot" in option
    assert "tea" in target


def test_right_lines_pass() -> None:
    session = "$ make test\n$ sphtp --help\n$ sphtp server --help > help.txt\n$ ls -l\n"
    assert list(complaints(session)) == []
