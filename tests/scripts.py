"""Programs of the checkout that belong to no package, as modules."""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


@cache
def load_script(path: str) -> ModuleType:
    """Import the program at this path of the checkout."""
    script = ROOT / path
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
