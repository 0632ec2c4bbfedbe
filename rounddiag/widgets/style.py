"""The colours of the page: those of the figures."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from rounddiag.figures.canvas import FONT
from rounddiag.figures.coloring import LEVELS, STRONGEST
from rounddiag.figures.theme import DARK, LIGHT

if TYPE_CHECKING:
    from rounddiag.figures.theme import Theme


def variables() -> str:
    """Return the CSS variables of both themes, and the backgrounds of tokens."""
    light, dark = _colors(LIGHT), _colors(DARK)
    levels = (
        f".rdx-{sign}{level}{{background:color-mix(in srgb, var(--{name}) "
        f"{100 * STRONGEST * level / LEVELS:.1f}%, transparent)}}"
        for sign, name in (("p", "more"), ("n", "less"))
        for level in range(1, LEVELS + 1)
    )
    return f'.rdx{{--font:{FONT};{light}}}.rdx[data-theme="dark"]{{{dark}}}' + "".join(
        levels
    )


def _colors(theme: Theme) -> str:
    names = (one.name for one in fields(theme) if one.name != "name")
    return ";".join(f"--{name}:{getattr(theme, name)}" for name in names)
