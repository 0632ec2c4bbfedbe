"""Divergences of two log-probabilities of one token: one definition each.

`a` and `b` are log-probabilities of the same tokens, in nats; by default `a` is from
the training engine (`old`) and `b` from the sampling engine (`rollout`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from torch import Tensor

    Values = TypeVar("Values", Tensor, np.ndarray[Any, Any])


_LOG_RATIO_BOUND = 20.0  # `SAFETY_BOUND` of verl
# Below this |diff| four terms of the series are exact to 1e-7, relative.
SERIES_LIMIT = 1 / 16
_SERIES = (1 / 120, 1 / 24, 1 / 6, 1 / 2)


def diff(a: Values, b: Values) -> Values:
    r"""Signed difference of log-probabilities: the log importance ratio.

    .. math:: d = \log p_a - \log p_b

    Returns
    -------
    Tensor
        In nats; positive where `a` gives the token the higher probability.

    Examples
    --------
    >>> diff(torch.tensor([-1.0]), torch.tensor([-1.5]))
    tensor([0.5000])
    """
    difference: Values = a - b
    return difference


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
    halved: Values = difference * difference / 2
    return halved


def k3(difference: Tensor) -> Tensor:
    r"""Estimate KL(b, a) per token by :math:`e^d - 1 - d`, which is never negative.

    Computed without cancellation: in float32, `exp(d) - 1 - d` is 25 % wrong at 1e-4.

    Parameters
    ----------
    difference : Tensor of float
        From `diff`, in nats.

    Returns
    -------
    Tensor
        In nats, of the dtype of `difference`.

    References
    ----------
    John Schulman, "Approximating KL Divergence", 2020,
    http://joschu.net/blog/kl-approx.html

    Examples
    --------
    >>> k3(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7183])
    """
    found = k3_near_zero(difference)
    # Few are large, and the exponential is slow.
    large = difference.abs() >= SERIES_LIMIT
    wide = difference[large].double()
    found[large] = (torch.expm1(wide) - wide).to(found.dtype)
    return found


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


def clamp_log_ratio(log_ratio: Tensor) -> Tensor:
    """Clamp a log ratio to 20 nats on either side before its exponential, as in verl.

    Examples
    --------
    >>> clamp_log_ratio(torch.tensor([-30.0, 1.0]))
    tensor([-20.,   1.])
    """
    return log_ratio.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND)


def beyond(difference: Values, threshold: float) -> Values:
    r"""Return which importance ratios :math:`e^d` are outside :math:`[1 / T, T]`.

    Examples
    --------
    >>> beyond(torch.tensor([0.5, -1.0]), 2.0)
    tensor([False,  True])
    """
    outside: Values = abs(difference) > math.log(threshold)
    return outside
