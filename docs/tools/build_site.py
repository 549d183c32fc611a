"""Build the site into build/site: `make site`.

Every warning is an error, and so is a link of the result that leads nowhere, and anything that a
page loads from elsewhere: the site has to be readable from a disk, without a network.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import site_pages

BUILD = site_pages.ROOT / "build"
SETTINGS = site_pages.ROOT / "docs" / "site"

START = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={page}">
<title>SphTP</title>
<a href="{page}">Documentation of SphTP</a>
"""


def main(arguments: list[str] | None = None) -> int:
    """Build the site; return the exit code."""
    from sphinx.cmd.build import main as sphinx

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=BUILD / "site", help="where the site goes")
    options = parser.parse_args(arguments)
    pages = BUILD / "site-pages"
    lay_out(pages)
    drop_old(options.output, pages)
    common = ["-b", "html", "-j", "auto", "-c", str(SETTINGS), "-d", str(BUILD / "site-trees")]
    failed = sphinx([*common, "-q", "-W", "--keep-going", str(pages), str(options.output)])
    if failed:
        return failed
    add_start(options.output)
    wrong = list(complaints(options.output))
    for complaint in wrong:
        sys.stderr.write(f"{complaint}\n")
    count = sum(1 for _ in options.output.rglob("*.html"))
    sys.stdout.write(f"{count} pages, {len(wrong)} bad links: {options.output}/index.html\n")
    return 1 if wrong else 0


def lay_out(folder: Path) -> None:
    """Put the pages, the files that they use, and the pages of the modules in a folder.

    So the sources of the site are in one place, and nothing is written among the documents. Copies
    have the dates of their originals, so that a second build skips those that have not changed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for page in site_pages.pages():
        copy(folder, Path(page).with_suffix(".md"))
    copy(folder, Path("LICENSE"))
    for pattern in ("*.svg", "*.png", "*.gif", "*.json"):
        for path in (site_pages.ROOT / "docs").rglob(pattern):
            copy(folder, path.relative_to(site_pages.ROOT))
    for path in site_pages.programs():
        copy(folder, path.relative_to(site_pages.ROOT))
    modules = folder / site_pages.API
    modules.mkdir(parents=True)
    for name, text in site_pages.module_pages().items():
        (modules / f"{name}.md").write_text(text, encoding="utf-8")


def drop_old(site: Path, pages: Path) -> None:
    """Remove pages of an earlier site that Sphinx leaves: of source code, and without a source."""
    shutil.rmtree(site / "_modules", ignore_errors=True)
    for page in (site / "docs").rglob("*.html"):
        if not (pages / page.relative_to(site)).with_suffix(".md").is_file():
            page.unlink()


def copy(folder: Path, path: Path) -> None:
    """Copy a file of the project to the same place in a folder."""
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(site_pages.ROOT / path, folder / path)


def add_start(site: Path) -> None:
    """Add the page on which a visitor begins, and the script that draws diagrams.

    The package ``mermaidx`` carries the script of Mermaid's authors unchanged. Nothing else of it
    is used.
    """
    start = START.format(page=f"{site_pages.START}.html")
    (site / "index.html").write_text(start, encoding="utf-8")
    spec = find_spec("mermaidx")
    assert spec is not None
    assert spec.origin is not None
    script = Path(spec.origin).parent / "assets" / "mermaid.js"
    shutil.copyfile(script, site / "_static" / "mermaid.js")


# The attributes with files that a page loads without an action of its reader.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("object", "data")}


class Page(HTMLParser):
    """The links of a page, the files that it loads, and the names of places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the addresses and names of one element."""
        for key, value in attrs:
            if value is None:
                continue
            if key == "id" or (tag == "a" and key == "name"):
                self.places.add(value)
            elif (tag, key) in LOADED:
                self.loaded.append(value)
            elif (tag, key) == ("a", "href"):
                self.links.append(value)


def complaints(site: Path) -> Iterator[str]:
    """Yield the links that lead nowhere, and the files that are loaded from elsewhere."""
    for path in sorted(site.rglob("*.html")):
        page = read(path)
        for target in page.loaded:
            if urlsplit(target).netloc:
                yield f"{path.relative_to(site)} loads {target}"
        for target in (*page.links, *page.loaded):
            if not leads_somewhere(path, target):
                yield f"{path.relative_to(site)} links to {target}"


@cache
def read(path: Path) -> Page:
    """Parse a page."""
    return Page(path.read_text(encoding="utf-8"))


def leads_somewhere(page: Path, target: str) -> bool:
    """Return True if a link leads out of the site, or to a file and a place in it."""
    address = urlsplit(target)
    if address.scheme or address.netloc:
        return True
    path = (page.parent / unquote(address.path)).resolve() if address.path else page
    if not path.is_file():
        return False
    place = unquote(address.fragment)
    return not place or path.suffix != ".html" or place in read(path).places


if __name__ == "__main__":
    sys.exit(main())
