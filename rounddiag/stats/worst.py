"""Ranking of the worst cells, tokens, samples and rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rounddiag import schema
from rounddiag._typing import Array
from rounddiag.core import rounds_of_tokens
from rounddiag.core.aggregation import run_sums
from rounddiag.schema import TOKENS
from rounddiag.stats.cells import aggregate_rounds
from rounddiag.stats.intervals import few_rows

_QUANTILE = 1.96  # a normal variable is lower in 97.5 % of draws
# Tokens of the frame's mean and spread that are added to each cell and sample: a few
# tokens cannot be worst by chance.
_NUM_ADDED = 10
_AGGREGATES = ["mean_abs_diff", "low", "num_tokens", "num_nonfinite"]


def cell_bounds(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every round of a sample, in nats."""
    rounds = rounds_of_tokens(tokens)
    num_all, mean = rounds["num_tokens"].to_numpy(), rounds["mean_abs_diff"].to_numpy()
    deviation = tokens["diff"].abs().to_numpy(np.float64) - np.repeat(mean, num_all)
    squares = np.square(np.where(np.isfinite(deviation), deviation, 0))
    inside = run_sums(squares, num_all)
    num = num_all - rounds["num_nonfinite"].to_numpy()
    overall = _overall_mean(mean, num)
    total_squares = np.nan_to_num(inside + num * np.square(mean - overall)).sum()
    total = num + _NUM_ADDED
    middle = (num * mean + _NUM_ADDED * overall) / total
    spread = inside + _NUM_ADDED * total_squares / max(int(num.sum()), 1)
    spread += num * _NUM_ADDED / total * np.square(mean - overall)
    low = middle - _QUANTILE * np.sqrt(spread / (total - 1) / total)
    return rounds.assign(low=low)[["sample", "round", *_AGGREGATES]]


def sample_bounds(cells: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every sample, from its cells, and `num_rounds`."""
    samples = aggregate_rounds(cells, "sample").rename(
        columns={"num_rows": "num_rounds"}
    )
    row = np.searchsorted(samples["sample"], cells["sample"])

    def sample_sums(values: Array) -> Array:
        return np.bincount(row, values, len(samples))

    num = (cells["num_tokens"] - cells["num_nonfinite"]).to_numpy()
    mean = cells["mean_abs_diff"].to_numpy()
    overall = _overall_mean(mean, num)
    total = sample_sums(num) + _NUM_ADDED
    middle = (sample_sums(np.nan_to_num(num * mean)) + _NUM_ADDED * overall) / total
    deviation = np.nan_to_num(num * (mean - middle[row]))
    squares = sample_sums(np.square(deviation)) + np.square(
        _NUM_ADDED * (overall - middle)
    )
    num_units = sample_sums(num > 0) + 1
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing finite: left out
        scale = num_units / (num_units - 1)
        low = middle - _QUANTILE * np.sqrt(scale * squares) / total
    alone = sample_sums(np.where(num > 0, np.nan_to_num(cells["low"].to_numpy()), 0))
    samples = samples.assign(
        low=np.where(num_units > 2, low, alone),  # noqa: PLR2004 one and the added
        num_nonfinite=sample_sums(cells["num_nonfinite"].to_numpy()).astype(np.int64),
    )
    return samples[["sample", *_AGGREGATES, "num_rounds"]]


def _overall_mean(mean: Array, num: Array) -> float:
    """Return the mean over all finite tokens; NaN without any."""
    return float(np.nan_to_num(num * mean).sum() / num.sum()) if num.any() else np.nan


def worst_cells(tokens: pd.DataFrame, num: int = 20) -> pd.DataFrame:
    r"""Return the cells (rounds of samples) by a lower bound of |diff|, worst first.

    A cell of few tokens can have a large mean by chance, so cells are ordered by a
    shrunk lower bound: :math:`m - 1.96\, s / \sqrt{n}`, with the mean :math:`m` and the
    standard deviation :math:`s` of the cell's finite |diff| and of 10 added tokens with
    the mean and the standard deviation of the whole frame.

    Parameters
    ----------
    tokens : DataFrame
        A token frame; the rows of each round are adjacent.
    num : int
        Maximum number of rows.

    Returns
    -------
    DataFrame
        `sample, round, mean_abs_diff, low, num_tokens, num_nonfinite`, in nats. Values
        that are not finite are counted and left out; so is a cell without a finite one.
        The bound can be below 0.

    Notes
    -----
    The bound treats a cell's tokens as independent and selects the worst of many cells:
    use it to find where to look, not to quantify the mismatch there.

    Examples
    --------
    >>> import rounddiag as rd
    >>> tokens = rd.token_frame(rd.load("sample_data/image_window.parquet"))
    >>> worst_cells(tokens, num=2)[["sample", "round", "num_tokens"]]
       sample  round  num_tokens
    0       8      4          12
    1      42      6          22
    """
    return _worst(cell_bounds(tokens), num)


def worst_tokens(tokens: pd.DataFrame, num: int = 20) -> pd.DataFrame:
    """Return the tokens with the largest |diff|, the largest first.

    Parameters
    ----------
    tokens : DataFrame
        A token frame.
    num : int
        Maximum number of rows.

    Returns
    -------
    DataFrame
        Rows of `tokens` with all its columns; ties in their order. Tokens whose diff
        is not finite are left out.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = {"sample": [0, 0], "round": [0, 0], "token": [0, 1], "diff": [0.5, -1.0]}
    >>> worst_tokens(pd.DataFrame(rows), num=1)
       sample  round  token  diff
    0       0      0      1  -1.0
    """
    TOKENS.require(tokens.columns, *TOKENS.keys, "diff")
    size = tokens["diff"].abs().to_numpy()
    rows = np.flatnonzero(np.isfinite(size))
    if 0 < num < len(rows):
        smallest = np.partition(size[rows], len(rows) - num)[len(rows) - num]
        rows = rows[size[rows] >= smallest]
    order = np.argsort(-size[rows], kind="stable")[:num]
    return tokens.iloc[rows[order]].reset_index(drop=True)


def worst_samples(tokens: pd.DataFrame, num: int = 20) -> pd.DataFrame:
    r"""Return the samples by a lower bound of mean |diff|, the worst first.

    Ordered by a shrunk lower bound of the mean over tokens,
    :math:`m = \sum t_r / \sum n_r` over :math:`R` rounds with sum :math:`t_r` and
    number :math:`n_r` of their finite |diff|: tokens of one round are correlated,
    so rounds are the unit of variation,
    :math:`m - 1.96 \sqrt{R / (R - 1) \sum (t_r - m n_r)^2} / \sum n_r`.
    The rounds are those of the sample, and one more of 10 tokens with the mean of the
    whole frame. A sample of one round has the bound of `worst_cells`.

    Parameters
    ----------
    tokens : DataFrame
        A token frame; the rows of each round are adjacent.
    num : int
        Maximum number of rows.

    Returns
    -------
    DataFrame
        `sample, mean_abs_diff, low, num_tokens, num_nonfinite, num_rounds`, as
        `worst_cells` has them.

    References
    ----------
    W. G. Cochran, "Sampling Techniques", 3rd edition, 1977, section 6.3 (ratio
    estimates).

    Examples
    --------
    >>> import rounddiag as rd
    >>> tokens = rd.token_frame(rd.load("sample_data/image_window.parquet"))
    >>> worst_samples(tokens, num=2)[["sample", "num_rounds", "num_tokens"]]
       sample  num_rounds  num_tokens
    0      35           8         129
    1      28           8         147
    """
    return _worst(sample_bounds(cell_bounds(tokens)), num)


def _worst(rows: pd.DataFrame, num: int) -> pd.DataFrame:
    """Return the rows with the highest bounds, of those with a finite diff."""
    finite = rows[rows["num_tokens"] > rows["num_nonfinite"]]
    order = finite.sort_values(["low", "mean_abs_diff"], ascending=False, kind="stable")
    return order.head(num).reset_index(drop=True)


def worst_round(summary: pd.DataFrame) -> pd.Series[Any] | None:
    """Return the row of the round whose mean is the farthest from 0.

    On ties the lowest round wins; rounds without a finite mean cannot win. So that a
    round of one unusual sample does not win by chance, rounds of fewer than 5 samples
    (or groups, where `is_few` says so) are compared only where no round has more.

    Parameters
    ----------
    summary : DataFrame
        As made by `round_summary`.

    Returns
    -------
    Series or None
        None if no round has a finite mean.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame(
    ...     {
    ...         "round": [0, 1, 2, 3],
    ...         "num_samples": [64, 32, 16, 1],
    ...         "mean": [0.1, 0.3, 0.3, 0.9],
    ...     }
    ... )
    >>> int(worst_round(frame)["round"])
    1
    """
    schema.SUMMARY.require(summary.columns, "round", "num_samples", "mean")
    finite = summary[np.isfinite(summary["mean"])].sort_values("round")
    many = finite[~few_rows(finite)]
    compared = finite if many.empty else many
    if compared.empty:
        return None
    return compared.loc[compared["mean"].abs().idxmax()]
