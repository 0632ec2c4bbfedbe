"""Colours and marks of a token's diff in text: one rule for all tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures._parts.canvas import DARK, LIGHT, Theme, ThemeName, theme_of
from rounddiag.figures._parts.scales import LogScale

if TYPE_CHECKING:
    from rounddiag._typing import Array


# Fixed, so that the texts of two samples, or two batches, can be compared.
SCALE = LogScale(low=0.003, high=3.0)
# Beyond this, a token's probability differs by more than a factor of 2.
UNDERLINED = math.log(2)
LEVELS = 8
NOT_FINITE = 127  # in place of a level
# Strongest background; text on it keeps a contrast of 4.5 in both themes.
STRONGEST = 0.5


def levels(diff: Array) -> Array:
    """Return how strong each diff's background is, with its sign.

    Returns
    -------
    ndarray of int8
        From -`LEVELS` to `LEVELS`, 0 for none; `NOT_FINITE` where the diff is not.

    Examples
    --------
    >>> levels(np.array([0.0001, 0.1, -5.0, np.nan])).tolist()
    [0, 4, -8, 127]
    """
    finite = np.isfinite(diff)
    size = np.rint(LEVELS * SCALE.share(np.abs(np.where(finite, diff, 0))))
    return np.where(finite, np.sign(diff) * size, NOT_FINITE).astype(np.int8)


def token_classes(diff: Array) -> list[str]:
    """Name the CSS classes of each token: sign and strength, underline, not finite.

    Examples
    --------
    >>> token_classes(np.array([0.0001, 0.1, -5.0, np.nan]))
    ['', 'p4', 'n8 u', 'x']
    """
    strength = levels(diff)
    names = {level: _class(level) for level in set(strength.tolist())}
    is_far = (np.abs(diff) > UNDERLINED) & (strength != NOT_FINITE)
    return [
        f"{names[level]} u" if far else names[level]
        for level, far in zip(strength.tolist(), is_far.tolist(), strict=True)
    ]


def _class(level: int) -> str:
    if level == NOT_FINITE:
        return "x"
    return f"{'p' if level > 0 else 'n'}{abs(level)}" if level else ""


def style_name(theme: ThemeName | None) -> str:
    """Name the CSS class of a text: texts of several themes may share a page."""
    kind = "page" if theme is None else "fixed"
    return f"rd-{kind}-{theme_of(theme).name}"


def style_sheet(theme: ThemeName | None) -> str:
    """Return the CSS of a token text.

    Without a theme the page's own colours are used, by JupyterLab's variables, and
    those of the default theme where a page has none.
    """
    chosen, page, root = theme_of(theme), theme is None, f".{style_name(theme)}"
    variables = (
        f"--rd-paper:{_color(chosen.paper, 'layout-color0', page=page)}",
        f"--rd-ink:{_color(chosen.text, 'ui-font-color0', page=page)}",
        f"--rd-dim:{_color(chosen.muted, 'ui-font-color2', page=page)}",
    )
    rules = [_RULES, f"{root}{{{';'.join(variables)}}}", *_backgrounds(root, chosen)]
    if page:
        for other, flag in ((LIGHT, "true"), (DARK, "false")):
            rules += _backgrounds(f'[data-jp-theme-light="{flag}"] {root}', other)
    return "".join(rules)


def _color(color: str, variable: str, *, page: bool) -> str:
    return f"var(--jp-{variable},{color})" if page else color


def _backgrounds(root: str, theme: Theme) -> list[str]:
    return [
        f"{root} .{sign}{level}{{background:{_rgba(color, level)}}}"
        for sign, color in (("p", theme.more), ("n", theme.less))
        for level in range(1, LEVELS + 1)
    ]


def _rgba(color: str, level: int) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{STRONGEST * level / LEVELS:.2f})"


# Rules for `pre.t` must be stronger than those of JupyterLab for any `pre`.
_RULES = """
.rd-text{background:var(--rd-paper);color:var(--rd-ink);padding:8px 12px;
font:13px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Ubuntu,sans-serif}
.rd-text .k{color:var(--rd-dim);font-size:12px}
.rd-text .k b{color:var(--rd-ink)}
.rd-text pre.t{font:13px/1.75 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;
color:inherit;background:none;margin:2px 0 10px;padding:0;white-space:pre-wrap;
overflow-wrap:anywhere;content-visibility:auto;contain-intrinsic-size:auto 200px}
.rd-text pre span,.rd-text .k span{border-radius:2px;padding:1px 0}
.rd-text pre span:hover{outline:1px solid currentColor}
.rd-text .u{text-decoration:underline 2px;text-underline-offset:3px}
.rd-text [class^=p].u{text-decoration-line:overline}
.rd-text .x{outline:1px dashed currentColor}
.rd-text i{font-style:normal;opacity:.55}
.rd-text .o{display:inline-block;border:1px solid var(--rd-dim);border-radius:9px;
color:var(--rd-dim);font-size:12px;padding:0 8px;margin:2px 0}
"""
