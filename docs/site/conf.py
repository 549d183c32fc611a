"""How Sphinx builds the site; `docs/tools/build_site.py` lays out the pages and calls it.

The pages stay plain Markdown, as hosts of Git show them. What only the site needs is added while it
is built: the navigation, from the lists of links in the README files; the examples of bytes, from
the files beside the pages; drawings in place of blocks in Mermaid; and a link from each public name
to its entry in the pages of the modules.
"""

import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc_signature
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import site_pages

project = "SphTP"
author = "The SphTP authors"
release = version_of("sphtp")
version = release
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = site_pages.START
source_suffix = {".md": "markdown"}

# The anchors of headings are those that hosts of Git make.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# The page of decisions has a title and short sections, three levels down.
# A class has the same name in each flavour, so that a name in an annotation may mean several.
suppress_warnings = ["myst.header", "ref.python"]

# Docstrings write names in single backticks.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "SphTP"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
pygments_dark_style = "github-dark"

MERMAID = ("mermaid.js", "diagrams.js")


class Mermaid(SphinxDirective):
    """A diagram as its text, which diagrams.js draws in the reader's browser."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the text in an element of the class that the script looks for."""
        text = nodes.literal_block("\n".join(self.content), "\n".join(self.content))
        text["classes"].append("mermaid")
        text["language"] = "text"
        figure = nodes.container("", text, classes=["diagram"])
        return [figure]


class LinkPublicNames(SphinxPostTransform):
    """Lead from `Channel`, `open_node(...)` or `Channel.send`, as code in a text, to its entry."""

    default_priority = 5

    def run(self, **_: Any) -> None:
        """Put a reference around names that the pages of the modules have, except in headings."""
        domain = self.env.get_domain("py")
        assert isinstance(domain, PythonDomain)
        for node in list(self.document.findall(nodes.literal)):
            if isinstance(node.parent, nodes.reference) or node.parent.parent is None:
                continue
            name = node.astext().partition("(")[0]
            found = next(
                (
                    domain.objects[full]
                    for full in (name, f"sphtp.{name}")
                    # A word like `messages` is a parameter more often than a module.
                    if full in domain.objects and (full == name or is_no_module(domain, full))
                ),
                None,
            )
            if found is None or isinstance(node.parent, nodes.title):
                continue
            target = self.app.builder.get_relative_uri(self.env.docname, found.docname)
            link = nodes.reference("", "", internal=True, refuri=f"{target}#{found.node_id}")
            link["classes"].append("name")
            node.replace_self(link)
            link += node


def is_no_module(domain: PythonDomain, name: str) -> bool:
    """Say whether a name of the pages of modules is that of a class, function or the like."""
    return domain.objects[name].objtype != "module"


def complete(_: Sphinx, page: str, source: list[str]) -> None:
    """Include examples of bytes and programs; append to a page of links the navigation from it."""
    text = source[0]
    shown = site_pages.with_programs(page, site_pages.with_vectors(page, text))
    source[0] = shown + site_pages.navigation(page, text)


def adapt_docstring(
    _: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]
) -> None:
    """Mark indented programs as such, and leave out what Python writes of fields by itself."""
    if lines and re.fullmatch(r"Alias for field number \d+", lines[0]):
        lines.clear()
    for number, (line, gap, program) in enumerate(zip(lines, lines[1:], lines[2:], strict=False)):
        indent = len(line) - len(line.lstrip())
        if line.endswith(":") and not gap and program.startswith(" " * (indent + 4)):
            lines[number] = f"{line.removesuffix(':')}::"


def shorten_signature(
    _: Sphinx, kind: str, __: str, ___: object, ____: object, signature: str | None, _____: object
) -> tuple[str, None] | None:
    """Leave out the parameters of a class if the type of one is not public: the library makes it.

    In the signatures of other classes, types get their short names, and the default of a field that
    a factory makes is ``...``.
    """
    if kind != "class" or signature is None:
        return None
    public = {name for names in site_pages.public_modules().values() for name in names}
    types = re.findall(r"sphtp\.(?:core|shell)\.[\w.]*?(\w+)\b(?!\.)", signature)
    if not public.issuperset(types):
        return "", None
    return re.sub(r"~[\w.]*?(\w+)\b(?!\.)", r"\1", signature).replace("<factory>", "..."), None


def add_places(_: Sphinx, tree: nodes.document) -> None:
    """Let an entry be found under each public module.

    The pages of sources lead back to the entries by one module for each source file, though the
    entries of a file may be on several pages.
    """
    for signature in tree.findall(desc_signature):
        name = signature.get("fullname")
        more = [f"{module}.{name}" for module in site_pages.public_modules()] if name else []
        signature["ids"] += [place for place in more if place not in signature["ids"]]


def load_scripts(app: Sphinx, _: str, __: str, ___: object, tree: nodes.Node | None) -> None:
    """Load what draws diagrams, which is large, only in pages that have one."""
    blocks = tree.findall(nodes.literal_block) if tree else ()
    for script in MERMAID if any("mermaid" in block["classes"] for block in blocks) else ():
        app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the classes and functions of this file with Sphinx."""
    app.add_directive("mermaid", Mermaid)
    app.add_post_transform(LinkPublicNames)
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", adapt_docstring)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("doctree-read", add_places)
    app.connect("html-page-context", load_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
