"""The parts of a round's text: thought, and the actions that come after it.

The text is untrusted and may be long. Every pattern has bounds and no two ways to match
the same characters, so that the time is in proportion to the length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


# Start, stop and role of a stretch of text.
Stretch: TypeAlias = tuple[int, int, str]

_THINK, _THOUGHT = "<think>", "</think>"
# What says that an action follows, in the grammars that do.
_ANNOUNCED = re.compile(r"(?<![^\n])Action:|<tool_call>")
# A call, or an object of JSON.
_START = re.compile(
    r"(?<![\w.])(?P<name>(?:[a-z_]{1,32}\.)?[a-zA-Z_]{1,32})\(|\{(?=\s*[\"'}])"
)
# One part of a call or of JSON; every character matches one of them. An apostrophe
# inside a word ends no string, though it should have been escaped.
_PART = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.){0,20000}"|'(?:[^'\\]|\\.|(?<=\w)'(?=\w)){0,20000}')"""
    r"""(?P<key>\s*:)?|(?P<word>[^\W\d]\w{0,63})(?P<keyword>\s*=)?"""
    r"""|(?P<number>-?\d{1,15}(?:\.\d{1,15})?)|(?P<open>[(\[{])|(?P<close>[)\]}])|.""",
    re.DOTALL,
)
# Between and behind actions: anything but words.
_SIGNS = re.compile(r"</?tool_call>|(?:(?!</?tool_call>)\W)+")
# '(12,34)', and in the tags of a box or a point too.
_POINT = re.compile(
    r"(?:<\|box_start\|>|<point>)?[(\[]?\d[\d.,\s]{0,60}[)\]]?"
    r"(?:<\|box_end\|>|</point>)?"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAMES = {"action", "action_type", "name"}  # keys of JSON whose value is the action
# Keys and calls whose value is typed, though it be a number.
_TYPED = {"content", "input", "text", "type", "typewrite", "value", "write"}
# Arguments that are neither a place nor a text, and calls that have no others.
_OPTIONS = {
    *("app", "app_name", "button", "direction", "goal_status", "key", "keys", "status"),
    *("amount", "clicks", "duration", "interval", "pixels", "seconds", "time"),
    *("hotkey", "press", "keyDown", "keyUp", "sleep", "wait"),
}


def tag_actions(text: str) -> list[Stretch]:
    """Divide a round's text into thought and the parts of its actions.

    Knows calls, `click(1, 2)`, and objects of JSON, also in `<tool_call>` tags; what
    comes before is thought. Of an action its name is `action`, strings are
    `typed text`, numbers are `coordinates`, whether in a string or not, directions,
    keys, times and other choices are `other`, and the rest is `syntax`. Text without an
    action is thought altogether.

    Examples
    --------
    >>> text = "I type. type('a')"
    >>> [(text[start:stop], role) for start, stop, role in tag_actions(text)][:2]
    [('I type. ', 'thought'), ('type', 'action')]
    """
    begin = text.rfind(_THOUGHT) + len(_THOUGHT) if _THOUGHT in text else 0
    announced = _ANNOUNCED.search(text, begin)
    start = _START.search(text, announced.end() if announced else begin)
    if start is None or (_THINK in text and not begin):
        return [(0, len(text), "thought")]
    found: list[Stretch] = [(0, start.start(), "thought")]
    if announced:
        found.append((*announced.span(), "syntax"))
        found += _signs(text, announced.end(), start.start())
    while start is not None:
        parts, end = _action(text, start)
        start = _START.search(text, end)
        stop = start.start() if start else len(text)
        found += [*parts, *_signs(text, end, stop)]
    return found


def _signs(text: str, start: int, stop: int) -> list[Stretch]:
    """Mark what stands between and behind actions, unless it is words."""
    return [(*match.span(), "syntax") for match in _SIGNS.finditer(text, start, stop)]


def _action(text: str, start: re.Match[str]) -> tuple[list[Stretch], int]:
    """Divide an action up to the bracket that closes it, and say where that is."""
    name, end = start["name"] or "", start.end() - 1
    found: list[Stretch] = [(start.start(), end, "action")] if name else []
    usual = key = name.rpartition(".")[2]
    depth = 0
    for match in _PART.finditer(text, end):
        found += _roles(match, key)
        end = match.end()
        depth += bool(match["open"]) - bool(match["close"])
        if depth == 0:
            break
        key = _next_key(match, key, usual if depth == 1 else key)
    return found, end


def _next_key(match: re.Match[str], key: str, usual: str) -> str:
    """Return whose value comes next; `usual` behind a comma."""
    if match["key"]:
        return match["string"][1:-1]
    if match["keyword"]:
        return match["word"]
    return usual if match[0] == "," else key


def _roles(match: re.Match[str], key: str) -> Iterator[Stretch]:
    """Give the roles of one part; what is inside a string comes after its quotes."""
    if match["string"] and not match["key"]:
        yield *match.span(), "syntax"
        yield from _inside(match.start() + 1, match["string"][1:-1], key)
    elif match["number"]:
        typed = "typed text" if key in _TYPED else "coordinates"
        yield *match.span(), "other" if key in _OPTIONS else typed
    else:
        is_choice = match["word"] and not match["keyword"]
        yield *match.span(), "other" if is_choice else "syntax"


def _inside(begin: int, value: str, key: str) -> Iterator[Stretch]:
    if key not in _NAMES | _OPTIONS | _TYPED and _POINT.fullmatch(value):
        for number in _NUMBER.finditer(value):
            yield begin + number.start(), begin + number.end(), "coordinates"
        return
    role = "action" if key in _NAMES else "other" if key in _OPTIONS else "typed text"
    yield begin, begin + len(value), role
