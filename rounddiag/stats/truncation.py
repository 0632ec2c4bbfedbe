"""What a correction would touch: shares of tokens and samples beyond a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core import round_and_token_frames, rounds_of_tokens
from rounddiag.errors import FrameError

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_OF_SAMPLES = ("touched", "mean_outside", "product_outside")


def truncation(
    data: Batch | pd.DataFrame, *, threshold: float = 2.0, floor: float | None = None
) -> pd.DataFrame:
    r"""Return which share of each round a correction of the importance ratio touches.

    With :math:`\rho_t = e^{d_t}` (`old` over `rollout`), truncated importance sampling
    (TIS) clips tokens with :math:`\rho > C`; IcePop and token masks drop those outside
    :math:`[c, C]`; a sequence mask drops samples whose geometric mean of
    :math:`\rho`, or whose product of it, is outside.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame.
    threshold : float
        C, above 1.
    floor : float, optional
        c, between 0 and 1; 1 / C where left out, as in verl.

    Returns
    -------
    DataFrame
        One row a round: `round, num_samples, num_tokens`; the shares of its tokens
        `above` and `outside`; and of its samples `touched` (a token of the round is
        outside), `mean_outside` and `product_outside` (over the whole sample). Tokens
        whose diff is not finite are left out of sums, and outside.

    Raises
    ------
    FrameError
        If a frame lacks a column or a threshold is none.

    References
    ----------
    verl, `rollout_corr_helper.py` (token and sequence modes); IcePop,
    https://ringtech.notion.site/icepop.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {"sample": [0, 0, 1], "round": [0, 0, 0], "diff": [0.0, 1.0, -1.0]}
    ... )
    >>> truncation(frame)[["above", "outside", "touched", "mean_outside"]].round(2)
       above  outside  touched  mean_outside
    0   0.33     0.67      1.0           0.5
    """
    limits = _limits(threshold, floor)
    if isinstance(data, Batch):
        rounds, tokens = round_and_token_frames(data)
    else:
        rounds, tokens = rounds_of_tokens(data), data
    diff = tokens["diff"].to_numpy()
    begins = np.cumsum(rounds["num_tokens"]) - rounds["num_tokens"]

    def counted(flags: Array) -> Array:
        return np.add.reduceat(flags, begins, dtype=np.int64) if len(flags) else flags

    means, products = _of_samples(rounds)
    runs = pd.DataFrame(
        {
            "round": rounds["round"],
            "num_samples": 1,
            "num_tokens": rounds["num_tokens"],
            "above": counted(~(diff <= limits[1])),
            "outside": counted(_is_outside(diff, *limits)),
            "mean_outside": _is_outside(means, *limits),
            "product_outside": _is_outside(products, *limits),
        }
    )
    return _shares(runs.assign(touched=runs["outside"] > 0))


def _limits(threshold: float, floor: float | None) -> tuple[float, float]:
    """Return the thresholds on the log scale."""
    floor = 1 / threshold if floor is None and threshold > 0 else floor
    if floor is None or not 0 < floor < 1 < threshold:
        raise FrameError.build(
            expected="`threshold` above 1, and `floor` between 0 and 1",
            found=f"{threshold} and {floor}",
            advice="Pass ratios of probabilities, 2.0 and 0.5 say.",
        )
    return float(np.log(floor)), float(np.log(threshold))


def _is_outside(diff: Array, low: float, high: float) -> Array:
    """Tell what is beyond the limits; NaN is."""
    return ~((diff >= low) & (diff <= high))


def _of_samples(rounds: pd.DataFrame) -> tuple[Array, Array]:
    """Return the mean and the sum of its sample's finite diffs, for each round."""
    sample = rounds["sample"].to_numpy()
    counts = (rounds["num_tokens"] - rounds["num_nonfinite"]).to_numpy()
    totals = np.where(counts > 0, rounds["mean_diff"].to_numpy(), 0) * counts
    num = int(sample.max(initial=-1)) + 1
    sums, counts = np.bincount(sample, totals, num), np.bincount(sample, counts, num)
    return (sums / np.maximum(counts, 1))[sample], sums[sample]


def _shares(runs: pd.DataFrame) -> pd.DataFrame:
    """Add up the runs of each round, and divide by its tokens or samples."""
    found = runs.groupby("round").sum().reset_index()
    of_tokens, of_samples = ["above", "outside"], [*_OF_SAMPLES]
    found[of_tokens] = found[of_tokens].div(found["num_tokens"], axis=0)
    found[of_samples] = found[of_samples].div(found["num_samples"], axis=0)
    return found[["round", "num_samples", "num_tokens", *of_tokens, *of_samples]]
