"""Tail of the distribution: the share of tokens at or beyond each |diff|."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.stats.grouping import split_by, split_rounds
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.wording import with_minus

# Importance ratios whose logs are always among the sizes.
RATIOS = (2.0, 5.0)
_POINTS_A_DECADE = 40  # of a line, so that it looks smooth


def tail_shares(
    data: Data, *, by: str | None = None, a: str = "old", b: str = "rollout"
) -> pd.DataFrame:
    r"""Return the complementary distribution of |diff| for groups of rounds.

    :math:`S(x)` is the share of tokens with :math:`|d| \ge x`, counted exactly at
    40 sizes per decade, at ln 2 and ln 5, and at the largest of each
    group. Tokens whose diff is not finite are left out.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame.
    by : str, optional
        A column of samples or rounds, by which to group tokens instead of by round.
    a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per group of rounds (or value) and size that a token of the group
        reaches, in ascending order: `rounds` (or the column), `abs_diff` in nats (0
        first), `num_tokens` and `share` at or beyond it, and `num_nonfinite` of the
        whole group.

    Examples
    --------
    >>> frame = pd.DataFrame({"round": [0, 0, 1], "diff": [0.0, -2.0, 0.5]})
    >>> result = tail_shares(frame)
    >>> result.groupby("rounds")["abs_diff"].max().to_dict()
    {'0': 2.0, '1': 0.5}
    >>> float(result.loc[result["abs_diff"] == 2.0, "share"].iloc[0])
    0.5
    """
    data = open_measured(data, a, b)
    tokens = data.tokens("round", "diff")
    split = split_rounds(tokens) if by is None else split_by(data, by)
    group = split.codes
    size = np.abs(tokens["diff"].to_numpy())
    finite = np.isfinite(size)
    num_nonfinite = np.bincount(group[~finite], minlength=int(group.max(initial=0)) + 1)
    if not finite.all():
        group, size = group[finite], size[finite]
    sizes = _sizes(size, group)
    shape = len(num_nonfinite), len(sizes)
    place = np.searchsorted(sizes, size, side="right") - 1
    counts = np.bincount(group * shape[1] + place, minlength=shape[0] * shape[1])
    reached = counts.reshape(shape)[:, ::-1].cumsum(axis=1)[:, ::-1]
    is_reached = reached > 0
    # A group without a finite diff has one row, with `num_nonfinite`.
    is_reached[:, 0] |= num_nonfinite > 0
    group, place = np.nonzero(is_reached)
    num, of_all = reached[group, place], reached[group, 0]
    frame = pd.DataFrame(
        {
            "abs_diff": sizes[place],
            "num_tokens": num,
            "share": num / np.where(of_all > 0, of_all, np.nan),
            "num_nonfinite": num_nonfinite[group],
        }
    )
    split.insert_into(frame, group)
    return frame


def _sizes(size: Array, group: Array) -> Array:
    """Choose the sizes at which the distribution is counted, 0 first."""
    largest = np.zeros(int(group.max(initial=0)) + 1, dtype=size.dtype)
    np.maximum.at(largest, group, size)
    positive = size[size > 0]
    if len(positive) == 0:
        return np.zeros(1)
    low, high = float(positive.min()), float(positive.max())
    num = int(np.log10(high / low) * _POINTS_A_DECADE) + 2
    between = np.geomspace(low, high, num)[1:-1]
    ends = np.array([0.0, low, high], dtype=np.float64)
    return np.unique(np.concatenate([ends, between, np.log(RATIOS), largest]))


# A |diff| beyond 1 nat is more than rounding.
_FAR = 1.0


def overall(diff: Array) -> str:
    """Return the signed mean of the finite diffs and the share above 1 nat, in a line.

    Empty without any finite diff. A mean that is large relative to the mean |diff| says
    that one engine is systematically higher.

    Examples
    --------
    >>> overall(np.array([1.0, -1.0, 3.0, -1.5]))
    'mean diff +0.375 nat, |diff| > 1 in 50 %'
    """
    finite = diff[np.isfinite(diff)].astype(np.float64)
    if not len(finite):
        return ""
    mean = with_minus(f"{finite.mean():+.3g}")
    share = f"{100 * np.mean(np.abs(finite) > _FAR):.3g} %"
    return f"mean diff {mean} nat, |diff| > 1 in {share}"
