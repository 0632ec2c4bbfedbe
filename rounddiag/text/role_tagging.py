"""The role of each token: thought, action, coordinates, typed text, syntax."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rounddiag.text.action_spans import tag_actions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rounddiag._typing import Array
    from rounddiag.text.action_spans import Span

    Tagger: TypeAlias = Callable[[str], Iterable[Span]]


ROLES = (
    "thought",
    "action",
    "coordinates",
    "typed text",
    "syntax",
    "special",
    "other",
)


def roles(
    pieces: Sequence[str],
    *,
    starts: Sequence[int] | Array = (),
    special: Collection[str] = (),
    tagger: Tagger | None = None,
) -> list[str]:
    """Return the role of each token: that of its first visible character.

    Parameters
    ----------
    pieces : sequence of str
        From `rounddiag.text.pieces`.
    starts : sequence of int, optional
        Indices of `pieces` where another round begins. Each round is tagged separately.
    special : collection of str
        Pieces that are special tokens; the tagger does not see them.
    tagger : callable, optional
        Returns (start, stop, role) spans of a round's text; `tag_actions` by
        default. The role is `other` outside of them; a later span wins.

    Returns
    -------
    list of str
        One per token: `special`, or the role from the tagger.

    Examples
    --------
    >>> roles(["so ", "click", "(", "12", ")", "<end>"], special={"<end>"})
    ['thought', 'action', 'syntax', 'coordinates', 'syntax', 'special']
    """
    distinct = list(dict.fromkeys(pieces))
    index = {piece: i for i, piece in enumerate(distinct)}
    code = np.fromiter(map(index.__getitem__, pieces), np.int64, len(pieces))
    tagged = ["" if piece in special else piece for piece in distinct]
    sizes = np.array([len(piece) for piece in tagged], dtype=np.int64)[code]
    first = np.array([_first_visible(piece) for piece in tagged], dtype=np.int64)[code]
    result = np.empty(len(pieces), dtype=object)
    for begin, stop in pairwise(np.unique([0, *starts, len(pieces)]).tolist()):
        size = sizes[begin:stop]
        places = np.maximum(np.cumsum(size) - size + first[begin:stop], 0)
        text = "".join(map(tagged.__getitem__, code[begin:stop].tolist()))
        result[begin:stop] = _by_character(text, tagger or tag_actions)[places]
    is_special = np.array([piece in special for piece in distinct], dtype=bool)
    result[is_special[code]] = "special"
    return result.tolist()


def _first_visible(piece: str) -> int:
    """Return the index of a piece's first visible character; 0 without one.

    An empty piece continues a character of several tokens: its index is -1.
    """
    blank = len(piece) - len(piece.lstrip())
    return blank if blank < len(piece) else min(len(piece), 1) - 1


def _by_character(text: str, tagger: Tagger) -> Array:
    """Return the role of each character, and `other` after the last."""
    result = np.full(len(text) + 1, "other", dtype=object)
    for start, stop, name in tagger(text):
        result[slice(*slice(start, stop).indices(len(text)))] = name
    return result
