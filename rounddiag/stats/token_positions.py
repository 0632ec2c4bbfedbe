"""Mismatch by token position: in the round, in the response, in the context."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.divergence import get_measure
from rounddiag.errors import require_one_of
from rounddiag.schema import PLACES
from rounddiag.stats.cells import cell_means
from rounddiag.stats.grouping import (
    SCREENSHOTS,
    group_ends,
    images_before_rounds,
    lacking_error,
    round_group,
    split_by,
)
from rounddiag.stats.inputs import Data, open_measured

Along: TypeAlias = Literal["round", "response", "end", "image", "images", "context"]

# Position of a round without a screenshot before it, or with an unknown number of them.
_NOWHERE = -1
# Change of position from one token of a round to the next, where it is not 1.
_STEPS = {"end": -1, "images": 0}


def position_means(
    data: Data,
    *,
    along: Along = "round",
    by: str | None = None,
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    """Return a metric's mean by the position of tokens, with clustered intervals.

    Parameters
    ----------
    data : Batch or path-like
    along : {"round", "response", "end", "image", "images", "context"}
        Index in the round; position in the response; number of tokens to the end of the
        round; number of tokens since the last screenshot before the round began; number
        of screenshots of the sample so far; number of tokens before it, prompt
        included. Bins double in size (0, 1, 2 to 3, 4 to 7, ...), except for `images`,
        which has one bin per number.
    by : str, optional
        A column of samples or rounds: a row for each of its values in each bin.
    metric, a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per bin that has tokens: `low` and `high`, its first and last place;
        `num_samples`, `num_tokens`, `num_nonfinite` and `is_few`; `mean`, `ci_low` and
        `ci_high` in the unit of the metric. Tokens before the first screenshot
        (`along="image"`), or for which the number of screenshots is unknown
        (`along="images"`), are in the last row; its `low` and `high` are NaN. `by`
        comes first.

    Examples
    --------
    >>> import rounddiag as rd
    >>> means = position_means(rd.load("sample_data/healthy.parquet"))
    >>> means[["low", "high", "num_tokens"]].head(3)
       low  high  num_tokens
    0  0.0   0.0         256
    1  1.0   1.0         256
    2  2.0   3.0         512
    """
    data, how = open_measured(data, a, b), get_measure(metric)
    batch = data.require_batch()
    check_along(along)
    tokens, rounds = data.tokens(), data.rounds
    first = _first_positions(batch, rounds, along)
    place = np.repeat(first, rounds["num_tokens"])
    place += tokens["token"].to_numpy() * _STEPS.get(along, 1)
    cell = place if along == "images" else round_group(place)
    is_nowhere = np.repeat(first == _NOWHERE, rounds["num_tokens"])
    beyond = int(cell.max(initial=0)) + 1
    cell[is_nowhere] = beyond
    split = None if by is None else split_by(data, by)
    means = cell_means(
        data.values(how),
        cell if split is None else split.codes * (beyond + 1) + cell,
        tokens["sample"].to_numpy(),
        data.clusters,
        measure=how,
    )
    bounds = np.arange(beyond)
    low, high = (bounds, bounds) if along == "images" else group_ends(bounds)
    parts, bins = np.divmod(means.pop("cell").to_numpy(), beyond + 1)
    means.insert(0, "low", np.append(low, np.nan)[bins])
    means.insert(1, "high", np.append(high, np.nan)[bins])
    if split is not None:
        split.insert_into(means, parts)
    return data.tag(means)


def _first_positions(batch: Batch, rounds: pd.DataFrame, along: Along) -> Array:
    start = rounds["start"].to_numpy(np.int64)
    match along:
        case "round":
            return np.zeros_like(start)
        case "end":
            return rounds["num_tokens"].to_numpy(np.int64) - 1
        case "response":
            return start
        case "context":
            return start + _prompt_lengths(batch)[rounds["sample"]]
        case "image":
            return _tokens_since_last(batch, rounds["sample"].to_numpy(np.int64), start)
        case "images":
            images = images_before_rounds(batch)
            numbers = np.full(len(rounds), _NOWHERE)
            numbers[images.is_known()] = images.values()
            return numbers


def check_along(along: str) -> None:
    """Raise a FrameError unless positions can be counted this way."""
    advice = "Choose what tokens are counted from."
    require_one_of(along, PLACES, key="along", advice=advice)


def _prompt_lengths(batch: Batch) -> Array:
    if batch.prompt_offsets is None:
        raise lacking_error(
            option="along",
            value="context",
            expected="a batch with `prompt_ids`",
            found="a batch without them",
        )
    return np.diff(batch.prompt_offsets.cpu().numpy())


def _tokens_since_last(batch: Batch, sample: Array, start: Array) -> Array:
    """Return the number of tokens from the last screenshot's start to each round.

    `_NOWHERE` for a round before the first screenshot of its sample.
    """
    if batch.images is None:
        raise lacking_error(option="along", value="image", **SCREENSHOTS)
    positions = [shot.position for shots in batch.images for shot in shots]
    if None in positions:
        raise lacking_error(
            option="along",
            value="image",
            expected="screenshots whose `position` is known",
            found=f"{positions.count(None)} of {len(positions)} without it",
        )
    shot_sample = np.repeat(np.arange(len(batch)), [*map(len, batch.images)])
    began = np.array(positions, dtype=np.int64)
    order = np.lexsort((began, shot_sample))
    shot_sample, began = shot_sample[order], began[order]
    lowest = int(began.min(initial=0))
    span = int(max(began.max(initial=0), start.max(initial=0))) - lowest + 1
    keys, wanted = shot_sample * span + began - lowest, sample * span + start - lowest
    last = np.searchsorted(keys, wanted, side="right") - 1
    has_shot = (last >= 0) & (np.append(shot_sample, -1)[last] == sample)
    return np.where(has_shot, start - np.append(began, 0)[last], _NOWHERE)
