"""Words and numbers as figures show them."""

from __future__ import annotations

import unicodedata
from html import escape, unescape
from itertools import accumulate

from rounddiag.text import visible

# The sign for a value that is not finite, in words.
CROSS = "\N{MULTIPLICATION SIGN}"
# Values between are read more easily in full than with an exponent.
_GROUPED = (1e3, 1e6)
# Widths of characters, in small letters.
_CAPITAL, _WIDE = 1.4, 2.0


def number(value: float) -> str:
    """Write a value with three significant digits.

    Examples
    --------
    >>> number(0.0123456), number(123456.0), number(1234567.0)
    ('0.0123', '123,000', '1.23e+06')
    """
    short = f"{value:.3g}"
    is_plain = _GROUPED[0] <= abs(float(short)) < _GROUPED[1]
    return f"{float(short):,.0f}" if is_plain else short


def hover_text(text: str) -> str:
    """Make untrusted text safe in plotly's pseudo HTML, and visible.

    Examples
    --------
    >>> hover_text("<b>x</b> ")
    '&lt;b&gt;x&lt;/b&gt;·'
    """
    # Plotly knows &lt; &gt; &amp; and shows &quot; as it is.
    return escape(visible(text), quote=False)


def short_name(name: str, longest: int = 28) -> str:
    """Make a name of untrusted text safe, and cut it to what a narrow figure holds.

    That is so many small letters, or fewer capitals.

    Examples
    --------
    >>> short_name("<b>run 12", 7)
    '&lt;b&gt;run …'
    >>> short_name("OLD POLICY", 8)
    'OLD PO…'
    """
    num = sum(width <= longest for width in accumulate(map(_width, name)))
    cut = name[:num] + ("…" if len(name) > num else "")
    return " ".join(hover_text(word) for word in cut.split(" "))


def wrapped(text: str, width: int) -> str:
    """Break text between words into lines as wide as so many small letters.

    A unit stays with the word before it.

    Examples
    --------
    >>> wrapped("mean of a - b [nat], token-weighted", 15)
    'mean of a -<br>b [nat],<br>token-weighted'
    """
    lines = [""]
    for word in text.replace(" [", "\N{NO-BREAK SPACE}[").split(" "):
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and width_of(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "<br>".join(lines).replace("\N{NO-BREAK SPACE}[", " [")


def width_of(text: str) -> float:
    """Estimate how wide safe text is, in small letters.

    Examples
    --------
    >>> width_of("a&lt;b")
    3
    """
    return sum(map(_width, unescape(text)))


def _width(character: str) -> float:
    if character in "MW" or unicodedata.east_asian_width(character) in "FW":
        return _WIDE
    return _CAPITAL if character.isupper() else 1


def tick_step(size: int) -> int:
    """Say how many integers apart the ticks of an axis are.

    Examples
    --------
    >>> [tick_step(size) for size in (8, 20, 60, 512)]
    [1, 2, 5, 50]
    """
    fitting = (
        step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if size <= 12 * step
    )
    return next(fitting, 1000)
