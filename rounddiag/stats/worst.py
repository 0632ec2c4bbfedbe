"""Ranking of the worst cells, tokens, samples and rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag import schema
from rounddiag.core import rounds_of_tokens
from rounddiag.schema import TOKENS
from rounddiag.stats.cells import aggregate_rounds
from rounddiag.stats.intervals import few_rows

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag._typing import Array


_QUANTILE = 1.96  # a normal variable is lower in 97.5 % of draws
# Tokens of the frame's mean and spread that are added to each cell and sample: a few
# tokens cannot be worst by accident.
_NUM_ADDED = 10
_AGGREGATES = ["mean_abs_diff", "low", "num_tokens", "num_nonfinite"]


def cell_bounds(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every round of a sample, in nats."""
    rounds = rounds_of_tokens(tokens)
    num_all, mean = rounds["num_tokens"].to_numpy(), rounds["mean_abs_diff"].to_numpy()
    apart = tokens["diff"].abs().to_numpy(np.float64) - np.repeat(mean, num_all)
    squares = np.square(np.where(np.isfinite(apart), apart, 0))
    begins = (np.cumsum(num_all) - num_all).astype(np.int64)
    inside = np.add.reduceat(squares, begins) if len(rounds) else mean
    num = num_all - rounds["num_nonfinite"].to_numpy()
    overall = _overall_mean(mean, num)
    added = np.nan_to_num(inside + num * np.square(mean - overall)).sum()
    total = num + _NUM_ADDED
    middle = (num * mean + _NUM_ADDED * overall) / total
    spread = inside + _NUM_ADDED * added / max(int(num.sum()), 1)
    spread += num * _NUM_ADDED / total * np.square(mean - overall)
    low = middle - _QUANTILE * np.sqrt(spread / (total - 1) / total)
    return rounds.assign(low=low)[["sample", "round", *_AGGREGATES]]


def sample_bounds(cells: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every sample, from its cells, and `num_rounds`."""
    found = aggregate_rounds(cells, "sample").rename(columns={"num_rows": "num_rounds"})
    row = np.searchsorted(found["sample"], cells["sample"])

    def added(values: Array) -> Array:
        return np.bincount(row, values, len(found))

    num = (cells["num_tokens"] - cells["num_nonfinite"]).to_numpy()
    mean = cells["mean_abs_diff"].to_numpy()
    overall = _overall_mean(mean, num)
    total = added(num) + _NUM_ADDED
    middle = (added(np.nan_to_num(num * mean)) + _NUM_ADDED * overall) / total
    apart = np.nan_to_num(num * (mean - middle[row]))
    squares = added(np.square(apart)) + np.square(_NUM_ADDED * (overall - middle))
    num_units = added(num > 0) + 1
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing finite: left out
        scale = num_units / (num_units - 1)
        low = middle - _QUANTILE * np.sqrt(scale * squares) / total
    alone = added(np.where(num > 0, np.nan_to_num(cells["low"].to_numpy()), 0))
    found = found.assign(
        low=np.where(num_units > 2, low, alone),  # noqa: PLR2004 its own and the added
        num_nonfinite=added(cells["num_nonfinite"].to_numpy()).astype(np.int64),
    )
    return found[["sample", *_AGGREGATES, "num_rounds"]]


def _overall_mean(mean: Array, num: Array) -> float:
    """Return the mean over all finite tokens; NaN without any."""
    return float(np.nan_to_num(num * mean).sum() / num.sum()) if num.any() else np.nan


def worst_cells(tokens: pd.DataFrame, num: int = 20) -> pd.DataFrame:
    r"""Return the rounds of samples that are surely bad, the worst first.

    A cell of few tokens has a large mean by accident, so cells are ordered by a lower
    bound that is shrunk: :math:`m - 1.96\, s / \sqrt{n}`, with the mean :math:`m` and
    the standard deviation :math:`s` of the cell's finite |diff| and of 10 tokens more,
    which have the mean and the standard deviation of the whole frame.

    Parameters
    ----------
    tokens : DataFrame
        A token frame; the rows of one round stand together.
    num : int
        How many at most.

    Returns
    -------
    DataFrame
        `sample, round, mean_abs_diff, low, num_tokens, num_nonfinite`, in nats. What is
        not finite is counted and left out; a cell of nothing else is left out too. The
        bound can be below 0.

    Raises
    ------
    FrameError
        If a column is missing.

    Notes
    -----
    The bound takes a cell's tokens as independent, and the worst of many cells is
    chosen by it: it is for finding where to look, not for saying how bad it is there.

    Examples
    --------
    >>> import rounddiag as rd
    >>> tokens = rd.token_frame(rd.load("sample_data/image_window.parquet"))
    >>> worst_cells(tokens, num=2)[["sample", "round", "num_tokens"]]
       sample  round  num_tokens
    0      18      6          17
    1       5      5          16
    """
    return _worst(cell_bounds(tokens), num)


def worst_tokens(tokens: pd.DataFrame, num: int = 20) -> pd.DataFrame:
    """Return the tokens with the largest |diff|, the largest first.

    Parameters
    ----------
    tokens : DataFrame
        A token frame.
    num : int
        How many at most.

    Returns
    -------
    DataFrame
        Rows of `tokens` with all its columns; equals in their order. Tokens whose diff
        is not finite are left out.

    Raises
    ------
    FrameError
        If a column is missing.

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
        least = np.partition(size[rows], len(rows) - num)[len(rows) - num]
        rows = rows[size[rows] >= least]
    order = np.argsort(-size[rows], kind="stable")[:num]
    return tokens.iloc[rows[order]].reset_index(drop=True)


def worst_samples(tokens: pd.DataFrame, num: int = 20) -> pd.DataFrame:
    r"""Return the samples that are surely bad, the worst first.

    Ordered by a shrunk lower bound of the mean over tokens,
    :math:`m = \sum t_r / \sum n_r` over :math:`R` rounds with sum :math:`t_r` and
    number :math:`n_r` of their finite |diff|: tokens of one round go together, so
    rounds are what varies,
    :math:`m - 1.96 \sqrt{R / (R - 1) \sum (t_r - m n_r)^2} / \sum n_r`.
    The rounds are those of the sample, and one more of 10 tokens with the mean of the
    whole frame. A sample of one round has the bound of `worst_cells`.

    Parameters
    ----------
    tokens : DataFrame
        A token frame; the rows of one round stand together.
    num : int
        How many at most.

    Returns
    -------
    DataFrame
        `sample, mean_abs_diff, low, num_tokens, num_nonfinite, num_rounds`, as
        `worst_cells` has them.

    Raises
    ------
    FrameError
        If a column is missing.

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
    0      33           8         139
    1      18           8         148
    """
    return _worst(sample_bounds(cell_bounds(tokens)), num)


def _worst(rows: pd.DataFrame, num: int) -> pd.DataFrame:
    """Return the first rows by their bounds, of those with a finite diff."""
    finite = rows[rows["num_tokens"] > rows["num_nonfinite"]]
    order = finite.sort_values(["low", "mean_abs_diff"], ascending=False, kind="stable")
    return order.head(num).reset_index(drop=True)


def worst_round(summary: pd.DataFrame) -> pd.Series[Any] | None:
    """Return the row of the round whose mean is the farthest from 0.

    Of equals the lowest round wins; rounds without a finite mean cannot. So that a
    round of one odd sample does not win by accident, rounds of fewer than 10 samples
    (or groups, where `is_few` says so) are compared only where no round has more.

    Parameters
    ----------
    summary : DataFrame
        As made by `round_summary`.

    Returns
    -------
    Series or None
        None where no round has a finite mean.

    Raises
    ------
    FrameError
        If the frame lacks a column.

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
    worst: pd.Series[Any] = compared.loc[compared["mean"].abs().idxmax()]
    return worst
