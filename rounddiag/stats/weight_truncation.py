"""Effect of importance-ratio corrections: shares of tokens and samples they touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core import round_and_token_frames, rounds_of_tokens
from rounddiag.core.aggregation import run_sums
from rounddiag.errors import FrameError
from rounddiag.stats.grouping import apply_by_part, split_rounds_by
from rounddiag.stats.inputs import without_worst_picks

if TYPE_CHECKING:
    from rounddiag._typing import Array


_RULES = ("above", "outside", "product_above", "product_outside", "mean_outside")


def truncation(
    data: Batch | pd.DataFrame,
    *,
    threshold: float = 2.0,
    floor: float | None = None,
    by: str | None = None,
) -> pd.DataFrame:
    r"""Return the share of each round that an importance-ratio correction affects.

    With :math:`\rho_t = e^{d_t}` (`old` over `rollout`), limits c and C, and products
    and geometric means over all rounds of a sample:

    - `above`, :math:`\rho_t > C`: tokens whose weight truncated importance sampling
      (TIS) clips;
    - `outside`, :math:`\rho_t \notin [c, C]`: tokens that IcePop, or a token mask,
      drops;
    - `product_above`, :math:`\prod \rho_t > C`: samples whose weight TIS of sequences
      clips;
    - `product_outside`, :math:`\prod \rho_t \notin [c, C]`: samples that IcePop of
      sequences, or a sequence mask by the sum, drops;
    - `mean_outside`: samples that a sequence mask by the geometric mean of
      :math:`\rho_t` drops.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame. Of a partial capture, only the samples drawn at
        random count.
    threshold : float
        C, above 1.
    floor : float, optional
        c, between 0 and 1; 1 / C by default, as in verl.
    by : str, optional
        A column of samples or rounds: one row per value and round, and the value comes
        first.

    Returns
    -------
    DataFrame
        One row per round: `round, num_samples, num_tokens`, and two shares for each
        rule. `above_tokens` is the share of the round's tokens, `above_samples` that of
        its samples in which at least one token of the round is touched; for a rule for
        samples, the shares of tokens in touched samples, and of touched samples. Tokens
        whose diff is not finite are above and outside, and count for no product or
        mean, where samples without another one are outside.

    Raises
    ------
    FrameError
        If a frame lacks a column, or `threshold` or `floor` is out of range.

    References
    ----------
    verl, `rollout_corr_helper.py`: `rollout_is` and `rollout_rs`, by tokens and by
    sequences, `seq_sum_k1` and `seq_mean_k1`; these last bound :math:`-d`, which is the
    same where c is 1 / C. IcePop, https://ringtech.notion.site/icepop.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {"sample": [0, 0, 1], "round": [0, 0, 0], "diff": [0.0, 1.0, -1.0]}
    ... )
    >>> found = truncation(frame)
    >>> found[["above_tokens", "outside_samples", "mean_outside_samples"]].round(2)
       above_tokens  outside_samples  mean_outside_samples
    0          0.33              1.0                   0.5
    """
    limits = _limits(threshold, floor)
    data = without_worst_picks(data)
    if isinstance(data, Batch):
        rounds, tokens = round_and_token_frames(data)
    else:
        rounds, tokens = rounds_of_tokens(data), data
    diff = tokens["diff"].to_numpy()
    num = rounds["num_tokens"].to_numpy()
    products, means = _of_samples(rounds)
    touched = (
        run_sums(_is_above(diff, limits[1]), num),
        run_sums(_is_outside(diff, *limits), num),
        _is_above(products, limits[1]) * num,
        _is_outside(products, *limits) * num,
        _is_outside(means, *limits) * num,
    )
    runs = rounds[["sample", "round", "num_tokens"]].assign(
        **dict(zip(_RULES, touched, strict=True))
    )
    return apply_by_part(runs, split_rounds_by(data, rounds, by), _shares)


def _limits(threshold: float, floor: float | None) -> tuple[float, float]:
    """Return both limits on the log scale."""
    floor = 1 / threshold if floor is None and threshold > 0 else floor
    if floor is None or not 0 < floor < 1 < threshold:
        raise FrameError.build(
            expected="`threshold` above 1, and `floor` between 0 and 1",
            found=f"{threshold} and {floor}",
            advice="Pass ratios of probabilities, such as 2.0 and 0.5.",
        )
    return float(np.log(floor)), float(np.log(threshold))


def _is_above(log_ratio: Array, high: float) -> Array:
    """Return which values are above the limit; NaN counts as above."""
    above: Array = ~(log_ratio <= high)
    return above


def _is_outside(log_ratio: Array, low: float, high: float) -> Array:
    """Return which values are outside the limits; NaN counts as outside."""
    return _is_above(log_ratio, high) | (log_ratio < low)


def _of_samples(rounds: pd.DataFrame) -> tuple[Array, Array]:
    """Return, for each round, the sum and the mean of its sample's finite diffs."""
    sample = rounds["sample"].to_numpy()
    counts = (rounds["num_tokens"] - rounds["num_nonfinite"]).to_numpy()
    totals = np.where(counts > 0, rounds["mean_diff"].to_numpy(), 0) * counts
    num = int(sample.max(initial=-1)) + 1
    sums, counts = np.bincount(sample, totals, num), np.bincount(sample, counts, num)
    sums = np.where(counts > 0, sums, np.nan)
    return sums[sample], (sums / np.maximum(counts, 1))[sample]


def _shares(runs: pd.DataFrame) -> pd.DataFrame:
    """Divide what is touched of each round by its tokens, and by its samples."""
    # The rows of one round need not be adjacent in a token frame.
    of_samples = runs.groupby(["round", "sample"])[["num_tokens", *_RULES]].sum()
    by_round = of_samples.groupby("round")
    tokens, touched = by_round.sum(), (of_samples > 0).groupby("round").mean()
    columns = {"num_samples": by_round.size(), "num_tokens": tokens["num_tokens"]}
    for rule in _RULES:
        columns[f"{rule}_tokens"] = tokens[rule] / tokens["num_tokens"]
        columns[f"{rule}_samples"] = touched[rule]
    return pd.DataFrame(columns).reset_index()
