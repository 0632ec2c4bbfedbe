"""Which samples of a batch are shown: some at random, and the worst."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core import on_cpu
from rounddiag.core.totals import Totals
from rounddiag.loaders.fields.field_reader import FieldReader
from rounddiag.segmentation import find_rounds

if TYPE_CHECKING:
    from rounddiag.capture.fields import Parts

    Array = np.ndarray[Any, Any]

RANDOM, WORST = "random", "worst"


@dataclass(frozen=True, kw_only=True)
class Order:
    """The samples in two orders, of which any number of first ones can be picked.

    Attributes
    ----------
    random : ndarray of int
        Drawn; it does not depend on the numbers.
    worst : ndarray of int
        By mean |diff|, the largest first; samples without a finite diff are last.
    """

    random: Array
    worst: Array

    def pick(self, num: int) -> dict[int, str]:
        """Pick `num` samples, half at random and half the worst of the others.

        Returns
        -------
        dict of int to str
            Sample -> why it was picked: `WORST` or `RANDOM`.

        Examples
        --------
        >>> order = Order(random=np.array([2, 0, 1]), worst=np.array([2, 1, 0]))
        >>> order.pick(2)
        {1: 'worst', 2: 'random'}
        """
        drawn = self.random[: (num + 1) // 2].tolist()
        others = [sample for sample in self.worst.tolist() if sample not in {*drawn}]
        worst = others[: num // 2]
        return {**dict.fromkeys(worst, WORST), **dict.fromkeys(drawn, RANDOM)}


def order_of(parts: Parts, seed: tuple[int, ...]) -> Order:
    """Order the samples of a step.

    Parameters
    ----------
    parts : Parts
        With fields on the host.
    seed : tuple of int, none negative
    """
    means = mean_abs_diffs(parts)
    return Order(
        random=np.random.default_rng(seed).permutation(len(means)),
        worst=np.argsort(-means, kind="stable"),
    )


def mean_abs_diffs(parts: Parts) -> Array:
    """Return each sample's mean |diff| over its finite tokens, or -1 without any."""
    reader = FieldReader(parts.fields, parts.source)
    rounds = find_rounds(reader.mask()[0], reader.responses.offsets)
    old, rollout = (
        reader.log_probs(f"{name}_log_probs") for name in ("old", "rollout")
    )
    sample = rounds.sample.numpy()
    totals = Totals(**on_cpu.totals(rounds, old, rollout))
    by_sample = totals.grouped(sample, reader.num_samples)
    num_tokens = np.bincount(sample, rounds.num_tokens.numpy(), reader.num_samples)
    num_finite = num_tokens - by_sample.num_nonfinite
    means = np.full(reader.num_samples, -1.0)
    np.divide(by_sample.abs_diff, num_finite, out=means, where=num_finite > 0)
    return means
