"""Rows of a heatmap: order of samples, and pooling of neighbours if there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import FrameError, require_one_of
from rounddiag.schema import IS_REWRITTEN
from rounddiag.stats.cells import aggregate_rounds, extremes
from rounddiag.wording import join_names

_MAX_ROWS = 400  # more are thinner than two pixels
# Cells of a figure whose JSON stays under 500 kB.
_MAX_CELLS = 14_400
_FACTS = ("sample_id", "group_id", "reward")


def summarize_samples(
    batch: Batch | None, rounds: pd.DataFrame, num_samples: int
) -> pd.DataFrame:
    """Return one row per sample of a round frame, also of those without rounds."""
    samples = aggregate_rounds(rounds, "sample").rename(
        columns={"num_rows": "num_rounds"}
    )
    samples = (
        samples.set_index("sample").reindex(range(num_samples)).rename_axis("sample")
    )
    counts = ["num_rounds", "num_tokens"]
    samples[counts] = samples[counts].fillna(0).astype("int64")
    if batch is not None:
        rewards = batch.rewards
        reward = None if rewards is None else rewards.double().cpu().numpy()
        facts = zip(_FACTS, (batch.sample_ids, batch.group_ids, reward), strict=True)
        known: dict[str, Any] = {k: values for k, values in facts if values is not None}
    else:
        first = rounds.drop_duplicates("sample").set_index("sample")
        known = {name: first[name] for name in _FACTS if name in first}
    return samples.assign(**known).reset_index()


def samples_per_row(num_samples: int, num_rounds: int) -> int:
    """Return how many samples share a row: 1 up to 400 rows and 14,400 cells.

    Examples
    --------
    >>> samples_per_row(400, 36), samples_per_row(401, 1)
    (1, 2)
    >>> samples_per_row(400, 60), samples_per_row(5000, 100)
    (2, 35)
    """
    num_shown = min(_MAX_ROWS, max(_MAX_CELLS // max(num_rounds, 1), 1))
    return max(1, -(-num_samples // num_shown))


@dataclass(frozen=True, kw_only=True)
class HeatmapRows:
    """Rows of a heatmap: one sample each, or a pool of neighbouring samples.

    Attributes
    ----------
    samples: From `summarize_samples`, in display order.
    """

    samples: pd.DataFrame

    @property
    def pool(self) -> int:
        """How many samples share a row; the last row may have fewer."""
        num_rounds = self.samples["num_rounds"].max() if len(self.samples) else 0
        return samples_per_row(len(self.samples), int(num_rounds))

    @property
    def num(self) -> int:
        """How many rows there are."""
        return -(-len(self.samples) // self.pool)

    def rounds(self, rounds: pd.DataFrame, metric: str) -> pd.DataFrame:
        """Return one row for each of these rows and rounds; `shown` is the largest."""
        order = self.samples["sample"]
        rank = pd.Series(np.arange(len(order)), index=order)
        rounds = rounds[rounds["sample"].isin(rank.index)]
        placed = rounds.assign(row=rank[rounds["sample"]].to_numpy() // self.pool)
        if self.pool == 1:
            return placed.assign(num_rows=1, shown=placed[metric])
        cells = aggregate_rounds(placed, "row", "round")
        if IS_REWRITTEN.name in placed:
            marked = placed.groupby(["row", "round"])[IS_REWRITTEN.name]
            cells[IS_REWRITTEN.name] = marked.sum().to_numpy()
        return cells.assign(shown=extremes(placed, metric, "row", "round"))

    def means(self, column: str) -> Array:
        """Return the mean of a column over the samples of each row; NaN if unknown."""
        row = np.arange(len(self.samples)) // self.pool
        return self.samples[column].groupby(row).mean().to_numpy()


Order: TypeAlias = Literal["sample", "worst", "rounds", "reward", "group"]

_LACKING = {"reward": "rewards", "group_id": "group_ids"}


def order_rows(
    samples: pd.DataFrame,
    order: Order | Sequence[int | str],
    metric: str = "mean_abs_diff",
) -> pd.DataFrame:
    """Sort samples; ties stay in the order of their numbers."""
    match order:
        case [*chosen]:
            return _select_listed(samples, chosen)
    columns = {"worst": metric, "rounds": "num_rounds", "group": "group_id"}
    column = columns.get(order, order)
    advice = "Leave it out for the order of the batch."
    require_one_of(order, get_args(Order), key="order", advice=advice)
    if column not in samples:
        raise FrameError.build(
            key="order",
            expected=f"a batch with `{_LACKING.get(column, column)}` for {order!r},"
            f" or a round frame with `{column}`",
            found="none",
            advice="Choose another order, such as `worst`.",
        )
    if order == "sample":
        return samples.sort_values("sample", kind="stable")
    if order == "group":
        rank = pd.Series(pd.factorize(samples["group_id"])[0])
    else:
        rank = -samples[column].abs() if order == "worst" else -samples[column]
    return samples.iloc[np.argsort(rank.to_numpy(), kind="stable")]


def _select_listed(samples: pd.DataFrame, order: Sequence[int | str]) -> pd.DataFrame:
    places: dict[int | str, int] = {}
    for name in ("sample_id", "sample"):
        if name in samples:
            places |= dict(zip(samples[name], range(len(samples)), strict=True))
    wrong = [name for name in order if name not in places]
    rows = [] if wrong else [places[name] for name in order]
    repeated = [row for row, num in Counter(rows).items() if num > 1]
    wrong += samples["sample"].iloc[repeated].tolist()
    if wrong:
        raise FrameError.build(
            key="order",
            expected=f"each sample once, of {len(samples)}",
            found=join_names(wrong),
            advice="Name samples by their numbers or ids.",
        )
    return samples.iloc[rows]
