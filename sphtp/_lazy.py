"""Names that a public module loads when they are first used (PEP 562).

Such a module lists its names as imports under ``if TYPE_CHECKING:``, one on each line. Type
checkers and editors read these imports. At run time they are not executed: ``lazy_names`` reads the
lines from the source instead. So there is one list of the names.
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
        # ``from sphtp import config`` in ``sphtp`` itself imports a module of the package.
        found = (
            import_module(f"{name}.{wanted}")
            if home == name
            else getattr(import_module(home), wanted)
        )
        # Later uses of the name do not call this function.
        setattr(module, wanted, found)
        return found

    return get, lambda: names, names


def _read(name: str) -> dict[str, str]:
    """Return the module of each name, from lines such as ``from sphtp.errors import WireError``."""
    spec = sys.modules[name].__spec__
    assert spec is not None
    assert spec.origin is not None
    # The loader also finds the file in a zip archive. ``get_source`` would take longer: it imports
    # ``tokenize`` to find out the encoding.
    text: bytes = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]
    lines = [line for line in text.decode().splitlines() if line.startswith(_BEGINNING)]
    return {line.split()[3]: line.split()[1] for line in lines if " as " in line}
