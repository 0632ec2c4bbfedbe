"""Counts, lists, the natural order of names, and untrusted text in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MINUS = "\N{MINUS SIGN}"


def pluralize(number: float, noun: str) -> str:
    """Write a count, which may be a float from a frame, with its noun.

    The noun takes an s unless the count is 1.

    Examples
    --------
    >>> pluralize(1, "token"), pluralize(1210, "token")
    ('1 token', '1,210 tokens')
    """
    return f"{int(number):,} {noun}" + ("" if number == 1 else "s")


def capitalize(clause: str) -> str:
    """Write the first letter of a clause as that of a sentence, and no other.

    Examples
    --------
    >>> capitalize("all of <|im_end|> in NaN")
    'All of <|im_end|> in NaN'
    """
    return clause[:1].upper() + clause[1:]


def with_minus(text: str) -> str:
    """Write the hyphens of a formatted number as minus signs.

    Examples
    --------
    >>> with_minus(f"{-0.002:+.3g}")
    '−0.002'
    """
    return text.replace("-", MINUS)


def percent(share: float) -> str:
    """Write a share with two significant digits; 0 % and 100 % are none and all.

    Examples
    --------
    >>> percent(0.00118), percent(0.0512), percent(0.123), percent(1)
    ('0.12 %', '5.1 %', '12 %', '100 %')
    >>> percent(1e-6), percent(0.9996), percent(0)
    ('<0.01 %', '>99 %', '0 %')
    """
    if 0 < share < 1e-4:  # noqa: PLR2004 less is no number to compare
        return "<0.01 %"
    text = f"{100 * share:.2g}"
    if share < 1 and float(text) >= 100:  # noqa: PLR2004 of a hundred
        return ">99 %"
    return f"{float(text):g} %"


def join_names(
    first: Sequence[object], total: int | None = None, *, most: int = 3
) -> str:
    """Join the first few names, and say how many more there are.

    A single one more is named instead, where it is known. `total` is the number of all
    names, where `first` is not all of them.

    Examples
    --------
    >>> join_names(["r1", "r2", "r5", "r6", "r7"])
    'r1, r2, r5 and 2 more'
    >>> join_names(["r1", "r2", "r5", "r6"])
    'r1, r2, r5, r6'
    """
    total = len(first) if total is None else total
    shown = first[: most + (total == most + 1)]
    more = total - len(shown)
    return ", ".join(map(str, shown)) + (f" and {more:,} more" if more else "")


def encodable(text: str) -> str:
    r"""Escape lone surrogates, which UTF-8, and so pandas and a page, cannot hold.

    Examples
    --------
    >>> print(encodable("a\ud800"))
    a\ud800
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return str(text)  # itself: the rows of a column can share a long text


def printable(text: object) -> str:
    r"""Escape control characters of text from a file, so that it stays on one line.

    Examples
    --------
    >>> print(printable("a\n\x1b[1m"))
    a\n\x1b[1m
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def by_numbers(text: str) -> list[tuple[str, int]]:
    """Return a key that sorts `rank_10` after `rank_9`.

    Examples
    --------
    >>> sorted(["b_10", "b_9", "a_11"], key=by_numbers)
    ['a_11', 'b_9', 'b_10']
    """
    return [(part, int(n or 0)) for part, n in re.findall(r"(\D*)(\d*)", text)]


def format_names(names: Iterable[object]) -> str:
    """Return at most 12 names of fields for a message, each cut to 40 characters.

    Examples
    --------
    >>> format_names(["step", "reward"]), format_names([])
    ('step, reward', 'nothing')
    """
    return join_names([f"{name!s:.40}" for name in names], most=12) or "nothing"
