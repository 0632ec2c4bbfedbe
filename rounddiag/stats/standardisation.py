"""The mismatch of tokens by rollout probability, and standardised over it.

Tokens that the sampler found unlikely differ more in any arithmetic. Later rounds often
have more of them, which alone makes later rounds look worse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rounddiag import schema
from rounddiag._typing import Array
from rounddiag.core.divergence import get_measure
from rounddiag.core.measured import Measured
from rounddiag.stats.cells import cell_means
from rounddiag.stats.grouping import split_by, split_rounds
from rounddiag.stats.inputs import Data, open_measured

# Finer where probabilities are near 0 and near 1, as those of language models are.
PROB_EDGES = (0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1)
# The metric whose noise is known to scale with 1 - p.
ENVELOPED = "abs_diff"
_COLUMN = "rollout_log_prob"


def conditional_means(
    data: Data,
    *,
    metric: str = ENVELOPED,
    by: str | None = None,
    edges: Sequence[float] = PROB_EDGES,
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    r"""Return mean |diff|, or another metric, by rollout probability and rounds.

    Where the groups' curves coincide, later rounds merely sample less likely tokens;
    where they separate, later rounds are computed differently. Rounding errors of
    logits move a token's log-probability by about :math:`(1 - p)` times their size
    (its derivative by its own logit): `envelope` is that curve, scaled to the mean of
    round 0, or of the earliest round there is.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with `rollout_log_prob`, whose intervals are
        clustered by group if it has `group_id`.
    by : str, optional
        A column of samples or rounds, by which to group tokens instead of by round.
    edges : sequence of float
        Edges of the bins of probability, ascending; a bin includes its upper edge.
    metric, a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per group of rounds (or value) and bin that have tokens: `rounds` (or
        the column), `prob_low`, `prob_high`, `prob` (their mean), `num_samples`,
        `num_tokens`, `num_nonfinite`, `mean`, `ci_low`, `ci_high`, in the unit of the
        metric, `is_few`, and of |diff| the `envelope`.

    References
    ----------
    The bound that scales with 1 - p: arXiv 2512.23087.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> conditional_means(batch)["rounds"].unique().tolist()
    ['0', '1', '2 to 3', '4 to 7']
    >>> conditional_means(batch, by="status")["status"].unique().tolist()
    ['failed', 'solved', 'truncated']
    """
    metric = schema.metric_name(metric)
    how = get_measure(metric)
    data = open_measured(data, a, b)
    tokens, values = _known_tokens(data), data.values(how)
    split = split_rounds(tokens) if by is None else split_by(data, by)
    prob = np.exp(tokens[_COLUMN].to_numpy(dtype=np.float64))
    num = len(edges)
    cell = split.codes * num + prob_bin(prob, edges)
    sample = tokens["sample"].to_numpy()
    means = cell_means(values, cell, sample, data.clusters, measure=how)
    means["prob"] = cell_means(prob, cell, sample)["mean"]
    where = means.pop("cell").to_numpy()
    means.insert(0, "prob_low", np.array([*edges[:-1], np.nan])[where % num])
    means.insert(1, "prob_high", np.array([*edges[1:], np.nan])[where % num])
    if metric == ENVELOPED:
        means["envelope"] = _scale(values, prob, tokens) * (1 - means["prob"])
    split.insert_into(means, where // num)
    return means


def _known_tokens(data: Measured) -> pd.DataFrame:
    """Return the tokens with their rollout log-probs."""
    return data.tokens("sample", "round", "diff", _COLUMN)


def prob_bin(prob: Array, edges: Sequence[float]) -> Array:
    """Return each probability's bin; one beyond the last for invalid values."""
    # NaN, too, is put beyond the last edge.
    bins: Array = np.searchsorted(np.asarray(edges[1:]), prob)
    bins[prob < edges[0]] = len(edges) - 1
    return bins


def _scale(size: Array, prob: Array, tokens: pd.DataFrame) -> float:
    """Fit the envelope to the earliest round: sum of |diff| over sum of 1 - p."""
    index = tokens["round"].to_numpy()
    used = np.isfinite(size) & (prob <= 1)
    used &= index == (index.min() if len(index) else 0)
    room = (1 - prob[used]).sum()
    return float(size[used].sum() / room) if room > 0 else float("nan")


def standardise(
    data: Data,
    *,
    metric: str = "abs_diff",
    edges: Sequence[float] = PROB_EDGES,
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
    edges : sequence of float
        Edges of the bins of probability, ascending; a bin includes its upper edge.
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
    tokens, values = _known_tokens(data), data.values(how)
    place = prob_bin(np.exp(tokens["rollout_log_prob"].to_numpy(np.float64)), edges)
    index, sample = tokens["round"].to_numpy(), tokens["sample"].to_numpy()
    means = cell_means(values, index, sample, data.clusters, measure=how)
    used = np.isfinite(values) & (place < len(edges) - 1)
    shape = int(index.max(initial=-1)) + 1, len(edges) - 1
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
