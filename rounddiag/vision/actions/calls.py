"""Calls in a text, `name(1, "a", key=[2, 3])`: read, never run.

The text is untrusted and may be long. Every pattern here has bounds and no two ways to
match the same characters, so that the time is in proportion to the length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Value: TypeAlias = "str | int | float | list[Value]"

_MAX_DEPTH, _MAX_VALUES = 3, 64
_START = re.compile(r"(?<![\w.])([^\W\d]\w{0,31}(?:\.\w{1,32})?)[ \t]{0,4}\(")
_SPACE = re.compile(r"\s*")
_KEYWORD = re.compile(r"([^\W\d]\w{0,31})\s*=\s*")
_WORD = re.compile(r"[^\W\d]\w{0,63}(?![\w.(])")
_NUMBER = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?![\w.])")
# An apostrophe inside a word ends no string, though it should have been escaped.
_STRINGS = {
    quote: re.compile(
        rf"{quote}((?:[^{quote}\\]|\\.|(?<=\w){quote}(?=\w)){{0,20000}}){quote}",
        re.DOTALL,
    )
    for quote in "'\""
}
_ESCAPE = re.compile(r"\\([nrt'\"\\])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Call:
    """One call: its name, what it was given, and the words themselves."""

    name: str
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    source_text: str = ""


class _NotACallError(Exception):
    """The text goes on in another way than a call does."""


def find_calls(text: str) -> Iterator[Call]:
    """Give the complete calls of a text in their order; none inside another.

    Examples
    --------
    >>> [(call.name, call.args) for call in find_calls("so: click(1, 2); type('a(b)')")]
    [('click', [1, 2]), ('type', ['a(b)'])]
    """
    start = _START.search(text)
    while start is not None:
        try:
            args, kwargs, end = _arguments(text, start.end())
        except _NotACallError:
            end = start.end()
        else:
            yield Call(start[1], args, kwargs, text[start.start() : end])
        start = _START.search(text, end)


def _arguments(text: str, at: int) -> tuple[list[Value], dict[str, Value], int]:
    """Read what stands in the brackets, from behind the first one."""
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    while len(args) + len(kwargs) < _MAX_VALUES:
        at = _skip(text, at)
        if text.startswith(")", at):
            return args, kwargs, at + 1
        keyword = _KEYWORD.match(text, at)
        value, at = _value(text, keyword.end() if keyword else at, depth=0)
        if keyword:
            kwargs[keyword[1]] = value
        else:
            args.append(value)
        at = _behind_comma(text, at, ")")
    raise _NotACallError


def _value(text: str, at: int, depth: int) -> tuple[Value, int]:
    first = text[at : at + 1]
    if first and first in "([":
        return _values(text, at + 1, ")" if first == "(" else "]", depth + 1)
    if first in _STRINGS:
        found = _STRINGS[first].match(text, at)
        if found:
            return _ESCAPE.sub(
                lambda m: _ESCAPES.get(m[1], m[1]), found[1]
            ), found.end()
    elif found := _NUMBER.match(text, at):
        number = found[0]
        return float(number) if "." in number else int(number), found.end()
    elif found := _WORD.match(text, at):
        return found[0], found.end()
    raise _NotACallError


def _values(text: str, at: int, close: str, depth: int) -> tuple[list[Value], int]:
    """Read a list, from behind its first bracket."""
    values: list[Value] = []
    while len(values) < _MAX_VALUES and depth <= _MAX_DEPTH:
        at = _skip(text, at)
        if text.startswith(close, at):
            return values, at + 1
        value, at = _value(text, at, depth)
        values.append(value)
        at = _behind_comma(text, at, close)
    raise _NotACallError


def _behind_comma(text: str, at: int, close: str) -> int:
    """Return where the next value may stand; a bracket that closes stays."""
    at = _skip(text, at)
    if text.startswith(",", at):
        return at + 1
    if text.startswith(close, at):
        return at
    raise _NotACallError


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
