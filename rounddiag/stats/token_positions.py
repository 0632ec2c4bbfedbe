"""Position of the first token of each round, by each axis of `stats.positions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.schema import PLACES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


By: TypeAlias = Literal["round", "response", "end", "image", "images", "context"]

# Position of a round without anything before it to count from.
NO_POSITION = -1


def first_positions(batch: Batch, rounds: pd.DataFrame, by: By) -> Array:
    """Return the position of each round's first token.

    Parameters
    ----------
    batch : Batch
    rounds : DataFrame
        Its round frame.
    by : str
        As `stats.positions` has it.

    Returns
    -------
    ndarray of int64, one per row
        `NO_POSITION` for a round before the first screenshot of its sample, with
        `by="image"`.

    Raises
    ------
    FrameError
        If the batch lacks what `by` needs.
    """
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
            return _since_last(batch, rounds["sample"].to_numpy(np.int64), start)
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
        raise _unknown(
            by="context",
            expected="a batch with `prompt_ids`",
            found="a batch without them",
        )
    lengths: Array = np.diff(batch.prompt_offsets.cpu().numpy())
    return lengths


def _since_last(batch: Batch, sample: Array, start: Array) -> Array:
    """Return the number of tokens from the last screenshot's start to each round."""
    shots = _screenshots(batch, "image")
    positions = [position for _, position, _ in shots]
    if None in positions:
        raise _unknown(
            by="image",
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
    batch: Batch, rounds: Mapping[str, Array] | pd.DataFrame, *, by: str = "images"
) -> Array:
    """Return how many screenshots of its sample were shown before each round.

    Parameters
    ----------
    batch : Batch
    rounds : mapping or DataFrame
        `sample` and `round` of each.
    by : str
        The name in messages.

    Raises
    ------
    FrameError
        If the batch has no screenshots, or does not know their rounds.
    """
    shots = _screenshots(batch, by)
    # No round follows a screenshot that has a position and no round.
    num_unknown = sum(shot[1] is None and shot[2] is None for shot in shots)
    if num_unknown:
        raise _unknown(
            by=by,
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


def _screenshots(batch: Batch, by: str) -> list[tuple[int, int | None, int | None]]:
    """Return the sample, the position and the round of every screenshot."""
    if batch.images is None:
        raise _unknown(
            by=by, expected="a batch with screenshots", found="a batch without them"
        )
    return [
        (index, shot.position, shot.round)
        for index, shots in enumerate(batch.images)
        for shot in shots
    ]


def _unknown(*, by: str, expected: str, found: str) -> FrameError:
    return FrameError.build(
        key="by",
        expected=f"{expected} for by={by!r}",
        found=found,
        advice="Choose another one.",
    )
