"""What |diff| does not follow: lengths, rounds, screenshots, rewards, positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

_FEW = 5
# A correlation below this, in standard errors, follows nothing.
_MIN_Z = 3.0
_LARGE = 3.0  # nats: one token beyond it weighs no more


def not_followed(view: View, indices: Array) -> list[str]:
    """Name what |diff| of some tokens does not follow.

    Those of `length`, `rounds`, `screenshots` and `reward` of a sample and `position`
    in the round that vary, and whose correlation with |diff| is within 3 standard
    errors of 0.
    """
    num_samples = view.batch.num_samples
    sample, size = view.sample[indices], view.abs_diff[indices]
    count = np.bincount(sample, minlength=num_samples)
    total = np.bincount(sample, weights=size, minlength=num_samples)
    mean = total / np.maximum(count, 1)
    owner = view.batch.rounds.sample.cpu().numpy()
    facts: dict[str, Array] = {
        "length": view.batch.lengths.cpu().numpy().astype(float),
        "number of rounds": np.bincount(owner, minlength=num_samples).astype(float),
    }
    if view.images is not None:
        facts["screenshots"] = view.per_sample(view.images.astype(float))
    if view.batch.rewards is not None:
        facts["reward"] = view.batch.rewards.double().cpu().numpy()
    there = count > 0
    names = [name for name, fact in facts.items() if _is_flat(fact[there], mean[there])]
    position = _per_sample_correlation(view.token[indices], size, sample)
    if len(position) >= 2 * _FEW and abs(_z(position)) < _MIN_Z:
        names.append("position in the round")
    return names


def _is_flat(x: Array, y: Array) -> bool:
    """Return whether two values per sample vary and are not correlated."""
    if len(x) < 2 * _FEW or not np.isfinite(x).all() or x.std() == 0 or y.std() == 0:
        return False
    return bool(abs(np.corrcoef(x, y)[0, 1]) * np.sqrt(len(x)) < _MIN_Z)


def _per_sample_correlation(token: Array, size: Array, sample: Array) -> Array:
    """Return the covariance of |diff| and token index, one value per sample."""
    codes = np.unique(sample, return_inverse=True)[1] if len(sample) else sample
    num = np.maximum(np.bincount(codes), 1)
    x = token - (np.bincount(codes, weights=token) / num)[codes]
    y = np.minimum(size, _LARGE)
    y = y - (np.bincount(codes, weights=y) / num)[codes]
    return np.bincount(codes, weights=x * y)


def _z(values: Array) -> float:
    return float(values.sum() / max(np.sqrt((values**2).sum()), 1e-300))
