"""Settings of the documentation site; `make docs` builds it into the folder `site`, and any warning is an error.

The site needs no other host when it is viewed: fonts are those of the system, scripts and styles are copied into it.
"""

from __future__ import annotations

import html
import re
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import hashgrove

project = "hashgrove"
author = "The hashgrove developers"
copyright = author
release = version = hashgrove.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
default_role = "py:obj"  # a name in single backticks links to its entry in the API reference, if it has one

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # [text](page.md#heading) works, and a link to a missing heading is a warning
suppress_warnings = ["myst.xref_ambiguous"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types stand in the docstrings, in words
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"hashgrove {release}"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"footer_icons": []}


class Registry(SphinxDirective):
    """``.. registry:: hashgrove.baselines.BASELINES`` documents every class of a registry, in its order.

    With the option ``names`` it only lists the names. A new member of a registry is on these pages by itself.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {"names": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Write the directives of autodoc, or the names, and parse them."""
        module, _, name = self.arguments[0].rpartition(".")
        registry = getattr(import_module(module), name)
        if "names" in self.options:
            return self.parse_text_to_nodes(", ".join(f"``{key}``" for key in registry))
        homes = {member.__name__: module for member in registry.values()}
        homes |= {name: "hashgrove" for name in homes if name in hashgrove.__all__}
        return self.parse_text_to_nodes("\n".join(f".. autoclass:: {home}.{name}" for name, home in homes.items()))


def protect_symbols(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Let docstrings say ``n_features_`` and ``|a_ij|`` in plain text, which reStructuredText would take for links."""
    in_example = False
    for number, line in enumerate(lines):
        in_example = line.strip() != "" and (in_example or line.lstrip().startswith(">>>"))
        if not in_example:
            parts = re.split(r"(`+[^`]*`+)", line)  # text, quoted, text, quoted, ...
            parts[::2] = [re.sub(r"(?<=[A-Za-z0-9])_(?!\w)|\|", r"\\\g<0>", text) for text in parts[::2]]
            lines[number] = "".join(parts)


def refuse_other_hosts(app: Sphinx, error: Exception | None) -> None:
    """Fail if a page loads a script, style, font or image from another host."""
    patterns = {".html": r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//', ".css": r"url\(.?https?:"}
    for file in Path(app.outdir).rglob("*") if error is None else ():
        if file.suffix in patterns and re.search(patterns[file.suffix], file.read_text()):
            raise ExtensionError(f"{file}: loads something from another host")


def check_titles(app: Sphinx, error: Exception | None) -> None:
    """Fail if a page is not what its source says, such as one that Sphinx's own ``search.html`` has overwritten."""
    for page, title in sorted(app.env.titles.items()) if error is None and app.builder.format == "html" else ():
        file = Path(app.builder.get_outfilename(page))
        shown = re.search(r"<h1>(.*?)<a class=\"headerlink\"", file.read_text(), flags=re.DOTALL)
        text = None if shown is None else html.unescape(re.sub(r"<[^>]*>", "", shown[1]))
        if text != title.astext():
            raise ExtensionError(f"{file}: must show the title {title.astext()!r} of {page}. Got {text!r} instead.")


def setup(app: Sphinx) -> None:
    """Add the directive, the treatment of docstrings after that of napoleon, and the checks of the pages."""
    app.connect("build-finished", refuse_other_hosts)
    app.connect("build-finished", check_titles)
    app.add_directive("registry", Registry)
    app.connect("autodoc-process-docstring", protect_symbols, priority=900)
