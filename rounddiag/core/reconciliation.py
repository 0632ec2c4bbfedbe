"""Reconciliation of logged numbers with those computed from the saved batch."""

from __future__ import annotations

import math
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

import torch

from rounddiag.batch.batch import require_batch
from rounddiag.core.divergence import diff, k3, prob_diff
from rounddiag.core.verl import Tokens, add_by_group, metrics, scalars

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from torch import Tensor

    from rounddiag.batch import Batch


def variants(batch: Batch) -> dict[str, dict[str, float]]:
    """Compute the numbers of every known variant, by its explanation.

    Parameters
    ----------
    batch : Batch

    Returns
    -------
    dict of str to dict
        Explanation -> numbers under the names of `rounddiag.metrics`.
    """
    tokens = Tokens.from_batch(batch)
    swapped = replace(tokens, old=tokens.rollout, rollout=tokens.old)
    numbers = {
        "another mask: observations are counted too": _masked(batch, _is_real(batch)),
        "the two engines are exchanged": scalars(swapped),
        "over log-probabilities, not probabilities": _over_log_probs(tokens),
        "over probabilities, not log-probabilities": _over_probs(tokens),
        "weighted by sample, not by token": _by_sample(tokens),
    }
    if batch.loss_mask is not None:
        kept = (batch.response_mask != 0) & (batch.loss_mask != 0)
        numbers["another mask: after rejection (`loss_mask`)"] = _masked(batch, kept)
    return numbers


def _masked(batch: Batch, mask: Tensor) -> dict[str, float]:
    return scalars(
        Tokens.from_batch(replace(batch, response_mask=mask, round_ids=None))
    )


def _is_real(batch: Batch) -> Tensor:
    """Return which positions are not padding."""
    sizes = batch.offsets.diff()
    position = torch.arange(len(batch.response_ids), device=sizes.device)
    ends = batch.offsets[:-1] + batch.lengths
    return position < ends.repeat_interleave(sizes)


def _over_log_probs(tokens: Tokens) -> dict[str, float]:
    size = diff(tokens.old, tokens.rollout).abs()
    as_probs = replace(tokens, old=size.log1p(), rollout=torch.zeros_like(size))
    # exp(log1p(|d|)) - exp(0) is |d|: verl's formulas, given |d| for a probability.
    numbers = scalars(as_probs)
    return {name: numbers[name] for name in numbers if "probs_diff" in name}


def _over_probs(tokens: Tokens) -> dict[str, float]:
    probs = replace(tokens, old=tokens.old.exp(), rollout=tokens.rollout.exp())
    numbers = scalars(probs)
    return {name: numbers[name] for name in numbers if name.startswith("per_round/")}


def _by_sample(tokens: Tokens) -> dict[str, float]:
    difference = diff(tokens.old, tokens.rollout)
    everywhere = torch.ones_like(tokens.round, dtype=torch.bool)
    parts = {
        "training/rollout_probs_diff_mean": (
            prob_diff(tokens.old, tokens.rollout),
            everywhere,
        ),
        "rollout_corr/kl": (-difference, everywhere),
        "rollout_corr/k3_kl": (k3(difference), everywhere),
    }
    for index in range(tokens.num_rounds):
        name = f"per_round/round_{index}_abs_diff_mean"
        parts[name] = difference.abs(), tokens.round == index
    return {name: _mean_of_means(tokens, *part) for name, part in parts.items()}


def _mean_of_means(tokens: Tokens, values: Tensor, keep: Tensor) -> float:
    """Return the mean of sample means, over the samples that have tokens."""
    sample, kept = tokens.sample[keep], values[keep]
    count = add_by_group(torch.ones_like(kept), sample, tokens.num_samples)
    total = add_by_group(kept, sample, tokens.num_samples)
    return float((total / count)[count > 0].mean())


# verl computes in float32; where terms cancel, fewer of its digits are exact.
_TOLERANCE, _CANCELLING_TOLERANCE = 2e-5, 5e-4
_CANCELLING = ("k3", "chi2", "kl", "diff")
# Differences of means of float32 log-probs are not resolved below this.
_FLOOR = 1e-7


def reconcile(batch: Batch, logged: Mapping[str, float]) -> pd.DataFrame:
    """Compare each number that a trainer logged with the one computed from the batch.

    Parameters
    ----------
    batch : Batch
    logged : mapping of str to float
        Names, as in `rounddiag.metrics`, and values, as W&B or the console shows them.

    Returns
    -------
    DataFrame
        One row per number: `name`, `logged`, `here` (computed from the batch), `equal`,
        and `reason`: where they differ, the first known variant that yields the logged
        number: another mask, the engines exchanged, log-probabilities against
        probabilities, weight per sample against per token, rows missing. Equal means
        within 2e-5, relative; 5e-4 where verl's float32 cancels.

    Raises
    ------
    BatchError
        If `batch` is not a Batch.

    Examples
    --------
    >>> import torch, rounddiag as rd
    >>> batch = rd.Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 6, 7]]),
    ...     response_mask=torch.tensor([[1, 0, 1]]),
    ...     rollout_log_probs=torch.tensor([[-1.0, 0.0, -2.0]]),
    ...     old_log_probs=torch.tensor([[-1.5, -3.0, -2.0]]),
    ... )
    >>> found = rd.reconcile(batch, {"rollout_corr/kl": 0.25, "rollout_corr/ppl": 9})
    >>> found["equal"].tolist()
    [True, False]
    >>> found["reason"].tolist()[1]
    "not a number of this batch; did you mean 'rollout_corr/kl'?"
    """
    import pandas as pd

    require_batch(batch)
    here = metrics(batch)
    others = variants(batch)
    rows = []
    for name, value in logged.items():
        found = here.get(name, math.nan)
        equal = name in here and _equal(name, value, found)
        reason = "" if equal else _reason(name, value, here, others)
        rows.append((name, value, found, equal, reason))
    return pd.DataFrame(rows, columns=["name", "logged", "here", "equal", "reason"])


def _equal(name: str, logged: float, found: float) -> bool:
    if math.isnan(logged) or math.isnan(found):
        return math.isnan(logged) and math.isnan(found)
    tail = name.rsplit("/", 1)[-1]
    loose = any(word in tail for word in _CANCELLING)
    tolerance = _CANCELLING_TOLERANCE if loose else _TOLERANCE
    return math.isclose(logged, found, rel_tol=tolerance, abs_tol=_FLOOR)


def _reason(
    name: str,
    value: float,
    here: Mapping[str, float],
    others: Mapping[str, Mapping[str, float]],
) -> str:
    if name not in here:
        close = get_close_matches(name, here, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"not a number of this batch{hint}"
    for reason, numbers in others.items():
        if name in numbers and _equal(name, value, numbers[name]):
            return reason
    if name.endswith(("token_count", "_max", "total_rounds")) and value > here[name]:
        return "rows missing: the trainer saw more than the file holds"
    return "not explained: check that it is of this step, these rows and this mask"
