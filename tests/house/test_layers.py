"""What an import really loads; who may import whom is checked by `make check`."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PERFORMERS = {"trio", "socket", "_socket", "ssl", "_ssl", "pynng", "asyncio", "threading"}
FOR_APPLICATIONS = {"click", "pydantic", "numpy", "rich", "structlog"}

# A bare `sphtp` stands in for the real one, whose public names pull in Trio.
LOAD_CORE = """
import importlib, json, pkgutil, sys, types
before = set(sys.modules)
bare = sys.modules["sphtp"] = types.ModuleType("sphtp")
bare.__path__ = [sys.argv[1]]
core = importlib.import_module("sphtp.core")
for module in pkgutil.walk_packages(core.__path__, "sphtp.core."):
    importlib.import_module(module.name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""

LOAD_LIBRARY = """
import json, sys
sys.path.insert(0, sys.argv[2])
before = set(sys.modules)
import sphtp
assert sphtp.__path__[0] == sys.argv[1], sphtp.__path__
print(json.dumps(sorted(set(sys.modules) - before)))
import click, sphtp.__main__ as program
assert "server" in program.main.list_commands(click.Context(program.main))
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded(program: str) -> list[set[str]]:
    """Run a program in a fresh interpreter; return the modules that each of its lines names."""
    command = [sys.executable, "-c", program, str(ROOT / "sphtp"), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def test_the_core_loads_nothing_that_performs() -> None:
    (modules,) = loaded(LOAD_CORE)
    on_disk = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / "sphtp" / "core").rglob("*.py")
    }
    assert on_disk <= modules
    assert not modules & PERFORMERS


def test_neither_the_library_nor_its_command_loads_what_a_verb_needs() -> None:
    library, command = loaded(LOAD_LIBRARY)
    assert "sphtp" in library
    assert not library & FOR_APPLICATIONS
    assert not {module for module in library if "core.messages" in module}
    assert command & FOR_APPLICATIONS == {"click"}
    assert not command & {"sphtp_server", "sphtp_client"}
