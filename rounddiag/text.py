"""Token ids to pieces of text; knows tokenizers, no batches and no pictures."""

from __future__ import annotations

from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rounddiag.errors import BatchError, LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Decode: TypeAlias = Callable[[list[int]], str]

_KINDS = (
    "Pass the path of a `tokenizer.json`, a transformers tokenizer, or a callable"
    " that turns a list of ids into text."
)
# What a decoder writes for bytes that are no whole character.
_FRAGMENT = "\ufffd"
# A character has at most 4 bytes; a token may end one and begin the next.
_MAX_TOKENS_A_CHARACTER = 8


def pieces(
    token_ids: Sequence[int] | np.ndarray[Any, Any],
    tokenizer: object | None = None,
    *,
    starts: Sequence[int] | np.ndarray[Any, Any] = (),
) -> list[str]:
    """Give each token its piece of text; joined, the pieces are the text.

    A character whose bytes are spread over several tokens stands at the first of
    them, and the others are empty: only such tokens are. An id that has no text of its
    own (unknown to the tokenizer, negative, or any id without a tokenizer) is `⟨id⟩`.
    Special tokens are kept.

    Parameters
    ----------
    token_ids : sequence of int
    tokenizer : path-like, tokenizer or callable, optional
        Path of a `tokenizer.json`; an object with `decode`, as those of transformers
        and tokenizers; or a function from a list of ids to text.
    starts : sequence of int, optional
        Indices of `token_ids` where another text begins, a round say: no character
        reaches across. One call for all rounds decodes each id once.

    Returns
    -------
    list of str
        One per token.

    Raises
    ------
    LoadError
        If the path is no `tokenizer.json`.
    BatchError
        If `tokenizer` is none of the above or gives anything but text.

    Examples
    --------
    >>> pieces([7, 8])
    ['⟨7⟩', '⟨8⟩']
    >>> pieces([2, 0, 1], lambda ids: "".join("ab "[i] for i in ids))
    [' ', 'a', 'b']
    """
    ids = np.asarray(token_ids, dtype=np.int64)
    decode = _decoder(tokenizer)
    unique, inverse = np.unique(ids, return_inverse=True)
    known = [_piece(decode, token_id) for token_id in unique.tolist()]
    found = [known[i] for i in inverse.tolist()]
    if decode is not None:
        broken = np.array([_FRAGMENT in piece for piece in known], dtype=bool)
        runs = _runs(np.flatnonzero(broken[inverse]), np.asarray(starts))
        _join_fragments(found, ids.tolist(), runs, decode)
    return found


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


def _decoder(tokenizer: object | None) -> Decode | None:
    if tokenizer is None:
        return None
    if isinstance(tokenizer, (str, PathLike)):
        path = Path(fspath(tokenizer))
        stamp = path.stat().st_mtime_ns if path.is_file() else None
        return _with_special_tokens(_from_file(path, stamp))
    # Fast transformers tokenizers hold the one that does the work.
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(inner, "decode"):
        return _with_special_tokens(inner)
    if callable(tokenizer):
        return _checked(tokenizer)
    raise BatchError.build(
        key="tokenizer",
        expected="something that turns ids into text",
        found=type(tokenizer).__name__,
        advice=_KINDS,
    )


def _with_special_tokens(tokenizer: Any) -> Decode:  # noqa: ANN401 two libraries
    return _checked(lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def _checked(decode: Callable[[list[int]], object]) -> Decode:
    def checked(ids: list[int]) -> str:
        text = decode(ids)
        if isinstance(text, str):
            return text
        raise BatchError.build(
            key="tokenizer",
            expected="text for a list of ids",
            found=type(text).__name__,
            advice=_KINDS,
        )

    return checked


@lru_cache(maxsize=2)
def _from_file(path: Path, stamp: int | None) -> object:
    """Read a `tokenizer.json`; `stamp` makes a changed file be read again."""
    from tokenizers import Tokenizer

    if stamp is None:
        raise LoadError.build(
            file=path,
            expected="a `tokenizer.json`",
            found="a folder" if path.is_dir() else "no such file",
            advice=_KINDS,
        )
    try:
        return Tokenizer.from_file(fspath(path))
    except Exception as error:  # the library raises plain Exception
        raise LoadError.build(
            file=path,
            expected="a `tokenizer.json`",
            found=f"a file that `tokenizers` cannot read ({error})",
            advice=_KINDS,
        ) from error
