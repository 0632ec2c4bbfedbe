"""Padding removed by the attention mask; whole sequences split in two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rounddiag.loaders.fields.reader import PLACES, FieldReader, shape_of
from rounddiag.loaders.lazy.arrays import ragged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


def without_padding(reader: FieldReader) -> dict[str, Any]:
    """Return lengths, prompts and position ids of a batch, without padding.

    Nested fields have no padding. A file without `attention_mask` is read as if it had
    none.
    """
    real = real_positions(reader)
    return {
        "lengths": _lengths(reader, real),
        **_prompts(reader, real),
        "position_ids": _position_ids(reader, real),
    }


def real_positions(reader: FieldReader) -> list[Tensor] | None:
    """Return a mask of the real positions of prompt and response, a row a sample."""
    mask = reader.rows("attention_mask") if reader.tokens.is_padded else None
    if mask is None:
        return None
    if len(mask.lengths) != reader.num_samples or mask.values.dim() != 1:
        raise reader.misfit(
            key="attention_mask",
            expected=f"{reader.num_samples} rows of positions",
            found=shape_of(mask),
        )
    if bool((mask.lengths < reader.tokens.lengths).any()):
        raise reader.misfit(
            key="attention_mask",
            expected=f"at least {shape_of(reader.tokens)}",
            found=shape_of(mask),
        )
    return [row != 0 for row in mask.rows()]


def _lengths(reader: FieldReader, real: list[Tensor] | None) -> Tensor:
    stored = reader.tokens.lengths
    if real is None:
        return stored
    pairs = zip(real, stored.tolist(), strict=True)
    ends = [end_of(row[len(row) - width :]) for row, width in pairs]
    return torch.tensor(ends, dtype=torch.int64, device=stored.device)


def end_of(marked: Tensor) -> int:
    """Return the position after the last marked one; 0 if none is marked.

    Examples
    --------
    >>> end_of(torch.tensor([0, 1, 1, 0]))
    3
    """
    places = marked.nonzero()
    return int(places[-1]) + 1 if len(places) else 0


def _prompts(reader: FieldReader, real: list[Tensor] | None) -> dict[str, Tensor]:
    prompts = reader.prompts
    if prompts is None:
        return {}
    if len(prompts.lengths) != reader.num_samples:
        raise reader.misfit(
            key="prompts",
            expected=f"{reader.num_samples} rows of positions",
            found=shape_of(prompts),
        )
    if real is not None:
        wholes = (prompts.lengths + reader.tokens.lengths).tolist()
        if wholes != [len(row) for row in real]:
            raise reader.misfit(
                key="attention_mask",
                expected=f"{wholes[:1]} positions a row, of prompt and response",
                found=f"{[len(row) for row in real[:1]]}",
            )
        pairs = zip(prompts.rows(), real, strict=True)
        prompts = ragged([row[keep[: len(row)]] for row, keep in pairs])
    return {"prompt_ids": prompts.values, "prompt_offsets": prompts.offsets}


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
    """Cut off the padding on the left of the prompt and the right of the response."""
    places = real.nonzero()[:, 0]
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, -1)
    whole = last - first + 1 == len(places)
    return row[..., first : last + 1] if whole else row[..., real]


def divided(
    fields: Mapping[str, Any],
    source: object,
    *,
    tokens: str,
    written: str,
    names: Mapping[str, str],
) -> dict[str, list[Tensor]]:
    """Split whole sequences into prompt and response, under verl's names, unpadded.

    The prompt is what precedes the first token that the model wrote, and at least the
    first token. The response goes on to the last token that `attention_mask` marks.

    Parameters
    ----------
    fields : mapping of str to rows
        Padded tensors or sequences of rows. A field is read when it is looked up.
    source : path-like
        Named in messages.
    tokens, written : str
        The fields of token ids, and of the mask of what the model wrote.
    names : mapping of str to str
        Optional fields with one value per token, and verl's names for them. Fields
        other than `tokens` may lack the first token.

    Raises
    ------
    LoadError
        If a field is missing or does not fit.
    """
    reader = FieldReader(fields, source, tokens)
    ids = reader.tokens.rows()
    mask = reader.required_token_rows(written, may_lack_first=True)
    attended = reader.token_rows("attention_mask", may_lack_first=True)
    real = [row != 0 for row in attended or map(torch.ones_like, ids)]
    spans = [_span(*rows) for rows in zip(mask, real, strict=True)]
    parts = {"responses": ids, "response_mask": mask}
    for theirs, ours in names.items():
        rows = reader.token_rows(theirs, may_lack_first=True)
        if rows is not None:
            parts[ours] = rows
    prompts = [
        row[:start][keep[:start]]
        for row, keep, (start, _) in zip(ids, real, spans, strict=True)
    ]
    responses = {
        name: [row[slice(*span)] for row, span in zip(rows, spans, strict=True)]
        for name, rows in parts.items()
    }
    places = reader.token_rows(PLACES, may_lack_first=True)
    if places is not None:
        pairs = zip(places, real, strict=True)
        responses[PLACES] = [row[..., keep] for row, keep in pairs]
    return {"prompts": prompts, **responses}


def _span(mask: Tensor, real: Tensor) -> tuple[int, int]:
    """Return where the response starts and ends."""
    places, stop = mask.nonzero(), end_of(real)
    return max(1, int(places[0]) if len(places) else stop), stop
