"""A report as a browser reads it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import rounddiag as rd

if TYPE_CHECKING:
    from pathlib import Path

    from rounddiag import Batch


class Page(HTMLParser):
    """What a browser makes of a page: tags, headings, links, scripts and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.plots: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.policy = ""
        self.text = ""
        self.inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag
        known = dict(attrs)
        self.ids += filter(None, [known.get("id")])
        if tag == "a":
            self.links.append(known["href"] or "")
        elif tag == "img":
            self.images.append(known)
        elif tag == "script":
            self.scripts.append((known.get("type"), ""))
        elif re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        elif known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""
        if known.get("class") == "plot":
            self.plots.append(known["aria-label"] or "")

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 the parser's name
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self.inside != "style":
            self.text += data
        if re.fullmatch("h[1-6]", self.inside):
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)

    @property
    def titles(self) -> list[str]:
        return [text for _, text in self.headings]

    @property
    def figures(self) -> list[dict[str, Any]]:
        return [json.loads(text) for kind, text in self.scripts if kind]


def page_of(batch: Batch, folder: Path, **options: Any) -> Page:
    rd.report(batch, folder / "page.html", **options)
    return Page((folder / "page.html").read_text(encoding="utf-8"))
