"""Padding of prompts and responses, as the attention mask tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rounddiag.loaders.fields.reader import PLACES, RowReader, shape_of
from rounddiag.loaders.lazy.arrays import ragged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rounddiag.loaders.fields.reader import FieldReader


def unpadded(reader: FieldReader) -> dict[str, Any]:
    """Return lengths, prompts and position ids of a batch, without padding.

    Nested fields have no padding, and neither has a file without `attention_mask`, as
    far as anyone can tell.
    """
    real = real_positions(reader)
    return {
        "lengths": _lengths(reader, real),
        **_prompts(reader, real),
        "position_ids": _position_ids(reader, real),
    }


def real_positions(reader: FieldReader) -> list[Tensor] | None:
    """Return which positions of prompt and response are real, for each sample."""
    found = reader.rows("attention_mask") if reader.responses.is_padded else None
    if found is None:
        return None
    if len(found.lengths) != reader.num_samples or found.values.dim() != 1:
        raise reader.misfit(
            key="attention_mask",
            expected=f"{reader.num_samples} rows of positions",
            found=shape_of(found),
        )
    if bool((found.lengths < reader.responses.lengths).any()):
        raise reader.misfit(
            key="attention_mask",
            expected=f"at least {shape_of(reader.responses)}",
            found=shape_of(found),
        )
    return [row != 0 for row in found.rows()]


def _lengths(reader: FieldReader, real: list[Tensor] | None) -> Tensor:
    stored = reader.responses.lengths
    if real is None:
        return stored
    pairs = zip(real, stored.tolist(), strict=True)
    ends = [end_of(row[len(row) - width :]) for row, width in pairs]
    return torch.tensor(ends, dtype=torch.int64, device=stored.device)


def end_of(marked: Tensor) -> int:
    """Return the position behind the last that is marked; 0 where none is.

    Examples
    --------
    >>> end_of(torch.tensor([0, 1, 1, 0]))
    3
    """
    places = marked.nonzero()
    return int(places[-1]) + 1 if len(places) else 0


def _prompts(reader: FieldReader, real: list[Tensor] | None) -> dict[str, Tensor]:
    found = reader.prompts
    if found is None:
        return {}
    if len(found.lengths) != reader.num_samples:
        raise reader.misfit(
            key="prompts",
            expected=f"{reader.num_samples} rows of positions",
            found=shape_of(found),
        )
    if real is not None:
        wholes = (found.lengths + reader.responses.lengths).tolist()
        if wholes != [len(row) for row in real]:
            raise reader.misfit(
                key="attention_mask",
                expected=f"{wholes[:1]} positions a row, of prompt and response",
                found=f"{[len(row) for row in real[:1]]}",
            )
        pairs = zip(found.rows(), real, strict=True)
        found = ragged([row[keep[: len(row)]] for row, keep in pairs])
    return {"prompt_ids": found.values, "prompt_offsets": found.offsets}


def _position_ids(
    reader: FieldReader, real: list[Tensor] | None
) -> tuple[Tensor, ...] | None:
    rows = reader.row_list("position_ids")
    if rows is None or real is None:
        return None if rows is None else tuple(rows)
    sizes = [row.shape[-1] for row in rows]
    if sizes != [len(row) for row in real]:
        raise reader.misfit(
            key="position_ids",
            expected="rows as long as those of `attention_mask`",
            found=f"{len(rows)} rows of {sizes[:1]} positions",
        )
    return tuple(_real_part(row, keep) for row, keep in zip(rows, real, strict=True))


def _real_part(row: Tensor, real: Tensor) -> Tensor:
    """Cut the padding off: left of the prompt, right of the response."""
    places = real.nonzero()[:, 0]
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
    whole = last - first + 1 == len(places)
    return row[..., first : last + 1] if whole else row[..., real]


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
