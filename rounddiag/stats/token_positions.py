"""Mismatch by token position: in the round, in the response, in the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from rounddiag.batch.batch import require_batch
from rounddiag.core import round_and_token_frames
from rounddiag.core.divergence import get_measure
from rounddiag.core.scores import tag_pair
from rounddiag.errors import FrameError
from rounddiag.schema import PLACES
from rounddiag.stats.cells import cell_means
from rounddiag.stats.grouping import group_ends, round_group
from rounddiag.stats.inputs import drop_worst_picks, number_clusters, token_values
from rounddiag.stats.screenshots_seen import (
    NO_POSITION,
    by_error,
    num_seen,
    tokens_since_last,
)

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


By: TypeAlias = Literal["round", "response", "end", "image", "images", "context"]

# Change of position from one token of a round to the next, where it is not 1.
_STEPS = {"end": -1, "images": 0}


def positions(
    batch: Batch, *, by: By = "round", metric: str = "abs_diff"
) -> pd.DataFrame:
    """Return a metric's mean by the position of tokens, with clustered intervals.

    Parameters
    ----------
    batch : Batch
        Of a partial capture, only the samples drawn at random count.
    by : {"round", "response", "end", "image", "images", "context"}
        Index in the round; position in the response; number of tokens to the end of the
        round; number of tokens since the last screenshot before the round began; number
        of screenshots of the sample so far; number of tokens before it, prompt
        included. Bins double in size (0, 1, 2 to 3, 4 to 7, ...), except for `images`,
        which has one bin per number.
    metric : str
        What is averaged, as in `round_summary`.

    Returns
    -------
    DataFrame
        One row per bin that has tokens: `low` and `high`, its first and last place;
        `num_samples`, `num_tokens`, `num_nonfinite` and `is_few`; `mean`, `ci_low` and
        `ci_high` in the unit of the metric. With `by="image"`, tokens before the first
        screenshot are the last row; its `low` and `high` are NaN.

    Raises
    ------
    FrameError
        If the batch lacks what `by` needs, or the metric is unknown.
    BatchError
        If `batch` is not a Batch.

    Examples
    --------
    >>> import rounddiag as rd
    >>> means = positions(rd.load("sample_data/healthy.parquet"))
    >>> means[["low", "high", "num_tokens"]].head(3)
       low  high  num_tokens
    0  0.0   0.0         256
    1  1.0   1.0         256
    2  2.0   3.0         512
    """
    require_batch(batch)
    batch, measure = drop_worst_picks(batch), get_measure(metric)
    rounds, tokens = round_and_token_frames(batch, measure.extra_columns)
    first = _first_positions(batch, rounds, by)
    place = np.repeat(first, rounds["num_tokens"])
    place += tokens["token"].to_numpy() * _STEPS.get(by, 1)
    cell = place if by == "images" else round_group(place)
    is_nowhere = np.repeat(first == NO_POSITION, rounds["num_tokens"])
    beyond = int(cell.max(initial=0)) + 1
    cell[is_nowhere] = beyond
    means = cell_means(
        token_values(tokens, measure),
        cell,
        tokens["sample"].to_numpy(),
        number_clusters(batch),
        measure=measure,
    )
    bounds = np.arange(beyond)
    low, high = (bounds, bounds) if by == "images" else group_ends(bounds)
    bins = means.pop("cell").to_numpy()
    means.insert(0, "low", np.append(low, np.nan)[bins])
    means.insert(1, "high", np.append(high, np.nan)[bins])
    return tag_pair(means, batch)


def _first_positions(batch: Batch, rounds: pd.DataFrame, by: By) -> Array:
    """Return the position of each round's first token."""
    check_by(by)
    start = rounds["start"].to_numpy(np.int64)
    match by:
        case "round":
            return np.zeros_like(start)
        case "end":
            return rounds["num_tokens"].to_numpy(np.int64) - 1
        case "response":
            return start
        case "context":
            return start + _prompt_lengths(batch)[rounds["sample"]]
        case "image":
            return tokens_since_last(batch, rounds["sample"].to_numpy(np.int64), start)
        case "images":
            return num_seen(batch, rounds)


def check_by(by: str) -> None:
    """Raise a FrameError unless `by` is a known axis."""
    if by not in PLACES:
        raise FrameError.build(
            key="by",
            expected=f"one of {list(PLACES)}",
            found=repr(by),
            advice="Choose what tokens are counted from.",
        )


def _prompt_lengths(batch: Batch) -> Array:
    if batch.prompt_offsets is None:
        raise by_error(
            by="context",
            expected="a batch with `prompt_ids`",
            found="a batch without them",
        )
    lengths: Array = np.diff(batch.prompt_offsets.cpu().numpy())
    return lengths
