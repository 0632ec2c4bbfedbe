"""The scalars of a batch under the names that verl logs, to reconcile with a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, overload

import torch

from rounddiag.batch import Batch
from rounddiag.core.verl import scalars, tokens_of
from rounddiag.errors import BatchError

if TYPE_CHECKING:
    from torch import Tensor

Metrics: TypeAlias = dict[str, float]


@overload
def metrics(batch: Batch, /) -> Metrics: ...
@overload
def metrics(
    response_mask: Tensor, old_log_probs: Tensor, rollout_log_probs: Tensor
) -> Metrics: ...
def metrics(
    response_mask: Batch | Tensor,
    old_log_probs: Tensor | None = None,
    rollout_log_probs: Tensor | None = None,
) -> Metrics:
    r"""Compute what verl logs of the mismatch, by verl's formulas, in float64.

    Takes a batch, or the three padded tensors as a trainer has them, on any device.

    Parameters
    ----------
    response_mask : Batch or Tensor, shape (num_samples, num_positions)
        A batch; or the mask, 1 where the model wrote the token.
    old_log_probs, rollout_log_probs : Tensor, shape (num_samples, num_positions)
        In nats; with a mask only.

    Returns
    -------
    dict of str to float
        `training/*` are over all generated tokens and over probabilities, not
        log-probabilities: :math:`|e^{old} - e^{rollout}|`. Of `rollout_corr/*`, `kl` is
        the mean of `-diff`, `k3_kl` of :math:`e^d - 1 - d`, `chi2_token` of
        :math:`e^{2d}` less 1; `*ppl*` and `chi2_seq` are means over samples, in which a
        sample without generated tokens counts with mean 0. `per_round/*` are means of
        |diff| over the tokens of each round; `max_round_diff` is the round with the
        largest one, the lowest of equals, and -1 where no mean is a number. A value
        that is not finite in the batch makes the means over it not finite.

    Raises
    ------
    BatchError
        If it is no Batch and these are no tensors, they do not have one shape, or the
        mask is none.

    References
    ----------
    verl: `verl/utils/debug/metrics.py` (`calculate_debug_metrics`),
    `verl/trainer/ppo/rollout_corr_helper.py` (`compute_offpolicy_metrics`), and pull
    request 5229 (`per_round/*`).

    Examples
    --------
    >>> mask = torch.tensor([[1, 0, 1]])
    >>> old = torch.tensor([[-1.5, 0.0, -2.0]])
    >>> rollout = torch.tensor([[-1.0, 0.0, -2.0]])
    >>> found = metrics(mask, old, rollout)
    >>> found["per_round/round_0_abs_diff_mean"], found["per_round/max_round_diff"]
    (0.5, 0)
    """
    if isinstance(response_mask, Batch):
        return scalars(tokens_of(response_mask))
    match response_mask, old_log_probs, rollout_log_probs:
        case torch.Tensor() as mask, torch.Tensor() as old, torch.Tensor() as rollout:
            batch = Batch.from_padded(
                response_ids=mask.to(torch.uint8),
                response_mask=mask,
                old_log_probs=old,
                rollout_log_probs=rollout,
            )
            return scalars(tokens_of(batch))
        case given:
            raise _unfit(given)


def _unfit(given: tuple[object, object, object]) -> BatchError:
    """Say what was given in the place of a batch or of three tensors."""
    kinds = [type(one).__name__ for one in given if one is not None]
    return BatchError.build(
        expected="a Batch, or three tensors: `response_mask, old_log_probs,"
        " rollout_log_probs`",
        found=", ".join(kinds) or "nothing",
        advice="Open a file with `rounddiag.load(path)` first, or pass all three, with"
        " `torch.as_tensor` around arrays.",
    )
