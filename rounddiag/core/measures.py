"""Metrics of tokens, by name: from columns of the token frame to values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from rounddiag.core.divergence import (
    beyond,
    chi2,
    k1,
    k2,
    k3,
    mult_prob_error,
    prob_diff,
)
from rounddiag.core.sums import pack_tokens
from rounddiag.errors import FrameError
from rounddiag.schema import METRICS, Metric, metric_name

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Measure(Metric):
    """A metric with the function that computes it.

    Attributes
    ----------
    values : callable
        From the column `source_column`, finite floats, to values of the same shape.
    """

    values: Callable[[Array], Array]

    @property
    def extra_columns(self) -> list[str]:
        """The columns beside `diff` that a token frame needs for it."""
        return [] if self.source_column == "diff" else [self.source_column]


def _float64(
    definition: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[..., Array]:
    """Compute in float64: the exponential of a large diff overflows float32."""

    def values(column: Array) -> Array:
        wide = torch.from_numpy(column.astype(np.float64))
        result: Array = definition(wide).double().numpy()
        return result

    return values


def _beyond(threshold: float) -> Callable[[Array], Array]:
    return _float64(lambda diff: beyond(diff, threshold))


_VALUES: dict[str, Callable[[Array], Array]] = {
    "abs_diff": np.abs,
    "diff": np.positive,
    "prob_diff": np.positive,
    "k1": k1,
    "k2": _float64(k2),
    "k3": _float64(k3),
    "chi2": _float64(chi2),
    "beyond": _beyond(2.0),
    "train_rollout_logprob_abs_diff": np.abs,
    "mismatch_kl": _float64(k3),
    "token_mult_prob_error": _float64(mult_prob_error),
}
MEASURES = {
    name: Measure(**vars(metric), values=_VALUES[name])
    for name, metric in METRICS.items()
}


def get_measure(metric: str, threshold: float = 2.0) -> Measure:
    """Return the measure of a metric.

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
    >>> get_measure("k2").values(np.array([0.0, -1.0], dtype=np.float32)).tolist()
    [0.0, 0.5]
    """
    if not threshold > 1:
        raise FrameError.build(
            key="threshold",
            expected="a ratio above 1",
            found=str(threshold),
            advice="Pass 2.0 for ratios below 0.5 or above 2.",
        )
    measure = MEASURES[metric_name(metric)]
    if measure.name == "beyond":
        return replace(measure, values=_beyond(threshold))
    return measure


def prob_diffs(batch: Batch) -> Array:
    """Return |old - rollout| probability of every generated token, in order."""
    scores = batch.old_log_probs, batch.rollout_log_probs
    return compute_prob_diffs(*(pack_tokens(batch, score) for score in scores))


def read_prob_diffs(tokens: pd.DataFrame) -> Array | None:
    """Return |old - rollout| probability of a token frame's rows.

    None if the frame has neither `prob_diff` nor `rollout_log_prob`.
    """
    if "prob_diff" in tokens:
        column: Array = tokens["prob_diff"].to_numpy()
        return column
    if "rollout_log_prob" not in tokens:
        return None
    rollout, diff = tokens["rollout_log_prob"].to_numpy(), tokens["diff"].to_numpy()
    return compute_prob_diffs(rollout + diff, rollout.copy())


def compute_prob_diffs(a: Array, b: Array) -> Array:
    """Return the absolute difference of the probabilities of two log-probs."""
    result: Array = prob_diff(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    return result
