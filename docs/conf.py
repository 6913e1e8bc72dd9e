"""Settings of the documentation site; `make docs` builds it into the folder `site`, and any warning is an error.

The site needs no other host when it is viewed: fonts are those of the system, scripts and styles are copied into it.
"""

from hashgrove import __version__

project = "hashgrove"
author = "The hashgrove developers"
copyright = author
release = version = __version__

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
