"""Fields of several batches, end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.layout import PER_SAMPLE, offsets_of
from rounddiag.core.open_columns import spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]


def per_token(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join the fields per token that all of them have."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def prompts(parts: Sequence[Batch]) -> dict[str, Tensor]:
    """Join the prompts, where all have them."""
    ids, sizes = [], []
    for part in parts:
        if part.prompt_ids is None or part.prompt_offsets is None:
            return {}
        ids.append(part.prompt_ids[part.prompt_offsets[0] :])
        sizes.append(part.prompt_offsets.diff())
    return {
        "prompt_ids": torch.cat(ids),
        "prompt_offsets": offsets_of(torch.cat(sizes)),
    }


def per_sample(parts: Sequence[Batch]) -> dict[str, Any]:
    """Join what is there once a sample: all have it, or the others have none."""
    found: dict[str, Any] = {"rewards": _rewards(parts)}
    for name in PER_SAMPLE:
        values = [getattr(part, name) for part in parts]
        if name == "images" and any(value is not None for value in values):
            none = [((),) * len(part) for part in parts]
            values = [v or n for v, n in zip(values, none, strict=True)]
        if all(value is not None for value in values):
            found[name] = tuple(entry for value in values for entry in value)
    return found


def _rewards(parts: Sequence[Batch]) -> Tensor | None:
    if all(part.rewards is None for part in parts):
        return None
    rows = [
        torch.full((len(part),), torch.nan) if part.rewards is None else part.rewards
        for part in parts
    ]
    return torch.cat(rows)


def sample_columns(parts: Sequence[Batch]) -> dict[str, Array]:
    """Join the columns of samples; those that lack one get NaN or None."""
    sizes = [len(part) for part in parts]
    return _columns([part.sample_columns for part in parts], sizes)


def round_columns(parts: Sequence[Batch]) -> dict[str, Array]:
    """Join the rows of those that have any; the samples count on."""
    starts = np.cumsum([0, *map(len, parts[:-1])])
    counted = [
        {**part.round_columns, "sample": part.round_columns["sample"] + start}
        for part, start in zip(parts, starts, strict=True)
        if part.round_columns
    ]
    return _columns(counted, [len(columns["sample"]) for columns in counted])


def _columns(
    parts: Sequence[Mapping[str, Array]], sizes: list[int]
) -> dict[str, Array]:
    ends = np.cumsum(sizes)
    names = dict.fromkeys(name for part in parts for name in part)
    joined = {}
    for name in names:
        here = [index for index, part in enumerate(parts) if name in part]
        places = [np.arange(ends[i] - sizes[i], ends[i]) for i in here]
        values = _end_to_end([parts[i][name] for i in here])
        joined[name] = spread(values, np.concatenate(places), sum(sizes))
    return joined


def _end_to_end(arrays: list[Array]) -> Array:
    """Join arrays; numpy would turn numbers beside texts into texts."""
    kinds = {array.dtype.kind for array in arrays}
    if len(kinds) > 1 and not kinds <= {"i", "f"}:
        arrays = [array.astype(object) for array in arrays]
    return np.concatenate(arrays)
