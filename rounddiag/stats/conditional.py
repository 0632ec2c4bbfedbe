"""The mismatch of tokens that are alike: by the probability they were sampled with.

Tokens that the sampler found unlikely differ more in any arithmetic. Later rounds often
have more of them, which alone makes later rounds look worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag import schema
from rounddiag.batch import Batch
from rounddiag.core import token_frame
from rounddiag.stats.captured import fair_part
from rounddiag.stats.cells import cell_means
from rounddiag.stats.clusters import clusters_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    Array = np.ndarray[Any, Any]

# Finer where probabilities are near 0 and near 1, as those of language models are.
PROB_EDGES = (0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1)
_COLUMN = "rollout_log_prob"


def round_group(rounds: Array) -> Array:
    """Put rounds into groups that double in size: 0, 1, 2 to 3, 4 to 7, ...

    Examples
    --------
    >>> round_group(np.array([0, 1, 2, 3, 4, 7, 8]))
    array([0, 1, 2, 2, 3, 3, 4])
    """
    exponents: Array = np.frexp(np.asarray(rounds, dtype=np.float64))[1]
    return exponents.astype(np.int64)


def group_label(group: int) -> str:
    """Name a group of rounds.

    Examples
    --------
    >>> [group_label(group) for group in range(4)]
    ['0', '1', '2 to 3', '4 to 7']
    """
    first, last = (1 << group) >> 1, (1 << group) - 1
    return f"{first}" if first == last else f"{first} to {last}"


def conditional(
    data: Batch | pd.DataFrame, *, edges: Sequence[float] = PROB_EDGES
) -> pd.DataFrame:
    r"""Return mean |diff| by rollout probability, for groups of rounds.

    Where the groups' curves lie on each other, later rounds merely sample less likely
    tokens; where they separate, they are computed differently. Rounding errors of
    logits move a token's log-probability by about :math:`(1 - p)` times their size
    (its derivative by its own logit): `envelope` is that curve, scaled to the mean of
    round 0, or of the earliest round there is.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with `rollout_log_prob`. Of a file that holds the
        worst samples beside drawn ones, those drawn count.
    edges : sequence of float
        Of the bins of probability, ascending; a bin has its upper edge.

    Returns
    -------
    DataFrame
        One row a group of rounds and bin that have tokens: `rounds`, `prob_low`,
        `prob_high`, `prob` (their mean), `num_samples`, `num_tokens`,
        `num_nonfinite`, `mean`, `ci_low`, `ci_high`, `envelope`; in nats.

    Raises
    ------
    FrameError
        If a frame lacks a column.

    References
    ----------
    The bound that scales with 1 - p: arXiv 2512.23087.

    Examples
    --------
    >>> import rounddiag as rd
    >>> found = conditional(rd.load("sample_data/healthy.parquet"))
    >>> found["rounds"].unique().tolist()
    ['0', '1', '2 to 3', '4 to 7']
    """
    tokens, clusters = _tokens(data)
    prob = np.exp(tokens[_COLUMN].to_numpy(dtype=np.float64))
    group, place = round_group(tokens["round"].to_numpy()), _bin(prob, edges)
    cell, num = group * len(edges) + place, len(edges)
    sample, size = tokens["sample"].to_numpy(), tokens["diff"].abs().to_numpy()
    means = cell_means(size, cell, sample, clusters)
    means["prob"] = cell_means(prob, cell, sample)["mean"]
    scale = _scale(size, prob, group)
    where = means.pop("cell").to_numpy()
    means.insert(0, "rounds", [group_label(g) for g in where // num])
    means.insert(1, "prob_low", np.array([*edges[:-1], np.nan])[where % num])
    means.insert(2, "prob_high", np.array([*edges[1:], np.nan])[where % num])
    return means.assign(envelope=scale * (1 - means["prob"]))


def standardised(
    data: Batch | pd.DataFrame, *, edges: Sequence[float] = PROB_EDGES
) -> pd.DataFrame:
    """Return each round's mean |diff| as if all rounds sampled equally likely tokens.

    Direct standardisation: the mean of each bin of rollout probability, weighted with
    the share of the bin in all rounds together. Bins in which a round has no token
    count for nothing; `covered` is the share of the others.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with `rollout_log_prob`. Of a file that holds the
        worst samples beside drawn ones, those drawn count.
    edges : sequence of float
        Of the bins of probability, ascending; a bin has its upper edge.

    Returns
    -------
    DataFrame
        One row a round: `round, num_samples, num_tokens, mean` as it is,
        `standardised` and `covered`, from 0 to 1.

    Raises
    ------
    FrameError
        If a frame lacks a column.

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
    tokens, _ = _tokens(data)
    place = _bin(np.exp(tokens[_COLUMN].to_numpy(dtype=np.float64)), edges)
    index, size = tokens["round"].to_numpy(), tokens["diff"].abs().to_numpy()
    rounds = cell_means(size, index, tokens["sample"].to_numpy())
    found = rounds.rename(columns={"cell": "round"})
    used = np.isfinite(size) & (place < len(edges) - 1)
    shape = int(index.max(initial=-1)) + 1, len(edges) - 1
    weighted, covered = _weighted(size[used], index[used], place[used], shape)
    kept = found["round"].to_numpy()
    columns = ["round", "num_samples", "num_tokens", "mean"]
    return found[columns].assign(standardised=weighted[kept], covered=covered[kept])


def _weighted(
    size: Array, index: Array, place: Array, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Return each round's weighted mean, and the share of the weights that it has."""
    flat = index.astype(np.int64) * shape[1] + place
    counts = np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)
    totals = np.bincount(flat, size, shape[0] * shape[1]).reshape(shape)
    shares = counts.sum(0) / max(counts.sum(), 1)
    covered: Array = (counts > 0) @ shares
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, totals / counts, 0)
        return means @ shares / covered, covered


def _tokens(data: Batch | pd.DataFrame) -> tuple[pd.DataFrame, Array | None]:
    """Return the tokens, and which cluster each sample of a batch is in."""
    if isinstance(data, Batch):
        batch = fair_part(data)
        return token_frame(batch, [_COLUMN]), clusters_of(batch)
    schema.TOKENS.require(data.columns, "sample", "round", "diff", _COLUMN)
    return data, None


def _bin(prob: Array, edges: Sequence[float]) -> Array:
    """Return each probability's bin; one beyond the last for what is none."""
    found: Array = np.searchsorted(np.asarray(edges), prob, side="left") - 1
    return np.where(prob >= edges[0], np.maximum(found, 0), len(edges) - 1)


def _scale(size: Array, prob: Array, group: Array) -> float:
    """Fit the envelope to the earliest group: sum of |diff| over sum of 1 - p."""
    used = np.isfinite(size) & (prob <= 1) & (group == group.min(initial=1 << 30))
    room = (1 - prob[used]).sum()
    return float(size[used].sum() / room) if room > 0 else float("nan")
