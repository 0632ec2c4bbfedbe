"""In which order samples are looked at."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from rounddiag.checks.words import listed
from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

Order: TypeAlias = Literal["sample", "worst", "rounds", "reward", "group"]

_LACKING = {"reward": "rewards", "group_id": "group_ids"}


def ordered(
    samples: pd.DataFrame, order: Order | Sequence[int], metric: str = "mean_abs_diff"
) -> pd.DataFrame:
    """Sort samples; equals stay in the order of their numbers.

    Parameters
    ----------
    samples : DataFrame
        One row a sample: `sample`, and what the order needs.
    order : {"sample", "worst", "rounds", "reward", "group"}
        By number; by size of the metric, largest first; by `num_rounds`, most first;
        by `reward`, highest first; by `group_id`, in the order in which groups first
        appear. What is NaN comes last. Or a list of samples, and none but these.
    metric : str

    Returns
    -------
    DataFrame

    Raises
    ------
    FrameError
        If there is no such order, the samples lack what it needs, or a list names one
        that there is not, or one twice.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sample": [0, 1, 2], "reward": [0.0, None, 1.0]})
    >>> ordered(frame, "reward")["sample"].tolist()
    [2, 0, 1]
    """
    match order:
        case [*chosen]:
            return _listed(samples, chosen)
    columns = {"worst": metric, "rounds": "num_rounds", "group": "group_id"}
    column = columns.get(order, order)
    if order not in get_args(Order):
        raise FrameError.build(
            key="order",
            expected=f"one of {list(get_args(Order))}",
            found=repr(order),
            advice="Leave it out for the order of the batch.",
        )
    if column not in samples:
        raise FrameError.build(
            key="order",
            expected=f"a batch with `{_LACKING.get(column, column)}` for {order!r},"
            f" or a round frame with `{column}`",
            found="none",
            advice="Choose another order, `worst` say.",
        )
    if order == "sample":
        return samples.sort_values("sample", kind="stable")
    if order == "group":
        rank = samples["group_id"].map(_first_places(samples))
    else:
        rank = -samples[column].abs() if order == "worst" else -samples[column]
    return samples.iloc[np.argsort(rank.to_numpy(), kind="stable")]


def _listed(samples: pd.DataFrame, order: Sequence[int]) -> pd.DataFrame:
    places = dict(zip(samples["sample"], range(len(samples)), strict=True))
    wrong = [one for one in order if one not in places] or _repeated(order)
    if wrong:
        raise FrameError.build(
            key="order",
            expected=f"each sample once, of {len(samples)}",
            found=listed(wrong, len(wrong)),
            advice="Name samples by their numbers.",
        )
    return samples.iloc[[places[one] for one in order]]


def _repeated(order: Sequence[int]) -> list[int]:
    return [one for one, num in Counter(order).items() if num > 1]


def _first_places(samples: pd.DataFrame) -> dict[object, int]:
    return {name: place for place, name in enumerate(samples["group_id"].unique())}
