"""Columns of the frames: from tensors and totals to arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag import schema
from rounddiag.core import expand
from rounddiag.core.measures import prob_diffs
from rounddiag.core.open_columns import open_names, open_values
from rounddiag.core.totals import packed
from rounddiag.core.words import need_ids, token_roles, token_texts
from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.core.totals import Totals

    Array = np.ndarray[Any, Any]

# Column of the token frame -> per-token field of the batch.
_FIELDS = {
    "token_id": "response_ids",
    "rollout_log_prob": "rollout_log_probs",
    "old_log_prob": "old_log_probs",
    "entropy": "entropy",
}
_OF_IDS = {"token_id", "role", "text"}
_ON_REQUEST = ("position", *_FIELDS, "prob_diff", "role", "text")


def check_columns(batch: Batch, columns: Sequence[str]) -> None:
    """Raise a FrameError for a column that is unknown or that the batch cannot give."""
    if isinstance(columns, str):
        raise FrameError.build(
            key="columns",
            expected="a list of columns",
            found=f"the text {columns!r}",
            advice=f"Pass {[columns]}.",
        )
    known = [*_ON_REQUEST, *open_names(batch)]
    for name in columns:
        if name not in known:
            raise FrameError.build(
                expected=f"columns out of {known}",
                found=repr(name),
                advice="`sample`, `round`, `token` and `diff` are always there.",
            )
        if name in _OF_IDS:
            need_ids(batch, name)
        if name in _FIELDS and getattr(batch, _FIELDS[name]) is None:
            raise FrameError.build(
                expected=f"a batch with `{_FIELDS[name]}` for the column {name!r}",
                found="a batch without it",
                advice="Leave the column out, or save the field in the trainer.",
            )


def aggregates(totals: Totals, num_tokens: Array) -> dict[str, Array]:
    """Turn totals, whose arrays it uses up, into counts and means of finite diffs."""
    found = {"num_tokens": num_tokens, "num_nonfinite": totals.num_nonfinite}
    num_finite = num_tokens
    if totals.num_nonfinite.any() or not num_tokens.all():
        num_finite = num_tokens - totals.num_nonfinite
        totals.max_abs_diff[num_finite == 0] = np.nan
    sums = {"mean_abs_diff": totals.abs_diff, "mean_diff": totals.diff}
    # In place, as these arrays are large where rounds are short; and 0 / 0 is NaN,
    # since nothing finite has no mean.
    with np.errstate(invalid="ignore"):
        for values in (*sums.values(), totals.k3):
            np.divide(values, num_finite, out=values)
    return {**found, **sums, "max_abs_diff": totals.max_abs_diff, "k3": totals.k3}


def token_column(batch: Batch, token: Array, name: str) -> Any:  # noqa: ANN401 list, array or categories
    """Return one value per generated token; `token` is the column of that name."""
    if name in _FIELDS:
        values = packed(batch, getattr(batch, _FIELDS[name]))
        return values.astype(schema.TOKENS[name].dtype, copy=False)
    if name == "prob_diff":
        return prob_diffs(batch)
    if name == "text":
        return token_texts(batch)
    if name == "role":
        return token_roles(batch)
    num = host(batch.rounds.num_tokens)
    if name == "position":
        return expand.repeated(positions(batch), num) + token
    return np.repeat(open_values(batch, name), num)


def positions(batch: Batch) -> Array:
    """Position of each round's first token in its response."""
    first = host(batch.offsets)[host(batch.rounds.sample)]
    return np.subtract(
        host(batch.rounds.start), first, dtype=np.int32, casting="unsafe"
    )


def host(values: Tensor) -> Array:
    """Bring a tensor to the host, as an array."""
    array: Array = values.cpu().numpy()
    return array
