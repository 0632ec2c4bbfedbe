"""Settings of Sphinx for the site that `build.py` writes the pages of."""

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
