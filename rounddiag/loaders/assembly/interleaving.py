"""Fields of samples, interleaved from the rows that are their steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.layout import offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot


# Not computed for observations: NaN. Log-probs and masks are 0 there, as in verl.
_UNDEFINED = ("entropy", "advantages")


class StepInterleaver:
    """Interleaves the rows of each sample: a later prompt becomes an observation.

    Parameters
    ----------
    rows : Batch
        The rows of each sample, one after the other.
    sizes : array of int
        How many rows each sample has; at least one.

    Attributes
    ----------
    first, last : array of int, one a sample
        Its first and its last row.
    sample : array of int, one a row
        The sample of the row.
    rounds_before : array of int, one a row
        Number of rounds of the sample in earlier rows.
    breaks : Tensor of int
        Where later rows start in the flat fields.
    """

    def __init__(self, rows: Batch, sizes: Array) -> None:
        self._rows = rows
        self.last = np.cumsum(sizes) - 1
        self.first = self.last - sizes + 1
        self.sample = np.repeat(np.arange(len(sizes)), sizes)
        self._lengths = rows.lengths.numpy()
        self._observed = self._prompt_sizes()
        self._observed[self.first] = 0
        width = self._observed + self._lengths
        before = np.cumsum(width) - width
        self._start = before + self._observed - before[self.first][self.sample]
        self._width = np.bincount(self.sample, width, len(sizes)).astype(np.int64)
        num_rounds = np.bincount(rows.rounds.sample.numpy(), minlength=len(rows))
        rounds = np.cumsum(num_rounds) - num_rounds
        self.rounds_before = rounds - rounds[self.first][self.sample]
        self._rounds_after = self.rounds_before + num_rounds
        self.breaks = torch.from_numpy(np.delete(before, self.first))

    def _prompt_sizes(self) -> Array:
        offsets = self._rows.prompt_offsets
        if offsets is None:
            return np.zeros(len(self._rows), dtype=np.int64)
        sizes: Array = offsets.diff().numpy().copy()
        return sizes

    def fields(self) -> dict[str, Any]:
        """Return the fields of the samples, except prompts."""
        rows, lengths = self._rows, torch.from_numpy(self._width)
        ids = rows.response_ids
        tokens = {
            name: self._with_observations(flat, name)
            for name, flat in rows.per_token.items()
        }
        scores = {k: self._with_observations(v, k) for k, v in rows.scores.items()}
        return {
            **tokens,
            "response_ids": torch.cat(
                [ids[:0], *self._with_prompts(self._rows_of(ids))]
            ),
            "scores": scores,
            "lengths": lengths,
            "offsets": offsets_of(lengths),
            "rollout_ids": self._rollout_ids(),
            "images": self._images(),
        }

    def _rows_of(self, flat: Tensor) -> list[Tensor]:
        """Return the real positions of each row."""
        starts = self._rows.offsets[:-1].tolist()
        pairs = zip(starts, self._lengths.tolist(), strict=True)
        return [flat[start : start + length] for start, length in pairs]

    def _with_observations(self, flat: Tensor, name: str) -> Tensor:
        undefined = name in _UNDEFINED and flat.dtype.is_floating_point
        filler = torch.nan if undefined else 0
        parts = [
            part
            for row, size in zip(self._rows_of(flat), self._observed, strict=True)
            for part in (flat.new_full((int(size),), filler), row)
        ]
        return torch.cat([flat[:0], *parts])

    def _with_prompts(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Put the prompt of each later row before its tokens."""
        ids, offsets = self._rows.prompt_ids, self._rows.prompt_offsets
        if ids is None or offsets is None:
            return list(rows)
        starts = offsets.tolist()
        parts = zip(starts, self._observed.tolist(), rows, strict=False)
        return [
            torch.cat([ids[start : start + size].to(row.dtype), row])
            for start, size, row in parts
        ]

    def _rollout_ids(self) -> tuple[Tensor, ...] | None:
        if self._rows.rollout_ids is None:
            return None
        rows = self._with_prompts(self._rows.rollout_ids)
        limits = zip(self.first, self.last + 1, strict=True)
        return tuple(torch.cat(rows[start:stop]) for start, stop in limits)

    def _images(self) -> tuple[tuple[Screenshot, ...], ...] | None:
        if self._rows.images is None:
            return None
        shots = [
            [self._moved(row, shot) for shot in found]
            for row, found in enumerate(self._rows.images)
        ]
        limits = zip(self.first, self.last + 1, strict=True)
        return tuple(tuple(chain.from_iterable(shots[a:b])) for a, b in limits)

    def _moved(self, row: int, shot: Screenshot) -> Screenshot:
        """Return a screenshot with its round and position in the sample."""
        after = int(self._rounds_after[row])
        last = int(self._rounds_after[self.last[self.sample[row]]])
        index = (
            after if shot.round is None else shot.round + int(self.rounds_before[row])
        )
        place = None if shot.position is None else shot.position + int(self._start[row])
        return replace(shot, round=index if index < last else None, position=place)
