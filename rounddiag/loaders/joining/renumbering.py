"""What is said of rounds stays with its tokens when the rounds are divided anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.checks.words import count
from rounddiag.loaders.left_out import left_out_of, told_left_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot

    Array = np.ndarray[Any, Any]


def with_rounds(batch: Batch, **changes: Any) -> Batch:  # noqa: ANN401 the fields have many types
    """Return the batch with another mask or other `round_ids`.

    Screenshots and the rows of `round_columns` go to the round that now has the first
    token of theirs. Where two rounds become one, the rows of the first are kept and the
    others counted in `meta["left_out"]`.

    Parameters
    ----------
    batch : Batch
    **changes
        `response_mask`, `round_ids` or other fields.
    """
    done = replace(batch, **changes)
    if done.num_rounds == batch.num_rounds:
        return done
    new_rounds = _NewRounds(batch, done)
    images = batch.images and tuple(
        tuple(new_rounds.shown(sample, shot) for shot in shots)
        for sample, shots in enumerate(batch.images)
    )
    columns, num_lost = _merged(batch.round_columns, new_rounds)
    lost = [f"{count(num_lost, 'row')} of `round_columns`"] if num_lost else []
    told = told_left_out([*left_out_of(batch), *lost])
    return replace(
        done, images=images, round_columns=columns, meta={**batch.meta, **told}
    )


class _NewRounds:
    """Tells which round a round of the old batch has become."""

    def __init__(self, old: Batch, new: Batch) -> None:
        start = new.rounds.start.cpu().numpy()
        before = old.rounds.start.cpu().numpy()
        sample = old.rounds.sample.cpu().numpy()
        place = np.searchsorted(start, before, side="right") - 1
        self._became = new.rounds.round.cpu().numpy()[place]
        self._counts = np.bincount(sample, minlength=len(old))
        self._first = np.cumsum(self._counts) - self._counts

    def of(self, sample: Array, index: Array) -> Array:
        """Return the new indices; a round that is not there keeps its own."""
        sample, moved = sample.astype(np.int64), index.astype(np.int64)
        inside = (sample >= 0) & (sample < len(self._counts)) & (moved >= 0)
        inside[inside] = moved[inside] < self._counts[sample[inside]]
        moved[inside] = self._became[self._first[sample[inside]] + moved[inside]]
        return moved

    def shown(self, sample: int, shot: Screenshot) -> Screenshot:
        if shot.round is None:
            return shot
        moved = self.of(np.array([sample]), np.array([shot.round]))
        return replace(shot, round=int(moved[0]))


def _merged(
    columns: Mapping[str, Array], new_rounds: _NewRounds
) -> tuple[Mapping[str, Array], int]:
    """Return the columns with their new rounds, the first row of each, and the rest."""
    if not columns:
        return columns, 0
    sample = columns["sample"]
    moved = new_rounds.of(sample, columns["round"])
    _, first = np.unique(np.stack([sample, moved]), axis=1, return_index=True)
    keep = np.sort(first)
    kept = {name: values[keep] for name, values in {**columns, "round": moved}.items()}
    return kept, len(moved) - len(keep)
