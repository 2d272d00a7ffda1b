"""Sphinx reads the Markdown pages where they stand: `make docs` makes a site with search of them."""

import logging

from sphinx.application import Sphinx

from mlcl import __version__

logging.getLogger("faiss.loader").setLevel(logging.WARNING)

project = "mlcl"
release = __version__
copyright = "the authors of mlcl, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "docs/site/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_extra_path = ["index.html"]
html_title = f"mlcl {release}"
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
default_role = "code"
suppress_warnings = ["misc.highlighting_failure"]  # Mermaid, which stays a block of code


def setup(app: Sphinx) -> None:
    """Docstrings mean a set's size by |S|, which reStructuredText would replace."""
    app.connect("autodoc-process-docstring", _bars_as_they_are)


def _bars_as_they_are(
    _app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    lines[:] = [line.replace("|", r"\|") for line in lines]
