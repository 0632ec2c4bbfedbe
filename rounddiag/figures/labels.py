"""Words and numbers as figures show them."""

from __future__ import annotations

import textwrap
from html import escape

from rounddiag.text import visible

# The sign for a value that is not finite, in words.
CROSS = "\N{MULTIPLICATION SIGN}"
# Values between are read more easily in full than with an exponent.
_GROUPED = (1e3, 1e6)


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

    Examples
    --------
    >>> short_name("<b>run 12", 7)
    '&lt;b&gt;run …'
    """
    cut = name[:longest] + ("…" if len(name) > longest else "")
    return " ".join(hover_text(word) for word in cut.split(" "))


def wrapped(text: str, width: int) -> str:
    """Break text between words into lines of so many characters; units stay put.

    Examples
    --------
    >>> wrapped("mean of a - b [nat], token-weighted", 15)
    'mean of a -<br>b [nat],<br>token-weighted'
    """
    tied = text.replace(" [", "\N{NO-BREAK SPACE}[")
    lines = textwrap.wrap(tied, width, break_on_hyphens=False, break_long_words=False)
    return "<br>".join(lines).replace("\N{NO-BREAK SPACE}[", " [")


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
