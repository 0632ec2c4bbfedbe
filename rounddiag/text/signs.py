"""Signs for characters that cannot be seen; a page may hold any."""

from __future__ import annotations

import re

_SIGNS = {" ": "·", "\n": "↵", "\t": "⇥"}
# Joins the parts of one emoji, and is not printable by itself.
_JOINER = "\u200d"
_STRAY_JOINER = re.compile(
    "(?<![\u2100-\U0001ffff])\u200d|\u200d(?![\u2100-\U0001ffff])"
)


def visible(text: str) -> str:
    r"""Give everything that cannot be seen a sign, for a label of one line.

    Spaces, line ends and tabs have signs of their own; control characters, those of
    zero width and those that turn the direction of writing are written as escapes. A
    joiner stays where it makes one picture of two.

    Examples
    --------
    >>> print(visible(" a\n"), visible("\x1b"), visible("\u202e\u200b"))
    ·a↵ \x1b \u202e\u200b
    """
    escaped = _STRAY_JOINER.sub(r"\\u200d", text)
    return "".join(map(_sign, escaped))


def _sign(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    if character.isprintable() or character == _JOINER:
        return character
    return character.encode("unicode_escape").decode()
