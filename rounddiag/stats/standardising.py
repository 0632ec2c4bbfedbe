"""Rounds as if all of them had sampled equally likely tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.core.measures import measure_of
from rounddiag.stats.cells import cell_means
from rounddiag.stats.clusters import clusters_of
from rounddiag.stats.conditional import PROB_EDGES, known_tokens, prob_bin
from rounddiag.stats.given import fair
from rounddiag.stats.measuring import measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]


def standardised(
    data: Batch | pd.DataFrame,
    *,
    metric: str = "abs_diff",
    edges: Sequence[float] = PROB_EDGES,
) -> pd.DataFrame:
    """Return each round's mean |diff| as if all rounds sampled equally likely tokens.

    Direct standardisation: the mean of each bin of rollout probability, weighted with
    the share of the bin in all rounds together. Bins in which a round has no token
    count for nothing; `covered` is the share of the others.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with `rollout_log_prob`, and `group_id` where few
        groups are marked. Of a file that holds the
        worst samples beside drawn ones, those drawn count.
    metric : str
        What is averaged, as in `round_summary`. Where that is a mean of sample means,
        a token counts as one over its sample's tokens in the round.
    edges : sequence of float
        Of the bins of probability, ascending; a bin has its upper edge.

    Returns
    -------
    DataFrame
        One row a round: `round, num_samples, num_tokens, mean` as it is, `is_few`,
        `standardised` and `covered`, from 0 to 1.

    Raises
    ------
    FrameError
        If a frame lacks a column, or there is no such metric.

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
    >>> standardised(frame)[["mean", "standardised", "covered"]]
       mean  standardised  covered
    0  0.25         0.375     1.00
    1  0.50         0.500     0.75
    """
    measure = measure_of(metric)
    data = fair(data)
    tokens = known_tokens(data, measure)
    place = prob_bin(np.exp(tokens["rollout_log_prob"].to_numpy(np.float64)), edges)
    index, values = tokens["round"].to_numpy(), measured(tokens, measure)
    sample = tokens["sample"].to_numpy()
    found = cell_means(values, index, sample, clusters_of(data), measure=measure)
    used = np.isfinite(values) & (place < len(edges) - 1)
    shape = int(index.max(initial=-1)) + 1, len(edges) - 1
    if not used.all():
        columns = (values, index, sample, place)
        values, index, sample, place = (column[used] for column in columns)
    shares = np.ones(len(index))
    if measure.weight == "sample":
        shares = _of_samples(sample, index)
    cell = index * np.int64(shape[1]) + place
    weighted, covered = _weighted(values, shares, cell, shape)
    kept = found["cell"].to_numpy()
    found = found.rename(columns={"cell": "round"})
    names = ["round", "num_samples", "num_tokens", "mean", "is_few"]
    return found[names].assign(standardised=weighted[kept], covered=covered[kept])


def _of_samples(sample: Array, index: Array) -> Array:
    """Return one over the number of tokens that each one's sample has in its round."""
    run = index * (np.int64(sample.max(initial=0)) + 1) + sample
    counts: Array = np.bincount(run)[run]
    return 1 / counts


def _weighted(
    values: Array, shares: Array, cell: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Return each round's weighted mean, and the share of the weights that it has."""
    size = shape[0] * shape[1]
    counts = np.bincount(cell, shares, size).reshape(shape)
    totals = np.bincount(cell, shares * values, size).reshape(shape)
    weights = counts.sum(0) / (counts.sum() or 1)
    covered: Array = (counts > 0) @ weights
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, totals / counts, 0)
        return means @ weights / covered, covered
