"""Rounds that the mask does not give: no mask, adjacent turns, holes in the mask."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.layout import real_rows
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.batch.picture_places import with_image_rounds
from rounddiag.batch.trajectories import round_ids_with_breaks
from rounddiag.checks.rounds import find_holes
from rounddiag.errors import LoadError
from rounddiag.text.chat_template import decode_qwen, written_tokens
from rounddiag.vision import PatchScreenshot, Screenshot
from rounddiag.wording import pluralize


def with_rounds(batch: Batch, **changes: Any) -> Batch:  # noqa: ANN401 the fields have many types
    """Return the batch with a new mask or new `round_ids`.

    Screenshots and rows of `round_columns` move to the round that contains the first
    token of their old round. If two rounds become one, the row of the first is kept and
    the others are counted in `meta["left_out"]`.
    """
    contexts = batch.contexts
    changed = replace(batch, contexts=None, **changes)
    if changed.num_rounds == batch.num_rounds:
        return replace(changed, contexts=contexts)
    new_rounds = _NewRounds(batch, changed)
    if contexts is not None:
        rounds = new_rounds.indices(contexts.sample, contexts.round)
        contexts = replace(contexts, round=rounds.astype(np.int32))
    images = batch.images and tuple(
        tuple(new_rounds.move(sample, shot) for shot in shots)
        for sample, shots in enumerate(batch.images)
    )
    columns, num_lost = _merge_round_columns(batch.round_columns, new_rounds)
    lost = [f"{pluralize(num_lost, 'row')} of `round_columns`"] if num_lost else []
    entry = left_out_entry([*left_out_of(batch), *lost])
    return replace(
        changed,
        images=images,
        round_columns=columns,
        contexts=contexts,
        meta={**batch.meta, **entry},
    )


class _NewRounds:
    def __init__(self, old: Batch, new: Batch) -> None:
        start = new.rounds.start.cpu().numpy()
        before = old.rounds.start.cpu().numpy()
        sample = old.rounds.sample.cpu().numpy()
        place = np.searchsorted(start, before, side="right") - 1
        self._new_index = new.rounds.round.cpu().numpy()[place]
        self._counts = np.bincount(sample, minlength=len(old))
        self._first = np.cumsum(self._counts) - self._counts

    def indices(self, sample: Array, index: Array) -> Array:
        """Return the new indices; a round that does not exist keeps its index."""
        sample, new = sample.astype(np.int64), index.astype(np.int64)
        exists = (sample >= 0) & (sample < len(self._counts)) & (new >= 0)
        exists[exists] = new[exists] < self._counts[sample[exists]]
        new[exists] = self._new_index[self._first[sample[exists]] + new[exists]]
        return new

    def move(self, sample: int, shot: Screenshot) -> Screenshot:
        """Return a screenshot with the new index of its round."""
        if shot.round is None:
            return shot
        index = self.indices(np.array([sample]), np.array([shot.round]))
        return replace(shot, round=int(index[0]))


def _merge_round_columns(
    columns: Mapping[str, Array], new_rounds: _NewRounds
) -> tuple[Mapping[str, Array], int]:
    """Return the columns with one row per new round, and how many rows are lost."""
    if not columns:
        return columns, 0
    sample = columns["sample"]
    index = new_rounds.indices(sample, columns["round"])
    _, first = np.unique(np.stack([sample, index]), axis=1, return_index=True)
    rows = np.sort(first)
    merged = {**columns, "round": index}
    return {k: v[rows] for k, v in merged.items()}, len(index) - len(rows)


_UNKNOWN, FROM_TEMPLATE = "unknown", "from the chat template"  # `meta["rounds"]`


def with_template_mask(batch: Batch, tokenizer: object | None) -> Batch:
    """Compute the mask of a batch that has none from its chat template.

    Without a known template, the attention mask is used, which includes observations.
    Only image tokens are removed from it, and the rounds stay unknown.
    """
    if batch.meta.get("rounds") != _UNKNOWN or not len(batch):
        return batch
    if batch.meta.get("mask_source") != "attention_mask":
        return batch
    decode = decode_qwen if tokenizer is None else tokenizer
    ids = [row.numpy() for row in real_rows(batch, batch.require_ids())]
    try:
        flags = written_tokens(ids, decode)
    except Exception:  # noqa: BLE001 a tokenizer is foreign code; a check reports the failure
        flags = None
    mask, source, rounds = batch.response_mask, "attention_mask", _UNKNOWN
    if flags is not None:
        mask, source, rounds = mask.clone(), "the chat template", FROM_TEMPLATE
        for row, written in zip(real_rows(batch, mask), flags, strict=True):
            row.mul_(torch.from_numpy(written))
    elif any(shot.position is not None for row in batch.images or () for shot in row):
        mask, source = _without_images(batch), "attention_mask without image tokens"
    meta = {**batch.meta, "mask_source": source, "rounds": rounds}
    return with_image_rounds(replace(batch, response_mask=mask, meta=meta))


def _without_images(batch: Batch) -> Tensor:
    """Return the mask with 0 at the image tokens of pictures with a known position."""
    mask = batch.response_mask.clone()
    for row, shots in zip(real_rows(batch, mask), batch.images or (), strict=True):
        for shot in shots:
            if shot.position is not None and isinstance(shot, PatchScreenshot):
                stop = max(shot.position + shot.num_image_tokens, 0)
                row[max(shot.position, 0) : stop] = 0
    return mask


_MAX_TOKEN_ID = 1 << 31


def split_after(batch: Batch, stop_tokens: Collection[int]) -> Batch:
    """Split runs of generated tokens after each of these tokens, through `round_ids`.

    Two turns without an observation between them are one run of the mask; a stop token
    inside the run marks the end of the first turn.
    """
    ids = _as_list(stop_tokens)
    if not ids:
        return batch
    if not all(
        isinstance(token, Integral) and 0 <= token < _MAX_TOKEN_ID for token in ids
    ):
        raise LoadError.build(
            key="stop_tokens",
            expected="a list of token ids",
            found=f"{stop_tokens}"[:80],
            advice="Pass the numbers: `tokenizer.convert_tokens_to_ids(...)`.",
        )
    is_stop = torch.isin(batch.require_ids(), torch.tensor(ids, dtype=torch.int64))
    after = is_stop.nonzero()[:, 0] + 1
    changed = with_rounds(batch, round_ids=round_ids_with_breaks(batch, after))
    num_splits = changed.num_rounds - batch.num_rounds
    note = f"{num_splits} runs divided after {', '.join(map(str, ids))}"
    return replace(changed, meta={**changed.meta, "stop_tokens": note})


def _as_list(stop_tokens: Any) -> list[int]:  # noqa: ANN401 what should be a list
    """Return the tokens as a list; an invalid id if they are not iterable."""
    return [*stop_tokens] if isinstance(stop_tokens, Iterable) else [-1]


def fill_mask_holes(batch: Batch, *, fill: bool) -> Batch:
    """Report the holes that rejection left in the mask, and fill them on request."""
    holes = find_holes(batch)
    if not len(holes):
        return batch
    note = f"{len(holes)} found; load(..., fill_holes=True) fills them"
    if fill:
        note = f"{len(holes)} filled"
        mask = batch.response_mask.clone()
        mask[holes] = 1
        loss_mask = batch.response_mask if batch.loss_mask is None else batch.loss_mask
        batch = with_rounds(batch, response_mask=mask, loss_mask=loss_mask)
    return replace(batch, meta={**batch.meta, "holes": note})
