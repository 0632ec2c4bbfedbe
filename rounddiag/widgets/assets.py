"""The page's script, style and colours, as text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rounddiag.figures._parts.canvas import DARK, FONT, LIGHT, Theme, list_colors
from rounddiag.figures.colored_text import LEVELS, STRONGEST

_PAGE = Path(__file__).with_name("page")
# In the order of the script: constants and classes come before their first use.
_SCRIPTS = (
    *("dom", "kernel", "figure", "dialogs", "fields", "filter", "corrections"),
    "controls",
    *("overview", "token_plot", "search", "token_spans", "round_text", "text"),
    *("answer", "token_numbers", "screenshots", "sample"),
    *("attempts", "context"),
    *("drawer", "keys", "layout", "steps", "snapshot", "page"),
)
_STYLES = ("base", "controls", "sample", "drawer")

# The script is in every notebook that saves its widgets: without comments and indents.
_COMMENTS = re.compile(r"^ *(?://[^\n]*|/\*\*(?s:.*?)\*/)\n", re.MULTILINE)
_INDENT = re.compile("^ +", re.MULTILINE)


@cache
def script(*more: str) -> str:
    """Return the page's script, one module without imports and comments, and `more`."""
    names = (*_SCRIPTS, *more)
    text = "\n".join(_COMMENTS.sub("", _read(f"{name}.js")) for name in names)
    return _INDENT.sub("", text) + "\nexport default { render };\n"


@cache
def style(*more: str) -> str:
    """Return the page's style, and `more`; `theme_css` has the colours."""
    return "\n".join(_read(f"{name}.css") for name in (*_STYLES, *more))


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def theme_css() -> str:
    """Return the CSS variables of both themes, and the backgrounds of tokens."""
    light, dark = _colors(LIGHT), _colors(DARK)
    levels = (
        f".rdx-{sign}{level}{{background:color-mix(in srgb, var(--{name}) "
        f"{100 * STRONGEST * level / LEVELS:.1f}%, transparent)}}"
        for sign, name in (("p", "more"), ("n", "less"))
        for level in range(1, LEVELS + 1)
    )
    greys = (
        f".rdx-g{level}{{background:color-mix(in srgb, var(--quiet) "
        f"{75 * level / LEVELS:.1f}%, transparent)}}"
        for level in range(1, LEVELS + 1)
    )
    return f'.rdx{{--font:{FONT};{light}}}.rdx[data-theme="dark"]{{{dark}}}' + "".join(
        [*levels, *greys]
    )


def _colors(theme: Theme) -> str:
    changes = zip(("fewer", "worse"), theme.changes, strict=True)
    colors = {**list_colors(theme), **dict(changes)}
    return ";".join(f"--{name}:{color}" for name, color in colors.items())
