"""A page of the site, the list of pages that leads to it, and its pictures."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go

import rounddiag as rd
from notebooks.execute import quantize

_NUM_COLORS = 64  # of a picture: lines, marks and grey text
_SMALL = "width=450px"  # half of the width at which it is drawn
_THEMES = (("light", "only-light"), ("dark", "only-dark"))


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of a list.

    Attributes
    ----------
    sentence: What its list says of it.
    group: The heading of its list under which it stands; empty for none.
    """

    name: str
    title: str
    sentence: str
    text: str
    group: str = ""
    picture: str = ""


def slug(name: str) -> str:
    """Return a file name for a title."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write_pages(folder: Path, title: str, up: str, pages: Iterable[Page]) -> None:
    """Write pages, each with a link to the list that leads to it."""
    folder.mkdir()
    for page in pages:
        # Not in the contents, which each of some 200 pages repeats.
        text = (
            f"---\norphan: true\n---\n\n# {page.title}\n\n[{title}]({up})\n\n"
            f"{page.text}\n"
        )
        (folder / f"{slug(page.name)}.md").write_text(text, "utf-8")


def list_pages(pages: Sequence[Page], folder: str = "") -> str:
    """Return the list of pages, by group in the order in which groups come."""
    lines: list[str] = []
    for group in dict.fromkeys(page.group for page in pages):
        lines += ["", f"## {group}", ""] if group else [""]
        for page in pages:
            if page.group == group:
                address = f"{folder}{slug(page.name)}.md"
                sentence = f": {page.sentence}" if page.sentence else ""
                lines.append(f"- [{page.title}]({address}){sentence}")
                if page.picture:
                    small = page.picture.replace("{.", f"{{{_SMALL} .")
                    lines.append(textwrap.indent(f"\n{small}\n", "  "))
    return "\n".join(lines)


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values without the rows that have no value."""
    lines = [f"| {name} | {value} |" for name, value in rows if value]
    return "\n".join(["| | |", "|---|---|", *lines, ""])


def draw(folder: Path, name: str, words: str, plot: Callable[..., go.Figure]) -> str:
    """Draw a figure in both themes; return the text that shows the reader's."""
    shown = []
    for theme, rule in _THEMES:
        png = quantize(rd.figures.png(plot(theme=theme)), _NUM_COLORS)
        (folder / f"{name}-{theme}.png").write_bytes(png)
        shown.append(f"![{words}](../pictures/{name}-{theme}.png){{.{rule}}}")
    return "\n".join(shown)
