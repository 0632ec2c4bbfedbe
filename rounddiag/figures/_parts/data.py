"""From a batch, or a frame of the user, to the frame that a figure draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core import token_frame
from rounddiag.core.scores import check_pair, pair_of, select_scores
from rounddiag.errors import FrameError
from rounddiag.figures._parts.labels import short_name
from rounddiag.schema import (
    CELLS,
    DIFFERENCE,
    PAIRED_CELLS,
    PLACE_MEANS,
    ROLE_MEANS,
    ROUNDS,
    SUMMARY,
    TOKENS,
    Pair,
)
from rounddiag.stats import cell_frame, positions, role_means, round_summary
from rounddiag.stats.cells import EXTRA_COLUMNS, P95
from rounddiag.stats.heatmap_rows import samples_per_row
from rounddiag.stats.inputs import num_picked
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.schema import Table
    from rounddiag.stats.token_places import By
    from rounddiag.text.roles import Tagger


_SUMMARY = (
    *("round", "num_samples", "num_tokens", "num_nonfinite", "share_zero"),
    *("mean", "ci_low", "ci_high", "p50", "p90", "p99", "max"),
)
_PAIR = ("rollout_log_prob", "old_log_prob")
_CELL = ("num_tokens", "mean_abs_diff", "max_abs_diff")
# Characters of a score's name that the title of an axis has room for.
_NAME = 12


def of_pair(
    data: Batch | pd.DataFrame, a: str, b: str
) -> tuple[Batch | pd.DataFrame, Pair]:
    """Return data of one pair of scores, and the pair as labels name it.

    Parameters
    ----------
    data : Batch or DataFrame
        A frame keeps the pair that it was made with.
    a, b : str
        The scores that were asked for.

    Returns
    -------
    data : Batch or DataFrame
        Its `old_log_probs` and `rollout_log_probs`, or columns, are of the pair.
    pair : Pair
        With names that are short, and safe in plotly's pseudo HTML.

    Raises
    ------
    BatchError
        If the batch has no such score.
    FrameError
        If a frame was made with another pair, or it is neither.
    """
    if isinstance(data, pd.DataFrame):
        check_pair(data, a, b)
    else:
        data = select_scores(_batch(data), a, b)
    known = pair_of(data)
    return data, Pair(short_name(known.a, _NAME), short_name(known.b, _NAME))


def summary_of(
    data: Batch | pd.DataFrame,
    *,
    metric: str,
    weight: str,
    by: str | None,
    last_aligned: bool,
) -> pd.DataFrame:
    """Return the summary per round of a batch, a token frame or a summary."""
    if isinstance(data, pd.DataFrame) and "diff" not in data:
        SUMMARY.require(data.columns, *([by] if by else []), *_SUMMARY)
        return data
    known = data if isinstance(data, pd.DataFrame) else _batch(data)
    return round_summary(
        known, metric=metric, weight=weight, by=by, last_aligned=last_aligned
    )


def rounds_of(data: Batch | pd.DataFrame, metric: str) -> tuple[pd.DataFrame, int]:
    """Return what a heatmap needs of each round of a sample, and how many samples.

    A frame has it, if perhaps without `p95_abs_diff`; of a batch that is not asked for
    where many samples share a row.
    """
    if metric == DIFFERENCE.name:
        known = data.columns if isinstance(data, pd.DataFrame) else ()
        PAIRED_CELLS.require(known, *ROUNDS.keys, *_CELL, "baseline_mean", metric)
    if isinstance(data, pd.DataFrame):
        table = CELLS if metric in EXTRA_COLUMNS else ROUNDS
        table.require(data.columns, *ROUNDS.keys, *_CELL, metric)
        return data, int(data["sample"].max()) + 1 if len(data) else 0
    num_rounds = int(_batch(data).rounds.round.max()) + 1 if data.num_rounds else 0
    is_alone = samples_per_row(data.num_samples, num_rounds) == 1
    more = ([metric] if metric in EXTRA_COLUMNS else []) + ([P95] if is_alone else [])
    return cell_frame(data, more), data.num_samples


def trajectory_of(
    data: Batch | pd.DataFrame, sample: int, *, log_probs: bool = True
) -> pd.DataFrame:
    """Return the tokens of one sample, with `position`, both log-probs and `text`.

    A frame without the column `text` gives one without, and so does a redacted batch;
    one without log-probs, unless they are asked for.

    Raises
    ------
    FrameError
        If there is no such sample, or the frame lacks a column.
    """
    if isinstance(data, pd.DataFrame):
        needed = _PAIR if log_probs else ()
        TOKENS.require(data.columns, *TOKENS.keys, "diff", "position", *needed)
        check_sample(sample, int(data["sample"].max()) + 1 if len(data) else 0)
        return data[data["sample"] == sample].reset_index(drop=True)
    check_sample(sample, _batch(data).num_samples)
    text = () if data.is_redacted else ("text",)
    return token_frame(data[sample], columns=("position", *_PAIR, *text))


def pairs_of(data: Batch | pd.DataFrame) -> pd.DataFrame:
    """Return all tokens with both log-probs."""
    if isinstance(data, pd.DataFrame):
        TOKENS.require(data.columns, *TOKENS.keys, *_PAIR)
        return data
    token_id = () if _batch(data).is_redacted else ("token_id",)
    return token_frame(data, (*_PAIR, *token_id))


def positions_of(data: Batch | pd.DataFrame, by: By, metric: str) -> pd.DataFrame:
    """Return the means of places; a frame has them already."""
    if isinstance(data, pd.DataFrame):
        return _all_of(PLACE_MEANS, data)
    return positions(_batch(data), by=by, metric=metric)


def role_means_of(
    data: Batch | pd.DataFrame, tagger: Tagger | None, *, metric: str, by: str | None
) -> pd.DataFrame:
    """Return the means of roles; a frame has them already."""
    if isinstance(data, pd.DataFrame):
        return _all_of(ROLE_MEANS, data, *([by] if by else []))
    return role_means(data, tagger=tagger, metric=metric, by=by)


def _all_of(table: Table, data: pd.DataFrame, *more: str) -> pd.DataFrame:
    table.require(data.columns, *(column.name for column in table.columns), *more)
    return data


def _batch(data: object) -> Batch:
    if isinstance(data, Batch):
        return data
    raise FrameError.build(
        expected="a Batch or a DataFrame",
        found=type(data).__name__,
        advice="Open a file with `rounddiag.load(path)` first.",
    )


def is_index(value: object, num: int) -> bool:
    """Tell whether it is a whole number from 0 to below `num`, numpy's too.

    Examples
    --------
    >>> [is_index(value, 2) for value in (1, np.int64(1), 2, -1, True, "1")]
    [True, True, False, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return bool(0 <= value < num)


def check_sample(sample: object, num_samples: int) -> None:
    """Raise a FrameError unless there is such a sample."""
    if not is_index(sample, num_samples):
        raise FrameError.build(
            key="sample",
            expected=f"a sample from 0 to {num_samples - 1}"
            if num_samples
            else "a batch with samples",
            found=f"{sample!r:.80}" if num_samples else "none",
            advice="Count samples from 0, as in `rounddiag.sample_frame(batch)`.",
        )


def layers_of(chosen: Mapping[str, bool] | None, *known: str) -> dict[str, bool]:
    """Say of each layer whether it is drawn: all are, unless chosen otherwise.

    Raises
    ------
    FrameError
        If a layer is unknown.

    Examples
    --------
    >>> layers_of({"strip": False}, "strip", "means")
    {'strip': False, 'means': True}
    """
    chosen = chosen or {}
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise FrameError.build(
            key="layers",
            expected=f"names out of {list(known)}",
            found=str(unknown),
            advice="`{name: False}` leaves a layer out.",
        )
    return {name: bool(chosen.get(name, True)) for name in known}


def num_picked_of(data: Batch | pd.DataFrame) -> int:
    """Count the samples that are there because they were the worst; 0 of a frame."""
    return num_picked(data) if isinstance(data, Batch) else 0


def left_out(data: Batch | pd.DataFrame) -> list[str]:
    """Say how many samples a statistic leaves out as picked, in a line if any.

    Examples
    --------
    >>> import rounddiag as rd
    >>> left_out(rd.load("sample_data/healthy.parquet"))
    []
    """
    num = num_picked_of(data)
    return [f"left out: {pluralize(num, 'sample')} picked as the worst"] if num else []
