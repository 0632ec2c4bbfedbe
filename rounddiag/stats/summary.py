"""One row per round: how far the two engines are apart, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag import schema
from rounddiag.batch import Batch
from rounddiag.core import round_and_token_frames, rounds_of_tokens
from rounddiag.stats.captured import fair_part, rows_of_all
from rounddiag.stats.resampling import Resampling
from rounddiag.stats.rows import round_row, runs_by_round

if TYPE_CHECKING:
    from typing import Any

# The mean of a round that fewer samples reach hangs on a few trajectories.
FEW_SAMPLES = 10


def round_summary(batch: Batch | pd.DataFrame) -> pd.DataFrame:
    """Summarise each round over all samples, with the columns of `schema.SUMMARY`.

    Means are over tokens (sum over tokens divided by their number), so that they equal
    what pull request 5229 of verl logs. Tokens whose diff is not finite are left out
    and counted in `num_nonfinite`. The 95 % interval is of draws of whole samples, or
    of groups where there are groups (`stats.resampling.Resampling`); with fewer than 5
    it is NaN. On simulated batches it covers 92 to 95 % where 64 samples or more reach
    the round; intervals that take tokens as independent cover 49 to 61 %.

    A file of a `Recorder` with `max_samples` gives the rows of all samples that the
    trainer had; a selection of its samples, those that were drawn and not picked as the
    worst.

    Parameters
    ----------
    batch : Batch or DataFrame
        A batch, or a token frame (then the clusters are samples).

    Returns
    -------
    DataFrame
        One row per round, ordered. `prob_diff` is there when the batch, or the frame's
        `rollout_log_prob`, tells the probabilities.

    Raises
    ------
    FrameError
        If a frame lacks a column.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {"sample": [0, 0, 1], "round": [0, 1, 0], "diff": [0.5, 1.0, -1.5]}
    ... )
    >>> round_summary(frame)[["round", "num_samples", "mean_abs_diff", "mean_diff"]]
       round  num_samples  mean_abs_diff  mean_diff
    0      0            2            1.0       -0.5
    1      1            1            1.0        1.0
    """
    if isinstance(batch, Batch):
        rows_of_whole = rows_of_all(batch)
        if rows_of_whole is not None:
            return _frame(rows_of_whole, has_prob=True)
        batch = fair_part(batch)
        rounds, tokens = round_and_token_frames(batch, ["prob_diff"])
        clusters = np.asarray(batch.group_ids or range(batch.num_samples))
        cluster = np.unique(clusters, return_inverse=True)[1][rounds["sample"]]
    else:
        rounds, tokens = rounds_of_tokens(batch), batch
        cluster = np.unique(rounds["sample"], return_inverse=True)[1]
    draws = Resampling(int(cluster.max(initial=-1)) + 1)
    rows = [round_row(runs, tokens, draws) for runs in runs_by_round(rounds, cluster)]
    return _frame(rows, has_prob="prob_diff" in tokens)


def _frame(rows: list[dict[str, Any]], *, has_prob: bool) -> pd.DataFrame:
    names = [column.name for column in schema.SUMMARY.columns]
    columns = [name for name in names if has_prob or name != "prob_diff"]
    return pd.DataFrame(rows, columns=columns).astype(
        {name: schema.SUMMARY[name].dtype for name in columns}
    )


def worst_round(summary: pd.DataFrame) -> pd.Series[Any] | None:
    """Return the row of the round with the largest mean |diff|.

    Of equals the lowest round wins; rounds without a finite mean cannot. So that a
    round of one odd sample does not win by accident, rounds of fewer than 10 samples
    are compared only where no round has more.

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
    >>> frame = pd.DataFrame(
    ...     {
    ...         "round": [0, 1, 2, 3],
    ...         "num_samples": [64, 32, 16, 1],
    ...         "mean_abs_diff": [0.1, 0.3, 0.3, 0.9],
    ...     }
    ... )
    >>> int(worst_round(frame)["round"])
    1
    """
    schema.SUMMARY.require(summary.columns, "round", "num_samples", "mean_abs_diff")
    finite = summary[np.isfinite(summary["mean_abs_diff"])].sort_values("round")
    many = finite[finite["num_samples"] >= FEW_SAMPLES]
    compared = finite if many.empty else many
    if compared.empty:
        return None
    worst: pd.Series[Any] = compared.loc[compared["mean_abs_diff"].idxmax()]
    return worst
