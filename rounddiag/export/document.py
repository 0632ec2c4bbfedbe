"""The page itself: head, contents, sections, and the scripts that it allows."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs

from rounddiag.figures.canvas import FONT
from rounddiag.figures.theme import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.figures.theme import Theme


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page, or a part of such a part.

    Attributes
    ----------
    key : str
        What links to it name.
    title : str
        Plain text.
    body : str
        HTML.
    parts : tuple of Section
    """

    key: str
    title: str
    body: str
    parts: tuple[Section, ...] = ()

    def html(self, level: int = 2) -> str:
        """Return the section with its heading."""
        parts = "".join(part.html(level + 1) for part in self.parts)
        heading = f"<h{level}>{escape(self.title)}</h{level}>"
        return f'<section id="{self.key}">{heading}{self.body}{parts}</section>\n'

    def link(self) -> str:
        """Return its entry in the table of contents."""
        parts = f"<ol>{''.join(part.link() for part in self.parts)}</ol>"
        link = f'<a href="#{self.key}">{escape(self.title)}</a>'
        return f"<li>{link}{parts if self.parts else ''}</li>"


def document(title: str, sections: Sequence[Section]) -> str:
    """Return the whole page.

    Only the two scripts of this package run in it, whatever a file managed to bring in,
    and nothing in it may reach a network.
    """
    scripts = (get_plotlyjs(), _beside("page.js"))
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    links = "".join(section.link() for section in sections)
    body = "".join(section.html() for section in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} - rounddiag</title>
<style>
{_colors()}
{_beside("page.css")}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>Where the engine that samples and the engine that trains disagree about the same
tokens: diff = old_log_prob - rollout_log_prob, in nat.</p>
</header>
<nav aria-label="Contents"><ol>{links}</ol></nav>
<main>
<noscript><p>The figures need JavaScript; everything else is here.</p></noscript>
{body}</main>
{"".join(f"<script>{script}</script>" for script in scripts)}
</body>
</html>
"""


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _colors() -> str:
    """Give the page the colours of its figures; paper is light."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{{_variables(DARK)}}}"
    return f":root {{--font: {FONT}}}\n{_variables(LIGHT)}\n{dark}"


def _variables(theme: Theme) -> str:
    names = (one.name for one in fields(theme) if one.name != "name")
    colors = (f"--{name}: {getattr(theme, name)}" for name in names)
    return f":root {{{'; '.join(colors)}}}"
