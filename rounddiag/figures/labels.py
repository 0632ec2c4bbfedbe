"""Words and numbers as figures show them."""

from __future__ import annotations

from html import escape

from rounddiag.text import visible

# The sign for a value that is not finite, in words.
CROSS = "\N{MULTIPLICATION SIGN}"


def number(value: float) -> str:
    """Write a value with three significant digits.

    Examples
    --------
    >>> number(0.0123456), number(123456.0)
    ('0.0123', '1.23e+05')
    """
    return f"{value:.3g}"


def count(value: float, noun: str) -> str:
    """Write a count with its noun, which takes an s unless there is one.

    Examples
    --------
    >>> count(1, "token"), count(1210, "token")
    ('1 token', '1,210 tokens')
    """
    return f"{int(value):,} {noun}" + ("" if value == 1 else "s")


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
