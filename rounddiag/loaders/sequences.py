"""Rows of prompt and response in one, divided where the model first wrote.

Some trainers keep whole sequences, and leave the first token out of what is per token,
as nothing predicts it: the value in column `i` is then of token `i + 1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from rounddiag.errors import LoadError
from rounddiag.loaders.ragged import row_list

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
    sequences = RowReader(held, source, tokens)
    mask, real = sequences.required(written), sequences.real()
    spans = [_span(*rows) for rows in zip(mask, real, strict=True)]
    before = [keep[:start] for keep, (start, _) in zip(real, spans, strict=True)]
    found = {ours: sequences.field(theirs) for theirs, ours in names.items()}
    parts = {"responses": sequences.tokens, "response_mask": mask, **found}
    places = sequences.field("position_ids")
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
        **({} if places is None else {"position_ids": _real(places, real)}),
    }


def _real(rows: list[Tensor], real: list[Tensor]) -> list[Tensor]:
    return [row[..., keep] for row, keep in zip(rows, real, strict=True)]


def _span(mask: Tensor, real: Tensor) -> tuple[int, int]:
    """Return where the response starts and ends."""
    places, marked = mask.nonzero(), real.nonzero()
    stop = int(marked[-1]) + 1 if len(marked) else 0
    return max(1, int(places[0]) if len(places) else stop), stop


class RowReader:
    """Looks up fields, each as rows as long as those of the tokens.

    Parameters
    ----------
    held : mapping of str to rows
        It may read from a file when looked up.
    source : path-like
        Named in messages.
    tokens : str
        The field of token ids.
    """

    def __init__(self, held: Mapping[str, Any], source: object, tokens: str) -> None:
        self._held, self._source, self._key = held, source, tokens
        # `in` on a mapping that reads when looked up would read the whole field.
        self._names = tuple(held)
        self.tokens = self._rows(tokens)

    def required(self, name: str) -> list[Tensor]:
        """Return a field that has to be there."""
        found = self.field(name)
        return self._rows(name) if found is None else found

    def real(self) -> list[Tensor]:
        """Return which tokens are no padding."""
        found = self.field("attention_mask") or map(torch.ones_like, self.tokens)
        return [row != 0 for row in found]

    def field(self, name: str) -> list[Tensor] | None:
        """Return a field, with 0 for the first token where it has no value."""
        if name not in self._names:
            return None
        rows = self._rows(name)
        sizes = [len(row) for row in self.tokens]
        lacking = {size - row.shape[-1] for row, size in zip(rows, sizes, strict=False)}
        if len(rows) != len(sizes) or len(lacking) > 1 or not lacking <= {0, 1}:
            raise self._misfit(
                name,
                expected=f"{len(sizes)} rows, as long as those of `{self._key}` or"
                " without the first token",
                found=f"{len(rows)} rows of {[row.shape[-1] for row in rows[:4]]},"
                f" where those have {sizes[:4]}",
            )
        return [pad(row, (max(lacking, default=0), 0)) for row in rows]

    def _rows(self, name: str) -> list[Tensor]:
        if name not in self._names:
            raise self._misfit(name, expected="this field", found="none")
        try:
            return row_list(self._held[name])
        except (ValueError, TypeError, RuntimeError) as error:
            raise self._misfit(
                name, expected="rows of numbers", found=f"{error!s:.80}"
            ) from error

    def _misfit(self, key: str, *, expected: str, found: str) -> LoadError:
        return LoadError.build(
            file=self._source,
            key=key,
            expected=expected,
            found=found,
            advice="Save every field for the same samples and tokens.",
        )
