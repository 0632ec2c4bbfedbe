"""Mismatch by token position: in the round, in the response, in the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.batch.batch import require_batch
from rounddiag.core import round_and_token_frames
from rounddiag.core.measures import measure_of
from rounddiag.core.scores import tag_pair
from rounddiag.stats.cells import cell_means
from rounddiag.stats.grouping import group_ends, round_group
from rounddiag.stats.inputs import clusters_of, drop_worst_picks, token_values
from rounddiag.stats.token_places import NOWHERE, first_places

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.stats.token_places import By


# How a place goes on from one token of a round to the next.
_STEPS = {"end": -1, "images": 0}


def positions(
    batch: Batch, *, by: By = "round", metric: str = "abs_diff"
) -> pd.DataFrame:
    """Return a metric's mean by where tokens stand, with clustered intervals.

    Parameters
    ----------
    batch : Batch
        Of a file that holds the worst samples beside drawn ones, those drawn count.
    by : {"round", "response", "end", "image", "images", "context"}
        The token in its round; the position in the response; how many tokens of the
        round are still to come; how many tokens ago the last screenshot before the
        round began; how many screenshots the sample had seen by then; how many tokens
        stand before, prompt included. Bins double in size (0, 1, 2 to 3, 4 to 7, ...),
        but screenshots seen are counted one by one.
    metric : str
        What is averaged, as in `round_summary`.

    Returns
    -------
    DataFrame
        One row a bin that has tokens: `low` and `high`, its first and last place;
        `num_samples`, `num_tokens`, `num_nonfinite` and `is_few`; `mean`, `ci_low` and
        `ci_high` in the unit of the metric. Tokens before the first screenshot, where
        they are counted from screenshots, are the last row; its `low` and `high` are
        NaN.

    Raises
    ------
    FrameError
        If the batch does not know what `by` asks for, or there is no such metric.
    BatchError
        If it is no Batch.

    Examples
    --------
    >>> import rounddiag as rd
    >>> found = positions(rd.load("sample_data/healthy.parquet"))
    >>> found[["low", "high", "num_tokens"]].head(3)
       low  high  num_tokens
    0  0.0   0.0         264
    1  1.0   1.0         264
    2  2.0   3.0         528
    """
    require_batch(batch)
    batch, measure = drop_worst_picks(batch), measure_of(metric)
    rounds, tokens = round_and_token_frames(batch, measure.extra_columns)
    first = first_places(batch, rounds, by)
    place = np.repeat(first, rounds["num_tokens"])
    place += tokens["token"].to_numpy() * _STEPS.get(by, 1)
    cell = place if by == "images" else round_group(place)
    is_nowhere = np.repeat(first == NOWHERE, rounds["num_tokens"])
    beyond = int(cell.max(initial=0)) + 1
    cell[is_nowhere] = beyond
    found = cell_means(
        token_values(tokens, measure),
        cell,
        tokens["sample"].to_numpy(),
        clusters_of(batch),
        measure=measure,
    )
    bounds = np.arange(beyond)
    low, high = (bounds, bounds) if by == "images" else group_ends(bounds)
    bins = found.pop("cell").to_numpy()
    found.insert(0, "low", np.append(low, np.nan)[bins])
    found.insert(1, "high", np.append(high, np.nan)[bins])
    return tag_pair(found, batch)
