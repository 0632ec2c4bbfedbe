"""The colours of every figure, light and dark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rounddiag.errors import FrameError

ThemeName: TypeAlias = Literal["light", "dark"]


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of one theme; text has a contrast of at least 4.5 on the paper.

    Attributes
    ----------
    name : str
    paper, shade, grid : str
        Background, stretches set off from it, and thin lines.
    text, muted : str
        What is read first, and what is read when asked for.
    quiet : str
        Shapes that stand behind others.
    more, less : str
        Blue where training likes a token more than sampling did, orange where less.
    """

    name: ThemeName
    paper: str
    shade: str
    grid: str
    text: str
    muted: str
    quiet: str
    more: str
    less: str


# Opaque: a saved picture may be looked at on a page of the other theme.
LIGHT = Theme(
    name="light",
    paper="#ffffff",
    shade="#f1f3f5",
    grid="#dfe3e6",
    text="#1b1f23",
    muted="#5b6268",
    quiet="#858f97",
    more="#1f66ad",
    less="#b34d00",
)
DARK = Theme(
    name="dark",
    paper="#111111",
    shade="#1e2124",
    grid="#33383d",
    text="#e8eaed",
    muted="#a3aab1",
    quiet="#6b747c",
    more="#6db3f2",
    less="#f29b4b",
)
_THEMES: dict[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}
_default: list[Theme] = [LIGHT]


def use_theme(name: ThemeName) -> None:
    """Set the theme of figures that are not given one.

    Parameters
    ----------
    name : {"light", "dark"}

    Raises
    ------
    FrameError
        If there is no theme of this name.

    Examples
    --------
    >>> use_theme("light")
    """
    _default[0] = theme_of(name)


def theme_of(name: ThemeName | None) -> Theme:
    """Return the theme of this name, or the one set by `use_theme`.

    Raises
    ------
    FrameError
        If there is no theme of this name.
    """
    if name is None:
        return _default[0]
    if name not in _THEMES:
        raise FrameError.build(
            key="theme",
            expected=f"one of {sorted(_THEMES)}",
            found=repr(name),
            advice="Leave it out for the default of `rounddiag.figures.use_theme`.",
        )
    return _THEMES[name]
