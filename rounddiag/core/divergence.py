"""How far two log-probabilities of one token are apart: one definition each.

`a` and `b` are log-probabilities of the same tokens, in nats; by default `a` is given
by the training engine (`old`) and `b` by the sampling engine (`rollout`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from torch import Tensor

    Values = TypeVar("Values", Tensor, np.ndarray[Any, Any])

# Below this |diff| four terms of the series are exact to 1e-7, relative.
SERIES_LIMIT = 1 / 16
_SERIES = (1 / 120, 1 / 24, 1 / 6, 1 / 2)


def diff(a: Values, b: Values) -> Values:
    r"""Signed difference of log-probabilities: the log importance ratio.

    .. math:: d = \log p_a - \log p_b

    Returns
    -------
    Tensor
        In nats; positive where `a` likes the token more.

    Examples
    --------
    >>> diff(torch.tensor([-1.0]), torch.tensor([-1.5]))
    tensor([0.5000])
    """
    difference: Values = a - b
    return difference


def k3(difference: Tensor) -> Tensor:
    r"""Estimate KL(b, a) per token by :math:`e^d - 1 - d`, which is never negative.

    Computed without cancellation: in float32, `exp(d) - 1 - d` is 25 % wrong at 1e-4.

    Parameters
    ----------
    difference : Tensor of float
        As given by `diff`, in nats.

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
    wide = difference.double()
    exact = (torch.expm1(wide) - wide).to(difference.dtype)
    return torch.where(difference.abs() < SERIES_LIMIT, k3_near_zero(difference), exact)


def k3_near_zero(difference: Values) -> Values:
    r"""Sum the power series of k3, :math:`d^2/2 + d^3/6 + \ldots`, up to the fifth.

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
