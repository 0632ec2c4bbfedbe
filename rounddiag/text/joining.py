"""Each token's piece of a text; characters that several tokens make stay whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.text.signs import visible
from rounddiag.text.tokenizers import decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.text.tokenizers import Decode

# What a decoder writes for bytes that are no whole character.
_FRAGMENT = "\ufffd"
# A character has at most 4 bytes; a token may end one and begin the next.
_MAX_TOKENS_A_CHARACTER = 8


def pieces(
    token_ids: Sequence[int] | np.ndarray[Any, Any],
    tokenizer: object | None = None,
    *,
    starts: Sequence[int] | np.ndarray[Any, Any] = (),
    visible_whitespace: bool = False,
) -> list[str]:
    """Give each token its piece of text; joined, the pieces are the text.

    A character whose bytes are spread over several tokens stands at the first of
    them, and the others are empty: only such tokens are. An id that has no text of its
    own (unknown to the tokenizer, negative, or any id without a tokenizer) is `⟨id⟩`.
    Special tokens are kept.

    Parameters
    ----------
    token_ids : sequence of int
    tokenizer : path-like, str, tokenizer or callable, optional
        Path of a `tokenizer.json` or of its folder; a model's name, which transformers
        looks up, on the network if need be; an object with `decode`, as those of
        transformers and tokenizers; or a function from a list of ids to text.
    starts : sequence of int, optional
        Indices of `token_ids` where another text begins, a round say: no character
        reaches across. One call for all rounds decodes each id once.
    visible_whitespace : bool, optional
        Show whitespace and what else cannot be seen by signs: see
        `rounddiag.text.visible`.

    Returns
    -------
    list of str
        One per token.

    Raises
    ------
    LoadError
        If the path is no `tokenizer.json`, or the name cannot be found.
    BatchError
        If `tokenizer` is none of the above or gives anything but text.

    Examples
    --------
    >>> pieces([7, 8])
    ['⟨7⟩', '⟨8⟩']
    >>> pieces([2, 0, 1], lambda ids: "".join("ab "[i] for i in ids))
    [' ', 'a', 'b']
    >>> pieces([7], lambda ids: " up" * len(ids), visible_whitespace=True)
    ['·up']
    """
    ids = np.asarray(token_ids, dtype=np.int64)
    decode = decoder(tokenizer)
    unique, inverse = np.unique(ids, return_inverse=True)
    known = [_piece(decode, token_id) for token_id in unique.tolist()]
    found = [known[i] for i in inverse.tolist()]
    if decode is not None:
        broken = np.array([_FRAGMENT in piece for piece in known], dtype=bool)
        runs = _runs(np.flatnonzero(broken[inverse]), np.asarray(starts))
        _join_fragments(found, ids.tolist(), runs, decode)
    return _with_signs(found) if visible_whitespace else found


def _with_signs(texts: list[str]) -> list[str]:
    signs = {text: visible(text) for text in set(texts)}
    return [signs[text] for text in texts]


def _piece(decode: Decode | None, token_id: int) -> str:
    alone = decode([token_id]) if decode is not None and token_id >= 0 else ""
    if decode is None or not alone or _FRAGMENT in alone:
        return alone or f"⟨{token_id}⟩"
    # Some decoders drop the space before the first word: the second one keeps it.
    twice = decode([token_id, token_id])
    return twice[len(alone) :] if twice.startswith(alone) else alone


def _runs(
    indices: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]
) -> list[tuple[int, int]]:
    """Find stretches of neighbours, as (start, stop), that reach across no start."""
    if len(indices) == 0:
        return []
    begins = np.diff(indices, prepend=-2) != 1
    begins |= np.isin(indices, starts)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(indices)) - 1
    stops = indices[last] + 1
    return list(zip(indices[first].tolist(), stops.tolist(), strict=True))


def _join_fragments(
    found: list[str], ids: list[int], runs: list[tuple[int, int]], decode: Decode
) -> None:
    """Write whole characters over neighbouring fragments, in place."""
    for begin, stop in runs:
        start = begin
        while start < stop:
            whole = _character(ids, start, stop, decode)
            if whole is None:  # no character begins here
                start += 1
                continue
            text, after = whole
            found[start:after] = [text, *[""] * (after - start - 1)]
            start = after


def _character(
    ids: list[int], start: int, stop: int, decode: Decode
) -> tuple[str, int] | None:
    """Find the fewest fragments from `start` on that are whole characters."""
    for after in range(start + 2, min(stop, start + _MAX_TOKENS_A_CHARACTER) + 1):
        text = decode(ids[start:after])
        if _FRAGMENT not in text:
            return text, after
    return None
