"""What a token is for: thought, action, coordinates, typed text, syntax."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    # Start, stop and role of a stretch of text.
    Stretch: TypeAlias = tuple[int, int, str]
    Tagger: TypeAlias = Callable[[str], Sequence[Stretch]]

ROLES = (
    "thought",
    "action",
    "coordinates",
    "typed text",
    "syntax",
    "special",
    "other",
)
# Where the action begins, in the grammars that announce it.
_ACTION_PART = re.compile(r"</think>|(?<![^\n])Action:|<tool_call>")
_CALL = re.compile(r"(?<![\w.])(?:[a-z_]{1,32}\.)?([a-zA-Z_]{1,32})\(")
# One part of a call or of JSON; every character matches one of them.
_PART = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.){0,20000}"|'(?:[^'\\]|\\.){0,20000}')(?P<key>\s*:)?"""
    r"""|[^\W\d]\w{0,63}|(?P<number>-?\d{1,15}(?:\.\d{1,15})?)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])|.""",
    re.DOTALL,
)
# '(12,34)', and in the tokens of a box too.
_POINT = re.compile(
    r"(?:<\|box_start\|>)?[(\[]?\d[\d.,\s]{0,60}[)\]]?(?:<\|box_end\|>)?"
)
_NAMES = {"action", "name"}  # keys of JSON whose value is the action


def roles(
    pieces: Sequence[str],
    *,
    starts: Sequence[int] = (),
    special: Collection[str] = (),
    tagger: Tagger | None = None,
) -> list[str]:
    """Say of each token what it is for, by the first character that can be seen.

    Parameters
    ----------
    pieces : sequence of str
        As `rounddiag.text.pieces` gives them.
    starts : sequence of int, optional
        Indices of `pieces` where another round begins; each is tagged by itself.
    special : collection of str
        Pieces that are special tokens.
    tagger : callable, optional
        Gives (start, stop, role) stretches of a round's text; `tag_actions` where left
        out. Where it gives none, the role is `other`; a later stretch wins.

    Returns
    -------
    list of str
        One per token: `special`, or what the tagger says.

    Examples
    --------
    >>> roles(["so ", "click", "(", "12", ")", "<end>"], special={"<end>"})
    ['thought', 'action', 'syntax', 'coordinates', 'syntax', 'special']
    """
    limits = sorted({0, *starts, len(pieces)})
    found: list[str] = []
    for first, stop in pairwise(limits):
        found += _of_round(pieces[first:stop], special, tagger or tag_actions)
    return found


def _of_round(
    pieces: Sequence[str], special: Collection[str], tagger: Tagger
) -> Iterator[str]:
    text = "".join("" if piece in special else piece for piece in pieces)
    marks = _marks(text, tagger(text))
    begins = [begin for begin, _ in marks]
    sizes = (0 if piece in special else len(piece) for piece in pieces)
    places = accumulate(sizes, initial=0)
    for piece, place in zip(pieces, places, strict=False):
        if piece in special:
            yield "special"
        else:
            seen = place + len(piece) - len(piece.lstrip())
            seen = place if not piece.strip() else seen
            yield marks[bisect_right(begins, seen) - 1][1]


def _marks(text: str, stretches: Sequence[Stretch]) -> list[tuple[int, str]]:
    """Return where each role begins, the first at 0, without gaps."""
    role = ["other"] * (len(text) + 1)
    for start, stop, name in stretches:
        role[start:stop] = [name] * len(range(*slice(start, stop).indices(len(text))))
    changes = [i for i in range(1, len(role)) if role[i] != role[i - 1]]
    return [(i, role[i]) for i in (0, *changes)]


def tag_actions(text: str) -> list[Stretch]:
    """Divide a round's text into thought and the parts of its actions.

    Knows calls, `click(1, 2)`, and JSON in `<tool_call>` tags; what comes before is
    thought. Text without an action is thought altogether.

    Examples
    --------
    >>> text = "I type. type('a')"
    >>> [(text[start:stop], role) for start, stop, role in tag_actions(text)][:2]
    [('I type. ', 'thought'), ('type', 'action')]
    """
    announced = _ACTION_PART.search(text)
    begin = announced.end() if announced else 0
    call = _CALL.search(text, begin)
    if announced and announced[0] == "<tool_call>":
        json_end = text.find("</tool_call>", begin)
        stop = len(text) if json_end < 0 else json_end
        return [(0, announced.start(), "thought"), *_parts(text, begin, stop)]
    found: list[Stretch] = [(0, call.start() if call else len(text), "thought")]
    while call is not None:
        found.append((call.start(), call.end() - 1, "action"))
        inside = _parts(text, call.end() - 1, len(text), whole=False)
        found += inside
        call = _CALL.search(text, inside[-1][1] if inside else call.end())
    return found


def _parts(text: str, begin: int, stop: int, *, whole: bool = True) -> list[Stretch]:
    """Divide a call's arguments, or JSON; unless `whole`, up to the closing bracket."""
    found: list[Stretch] = []
    depth, key = 0, ""
    for match in _PART.finditer(text, begin, stop):
        role = _role(match, key)
        if match["string"]:
            key = match["string"][1:-1] if match["key"] else ""
        depth += bool(match["open"]) - bool(match["close"])
        found.append((match.start(), match.end(), role))
        if depth <= 0 and not whole:
            break
    return found


def _role(match: re.Match[str], key: str) -> str:
    if match["number"]:
        return "coordinates"
    if not match["string"] or match["key"]:
        return "syntax"
    if key in _NAMES:
        return "action"
    return "coordinates" if _POINT.fullmatch(match["string"][1:-1]) else "typed text"
