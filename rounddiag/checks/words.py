"""Counts and untrusted text in the sentences that checks say."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Write a count with its noun, which takes an s unless there is one.

    Examples
    --------
    >>> count(1, "token"), count(1210, "token")
    ('1 token', '1,210 tokens')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def printable(text: object) -> str:
    r"""Write text from a file so that it stays on its line and commands no terminal.

    Examples
    --------
    >>> print(printable("a\n\x1b[1m"))
    a\n\x1b[1m
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
