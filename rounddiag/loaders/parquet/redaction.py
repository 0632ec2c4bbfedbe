"""A batch without what could tell whose task it was: its numbers alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from rounddiag.core.pairs import pair_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

# A number under such a name stands for one thing of the user's: a request, a prompt.
_NAMES_ONE = re.compile(r"(^|_)(u?u?id|ids|hash|hashes)(_|$)", re.IGNORECASE)
_NUMBERS = "biuf"
_PLAIN = (bool, int, float, type(None))
# The values of `meta` that are words of this package's own.
_WORDS = {
    "mask_source": ("response_mask", "loss_mask", "attention_mask"),
    "rounds": ("unknown",),
}


def redacted(batch: Batch) -> Batch:
    """Return the batch as `save(..., redact=True)` writes it; see there what stays."""
    return replace(
        batch,
        response_ids=torch.zeros_like(batch.response_ids),
        prompt_ids=None,
        prompt_offsets=None,
        rollout_ids=None,
        images=None,
        tokenizer=None,
        sample_ids=_numbered(batch.sample_ids),
        group_ids=_numbered(batch.group_ids),
        sample_columns=_numbers(batch.sample_columns),
        round_columns=_numbers(batch.round_columns),
        meta={**_meta(batch.meta), **_pair(batch)},
    )


def _numbered(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Replace names by numbers in the order in which they first stand."""
    if names is None:
        return None
    numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(names))}
    return tuple(numbers[name] for name in names)


def _numbers(columns: Mapping[str, Array]) -> dict[str, Array]:
    return {
        name: values
        for name, values in columns.items()
        if not _NAMES_ONE.search(name) and values.ndim == 1 and _holds_numbers(values)
    }


def _holds_numbers(values: Array) -> bool:
    if values.dtype == object:
        return all(isinstance(value, _PLAIN) for value in values)
    return values.dtype.kind in _NUMBERS


def _meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Keep counts, the sampler's numbers, and words that only this package writes."""
    counts = {k: v for k, v in meta.items() if k.startswith("num_") and _is_number(v)}
    words = {k: meta.get(k) for k, known in _WORDS.items() if meta.get(k) in known}
    sampling = meta.get("sampling")
    settings = sampling if isinstance(sampling, dict) else {}
    numbers = {k: v for k, v in settings.items() if _is_number(v)}
    return {**words, **counts, "sampling": numbers, "redacted": True}


def _pair(batch: Batch) -> dict[str, Any]:
    """Keep which scores are compared, as their names stay."""
    pair = pair_of(batch)
    is_known = {pair.a, pair.b} <= {"old", "rollout", *batch.scores}
    return {"pair": [pair.a, pair.b]} if is_known and not pair.is_standard else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
