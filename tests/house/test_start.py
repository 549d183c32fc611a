"""The start of a program loads what that program uses, and every public name is there."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import sphtp

# The bus, its C library and the event loop that this imports; streams; what reads configurations.
BUS = {"pynng", "asyncio", "sphtp.shell.bus"}
CONTROL = {"sphtp.core.control.client", "sphtp.core.control.server", "sphtp.core.control.codec"}
STREAMS = {"sphtp.core.stream.source", "sphtp.core.stream.receiver", "sphtp.core.stream.settings"}
TYPES = {"sphtp.core.messages", "numpy", "pydantic", "click"}


@pytest.mark.parametrize(
    ("program", "unused"),
    [
        ("import sphtp", {"trio", "cryptography", "msgpack", *BUS, *CONTROL, *STREAMS, *TYPES}),
        ("from sphtp import open_channel, open_node", {*BUS, *CONTROL, *STREAMS, *TYPES}),
        ("from sphtp import open_client", {"sphtp.core.control.server", *STREAMS, *TYPES}),
        ("from sphtp import open_server", {"sphtp.core.channel.endpoint", *STREAMS, *TYPES}),
    ],
)
def test_a_program_loads_no_more_than_it_uses(program: str, unused: set[str]) -> None:
    report = "import sys; print(*sys.modules)"
    command = [sys.executable, "-c", f"{program}; {report}"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert unused & set(run.stdout.split()) == set()


def test_type_checkers_and_python_see_the_same_names() -> None:
    path = Path(sphtp.__file__)
    written = {
        alias.asname: node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname
    }
    assert dir(sphtp) == sorted(written)
    for name, module in written.items():
        assert getattr(sphtp, name) is getattr(import_module(module), name)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_nothing'"):
        _ = sphtp.open_nothing  # type: ignore[attr-defined]
