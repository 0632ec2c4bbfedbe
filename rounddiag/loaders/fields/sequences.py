"""Rows of prompt and response in one, divided where the model first wrote.

Some trainers keep whole sequences, and leave the first token out of what is per token,
as nothing predicts it: the value in column `i` is then of token `i + 1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.fields.padding import end_of
from rounddiag.loaders.fields.row_reader import PLACES, RowReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def divided(
    held: Mapping[str, Any],
    source: object,
    *,
    tokens: str,
    written: str,
    names: Mapping[str, str],
) -> dict[str, list[Tensor]]:
    """Return the fields of whole sequences under verl's names, unpadded.

    The prompt is what stands before the first token that the model wrote, and the first
    token in any case; the response goes on to the last that `attention_mask` marks.

    Parameters
    ----------
    held : mapping of str to rows
        Padded tensors or sequences of rows; it may read from a file when looked up.
    source : path-like
        Named in messages.
    tokens, written : str
        Which field holds the token ids, and which marks what the model wrote.
    names : mapping of str to str
        What else is per token, where it is there, and its name in verl.

    Raises
    ------
    LoadError
        If the fields are missing or do not fit.
    """
    sequences = RowReader(held, source, tokens, most_lacking=1)
    mask, real = sequences.required(written), sequences.real()
    spans = [_span(*rows) for rows in zip(mask, real, strict=True)]
    before = [keep[:start] for keep, (start, _) in zip(real, spans, strict=True)]
    found = {ours: sequences.field(theirs) for theirs, ours in names.items()}
    parts = {"responses": sequences.tokens, "response_mask": mask, **found}
    places = sequences.field(PLACES)
    return {
        "prompts": [
            row[: len(keep)][keep]
            for row, keep in zip(sequences.tokens, before, strict=True)
        ],
        **{
            name: [row[slice(*span)] for row, span in zip(rows, spans, strict=True)]
            for name, rows in parts.items()
            if rows is not None
        },
        **({} if places is None else {PLACES: _real(places, real)}),
    }


def _real(rows: list[Tensor], real: list[Tensor]) -> list[Tensor]:
    return [row[..., keep] for row, keep in zip(rows, real, strict=True)]


def _span(mask: Tensor, real: Tensor) -> tuple[int, int]:
    """Return where the response starts and ends."""
    places, stop = mask.nonzero(), end_of(real)
    return max(1, int(places[0]) if len(places) else stop), stop
