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
_AGGREGATES = ["mean_abs_diff", "low", "num_tokens", "num_nonfinite"]


def cell_bounds(tokens: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every round of a sample, in nats."""
    rounds = rounds_of_tokens(tokens)
    num, mean = rounds["num_tokens"].to_numpy(), rounds["mean_abs_diff"].to_numpy()
    apart = tokens["diff"].abs().to_numpy(np.float64) - np.repeat(mean, num)
    squares = np.square(np.where(np.isfinite(apart), apart, 0))
    begins = (np.cumsum(num) - num).astype(np.int64)
    sums = np.add.reduceat(squares, begins) if len(rounds) else mean
    num_finite = num - rounds["num_nonfinite"].to_numpy()
    low = _low(mean, sums, num_finite, num_finite)
    return rounds.assign(low=low)[["sample", "round", *_AGGREGATES]]


def sample_bounds(cells: pd.DataFrame) -> pd.DataFrame:
    """Return mean and lower bound of every sample, from its cells, and `num_rounds`."""
    found = aggregate_rounds(cells, "sample").rename(columns={"num_rows": "num_rounds"})
    row = np.searchsorted(found["sample"], cells["sample"])
    mean = found["mean_abs_diff"].to_numpy()

    def added(values: Array) -> Array:
        return np.bincount(row, values, len(found))

    num_finite = (cells["num_tokens"] - cells["num_nonfinite"]).to_numpy()
    apart = np.nan_to_num(num_finite * (cells["mean_abs_diff"].to_numpy() - mean[row]))
    num_used = added(num_finite > 0)
    low = _low(mean, added(np.square(apart)), num_used, added(num_finite))
    is_only = (num_finite > 0) & (num_used[row] == 1)
    alone = added(np.where(is_only, cells["low"], 0))
    found = found.assign(
        low=np.where(num_used > 1, low, alone),
        num_nonfinite=added(cells["num_nonfinite"].to_numpy()).astype(np.int64),
    )
    return found[["sample", *_AGGREGATES, "num_rounds"]]


def _low(mean: Array, squares: Array, num_units: Array, num_tokens: Array) -> Array:
    """Return the lower bound of means over units that vary; NaN of one unit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(num_units > 1, num_units / (num_units - 1), np.nan)
        low: Array = mean - _QUANTILE * np.sqrt(scale * squares) / num_tokens
    return low


def worst_cells(
    tokens: pd.DataFrame, num: int = 20, min_tokens: int = 20
) -> pd.DataFrame:
    r"""Return the rounds of samples that are surely bad, the worst first.

    A cell of few tokens has a large mean by accident, so cells are ordered by a lower
    bound of theirs: :math:`m - 1.96\, s / \sqrt{n}`, with the mean :math:`m` and the
    standard deviation :math:`s` of the cell's own :math:`n` finite |diff|.

    Parameters
    ----------
    tokens : DataFrame
        A token frame; the rows of one round stand together.
    num : int
        How many at most.
    min_tokens : int
        Cells with fewer finite diffs are left out, unless none has as many.

    Returns
    -------
    DataFrame
        `sample, round, mean_abs_diff, low, num_tokens, num_nonfinite`, in nats. What is
        not finite is counted and left out; a cell of nothing else is left out too. The
        bound can be below 0; of one token it is NaN, and such cells come last.

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
    0      35      4          20
    1       4      4          21
    """
    return _worst(cell_bounds(tokens), num, min_tokens)


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


def worst_samples(
    tokens: pd.DataFrame, num: int = 20, min_tokens: int = 20
) -> pd.DataFrame:
    r"""Return the samples that are surely bad, the worst first.

    Ordered by a lower bound of the mean over tokens, :math:`m = \sum t_r / \sum n_r`
    over the sample's :math:`R` rounds with sum :math:`t_r` and number :math:`n_r` of
    their finite |diff|: tokens of one round go together, so rounds are what varies,
    :math:`m - 1.96 \sqrt{R / (R - 1) \sum (t_r - m n_r)^2} / \sum n_r`. A sample of one
    round has the bound of `worst_cells`.

    Parameters
    ----------
    tokens : DataFrame
        A token frame; the rows of one round stand together.
    num : int
        How many at most.
    min_tokens : int
        Samples with fewer finite diffs are left out, unless none has as many.

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
    return _worst(sample_bounds(cell_bounds(tokens)), num, min_tokens)


def _worst(rows: pd.DataFrame, num: int, min_tokens: int) -> pd.DataFrame:
    """Return the first rows by their bounds, of those with enough finite diffs."""
    num_finite = rows["num_tokens"] - rows["num_nonfinite"]
    many = rows[num_finite >= min_tokens]
    compared = rows[num_finite > 0] if many.empty else many
    order = compared.sort_values(
        ["low", "mean_abs_diff"], ascending=False, kind="stable"
    )
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
