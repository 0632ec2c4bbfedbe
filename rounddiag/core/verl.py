"""verl's metrics, in float64 on any device, and their reconciliation with logged ones.

When a logged number is not that of the batch, `reconcile` looks for the variant of the
formula, of the mask or of the weights that yields it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias, overload

import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.batch import require_batch
from rounddiag.core.divergence import clamp_log_ratio, diff, k3, prob_diff
from rounddiag.core.scores import select_scores
from rounddiag.errors import BatchError

if TYPE_CHECKING:
    import pandas as pd

# verl adds this to the number of tokens that it divides by, in `masked_mean`.
_EPSILON = 1e-8
_UNDEFINED = {
    "training/rollout_probs_diff_max": math.nan,
    "training/rollout_probs_diff_mean": math.nan,
    "training/rollout_probs_diff_std": math.nan,
    "training/rollout_actor_probs_pearson_corr": math.nan,
}


@dataclass(frozen=True, kw_only=True)
class _Tokens:
    """The generated tokens of a batch, concatenated.

    Attributes
    ----------
    old, rollout: Tensor of float64, shape (num_tokens,). Log-probabilities, in nats.
    sample, round: Tensor of int64, shape (num_tokens,). Which sample and round a token
        is in.
    num_samples, num_rounds: Samples of the batch, and rounds of its longest one.
    """

    old: Tensor
    rollout: Tensor
    sample: Tensor
    round: Tensor
    num_samples: int
    num_rounds: int

    @classmethod
    def from_batch(cls, batch: Batch) -> _Tokens:
        """Pack the generated tokens of a batch."""
        keep, rounds = batch.response_mask != 0, batch.rounds
        old, rollout = batch.both_log_probs()
        return cls(
            old=old.detach()[keep].double(),
            rollout=rollout.detach()[keep].double(),
            sample=rounds.sample.repeat_interleave(rounds.num_tokens),
            round=rounds.round.repeat_interleave(rounds.num_tokens),
            num_samples=batch.num_samples,
            num_rounds=int(rounds.round.max()) + 1 if len(rounds) else 0,
        )


def _scalars(tokens: _Tokens) -> dict[str, float]:
    """Compute all scalars; without tokens, only those that are still defined."""
    if len(tokens.old) == 0:
        valid = {"training/rollout_probs_diff_valid": 0}
        return {**valid, **_UNDEFINED, "per_round/total_rounds": 0}
    logged = {**_training_metrics(tokens), **_rollout_corr(tokens)}
    # One transfer for all of them: in a training loop each one would wait for the GPU.
    values = torch.stack([*logged.values()]).tolist()
    named = dict(zip(logged, values, strict=True))
    valid = {"training/rollout_probs_diff_valid": 1}
    return {**valid, **named, **_per_round(tokens)}


def _training_metrics(tokens: _Tokens) -> dict[str, Tensor]:
    difference = prob_diff(tokens.old, tokens.rollout)
    return {
        "training/rollout_probs_diff_max": difference.max(),
        "training/rollout_probs_diff_mean": difference.mean(),
        "training/rollout_probs_diff_std": _covariance(difference, difference).sqrt(),
        "training/rollout_actor_probs_pearson_corr": _pearson(
            tokens.old.exp(), tokens.rollout.exp()
        ),
    }


def _rollout_corr(tokens: _Tokens) -> dict[str, Tensor]:
    log_ratio = diff(tokens.old, tokens.rollout)
    training = -_sample_means(tokens.old, tokens)
    rollout = -_sample_means(tokens.rollout, tokens)
    gap = training - rollout
    sample_totals = _add_by_group(log_ratio, tokens.sample, tokens.num_samples)
    result = {
        "training_ppl": training.exp().mean(),
        "training_log_ppl": training.mean(),
        "kl": _mean(-log_ratio),
        "k3_kl": _mean(k3(log_ratio)),
        "rollout_ppl": rollout.exp().mean(),
        "rollout_log_ppl": rollout.mean(),
        "log_ppl_diff": gap.mean(),
        "log_ppl_abs_diff": gap.abs().mean(),
        "log_ppl_diff_max": gap.max(),
        "log_ppl_diff_min": gap.min(),
        "ppl_ratio": gap.exp().mean(),
        "chi2_token": _mean((2 * clamp_log_ratio(log_ratio)).exp()) - 1,
        "chi2_seq": (2 * clamp_log_ratio(sample_totals)).exp().mean() - 1,
    }
    return {f"rollout_corr/{name}": value for name, value in result.items()}


def _per_round(tokens: _Tokens) -> dict[str, float]:
    size = diff(tokens.old, tokens.rollout).abs()
    count = _add_by_group(torch.ones_like(size), tokens.round, tokens.num_rounds)
    means = (_add_by_group(size, tokens.round, tokens.num_rounds) / count).tolist()
    result: dict[str, float] = {"per_round/total_rounds": tokens.num_rounds}
    for index, (mean, num) in enumerate(zip(means, count.tolist(), strict=True)):
        result[f"per_round/round_{index}_abs_diff_mean"] = mean
        result[f"per_round/round_{index}_token_count"] = int(num)
    known = [mean for mean in means if not math.isnan(mean)]
    result["per_round/max_round_diff"] = means.index(max(known)) if known else -1
    return {**result, **({"per_round/max_diff_value": max(known)} if known else {})}


def _add_by_group(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """Add up the values of each group; 0 for a group without any."""
    return values.new_zeros(num_groups).index_add_(0, group, values)


def _mean(values: Tensor) -> Tensor:
    return values.sum() / (len(values) + _EPSILON)


def _sample_means(values: Tensor, tokens: _Tokens) -> Tensor:
    count = _add_by_group(torch.ones_like(values), tokens.sample, tokens.num_samples)
    return _add_by_group(values, tokens.sample, tokens.num_samples) / (count + _EPSILON)


def _covariance(x: Tensor, y: Tensor) -> Tensor:
    return ((x - x.mean()) * (y - y.mean())).sum() / (len(x) - 1)


def _pearson(x: Tensor, y: Tensor) -> Tensor:
    spread = (_covariance(x, x) * _covariance(y, y)).sqrt()
    return (_covariance(x, y) / spread).clamp(-1, 1)


Metrics: TypeAlias = dict[str, float]


@overload
def metrics(batch: Batch, /, *, a: str = "old", b: str = "rollout") -> Metrics: ...
@overload
def metrics(
    response_mask: Tensor, old_log_probs: Tensor, rollout_log_probs: Tensor
) -> Metrics: ...
def metrics(
    response_mask: Batch | Tensor,
    old_log_probs: Tensor | None = None,
    rollout_log_probs: Tensor | None = None,
    *,
    a: str = "old",
    b: str = "rollout",
) -> Metrics:
    r"""Compute the mismatch metrics that verl logs, by verl's formulas, in float64.

    Takes a batch, or the three padded tensors as a trainer has them, on any device.

    Parameters
    ----------
    response_mask : Batch or Tensor, shape (num_samples, num_positions)
        A batch, or the mask: 1 where the model wrote the token.
    old_log_probs, rollout_log_probs : Tensor, shape (num_samples, num_positions)
        In nats; only with a mask.
    a, b : str
        The scores of a batch that are in the place of the two.

    Returns
    -------
    dict of str to float
        `training/*` are over all generated tokens and over probabilities, not
        log-probabilities: :math:`|e^{old} - e^{rollout}|`. Of `rollout_corr/*`, `kl` is
        the mean of `-diff`, `k3_kl` of :math:`e^d - 1 - d`, `chi2_token` of
        :math:`e^{2d}` less 1; `*ppl*` and `chi2_seq` are means over samples, in which a
        sample without generated tokens counts with mean 0. `per_round/*` are means of
        |diff| over the tokens of each round; `max_round_diff` is the round with the
        largest one (the lowest index on ties), or -1 if no mean is a number. A
        value that is not finite makes the means over it not finite.

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
    >>> numbers = metrics(mask, old, rollout)
    >>> numbers["per_round/round_0_abs_diff_mean"], numbers["per_round/max_round_diff"]
    (0.5, 0)
    """
    if isinstance(response_mask, Batch):
        return _scalars(_Tokens.from_batch(select_scores(response_mask, a, b)))
    match response_mask, old_log_probs, rollout_log_probs:
        case torch.Tensor() as mask, torch.Tensor() as old, torch.Tensor() as rollout:
            batch = Batch.from_padded(
                response_ids=mask.to(torch.uint8),
                response_mask=mask,
                old_log_probs=old,
                rollout_log_probs=rollout,
            )
            return _scalars(_Tokens.from_batch(batch))
        case inputs:
            raise _input_error(inputs)


def _input_error(inputs: tuple[object, object, object]) -> BatchError:
    kinds = [type(value).__name__ for value in inputs if value is not None]
    return BatchError.build(
        expected="a Batch, or three tensors: `response_mask, old_log_probs,"
        " rollout_log_probs`",
        found=", ".join(kinds) or "nothing",
        advice="Open a file with `rounddiag.load(path)` first, or pass all three, with"
        " `torch.as_tensor` around arrays.",
    )


def _variants(batch: Batch) -> dict[str, dict[str, float]]:
    tokens = _Tokens.from_batch(batch)
    swapped = replace(tokens, old=tokens.rollout, rollout=tokens.old)
    numbers = {
        "another mask: observations are counted too": _measure_under_mask(
            batch, _is_real(batch)
        ),
        "the two engines are exchanged": _scalars(swapped),
        "over log-probabilities, not probabilities": _over_log_probs(tokens),
        "over probabilities, not log-probabilities": _over_probs(tokens),
        "weighted by sample, not by token": _by_sample(tokens),
    }
    if batch.loss_mask is not None:
        is_kept = (batch.response_mask != 0) & (batch.loss_mask != 0)
        numbers["another mask: after rejection (`loss_mask`)"] = _measure_under_mask(
            batch, is_kept
        )
    return numbers


def _measure_under_mask(batch: Batch, mask: Tensor) -> dict[str, float]:
    return _scalars(
        _Tokens.from_batch(replace(batch, response_mask=mask, round_ids=None))
    )


def _is_real(batch: Batch) -> Tensor:
    sizes = batch.offsets.diff()
    position = torch.arange(batch.num_positions, device=sizes.device)
    ends = batch.offsets[:-1] + batch.lengths
    return position < ends.repeat_interleave(sizes)


def _over_log_probs(tokens: _Tokens) -> dict[str, float]:
    size = diff(tokens.old, tokens.rollout).abs()
    as_probs = replace(tokens, old=size.log1p(), rollout=torch.zeros_like(size))
    # exp(log1p(|d|)) - exp(0) is |d|: verl's formulas, given |d| for a probability.
    numbers = _scalars(as_probs)
    return {name: numbers[name] for name in numbers if "probs_diff" in name}


def _over_probs(tokens: _Tokens) -> dict[str, float]:
    probs = replace(tokens, old=tokens.old.exp(), rollout=tokens.rollout.exp())
    numbers = _scalars(probs)
    return {name: numbers[name] for name in numbers if name.startswith("per_round/")}


def _by_sample(tokens: _Tokens) -> dict[str, float]:
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


def _mean_of_means(tokens: _Tokens, values: Tensor, keep: Tensor) -> float:
    """Return the mean of sample means, over the samples that have tokens."""
    sample, chosen = tokens.sample[keep], values[keep]
    count = _add_by_group(torch.ones_like(chosen), sample, tokens.num_samples)
    total = _add_by_group(chosen, sample, tokens.num_samples)
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

    Examples
    --------
    >>> import torch, rounddiag as rd
    >>> batch = rd.Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 6, 7]]),
    ...     response_mask=torch.tensor([[1, 0, 1]]),
    ...     rollout_log_probs=torch.tensor([[-1.0, 0.0, -2.0]]),
    ...     old_log_probs=torch.tensor([[-1.5, -3.0, -2.0]]),
    ... )
    >>> rows = rd.reconcile(batch, {"rollout_corr/kl": 0.25, "rollout_corr/ppl": 9})
    >>> rows["equal"].tolist()
    [True, False]
    >>> rows["reason"].tolist()[1]
    "not a number of this batch; did you mean 'rollout_corr/kl'?"
    """
    import pandas as pd

    require_batch(batch)
    here = metrics(batch)
    others = _variants(batch)
    rows = []
    for name, value in logged.items():
        computed = here.get(name, math.nan)
        equal = name in here and _equal(name, value, computed)
        reason = "" if equal else _reason(name, value, here, others)
        rows.append((name, value, computed, equal, reason))
    return pd.DataFrame(rows, columns=["name", "logged", "here", "equal", "reason"])


def _equal(name: str, logged: float, computed: float) -> bool:
    if math.isnan(logged) or math.isnan(computed):
        return math.isnan(logged) and math.isnan(computed)
    tail = name.rsplit("/", 1)[-1]
    loose = any(word in tail for word in _CANCELLING)
    tolerance = _CANCELLING_TOLERANCE if loose else _TOLERANCE
    return math.isclose(logged, computed, rel_tol=tolerance, abs_tol=_FLOOR)


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
