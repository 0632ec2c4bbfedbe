"""Divergences of two log-probabilities of one token: one definition each.

`a` and `b` are log-probabilities of the same tokens, in nats; by default `a` is from
the training engine (`old`) and `b` from the sampling engine (`rollout`). `get_measure`
returns the definition of a metric of `schema.METRICS` as a function of a column of the
token frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.schema import METRICS, Metric, metric_name

if TYPE_CHECKING:
    import pandas as pd

    Values = TypeVar("Values", Tensor, np.ndarray[Any, Any])


FACTOR_2 = math.log(2)  # |diff|, in nats, at which engines differ by a factor of 2
_LOG_RATIO_BOUND = 20.0  # nats: of verl (`SAFETY_BOUND`), SkyRL and OpenRLHF
# Below this |diff| four terms of the series are exact to 1e-7, relative.
SERIES_LIMIT = 1 / 16
_SERIES = (1 / 120, 1 / 24, 1 / 6, 1 / 2)


def diff(a: Values, b: Values) -> Values:
    r"""Signed difference of log-probabilities: the log importance ratio.

    .. math:: d = \log p_a - \log p_b

    Examples
    --------
    >>> diff(torch.tensor([-1.0]), torch.tensor([-1.5]))
    tensor([0.5000])
    """
    return a - b


def k1(difference: Values) -> Values:
    r"""Estimate KL(b, a) per token by :math:`-d`, which can be negative.

    With the sign of verl, whose `rollout_corr/kl` is its mean.

    Examples
    --------
    >>> k1(torch.tensor([0.5]))
    tensor([-0.5000])
    """
    return -difference


def k2(difference: Values) -> Values:
    r"""Estimate KL(b, a) per token by :math:`d^2 / 2`.

    Examples
    --------
    >>> k2(torch.tensor([0.5]))
    tensor([0.1250])
    """
    return difference * difference / 2


def k3(difference: Tensor) -> Tensor:
    r"""Estimate KL(b, a) per token by :math:`e^d - 1 - d`, which is never negative.

    Computed without cancellation: in float32, `exp(d) - 1 - d` is 25 % wrong at 1e-4.

    References
    ----------
    John Schulman, "Approximating KL Divergence", 2020,
    http://joschu.net/blog/kl-approx.html
    """
    k3 = k3_near_zero(difference)
    # Few are large, and the exponential is slow.
    large = difference.abs() >= SERIES_LIMIT
    wide = difference[large].double()
    k3[large] = (torch.expm1(wide) - wide).to(k3.dtype)
    return k3


def k3_near_zero(difference: Values) -> Values:
    r"""Sum the power series of k3, :math:`d^2/2 + d^3/6 + \ldots`, up to :math:`d^5`.

    Only for values below `SERIES_LIMIT`.

    Examples
    --------
    >>> k3_near_zero(torch.tensor([1e-4])).item() / 5.0001667e-09
    1.0...
    """
    total = difference * _SERIES[0]
    for factor in _SERIES[1:]:
        total += factor
        total *= difference
    total *= difference
    return total


def prob_diff(a: Tensor, b: Tensor) -> Tensor:
    r"""Absolute difference of probabilities, :math:`|e^a - e^b|`.

    This is what verl logs as `training/rollout_probs_diff_*`, not |diff|.

    Examples
    --------
    >>> prob_diff(torch.tensor([0.0]), torch.tensor([float("-inf")]))
    tensor([1.])
    """
    return (a.exp() - b.exp()).abs()


def chi2(difference: Tensor) -> Tensor:
    r"""Chi-squared divergence of `a` from `b` per token, :math:`e^{2d} - 1`.

    With :math:`d` clamped to 20 nats on either side, as in verl, which logs its mean as
    `rollout_corr/chi2_token`. It can be negative for a single token.

    Examples
    --------
    >>> chi2(torch.tensor([0.0, 0.5]))
    tensor([0.0000, 1.7183])
    """
    return torch.expm1(2 * clamp_log_ratio(difference))


def mult_prob_error(difference: Tensor) -> Tensor:
    r"""Factor between the two probabilities of a token, :math:`e^{|d|}`, at least 1.

    NeMo-RL logs its mean over tokens as `token_mult_prob_error`.

    Examples
    --------
    >>> mult_prob_error(torch.tensor([0.0, -0.5]))
    tensor([1.0000, 1.6487])
    """
    return difference.abs().exp()


def clamp_log_ratio(log_ratio: Values) -> Values:
    """Clamp a log ratio to 20 nats on either side before its exponential, as in verl.

    Examples
    --------
    >>> clamp_log_ratio(torch.tensor([-30.0, 1.0]))
    tensor([-20.,   1.])
    """
    return log_ratio.clip(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND)


def beyond(difference: Values, threshold: float) -> Values:
    r"""Return which importance ratios :math:`e^d` are outside :math:`[1 / T, T]`.

    Examples
    --------
    >>> beyond(torch.tensor([0.5, -1.0]), 2.0)
    tensor([False,  True])
    """
    return abs(difference) > math.log(threshold)


@dataclass(frozen=True, kw_only=True)
class TokenMetric(Metric):
    """A metric with the function that computes it.

    Attributes
    ----------
    values: From the column `source_column`, finite floats, to values of the same shape.
    """

    values: Callable[[Array], Array]

    @property
    def gate(self) -> str:
        """The column whose finite values count: the diff, or the metric's own."""
        return "diff" if self.of == "pair" else self.source_column

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
        return definition(wide).double().numpy()

    return values


_CLIP = math.log(0.8), math.log(1.2)  # PPO's usual range of the importance ratio


_VALUES: dict[str, Callable[[Array], Array]] = {
    "abs_diff": np.abs,
    "diff": np.positive,
    "prob_diff": np.positive,
    "k1": k1,
    "k2": _float64(k2),
    "k3": _float64(k3),
    "chi2": _float64(chi2),
    "beyond": _float64(lambda difference: beyond(difference, 2.0)),
    "after_first_unequal": lambda is_equal_so_far: 1.0 - is_equal_so_far,
    **dict.fromkeys(("surprise", "entropy"), np.positive),
    **dict.fromkeys(("round_length", "round_seconds"), np.positive),
    **dict.fromkeys(("round_reward", "round_change"), np.positive),
    "share_equal": lambda difference: (difference == 0).astype(np.float64),
    "clip_share": lambda difference: (
        (difference < _CLIP[0]) | (difference > _CLIP[1])
    ).astype(np.float64),
    "train_rollout_logprob_abs_diff": np.abs,
    "mismatch_kl": _float64(k3),
    "token_mult_prob_error": _float64(mult_prob_error),
}
MEASURES = {
    name: TokenMetric(**vars(metric), values=_VALUES[name])
    for name, metric in METRICS.items()
}


def get_measure(metric: str) -> TokenMetric:
    """Return the measure of a metric."""
    return MEASURES[metric_name(metric)]


def read_prob_diffs(tokens: pd.DataFrame) -> Array | None:
    """Return |old - rollout| probability of a token frame's rows.

    None if the frame has neither `prob_diff` nor `rollout_log_prob`.
    """
    if "prob_diff" in tokens:
        return tokens["prob_diff"].to_numpy()
    if "rollout_log_prob" not in tokens:
        return None
    rollout = tokens["rollout_log_prob"].to_numpy()
    return compute_prob_diffs(rollout + tokens["diff"].to_numpy(), rollout.copy())


def compute_prob_diffs(a: Array, b: Array) -> Array:
    """Return the absolute difference of the probabilities of two log-probs."""
    return prob_diff(torch.from_numpy(a), torch.from_numpy(b)).numpy()
