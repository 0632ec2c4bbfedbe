"""Copies of what a trainer holds: nothing that it changes or frees later is kept."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.errors import LoadError
from rounddiag.loaders.fields.columns import plain_columns
from rounddiag.loaders.fields.field_reader import FieldReader
from rounddiag.loaders.fields.mapping import SCORE
from rounddiag.loaders.parquet.columns import host_array

if TYPE_CHECKING:
    from collections.abc import Collection

    from rounddiag.capture.fields import Parts
    from rounddiag.loaders.tensors.ragged import Ragged

WEIGHTS = "rollout_is_weights"
# One value a token each. The position ids of a vision model have four, and would cost
# as much as the rest: `save_batch` keeps them.
_TAKEN = {
    *("responses", "response_ids", "prompts", "prompt_ids", "round_ids"),
    *("rollout_log_probs", "old_log_probs", "entropys", "entropy", "advantages"),
    *("response_mask", "loss_mask", "attention_mask"),
    *("token_level_scores", "rm_scores", WEIGHTS),
}


def held(parts: Parts, *, without: Collection[str] = ()) -> Parts:
    """Copy what a file of every sample needs to host memory.

    Parameters
    ----------
    parts : Parts
    without : collection of str
        Fields that are held already.

    Raises
    ------
    LoadError
        If a field has no rows, or the responses are missing.
    """
    reader = FieldReader(parts.fields, parts.source)
    names = [name for name in reader.names if name not in without]
    found = {name: _rows(reader, name) for name in names}
    fields = {name: _copy(row) for name, row in found.items() if row is not None}
    columns = plain_columns(parts.columns, reader.num_samples)
    others = (name for name in (*names, *parts.columns) if name not in fields)
    return replace(
        parts,
        fields=fields,
        columns={name: values.copy() for name, values in columns.items()},
        info={k: v for k, v in parts.info.items() if isinstance(v, str | int | float)},
        inputs=(),
        round_records=deepcopy(parts.round_records),
        left_out=tuple(name for name in others if name not in columns),
    )


def _rows(reader: FieldReader, name: str) -> Ragged | None:
    """Return a field that is held: more log-probabilities where they are of tokens."""
    if name in _TAKEN:
        return reader.rows(name)
    if not SCORE.fullmatch(name):
        return None
    try:
        found = reader.rows(name)
    except LoadError:
        return None
    responses = reader.responses
    fits = found is not None and torch.equal(found.offsets, responses.offsets)
    return found if fits else None


def _copy(found: Ragged) -> Ragged:
    values = torch.from_numpy(host_array(found.values))
    # What is on the host already, in the type that a file has, is still the trainer's.
    is_shared = values.data_ptr() == found.values.data_ptr()
    return replace(
        found,
        values=values.clone() if is_shared else values,
        offsets=found.offsets.to("cpu", copy=True),
    )
