"""Metrics of tokens, by name: from columns of the token frame to values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rounddiag.core.divergence import beyond, chi2, k1, k2, k3, prob_diff
from rounddiag.core.sums import packed
from rounddiag.errors import FrameError
from rounddiag.schema import MEAN_COLUMNS, metric_name

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What a metric is of one token, and how its mean is taken.

    Attributes
    ----------
    values : callable
        From the column `diff`, float and finite, to values of the same shape.
    column : str
        What it takes in place of `diff`.
    in_rounds : str, optional
        The column of the round frame that has its mean, if one has.
    is_signed : bool
        It can be negative.
    most : float
        No value is larger.
    weight : {"token", "sample"}, optional
        The mean that its name stands for; any where left out.
    """

    values: Callable[[Array], Array]
    column: str = "diff"
    round_column: str | None = None
    is_signed: bool = False
    upper_bound: float = math.inf
    weight: str | None = None

    @property
    def extra_columns(self) -> list[str]:
        """The columns beside `diff` that a token frame needs for it."""
        return [] if self.column == "diff" else [self.column]


def _wide(definition: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Array]:
    """Compute in float64: the exponential of a large diff is no float32."""

    def values(column: Array) -> Array:
        wide = torch.from_numpy(column.astype(np.float64))
        found: Array = definition(wide).double().numpy()
        return found

    return values


MEASURES = {
    "abs_diff": Measure(values=np.abs, round_column=MEAN_COLUMNS["abs_diff"]),
    "diff": Measure(
        values=np.positive, round_column=MEAN_COLUMNS["diff"], is_signed=True
    ),
    "prob_diff": Measure(values=np.positive, column="prob_diff", upper_bound=1),
    "k1": Measure(values=k1, is_signed=True),
    "k2": Measure(values=_wide(k2)),
    "k3": Measure(values=_wide(k3), round_column="k3"),
    "chi2": Measure(values=_wide(chi2), is_signed=True),
}
# As trainers log them, whatever mean is asked for: slime's is over samples.
MEASURES |= {
    "train_rollout_logprob_abs_diff": replace(MEASURES["abs_diff"], weight="sample"),
    "mismatch_kl": replace(MEASURES["k3"], weight="token"),
}


def measure_of(metric: str, threshold: float = 2.0) -> Measure:
    """Return what a metric is.

    Parameters
    ----------
    metric : str
        A name in `schema.METRICS`, or the column of its mean.
    threshold : float
        Of `beyond`: importance ratios outside [1 / threshold, threshold].

    Raises
    ------
    FrameError
        If there is no such metric, or the threshold is not above 1.

    Examples
    --------
    >>> measure_of("k2").values(np.array([0.0, -1.0], dtype=np.float32)).tolist()
    [0.0, 0.5]
    """
    if not threshold > 1:
        raise FrameError.build(
            key="threshold",
            expected="a ratio above 1",
            found=str(threshold),
            advice="Pass 2.0 for ratios below 0.5 or above 2.",
        )
    is_beyond = _wide(lambda diff: beyond(diff, threshold))
    known = {**MEASURES, "beyond": Measure(values=is_beyond, upper_bound=1)}
    return known[metric_name(metric)]


def prob_diffs(batch: Batch) -> Array:
    """Return |old - rollout| probability of every generated token, in order."""
    scores = batch.old_log_probs, batch.rollout_log_probs
    return _prob_diff(*(packed(batch, score) for score in scores))


def prob_diffs_of(tokens: pd.DataFrame) -> Array | None:
    """Return |old - rollout| probability of a token frame's rows.

    None where neither the column `prob_diff` nor `rollout_log_prob` is there.
    """
    if "prob_diff" in tokens:
        column: Array = tokens["prob_diff"].to_numpy()
        return column
    if "rollout_log_prob" not in tokens:
        return None
    rollout, diff = tokens["rollout_log_prob"].to_numpy(), tokens["diff"].to_numpy()
    return _prob_diff(rollout + diff, rollout.copy())


def _prob_diff(a: Array, b: Array) -> Array:
    found: Array = prob_diff(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    return found
