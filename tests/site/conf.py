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
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["live"]
html_copy_source = False
html_show_sourcelink = False
nb_execution_mode = "off"
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"
# Names in single backticks are code, and links where they are public.
default_role = "py:obj"
autodoc_typehints = "none"  # the lists of parameters have them
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


def _mend_markup(_app: Any, _what: str, _name: str, *rest: Any) -> None:
    """Escape |diff|, which is no substitution, and end `Finding`s after its name."""
    lines, is_code = rest[-1], False
    for index, line in enumerate(lines):
        is_code = line.lstrip().startswith(">>>") or (is_code and bool(line.strip()))
        if ":math:" not in line and not is_code:
            escaped = re.sub(r"(?<!`)\|(\w[^|`]*)\|", r"\|\1\|", line)
            lines[index] = re.sub(r"(?<!`)(`\w+`)(?=[a-z])", r"\1\\ ", escaped)


def setup(app: Any) -> None:
    """Add the renderer, and clean docstrings before numpydoc reads them."""
    app.add_html_math_renderer("written", _write_formula("code"), _write_formula("pre"))
    app.connect("autodoc-process-docstring", _mend_markup, priority=400)
