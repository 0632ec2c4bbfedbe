"""A report as a browser reads it."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

import rounddiag as rd
from rounddiag import Batch


class Page(HTMLParser):
    """What a browser makes of a page: tags, headings, scripts, text, and replies."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tags: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.replies: dict[str, Any] = {}
        self.policy = ""
        self.text = ""
        self.inside = ""
        self._key: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag
        known = dict(attrs)
        if tag == "script":
            self._key = known.get("data-reply")
            self.scripts.append((known.get("type"), ""))
        elif re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        elif known.get("http-equiv") == "Content-Security-Policy":
            self.policy = known["content"] or ""

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 the parser's name
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script" and self._key is not None:
            self.replies[self._key] = unpack(data)
        elif self.inside == "script":
            kind, text = self.scripts[-1]
            self.scripts[-1] = (kind, text + data)
        elif self.inside != "style":
            self.text += data
        if re.fullmatch("h[1-6]", self.inside):
            level, text = self.headings[-1]
            self.headings[-1] = (level, text + data)

    def figure(self, name: str, metric: str = "abs_diff") -> Any:
        return json.loads(self.replies[f"overview {metric} light"][name])


def unpack(text: str) -> Any:
    """Read a reply as the page does: four bytes, JSON of that size, its buffers."""
    data = zlib.decompress(b64decode(text))
    end = 4 + int.from_bytes(data[:4], "little")
    head = json.loads(data[4:end])
    buffers = []
    for size in head["sizes"]:
        buffers.append(data[end : end + size])
        end += size
    assert end == len(data)
    return _filled(head["plain"], buffers)


def _filled(value: Any, buffers: list[bytes]) -> Any:
    match value:
        case {"$": index, "dtype": str(dtype)}:
            return _array(buffers[index], dtype, value.get("names"))
        case dict():
            return {key: _filled(one, buffers) for key, one in value.items()}
        case list():
            return [_filled(one, buffers) for one in value]
    return value


def _array(data: bytes, dtype: str, names: list[str] | None) -> Any:
    if dtype in ("bytes", "texts"):
        return data if dtype == "bytes" else json.loads(data)
    if names is not None:
        return [names[code] for code in np.frombuffer(data, np.int8)]
    return np.frombuffer(data, dtype).tolist()


def page_of(batch: Batch | Path, folder: Path, **options: Any) -> Page:
    rd.report(batch, folder / "page.html", **options)
    return Page((folder / "page.html").read_text(encoding="utf-8"))
