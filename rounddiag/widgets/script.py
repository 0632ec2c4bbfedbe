"""The page's script and style, put together from their files once."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_PAGE = Path(__file__).with_name("page")
# In the order in which a page reads them: classes and constants before their use.
_SCRIPTS = (
    *("dom", "signs", "wire", "library", "store", "theme", "dialogs"),
    *("figure", "pointing", "heat_cells", "overview", "token_plot"),
    *("hits", "spans", "rounds", "tip", "tokens", "search", "focus"),
    *("markers", "pictures", "lightbox", "strip", "screens", "sample", "worst"),
    *("fields", "filters", "threshold", "head", "compare", "controls"),
    *("snapshots", "keys", "actions", "explorer", "main"),
)
_STYLES = (
    *("base", "layout", "tokens", "focus", "strip", "screens", "worst", "controls"),
)


# Comments stay here: the script is in every notebook that saves its widgets.
_COMMENTS = re.compile(r"^ *(?://[^\n]*|/\*\*(?s:.*?)\*/)\n", re.MULTILINE)


@cache
def script() -> str:
    """Return the whole script, one module without imports and comments."""
    return "\n".join(_COMMENTS.sub("", _read(f"{name}.js")) for name in _SCRIPTS)


@cache
def style() -> str:
    """Return the rules of all parts; `style.variables` has the colours."""
    return "\n".join(_read(f"{name}.css") for name in _STYLES)


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
