"""The site, without building it: its navigation, the entries of public names, its pictures."""

from importlib import import_module
from pathlib import Path

import pytest

import sphtp
from tests.house.pages import ROOT, load_tool

PAGES = load_tool("site_pages")
PICTURES = load_tool("pictures")


def test_every_page_is_in_the_navigation_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    modules = {f"docs/reference/api/{name}" for name in PAGES.module_pages()}
    found = [PAGES.START]
    for page in found:
        path = Path(f"{page}.md")
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        lines = PAGES.navigation(page, text).splitlines()
        links = [path.parent / line for line in lines if line and line[0] not in "`:"]
        found += [str(link.resolve().relative_to(ROOT)) for link in links]
    assert sorted(found) == sorted([*PAGES.pages(), *modules])


@pytest.mark.parametrize("module", ["sphtp", "sphtp.events", "sphtp.messages", "sphtp.testing"])
def test_public_names_have_an_entry(module: str) -> None:
    entries = {
        id(getattr(import_module(name), key))
        for name, keys in PAGES.public_modules().items()
        for key in keys
    }
    names = list(PAGES.public_names(import_module(module)))
    assert names
    assert all(id(getattr(import_module(module), name)) in entries for name in names)


def test_a_name_has_its_entry_where_it_is_first_public() -> None:
    modules = PAGES.public_modules()
    assert set(modules["sphtp"]) == set(PAGES.public_names(sphtp))
    assert "BitMessage" in modules["sphtp.messages"]
    assert ".. autoclass:: Channel" in PAGES.module_pages()["sphtp"]


def test_links_that_lead_nowhere_and_what_is_loaded_from_elsewhere_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    builder = load_tool("build_site")
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">b</a>')
    (tmp_path / "b.html").write_text('<h1 id="there"><a href="a.html#here">a</a>')
    assert not list(builder.complaints(tmp_path))
    (tmp_path / "c.html").write_text(
        '<a href="a.html#gone"></a><a href="d.html"></a><script src="https://x.example/y.js">'
    )
    assert list(builder.complaints(tmp_path)) == [
        "c.html loads https://x.example/y.js",
        "c.html links to a.html#gone",
        "c.html links to d.html",
    ]


def test_pictures_are_what_their_data_say(tmp_path: Path) -> None:
    stale = PICTURES.stale(PICTURES.PICTURES)
    assert not stale, f"stale: {stale}; run `make pictures`, look at them, and commit them"
    changed = PICTURES.PICTURES / "benchmarks.svg"
    (tmp_path / changed.name).write_text(changed.read_text().replace("enet", "other"))
    assert "benchmarks" in PICTURES.stale(tmp_path)


def test_each_picture_is_drawn_and_shown() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
    names = {path.stem for path in PICTURES.PICTURES.iterdir()}
    assert names == set(PICTURES.PICTURES_BY_NAME)
    assert all(any(f"pictures/{name}.svg)" in page for page in pages) for name in names)


def test_each_photograph_is_shown() -> None:
    """`make photographs` takes them; unlike pictures, no two runs give the same bytes."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    photographs = [*(ROOT / "docs" / "photographs").iterdir()]
    assert {path.name for path in photographs} == {"page.png", "spheres.gif"}
    assert all(f"(docs/photographs/{path.name})" in page for path in photographs)
    assert max(path.stat().st_size for path in photographs) < 1_500_000
