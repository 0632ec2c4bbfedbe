"""Figures in a page: drawn once for each theme, stored once with what differs."""

from __future__ import annotations

import inspect
import json
import re
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import plotly.graph_objects as go

_TAG = re.compile("<[^>]+>")
_NOTES = re.compile(r"\nHow to read it: (.+?)(\n\n|$)", re.DOTALL)


def embedded(plot: Callable[..., go.Figure], *data: Any, **options: Any) -> str:  # noqa: ANN401 handed on
    """Return a figure as HTML, for the script of the page to draw.

    Parameters
    ----------
    plot : callable
        A `plot_*` function; how to read its figure is taken from its docstring.
    *data, **options
        Its arguments but for the theme.
    """
    figure = plot(*data, **options, theme="light")
    light = json.loads(figure.to_json())
    dark = json.loads(plot(*data, **options, theme="dark").to_json())
    stored = json.dumps(
        {"figure": light, "dark": list(_differences(light, dark))},
        separators=(",", ":"),
    )
    alternative = escape(_plain(figure.layout.title.text))
    return (
        f'<figure><div class="plot" role="img" aria-label="{alternative}"'
        f' style="min-height:{figure.layout.height}px"></div>'
        f'<script type="application/json">{_inert(stored)}</script>'
        f"{_caption(plot)}</figure>"
    )


def _plain(title: str) -> str:
    return ". ".join(_TAG.sub("", line).strip() for line in title.split("<br>"))


def _inert(text: str) -> str:
    """Take from JSON what could end the script that it stands in."""
    return text.replace("<", r"\u003c")


def _caption(plot: Callable[..., go.Figure]) -> str:
    found = _NOTES.search(inspect.getdoc(plot) or "")
    if found is None:  # Python without docstrings
        return ""
    text = escape(" ".join(found[1].split())).replace("`", "")
    summary = "<summary>How to read it</summary>"
    return f"<figcaption><details>{summary}<p>{text}</p></details></figcaption>"


def _differences(
    one: Any,  # noqa: ANN401 any JSON
    other: Any,  # noqa: ANN401 any JSON
    path: tuple[str | int, ...] = (),
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Give the places where two figures of one shape differ, and the other's values."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key, value in one.items():
            yield from _differences(value, other[key], (*path, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, value in enumerate(one):
            yield from _differences(value, other[index], (*path, index))
    elif one != other:
        yield path, other
