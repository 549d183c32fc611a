"""The build option of the wheel: with SPHTP_COMPILED=1 in the environment, mypyc compiles the core.

Without it, the wheel is plain Python. With it, the modules that ``pyproject.toml`` names are
compiled: most of those that a message of a channel passes. The compilation works on a copy, in
``build/compiled``: otherwise every later run would load a library beside the sources of a checkout,
although nobody asked for it. The wheel holds the ``.py`` files as well: tracebacks show them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OPTIMIZATION: Final = "1"
"""The level of gcc, -O1; with -O2 gcc needs 1.7 times as long."""


class CompiledBuildHook(BuildHookInterface):  # type: ignore[misc]  # has no types here
    """Adds libraries to the wheel when they are asked for."""

    PLUGIN_NAME = "custom"

    @property
    def _is_wanted(self) -> bool:
        return os.environ.get("SPHTP_COMPILED", "") not in {"", "0"}

    def dependencies(self) -> list[str]:
        """Return the packages for the compilation; mypyc reads types from those of the core."""
        if not self._is_wanted:
            return []
        return ["mypy[mypyc]>=2.4", "setuptools>=77", "cryptography>=44", "numpy>=2.0"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the libraries to the wheel, unless it is plain or editable."""
        if not self._is_wanted or version == "editable":
            return
        folder = Path(self.root, "build", "compiled")
        _copy_core(Path(self.root), folder)
        program = [sys.executable, __file__, *self.config["compiled"]]
        subprocess.run(program, cwd=folder, check=True)
        for library in sorted((folder / "lib").rglob("*.so")):
            build_data["force_include"][str(library)] = str(library.relative_to(folder / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _copy_core(root: Path, folder: Path) -> None:
    """Copy the core and ``errors``, which it imports, without the library around them."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "sphtp/core", folder / "sphtp/core", ignore=_all_but_python)
    shutil.copy(root / "sphtp/errors.py", folder / "sphtp")
    (folder / "sphtp/__init__.py").touch()


def _all_but_python(folder: str, names: list[str]) -> list[str]:
    return [n for n in names if not n.endswith(".py") and not Path(folder, n).is_dir()]


def _compile(modules: list[str]) -> None:
    """Compile modules in the current folder.

    This runs in a process of its own, because setuptools changes global state.
    """
    from concurrent.futures import ThreadPoolExecutor

    from mypyc.build import mypycify
    from setuptools import setup
    from setuptools.command.build_ext import build_ext

    class ManyAtOnce(build_ext):  # type: ignore[misc]  # setuptools has no types
        """Lets one compiler for each processor run at a time."""

        def build_extensions(self) -> None:
            one = self.compiler.compile

            def compile_all(sources: list[str], *arguments: Any, **options: Any) -> list[str]:
                def compile_one(source: str) -> list[str]:
                    objects: list[str] = one([source], *arguments, **options)
                    return objects

                return [it for each in pool.map(compile_one, sources) for it in each]

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                self.compiler.compile = compile_all
                super().build_extensions()

    flags = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
    sys.argv[1:] = ["build_ext", "--build-lib", "lib", "--build-temp", "objects"]
    setup(
        name="sphtp",
        packages=[],
        cmdclass={"build_ext": ManyAtOnce},
        ext_modules=mypycify(
            [*flags, *modules],
            opt_level=OPTIMIZATION,
            debug_level="0",
            multi_file=True,
            group_name="sphtp_core",
            target_dir="c",
        ),
    )


if __name__ == "__main__":
    _compile(sys.argv[1:])
