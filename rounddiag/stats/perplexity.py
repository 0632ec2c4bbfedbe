"""Log-perplexity of each sample under both engines, and the overall mismatch."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.stats.grouping import split_by, split_first
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.wording import with_minus

_COLUMNS = ("rollout_log_prob", "old_log_prob")


def perplexities(
    data: Data, *, by: str | None = None, a: str = "old", b: str = "rollout"
) -> pd.DataFrame:
    r"""Return each sample's log-perplexities in its first round and in later ones.

    The log-perplexity of an engine is :math:`-\frac{1}{n} \sum_t \log p_t`, here over
    the tokens whose log-probs are finite from both engines. verl's
    `rollout_corr/rollout_log_ppl` and `training_log_ppl` are means over samples of the
    same, over all rounds together.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with `rollout_log_prob` and `old_log_prob`.
    by : str, optional
        A column of samples or rounds, by which to group tokens instead of by first and
        later rounds.
    a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        At most two rows per sample, for the first round and for later rounds (or one
        for each value of `by`): `sample`, `is_later` (or the column), `num_tokens`,
        `num_nonfinite` (tokens left out), `rollout_log_ppl` and `old_log_ppl` in nats,
        NaN where no token is left.

    References
    ----------
    Liu and Li, "When Speed Kills Stability", 2025, section 3.4.1.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {
    ...         "sample": [0, 0, 0],
    ...         "round": [0, 0, 1],
    ...         "rollout_log_prob": [-1.0, -2.0, -1.0],
    ...         "old_log_prob": [-1.0, -3.0, -0.5],
    ...     }
    ... )
    >>> perplexities(frame)[["is_later", "rollout_log_ppl", "old_log_ppl"]]
       is_later  rollout_log_ppl  old_log_ppl
    0     False              1.5          2.0
    1      True              1.0          0.5
    """
    data = open_measured(data, a, b)
    tokens = data.tokens("sample", "round", *_COLUMNS)
    split = split_first(tokens) if by is None else split_by(data, by)
    part = max(len(split.values), 1) * tokens["sample"].to_numpy(dtype=np.int64)
    part += split.codes
    rollout, old = (tokens[name].to_numpy() for name in _COLUMNS)
    finite = np.isfinite(rollout) & np.isfinite(old)
    num_tokens = np.bincount(part)
    if not finite.all():
        part, rollout, old = part[finite], rollout[finite], old[finite]
    num = np.bincount(part, minlength=len(num_tokens))
    present = np.flatnonzero(num_tokens)
    counts = np.where(num[present] > 0, num[present], np.nan)
    means = {
        name: np.bincount(part, values, len(num))[present] / -counts
        for name, values in (("rollout_log_ppl", rollout), ("old_log_ppl", old))
    }
    sample, parts = np.divmod(present, max(len(split.values), 1))
    found = pd.DataFrame(
        {
            "sample": sample.astype(np.int32),
            "num_tokens": num_tokens[present],
            "num_nonfinite": (num_tokens - num)[present],
            **means,
        }
    )
    split.insert_into(found, parts, place=1)
    return found


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
