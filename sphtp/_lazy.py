"""Names that are loaded when they are first asked for (PEP 562), from the list of type checkers.

A public module lists its names in ``if TYPE_CHECKING:``, one import a line. Type checkers and
editors read that as it stands. Python does not run it, but reads the same lines here. So each name
stands once in the source.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

_BEGINNING: Final = "    from "


def lazy_names(
    name: str,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of the module of this name."""
    module = sys.modules[name]
    modules = _read(name)
    names = sorted(modules)

    def get(wanted: str) -> object:
        if wanted not in modules:
            raise AttributeError(f"module {name!r} has no attribute {wanted!r}")
        home = modules[wanted]
        # Of this package itself, a line imports one of its modules.
        found = (
            import_module(f"{name}.{wanted}")
            if home == name
            else getattr(import_module(home), wanted)
        )
        # From now on it is found without this function.
        setattr(module, wanted, found)
        return found

    return get, lambda: names, names


def _read(name: str) -> dict[str, str]:
    """Return the module of each name, from lines such as ``from sphtp.errors import WireError``."""
    spec = sys.modules[name].__spec__
    assert spec is not None
    assert spec.origin is not None
    # The loader finds the file in a zip archive, too; it decodes nothing, which would take longer.
    text: bytes = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    lines = [line for line in text.decode().splitlines() if line.startswith(_BEGINNING)]
    return {line.split()[3]: line.split()[1] for line in lines if " as " in line}
