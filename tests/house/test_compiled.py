"""What is tested is what was asked for: the sources of this checkout, or the core as libraries."""

import importlib.util
import os
import tomllib
from pathlib import Path

import sphtp

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMPILED = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["compiled"]
IS_COMPILED = os.environ.get("SPHTP_COMPILED", "") not in {"", "0"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def origin_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return spec.origin


def test_the_core_that_is_loaded_is_the_one_that_was_asked_for() -> None:
    modules = {name_of(path): path for path in (ROOT / "sphtp" / "core").rglob("*.py")}
    compiled = {name_of(ROOT / path) for path in COMPILED}
    assert compiled <= modules.keys()
    origins = {module: origin_of(module) for module in modules}
    libraries = {module for module, origin in origins.items() if origin.endswith(".so")}
    assert libraries == (compiled if IS_COMPILED else set())
    home = Path(sphtp.__file__).parent
    assert (home == ROOT / "sphtp") is not IS_COMPILED, "the checkout, or an installed wheel"
    assert all(Path(origin).is_relative_to(home) for origin in origins.values())


def test_a_checkout_holds_no_library() -> None:
    assert not list((ROOT / "sphtp").rglob("*.so")), "it would be loaded instead of the source"
