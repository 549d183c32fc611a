"""What holds for the whole repository: its words and its links."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "sphtp",
    "server",
    "client",
    "tests",
    "docs",
    "scenarios",
    "benchmarks",
    "examples",
    "share",
    ".ci",
)

# Split, so that this file does not hold what it looks for.
FOREIGN = [
    first + second
    for first, second in (
        ("/wo", "rk/"),
        ("/tmp/no", "tes"),
        ("DESI", "GN.md"),
        ("BRI", "EF.md"),
        ("fac", "ts/"),
        ("see", "ds/"),
        (".lib", "rary"),
        ("L", "LM"),
        ("Clau", "de"),
        ("Anthro", "pic"),
        ("coding", " agent"),
        ("this", " session"),
        ("TO", "DO"),
        ("FIX", "ME"),
    )
]
FOREIGN_WORDS = re.compile("|".join(rf"(?<!\w){re.escape(word)}" for word in FOREIGN))

PHOTOGRAPHS = (".gif", ".png")
"""Files of any bytes, in which any three letters occur."""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def files(pattern: str = "*") -> list[Path]:
    """Return the project's own files: its folders, and what lies at the top."""
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob(pattern))
    return sorted(
        path
        for path in (*ROOT.glob(pattern), *inside)
        if path.is_file() and path.name != ".git" and "__pycache__" not in path.parts
    )


def foreign(text: str) -> Iterator[str]:
    # Almost no file has one, and letters are looked for faster than words.
    if not any(word in text for word in FOREIGN):
        return
    for number, line in enumerate(text.splitlines(), 1):
        yield from (f"{number}: {word}" for word in FOREIGN_WORDS.findall(line))


def test_no_file_speaks_of_what_is_not_the_project() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in files()
        if path.suffix not in PHOTOGRAPHS
        for complaint in foreign(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found, "\n".join(found)


def test_links_between_documents_lead_somewhere_in_the_project() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in files("*.md")
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not leads_somewhere(page, target)
    ]
    assert not broken, "\n".join(broken)


def leads_somewhere(page: Path, target: str) -> bool:
    path = (page.parent / target.partition("#")[0]).resolve() if target[0] != "#" else page
    return path.exists() and path.is_relative_to(ROOT)
