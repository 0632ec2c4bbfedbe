"""What the model had seen before each round: screenshots, and how long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


# Position of a round without a screenshot before it.
NO_POSITION = -1


def tokens_since_last(batch: Batch, sample: Array, start: Array) -> Array:
    """Return the number of tokens from the last screenshot's start to each round.

    `NO_POSITION` for a round before the first screenshot of its sample.
    """
    shots = _screenshots(batch, "along", "image")
    positions = [position for _, position, _ in shots]
    if None in positions:
        raise lacking_error(
            option="along",
            value="image",
            expected="screenshots whose `position` is known",
            found=f"{positions.count(None)} of {len(shots)} without it",
        )
    shot_sample = np.array([index for index, _, _ in shots], dtype=np.int64)
    began = np.array(positions, dtype=np.int64)
    order = np.lexsort((began, shot_sample))
    shot_sample, began = shot_sample[order], began[order]
    lowest = int(began.min(initial=0))
    span = int(max(began.max(initial=0), start.max(initial=0))) - lowest + 1
    keys, wanted = shot_sample * span + began - lowest, sample * span + start - lowest
    last = np.searchsorted(keys, wanted, side="right") - 1
    found = (last >= 0) & (np.append(shot_sample, -1)[last] == sample)
    return np.where(found, start - np.append(began, 0)[last], NO_POSITION)


def num_seen(
    batch: Batch,
    rounds: Mapping[str, Array] | pd.DataFrame,
    *,
    option: str = "along",
    value: str = "images",
) -> Array:
    """Return how many screenshots of its sample were shown before each round.

    Errors name the option that asked for it, and its value.
    """
    shots = _screenshots(batch, option, value)
    # No round follows a screenshot that has a position and no round.
    num_unknown = sum(shot[1] is None and shot[2] is None for shot in shots)
    if num_unknown:
        raise lacking_error(
            option=option,
            value=value,
            expected="screenshots whose `round` is known",
            found=f"{num_unknown} of {len(shots)} without it",
        )
    pairs = [(index, before) for index, _, before in shots if before is not None]
    shot_sample, before = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    sample, index = (np.asarray(rounds[k], np.int64) for k in ("sample", "round"))
    span = int(max(before.max(initial=0), index.max(initial=0))) + 1
    keys = np.sort(shot_sample * span + before)
    upto = np.searchsorted(keys, sample * span + index, side="right")
    num_seen: Array = upto - np.searchsorted(keys, sample * span)
    return num_seen


def _screenshots(
    batch: Batch, option: str, value: str
) -> list[tuple[int, int | None, int | None]]:
    """Return the sample, the position and the round of every screenshot."""
    if batch.images is None:
        raise lacking_error(
            option=option,
            value=value,
            expected="a batch with screenshots",
            found="a batch without them",
        )
    return [
        (index, shot.position, shot.round)
        for index, shots in enumerate(batch.images)
        for shot in shots
    ]


def lacking_error(*, option: str, value: str, expected: str, found: str) -> FrameError:
    """Build the error of a batch that lacks what an option needs."""
    return FrameError.build(
        key=option,
        expected=f"{expected} for {option}={value!r}",
        found=found,
        advice="Choose another one.",
    )
