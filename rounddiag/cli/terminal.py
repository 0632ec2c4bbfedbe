"""Text on a terminal with a width and colours, in a pipe without either; and JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from textwrap import wrap
from typing import Any

from rounddiag.wording import printable

# The first word of a line -> its sign and style on a terminal.
_GOOD, _UNSURE, _BAD = ("✓", "green"), ("!", "yellow"), ("✗", "bold red")
_WORDS = {
    **dict.fromkeys(["identical", "healthy", "passed"], _GOOD),
    **dict.fromkeys(["noisy", "stale", "not_measurable"], _UNSURE),
    **dict.fromkeys(["suspicious", "broken", "failed", "failed check"], _BAD),
}
_FIRST_WORD = re.compile(rf"({'|'.join(_WORDS)})(?=:)")
_LAST_COLUMN = re.compile(r"\s+\S.*\s{2,}(?=\S)")  # of an indented row of a table
_MIN_WIDTH = 40


def print_text(text: str) -> None:
    """Print lines with text from files, which must not control the terminal.

    On a terminal, long lines wrap at words, and a verdict has a colour and a sign.
    """
    lines = [printable(line) for line in text.split("\n")]
    if sys.stdout.isatty():
        _print_styled(lines)
    else:
        print("\n".join(lines), flush=True)


@contextmanager
def announced(text: str) -> Iterator[None]:
    """Show a line on a terminal while something takes long, and remove it."""
    is_shown = sys.stderr.isatty()
    if is_shown:
        print(printable(text), end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if is_shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _print_styled(lines: list[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        first_word = _FIRST_WORD.match(line)
        sign, style = _WORDS[first_word[0]] if first_word else ("", "")
        shown = f"{sign} {line}" if sign and not console.options.ascii_only else line
        styled = Text("\n".join(_wrap(shown, max(console.width, _MIN_WIDTH))))
        styled.stylize(
            style, 0, len(shown) - len(line) + (first_word.end() if first_word else 0)
        )
        console.print(styled, soft_wrap=True)


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    column = _LAST_COLUMN.match(line[: width // 2])
    start = column.end() if column else 0
    head, indent = line[:start], " " * start
    return wrap(line[start:], width, initial_indent=head, subsequent_indent=indent)


def json_line(facts: object) -> str:
    """Write one line of JSON; NaN and infinities, which it lacks, are null."""
    return json.dumps(_plain(facts), allow_nan=False)


def _plain(value: Any) -> Any:  # noqa: ANN401 any JSON, and scalars of numpy
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not isfinite(value) else value
