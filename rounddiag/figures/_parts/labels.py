"""Numbers, names and sentences as figures show them."""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import ROUND_HALF_UP, Context
from html import escape, unescape
from itertools import accumulate

from rounddiag.schema import METRICS, NUM_NONFINITE
from rounddiag.text import visible
from rounddiag.wording import MINUS, pluralize, printable, with_minus

# The mark of a value that is not finite, in text.
CROSS = "\N{MULTIPLICATION SIGN}"
# The text of a figure without data.
NO_TOKENS = "no generated tokens: the response mask is 0"
NOT_FINITE = NUM_NONFINITE.meaning.removeprefix("tokens ")
# Values between are read more easily in full than with an exponent.
_IN_FULL = (1e-4, 1e6)
# As JavaScript rounds, so that a page and a figure have the same text of a value.
_THREE_DIGITS = Context(prec=3, rounding=ROUND_HALF_UP)
# An annotation in the margin under a plot, left of the tick labels of the x axis.
BESIDE_TICKS = {
    "showarrow": False,
    "xref": "paper",
    "x": 0,
    "xanchor": "right",
    "xshift": -10,
    "yref": "paper",
    "y": 0,
    "yanchor": "top",
    "yshift": -3,
}
_TAG = re.compile("<[^>]*>")
# Widths of characters, in small letters.
_CAPITAL, _WIDE = 1.4, 2.0


def format_number(value: float) -> str:
    """Write a value with three significant digits, as `number` in the page does.

    Examples
    --------
    >>> [format_number(value) for value in (-16.34, 0.000724, 7.24e-8, 12345.0)]
    ['−16.3', '0.000724', '7.24e−8', '12,300']
    """
    if not math.isfinite(value):
        return "not finite" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
    rounded = float(_THREE_DIGITS.create_decimal(float(value))) or 0.0
    if rounded and not _IN_FULL[0] <= abs(rounded) < _IN_FULL[1]:
        digits, _, power = f"{rounded:.2e}".partition("e")
        text = f"{float(digits):g}e{int(power)}"
    else:
        text = f"{rounded:,.6f}".rstrip("0").rstrip(".")
    return with_minus(text)


def subject(metric: str) -> str:
    """Return the first word of a title: what a metric is about.

    Examples
    --------
    >>> [subject(metric) for metric in ("abs_diff", "max_abs_diff", "surprise")]
    ['Mismatch', 'Mismatch', 'Surprise']
    """
    known = METRICS.get(metric)
    return "Mismatch" if known is None or known.of == "pair" else known.short.title()


def count_nonfinite(num_tokens: int) -> str:
    """Write how many tokens have no finite diff.

    Examples
    --------
    >>> count_nonfinite(2)
    '2 tokens whose diff is not finite'
    """
    return f"{pluralize(num_tokens, 'token')} {NOT_FINITE}"


def hover_text(text: str) -> str:
    """Make untrusted text safe in plotly's pseudo HTML, and visible.

    Examples
    --------
    >>> hover_text("<b>x</b> ")
    '&lt;b&gt;x&lt;/b&gt;·'
    """
    # Plotly knows &lt; &gt; &amp; and shows &quot; as it is.
    return escape(visible(text), quote=False)


def plain_text(text: str) -> str:
    """Return the text of plotly's pseudo HTML.

    Examples
    --------
    >>> plain_text("<b>a &lt; b</b>")
    'a < b'
    """
    return unescape(_TAG.sub("", text))


def shorten_name(name: str, longest: int = 28) -> str:
    """Make a name of untrusted text safe, and cut it to what a narrow figure holds.

    That is so many small letters, or fewer capitals.

    Examples
    --------
    >>> shorten_name("<b>run 12", 7)
    '&lt;b&gt;run …'
    >>> shorten_name("OLD POLICY", 8)
    'OLD PO…'
    """
    num = sum(width <= longest for width in accumulate(map(_width, name)))
    cut = name[:num] + ("…" if len(name) > num else "")
    return " ".join(hover_text(word) for word in cut.split(" "))


def shorten_value(value: object, longest: int = 24) -> str:
    """Escape a value, which may be untrusted text, and shorten it.

    Examples
    --------
    >>> shorten_value("<b>"), shorten_value("a name that goes on and on")
    ('&lt;b&gt;', 'a name that go…on and on')
    """
    text = printable(" ".join(str(value).split()))
    if len(text) > longest:
        # Names often differ only at their end.
        start = longest * 7 // 12
        text = f"{text[:start]}…{text[start + 1 - longest :]}"
    return escape(text, quote=False)  # plotly shows &quot; as it is


def wrap(text: str, width: int) -> str:
    """Break text between words into lines as wide as so many small letters.

    A unit stays with the word before it.

    Examples
    --------
    >>> wrap("mean of a - b [nat], token-weighted", 15)
    'mean of a -<br>b [nat],<br>token-weighted'
    """
    lines = [""]
    for word in text.replace(" [", "\N{NO-BREAK SPACE}[").split(" "):
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and estimate_width(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "<br>".join(lines).replace("\N{NO-BREAK SPACE}[", " [")


def estimate_width(text: str) -> float:
    """Estimate how wide safe text is, in small letters.

    Examples
    --------
    >>> estimate_width("a&lt;b")
    3
    """
    return sum(map(_width, unescape(text)))


def _width(character: str) -> float:
    if character in "MW" or unicodedata.east_asian_width(character) in "FW":
        return _WIDE
    return _CAPITAL if character.isupper() else 1


def tick_step(size: int) -> int:
    """Choose the distance of ticks on an axis of integers.

    Examples
    --------
    >>> [tick_step(size) for size in (8, 20, 60, 512)]
    [1, 2, 5, 50]
    """
    fitting = (
        step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if size <= 12 * step
    )
    return next(fitting, 1000)
