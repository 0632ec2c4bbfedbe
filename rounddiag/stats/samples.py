"""How far the samples of a group are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag.core import sample_frame
from rounddiag.schema import SAMPLES
from rounddiag.stats.given import fair
from rounddiag.stats.parts import each, parts_of_samples

if TYPE_CHECKING:
    from rounddiag.batch import Batch

_VALUE = "mean_abs_diff"


def groups(data: Batch | pd.DataFrame, *, by: str | None = None) -> pd.DataFrame:
    """Return how far the samples of each group (of one prompt) are apart.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch with `group_ids`, or a sample frame with `group_id`. Of a file that
        holds the worst samples beside drawn ones, those drawn count.
    by : str, optional
        A column that divides samples: one row per value and group, and the value comes
        first.

    Returns
    -------
    DataFrame
        One row a group, in the order in which they first appear: `group_id,
        num_samples, num_tokens`, the token-weighted `mean_abs_diff`, and the lowest,
        highest and standard deviation of its samples' means: `lowest, highest,
        spread` (NaN of one sample); in nats.

    Raises
    ------
    FrameError
        If there are no groups, or `by` does not divide samples.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {
    ...         "group_id": ["a", "a"],
    ...         "num_tokens": [1, 3],
    ...         "num_nonfinite": [0, 0],
    ...         "mean_abs_diff": [0.5, 0.1],
    ...     }
    ... )
    >>> groups(frame)[["group_id", "num_samples", "mean_abs_diff", "highest"]]
      group_id  num_samples  mean_abs_diff  highest
    0        a            2            0.2      0.5
    """
    data = fair(data, "sample")
    samples = data if isinstance(data, pd.DataFrame) else sample_frame(data)
    needed = ("group_id", "num_tokens", "num_nonfinite", _VALUE)
    SAMPLES.require(samples.columns, *needed)
    return each(samples, parts_of_samples(data, samples, by), _groups)


def _groups(frame: pd.DataFrame) -> pd.DataFrame:
    finite = frame["num_tokens"] - frame["num_nonfinite"]
    total = frame[_VALUE].fillna(0) * finite
    by_group = frame.assign(finite=finite, total=total).groupby(
        "group_id", sort=False, dropna=False
    )
    found = by_group.agg(
        num_samples=(_VALUE, "size"),
        num_tokens=("num_tokens", "sum"),
        finite=("finite", "sum"),
        total=("total", "sum"),
        lowest=(_VALUE, "min"),
        highest=(_VALUE, "max"),
        spread=(_VALUE, "std"),
    ).reset_index()
    mean = found.pop("total") / found.pop("finite").replace(0, np.nan)
    found.insert(3, _VALUE, mean)
    return found
