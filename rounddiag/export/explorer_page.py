"""The HTML of the explorer with its replies in it: one page that requests nothing."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs

from rounddiag.export.html import policy
from rounddiag.widgets.assets import script, style, theme_css
from rounddiag.widgets.payload import serialize
from rounddiag.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rounddiag.findings import Diagnosis


_WITHOUT_SCRIPTS = "All else needs JavaScript: save the file, and open it in a browser."


def explorer_page(
    title: str, diagnosis: Diagnosis, replies: Iterable[tuple[str, object]]
) -> str:
    """Return the page; without scripts it has the verdict and the findings alone.

    Parameters
    ----------
    title : str
        Plain text.
    diagnosis : Diagnosis
    replies : iterable of key and reply
        What `stored.js` reads; plotly.js is added.
    """
    code = script("stored")
    stored = [(key, pack(reply)) for key, reply in replies]
    elements = "\n".join(
        f'<script type="text/plain" data-reply="{key}">{text}</script>'
        for key, text in [*stored, ("plotly", _packed_plotly())]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy(code, others="blob:")}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} - rounddiag</title>
<style>
{theme_css()}{style("stored")}</style>
</head>
<body>
<main id="words">
<h1>{escape(title)}</h1>
{_words(diagnosis)}</main>
{elements}
<script type="module">{code}</script>
</body>
</html>
"""


@cache
def _packed_plotly() -> str:
    """Return plotly.js, whose compression takes half of the time of a small report."""
    return pack({"code": get_plotlyjs().encode()})


def pack(reply: object) -> str:
    """Compress a reply as `storedReply` in the page reads it.

    Four bytes, the size of the JSON that follows; then its buffers.
    """
    plain, buffers = serialize(reply)
    sizes = [len(one) for one in buffers]
    content = {"plain": plain, "sizes": sizes}
    # Columns of a file can hold dates, which a notebook's messages write as text too.
    head = json.dumps(content, separators=(",", ":"), default=str).encode()
    data = b"".join([len(head).to_bytes(4, "little"), head, *buffers])
    return b64encode(zlib.compress(data)).decode()


def _words(diagnosis: Diagnosis) -> str:
    """Return the verdict and the findings as text."""
    lines = [f"{one.cause.replace('_', ' ')}: {one.place}" for one in diagnosis]
    items = "".join(f"<li>{escape(printable(line))}</li>" for line in lines)
    text = escape(printable(diagnosis.text))
    verdict = f"<p><strong>{diagnosis.verdict}</strong>: {text}</p>\n<ol>{items}</ol>\n"
    return f"{verdict}<p>{_WITHOUT_SCRIPTS}</p>\n"
