"""The start of a program loads what that program uses, and every public name is there."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import sphtp
from tests.cases import each

# The bus, its C library and the event loop that this imports; streams; what reads configurations.
BUS = {"pynng", "asyncio", "sphtp.shell.bus_dialing"}
CONTROL = {"sphtp.core.control.client", "sphtp.core.control.server", "sphtp.core.control.codec"}
STREAMS = {"sphtp.core.stream.source", "sphtp.core.stream.receiver", "sphtp.core.stream.settings"}
TYPES = {"sphtp.core.messages", "numpy", "pydantic", "click"}


CLIENT = (
    ("import sphtp", {"trio", "cryptography", "msgpack", *BUS, *CONTROL, *STREAMS, *TYPES}),
    (
        (
            "from sphtp import Config, open_channel, open_node; "
            "from sphtp.config import ChannelSettings; from sphtp.security import Security"
        ),
        {*BUS, *CONTROL, *STREAMS, *TYPES},
    ),
    ("from sphtp import open_client", {"sphtp.core.control.server", *STREAMS, *TYPES}),
)
SERVER = (("from sphtp import open_server", {"sphtp.core.channel.endpoint", *STREAMS, *TYPES}),)


@pytest.mark.parametrize("steps", [CLIENT, SERVER], ids=["client", "server"])
def test_a_program_loads_no_more_than_it_uses(steps: tuple[tuple[str, set[str]], ...]) -> None:
    program = "import sys; " + "; ".join(f"{step}; print(*sys.modules)" for step, _ in steps)
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    for (step, unused), loaded in zip(steps, run.stdout.splitlines(), strict=True):
        assert unused & set(loaded.split()) == set(), step


PUBLIC = [
    import_module(f"sphtp{name}")
    for name in ("", ".config", ".security", ".streams", ".groups", ".observe")
]


@each("module", PUBLIC)
def test_each_name_is_that_of_the_module_that_it_is_imported_from(module: ModuleType) -> None:
    assert module.__file__
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    written = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname
    }
    assert dir(module) == sorted(written)
    for name, home in written.items():
        assert getattr(module, name) is getattr(import_module(home), name)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_nothing'"):
        _ = sphtp.open_nothing  # type: ignore[attr-defined]
