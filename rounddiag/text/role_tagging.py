"""The role of each token: thought, action, coordinates, typed text, syntax.

`tag_actions` divides the text of a round into spans, and `roles` assigns the role of a
span to its tokens. The patterns are bounded as those of `rounddiag.action_grammar` are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.action_grammar import TOOL_CALL, bracket_parts

RoleSpan: TypeAlias = tuple[int, int, str]  # start, stop and role
Tagger: TypeAlias = Callable[[str], Iterable[RoleSpan]]


_THINK, _THINK_END = "<think>", "</think>"
# What introduces an action, in grammars that have it.
_INTRODUCTION = re.compile(rf"(?<![^\n])Action:|{TOOL_CALL}")
# A call, or a JSON object. Prose has words before brackets too, but with a space.
_START = re.compile(
    r"(?<![\w.])(?P<name>(?:[a-z_]{1,32}\.)?[a-zA-Z_]{1,32})\(|\{(?=\s*[\"'}])"
)
# Between and after actions: anything but words.
_PUNCTUATION = re.compile(r"</?tool_call>|(?:(?!</?tool_call>)\W)+")
# '(12,34)', and in the tags of a box or a point too.
_POINT = re.compile(
    r"(?:<\|box_start\|>|<point>)?[(\[]?\d[\d.,\s]{0,60}[)\]]?"
    r"(?:<\|box_end\|>|</point>)?"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NAMES = {"action", "action_type", "name"}  # keys of JSON whose value is the action
# Keys and calls whose value is typed text, even if it is a number.
_TYPED = {"content", "input", "text", "type", "typewrite", "value", "write"}
# Arguments that are neither coordinates nor text, and calls that take only such. How
# far to scroll follows from the picture, as coordinates do.
_OPTIONS = {
    *("app", "app_name", "button", "direction", "goal_status", "key", "keys", "status"),
    *("clicks", "duration", "interval", "seconds", "time"),
    *("hotkey", "press", "keyDown", "keyUp", "sleep", "wait"),
}
_ARGUMENTS = "other arguments"


def tag_actions(text: str) -> list[RoleSpan]:
    """Divide a round's text into thought and the parts of its actions.

    Actions are calls such as `click(1, 2)`, and JSON objects, also in `<tool_call>`
    tags. They need not be complete.

    =================  ===========================================================
    `thought`          everything before the first action; all of a text without one
    `action`           the name of an action
    `coordinates`      numbers, also in a string, and how far to scroll
    `typed text`       other strings
    `other arguments`  directions, keys, times and other choices
    `syntax`           everything else
    =================  ===========================================================
    """
    begin = text.rfind(_THINK_END) + len(_THINK_END) if _THINK_END in text else 0
    introduction = _INTRODUCTION.search(text, begin)
    start = _START.search(text, introduction.end() if introduction else begin)
    if start is None or (_THINK in text and not begin):
        return [(0, len(text), "thought")]
    spans: list[RoleSpan] = [(0, start.start(), "thought")]
    if introduction:
        spans.append((*introduction.span(), "syntax"))
        spans += _punctuation(text, introduction.end(), start.start())
    while start is not None:
        parts, end = _action(text, start)
        start = _START.search(text, end)
        stop = start.start() if start else len(text)
        spans += [*parts, *_punctuation(text, end, stop)]
    return spans


def _punctuation(text: str, start: int, stop: int) -> list[RoleSpan]:
    """Mark the text between and after actions as syntax, except words."""
    return [
        (*match.span(), "syntax") for match in _PUNCTUATION.finditer(text, start, stop)
    ]


def _action(text: str, start: re.Match[str]) -> tuple[list[RoleSpan], int]:
    """Return the spans of an action up to its closing bracket, and its end."""
    name, end = start["name"] or "", start.end() - 1
    spans: list[RoleSpan] = [(start.start(), end, "action")] if name else []
    default = key = name.rpartition(".")[2]
    depth = 0
    for part in bracket_parts(text, end):
        spans += _roles(part, key)
        end = part.end()
        depth += bool(part["open"]) - bool(part["close"])
        key = _next_key(part, key, default if depth == 1 else key)
    return spans, end


def _next_key(match: re.Match[str], key: str, default: str) -> str:
    """Return the key of the next value; `default` after a comma."""
    if match["key"]:
        return match["string"][1:-1]
    if match["keyword"]:
        return match["word"]
    return default if match[0] == "," else key


def _roles(match: re.Match[str], key: str) -> Iterator[RoleSpan]:
    """Yield the roles of one part; of a string, its inside comes after the whole."""
    if match["string"] and not match["key"]:
        yield *match.span(), "syntax"
        yield from _inside(match.start() + 1, match["string"][1:-1], key)
    elif match["number"]:
        typed = "typed text" if key in _TYPED else "coordinates"
        yield *match.span(), _ARGUMENTS if key in _OPTIONS else typed
    else:
        is_choice = match["word"] and not match["keyword"]
        yield *match.span(), _ARGUMENTS if is_choice else "syntax"


def _inside(begin: int, value: str, key: str) -> Iterator[RoleSpan]:
    if key not in _NAMES | _OPTIONS | _TYPED and _POINT.fullmatch(value):
        for number in _NUMBER.finditer(value):
            yield begin + number.start(), begin + number.end(), "coordinates"
        return
    typed = _ARGUMENTS if key in _OPTIONS else "typed text"
    role = "action" if key in _NAMES else typed
    yield begin, begin + len(value), role


ROLES = (
    *("thought", "action", "coordinates", "typed text", _ARGUMENTS),
    *("syntax", "special", "other"),
)


def roles(
    pieces: Sequence[str],
    *,
    starts: Sequence[int] | Array = (),
    special: Collection[str] = (),
    tagger: Tagger | None = None,
) -> list[str]:
    """Return the role of each token: that of its first visible character."""
    distinct = list(dict.fromkeys(pieces))
    index = {piece: i for i, piece in enumerate(distinct)}
    code = np.fromiter(map(index.__getitem__, pieces), np.int64, len(pieces))
    tagged = ["" if piece in special else piece for piece in distinct]
    sizes = np.array([len(piece) for piece in tagged], dtype=np.int64)[code]
    first = np.array([_first_visible(piece) for piece in tagged], dtype=np.int64)[code]
    codes = np.empty(len(pieces), dtype=np.int64)
    names = {"other": 0}
    for begin, stop in pairwise(np.unique([0, *starts, len(pieces)]).tolist()):
        size = sizes[begin:stop]
        places = np.maximum(np.cumsum(size) - size + first[begin:stop], 0)
        text = "".join(map(tagged.__getitem__, code[begin:stop].tolist()))
        spans = (tagger or tag_actions)(text)
        codes[begin:stop] = _by_character(len(text), spans, names)[places]
    is_special = np.array([piece in special for piece in distinct], dtype=bool)
    codes[is_special[code]] = names.setdefault("special", len(names))
    return np.array([*names], dtype=object)[codes].tolist()


def _first_visible(piece: str) -> int:
    """Return the index of a piece's first visible character; 0 without one.

    An empty piece continues a character of several tokens: its index is -1.
    """
    blank = len(piece) - len(piece.lstrip())
    return blank if blank < len(piece) else min(len(piece), 1) - 1


def _by_character(num: int, spans: Iterable[RoleSpan], names: dict[str, int]) -> Array:
    """Return the role of each character, and `other` after the last.

    As numbers, which `names` has; new roles are added to it.
    """
    codes = np.zeros(num + 1, dtype=np.int64)
    inside = codes[:num]
    for start, stop, name in spans:
        inside[start:stop] = names.setdefault(name, len(names))
    return codes
