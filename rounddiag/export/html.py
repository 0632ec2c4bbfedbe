"""The HTML document of every report, and the sections and figures of a run's."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from rounddiag.figures._parts.canvas import DARK, FONT, LIGHT, Theme, list_colors
from rounddiag.figures._parts.display import caption
from rounddiag.figures._parts.labels import plain_text

_NOTES = re.compile(r"\nHow to read it: (.+?)(\n\n|$)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page.

    Attributes
    ----------
    key: The anchor of links.
    title: Plain text.
    body: HTML.
    """

    key: str
    title: str
    body: str

    def html(self) -> str:
        """Return the section with its heading."""
        heading = f"<h2>{escape(self.title)}</h2>"
        return f'<section id="{self.key}">{heading}{self.body}</section>\n'

    def link(self) -> str:
        """Return its entry in the table of contents."""
        return f'<li><a href="#{self.key}">{escape(self.title)}</a></li>'


GENERATOR = '<meta name="generator" content="rounddiag">'


def document(
    title: str,
    body: str,
    *,
    style: str,
    scripts: Sequence[str],
    kind: str = "text/javascript",
    others: str = "",
) -> str:
    """Return a complete page.

    Its security policy lets only these scripts run, so that a script injected by a file
    does not, and blocks every network request; `others` are more sources of scripts.
    """
    tags = "".join(f'<script type="{kind}">{script}</script>' for script in scripts)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
{GENERATOR}
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts, others)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} - rounddiag</title>
<style>
{style}</style>
</head>
<body class="mathjax_ignore">
{body}
{tags}
</body>
</html>
"""


def sections_page(title: str, sections: Sequence[Section]) -> str:
    """Return the page of a run: a list of contents, and sections with figures."""
    links = "".join(section.link() for section in sections)
    body = "".join(section.html() for section in sections)
    return document(
        title,
        f"""<header>
<h1>{escape(title)}</h1>
<p>Where the sampling engine and the training engine disagree about the log-probability
of the same tokens: diff = old_log_prob - rollout_log_prob, in nat.</p>
</header>
<nav aria-label="Contents"><ol>{links}</ol></nav>
<main>
<noscript><p>The figures need JavaScript; the rest of the page does not.</p></noscript>
{body}</main>""",
        style=f"{_colors()}\n{_read_asset('page.css')}",
        scripts=(get_plotlyjs(), _read_asset("page.js")),
    )


def _policy(scripts: Sequence[str], others: str) -> str:
    """Return the security policy of a page: these scripts alone, and no requests."""
    allowed = " ".join([*(f"'sha256-{_digest(script)}'" for script in scripts), others])
    return (
        f"default-src 'none'; script-src {allowed.strip()}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _read_asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _colors() -> str:
    dark = f"@media screen and (prefers-color-scheme: dark) {{{_variables(DARK)}}}"
    return f":root {{--font: {FONT}}}\n{_variables(LIGHT)}\n{dark}"


def _variables(theme: Theme) -> str:
    colors = (f"--{name}: {color}" for name, color in list_colors(theme).items())
    return f":root {{{'; '.join(colors)}}}"


def embed_figure(plot: Callable[..., go.Figure], *data: Any, **options: Any) -> str:  # noqa: ANN401 passed on
    """Return a figure as HTML, which `page.js` draws.

    The light figure is stored with the values that differ in the dark one.
    """
    figure = plot(*data, **options, theme="light")
    light = json.loads(figure.to_json())
    dark = json.loads(plot(*data, **options, theme="dark").to_json())
    stored = json.dumps(
        {"figure": light, "dark": list(_differences(light, dark))},
        separators=(",", ":"),
    ).replace("<", r"\u003c")  # it cannot close its script element
    lines = (plain_text(line).strip() for line in caption(figure))
    alternative = escape(". ".join(lines))
    return (
        f'<figure><div class="plot" role="group" aria-label="{alternative}"'
        f' style="min-height:{figure.layout.height}px"></div>'
        f'<script type="application/json">{stored}</script>'
        f"{_caption(plot)}</figure>"
    )


def table_html(frame: pd.DataFrame, name: str) -> str:
    """Return a frame as a table with escaped text that can scroll."""
    html = frame.to_html(
        index=False, border=0, na_rep="-", float_format="{:.4g}".format
    )
    # Wide tables scroll, with the keyboard as well.
    label = f'class="wide" role="region" tabindex="0" aria-label="{name}"'
    heads = html.replace("<th>", '<th scope="col">')
    return f"<div {label}>{heads}</div>"


def _caption(plot: Callable[..., go.Figure]) -> str:
    notes = _NOTES.search(inspect.getdoc(plot) or "")
    if notes is None:  # as with python -OO
        return ""
    text = escape(" ".join(notes[1].split())).replace("`", "")
    summary = "<summary>How to read it</summary>"
    return f"<figcaption><details>{summary}<p>{text}</p></details></figcaption>"


def _differences(
    first: Any,  # noqa: ANN401 any JSON
    other: Any,  # noqa: ANN401 any JSON
    path: tuple[str | int, ...] = (),
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if (
        isinstance(first, dict)
        and isinstance(other, dict)
        and first.keys() == other.keys()
    ):
        for key, value in first.items():
            yield from _differences(value, other[key], (*path, key))
    elif (
        isinstance(first, list) and isinstance(other, list) and len(first) == len(other)
    ):
        for index, value in enumerate(first):
            yield from _differences(value, other[index], (*path, index))
    elif first != other:
        yield path, other
