"""Settings of Sphinx for the site that `build.py` writes the pages of."""

import re
from html import escape
from typing import Any

project = "rounddiag"
copyright = "rounddiag contributors"  # noqa: A001 Sphinx names it so
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
html_theme = "furo"
html_title = "rounddiag"
html_extra_path = ["live"]
html_copy_source = False
html_show_sourcelink = False
nb_execution_mode = "off"
myst_heading_anchors = 3
autosummary_generate = True
numpydoc_show_class_members = False
# Names of types in docstrings, and what JupyterLab alone can draw of a notebook.
suppress_warnings = ["mystnb.unknown_mime_type", "myst.xref_missing"]

# Formulas as they are written: MathJax would be read from the network.
html_math_renderer = "written"


def _write_formula(tag: str) -> Any:
    from docutils.nodes import SkipNode  # only where the site is built

    def visit(translator: Any, node: Any) -> None:
        translator.body.append(f"<{tag}>{escape(node.astext())}</{tag}>")
        raise SkipNode

    return visit, None


def _escape_bars(_app: Any, _what: str, _name: str, *rest: Any) -> None:
    """Escape |diff|, which is no substitution, in the lines of a docstring."""
    lines = rest[-1]
    lines[:] = [
        line if ":math:" in line else re.sub(r"(?<!`)\|(\w[^|`]*)\|", r"\|\1\|", line)
        for line in lines
    ]


def setup(app: Any) -> None:
    """Add the renderer, and clean docstrings before numpydoc reads them."""
    app.add_html_math_renderer("written", _write_formula("code"), _write_formula("pre"))
    app.connect("autodoc-process-docstring", _escape_bars, priority=400)
