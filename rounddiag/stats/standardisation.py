"""The mismatch of tokens by rollout probability, and standardised over it.

Tokens that the sampler found unlikely differ more in any arithmetic. Later rounds often
have more of them, which alone makes later rounds look worse.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.core.divergence import get_measure
from rounddiag.core.measured import Measured
from rounddiag.stats.cells import cell_means
from rounddiag.stats.inputs import Data, open_measured

# Finer where probabilities are near 0 and near 1, as those of language models are.
PROB_EDGES = (0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1)
_NUM_BINS = len(PROB_EDGES) - 1


def rollout_probs(data: Measured) -> Array:
    """Return the probability that each token was sampled with."""
    tokens = data.tokens("sample", "round", "diff", "rollout_log_prob")
    prob: Array = np.exp(tokens["rollout_log_prob"].to_numpy(np.float64))
    return prob


def prob_bin(prob: Array) -> Array:
    """Return each probability's bin; one beyond the last for invalid values."""
    # NaN, too, is put beyond the last edge.
    bins: Array = np.searchsorted(np.asarray(PROB_EDGES[1:]), prob)
    bins[prob < 0] = _NUM_BINS
    return bins


def standardise(
    data: Data,
    *,
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    """Return each round's mean |diff| as if all rounds sampled equally likely tokens.

    Direct standardisation: the mean of each bin of rollout probability, weighted with
    the share of the bin in all rounds together. Bins in which a round has no token
    count for nothing; `covered` is the share of the others.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with `rollout_log_prob`, and `group_id` to
        mark few groups.
    metric : str
        What is averaged, as in `round_summary`. Where that is a mean of sample means,
        a token counts as one over its sample's tokens in the round.
    a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per round: `round, num_samples, num_tokens`, the observed `mean`,
        `is_few`, `standardised` and `covered`, from 0 to 1.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame(
    ...     {
    ...         "sample": [0, 0, 0, 0],
    ...         "round": [0, 0, 1, 1],
    ...         "diff": [0.0, 0.5, 0.5, 0.5],
    ...         "rollout_log_prob": [-0.2, -3.0, -3.0, -3.0],
    ...     }
    ... )
    >>> standardise(frame)[["mean", "standardised", "covered"]]
       mean  standardised  covered
    0  0.25         0.375     1.00
    1  0.50         0.500     0.75
    """
    how = get_measure(metric)
    data = open_measured(data, a, b)
    place, values = prob_bin(rollout_probs(data)), data.values(how)
    tokens = data.tokens()
    index, sample = tokens["round"].to_numpy(), tokens["sample"].to_numpy()
    means = cell_means(values, index, sample, data.clusters, how)
    used = np.isfinite(values) & (place < _NUM_BINS)
    shape = int(index.max(initial=-1)) + 1, _NUM_BINS
    if not used.all():
        columns = (values, index, sample, place)
        values, index, sample, place = (column[used] for column in columns)
    shares = np.ones(len(index))
    if how.weight == "sample":
        shares = _sample_shares(sample, index)
    cell = index * np.int64(shape[1]) + place
    weighted, covered = _weighted_means(values, shares, cell, shape)
    rounds = means["cell"].to_numpy()
    means = means.rename(columns={"cell": "round"})
    names = ["round", "num_samples", "num_tokens", "mean", "is_few"]
    return means[names].assign(standardised=weighted[rounds], covered=covered[rounds])


def _sample_shares(sample: Array, index: Array) -> Array:
    """Return, for each token, 1 / the number of tokens of its sample in its round."""
    run = index * (np.int64(sample.max(initial=0)) + 1) + sample
    counts: Array = np.bincount(run)[run]
    return 1 / counts


def _weighted_means(
    values: Array, shares: Array, cell: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Return each round's weighted mean, and the share of weight it covers."""
    size = shape[0] * shape[1]
    counts = np.bincount(cell, shares, size).reshape(shape)
    totals = np.bincount(cell, shares * values, size).reshape(shape)
    weights = counts.sum(0) / (counts.sum() or 1)
    covered: Array = (counts > 0) @ weights
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, totals / counts, 0)
        return means @ weights / covered, covered
