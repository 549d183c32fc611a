"""The parts of the site: its pages, the pages of the modules, and their navigation.

Needs nothing but the library, so that the quick tests know the navigation without the site.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import sphtp

ROOT = Path(__file__).resolve().parents[2]
START = "docs/README"
API = "docs/reference/api"
PROGRAMS = "examples/README"
LANGUAGES = {".py": "python", ".toml": "toml"}

# The docstring of the package names its public modules.
MODULES = re.compile(r"`(sphtp\.(?!core|shell)\w+)`")
# Names of public modules that are for the core alone.
NOT_PUBLIC = {"untrusted"}

HEADING = re.compile(r"^## (.+)$", re.M)
ITEM = re.compile(r"^- \[[^\]]+\]\((?!\w+://)([^)#\s]+)\.md\)", re.M)


EXAMPLES = re.compile(
    r"^(?P<title>Examples \(\[[^\]]+\]\((?P<file>.+)\)\):\n\n)(?P<names>(?:- `.+`\n)+)", re.M
)

MODULE = """\
# {name}

```{{eval-rst}}
.. automodule:: {name}
   :no-members:

.. currentmodule:: {name}

{entries}
```
"""


def pages() -> list[str]:
    """Return every page of the site that is a file, by its path without the suffix."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / f"{PROGRAMS}.md"]
    return sorted(str(page.relative_to(ROOT).with_suffix("")) for page in found)


def navigation(page: str, text: str) -> str:
    """Return the table of contents that the lists of links of a page make, one for each heading.

    Only the start page has headings in the navigation, which are the kinds of page; a link there
    to the page of links of a folder brings in those of the folder.
    """
    if page == API:
        return toctree("", [f"api/{name}" for name in public_modules()])
    if not page.endswith("README") or not page.startswith("docs/"):
        return ""
    pieces = HEADING.split(text)
    groups = [("", pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]
    found = [(title.partition(":")[0], ITEM.findall(body)) for title, body in groups]
    return "".join(toctree(caption, links) for caption, links in found if links)


def toctree(caption: str, links: list[str]) -> str:
    """Return the directive of a navigation that is not shown in the page itself."""
    named = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "", "```{toctree}", ":hidden:", *named, "", *links, "```", ""])


def with_vectors(page: str, text: str) -> str:
    """Return a page of the wire with the bytes of its examples behind their names."""

    def included(found: re.Match[str]) -> str:
        vectors = vectors_in((ROOT / page).parent / found["file"])
        names = [line.removeprefix("- `").removesuffix("`") for line in found["names"].splitlines()]
        return found["title"] + "\n".join(f"`{name}`\n\n{vectors[name]}" for name in names)

    return EXAMPLES.sub(included, text)


def with_programs(page: str, text: str) -> str:
    """Return the page of examples with the text of each program behind it."""
    if page != PROGRAMS:
        return text
    folder = (ROOT / page).parent
    return text + "".join(
        f"\n## {path.relative_to(folder)}\n\n"
        f"```{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}```\n"
        for path in programs()
    )


def programs() -> list[Path]:
    """Return the programs and settings of all examples."""
    folder = (ROOT / PROGRAMS).parent
    return sorted(path for path in folder.rglob("*") if path.suffix in LANGUAGES)


@cache
def vectors_in(path: Path) -> dict[str, str]:
    """Return the blocks of the examples in a file, by their names."""
    vectors = json.loads(path.read_text(encoding="utf-8"))["vectors"]
    return {vector["name"]: shown(vector) for vector in vectors}


def shown(vector: dict[str, Any]) -> str:
    """Return a block with the fields of an example, one in each line, and its bytes."""
    fields = [f"{name}: {json.dumps(value)}" for name, value in vector["fields"].items()]
    return "\n".join(
        ["```{code-block} text", ":class: bytes", "", *fields, "", *vector["hex"], "```", ""]
    )


def public_modules() -> dict[str, tuple[str, ...]]:
    """Return the public modules, each with the names that it is the first to have.

    The package itself comes first; a name that is there, too, has its entry there.
    """
    others = sorted(set(MODULES.findall(sphtp.__doc__ or "")))
    shown: set[int] = set()
    modules: dict[str, tuple[str, ...]] = {}
    for name in ["sphtp", *others]:
        module = import_module(name)
        mine = tuple(key for key in public_names(module) if id(getattr(module, key)) not in shown)
        shown.update(id(getattr(module, key)) for key in mine)
        if mine:
            modules[name] = mine
    return modules


def public_names(module: ModuleType) -> Iterator[str]:
    """Yield the public names of a module that are this library's, without modules and the like."""
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name)
        if name.startswith("_") or name in NOT_PUBLIC:
            continue
        if isinstance(value, ModuleType | TypeVar | ParamSpec):
            continue
        if getattr(value, "__module__", "sphtp").startswith(("sphtp", "types")):
            yield name


def module_pages() -> Mapping[str, str]:
    """Return the page of each public module, by its name."""
    return {name: module_page(name, names) for name, names in public_modules().items()}


def module_page(name: str, names: tuple[str, ...]) -> str:
    """Return a page that lets Sphinx write down signatures and docstrings, with their source."""
    module = import_module(name)
    entries = "\n".join(line for key in sorted(names, key=str.lower) for line in entry(module, key))
    return MODULE.format(name=name, entries=entries)


def entry(module: ModuleType, name: str) -> Iterator[str]:
    """Yield the directive for one name."""
    value = getattr(module, name)
    if isinstance(value, type) and issubclass(value, BaseException):
        yield f".. autoexception:: {name}"
        yield "   :show-inheritance:"
    elif isinstance(value, type):
        yield f".. autoclass:: {name}"
        yield "   :members:"
        # Fields that its own docstring lists need no lines of their own.
        if "Attributes:" not in (value.__doc__ or ""):
            yield "   :undoc-members:"
    elif callable(value):
        yield f".. autofunction:: {name}"
    else:
        yield f".. autodata:: {name}"
        yield "   :no-value:"
    yield ""
