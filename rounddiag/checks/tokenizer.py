"""What checks ask of a batch's tokenizer, which may be anything, and may fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.contract import UntestableError
from rounddiag.text import pieces, special_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def decoded(
    token_ids: Sequence[int], tokenizer: object | None, *, starts: Sequence[int] = ()
) -> list[str]:
    """Return one visible piece of text a token; see `rounddiag.text.pieces`.

    Raises
    ------
    UntestableError
        If the tokenizer fails.
    """
    try:
        return pieces(token_ids, tokenizer, starts=starts, visible_whitespace=True)
    except Exception as error:  # it is somebody's own code
        raise _failed(error) from error


def special_ids(tokenizer: object | None, texts: Collection[str]) -> dict[str, int]:
    """Return the ids of those of its special tokens that read like this.

    Raises
    ------
    UntestableError
        If there is no tokenizer, or it fails, or it names none of them.
    """
    if tokenizer is None:
        raise UntestableError(field="tokenizer")
    try:
        known = special_tokens(tokenizer)
    except Exception as error:  # it is somebody's own code
        raise _failed(error) from error
    found = {text: token_id for token_id, text in known.items() if text in texts}
    if not found:
        why = f"its special tokens are none of {', '.join(texts)}"
        raise UntestableError(
            field="tokenizer", why=f"needs another `tokenizer`: {why}"
        )
    return found


def _failed(error: Exception) -> UntestableError:
    what = f"{type(error).__name__}: {error!s:.80}"
    return UntestableError(field="tokenizer", why=f"the `tokenizer` fails: {what}")
