"""From a batch, or a frame of the user, to the frame that a figure draws."""

from __future__ import annotations

import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core import round_frame, token_frame
from rounddiag.errors import FrameError
from rounddiag.schema import ROUNDS, SUMMARY, TOKENS
from rounddiag.stats import round_summary

_SUMMARY = (
    "round",
    "num_samples",
    "num_tokens",
    "num_nonfinite",
    "mean_abs_diff",
    "ci_low",
    "ci_high",
    "p50",
    "p99",
    "max",
)
_TRAJECTORY = ("position", "rollout_log_prob", "old_log_prob")


def summary_of(data: Batch | pd.DataFrame) -> pd.DataFrame:
    """Return the summary per round of a batch, a token frame or a summary."""
    if not isinstance(data, pd.DataFrame):
        return round_summary(_batch(data))
    if "diff" in data:
        return round_summary(data)
    SUMMARY.require(data.columns, *_SUMMARY)
    return data


def rounds_of(data: Batch | pd.DataFrame, *columns: str) -> tuple[pd.DataFrame, int]:
    """Return the round frame and the number of samples; a frame needs `columns`."""
    if isinstance(data, pd.DataFrame):
        ROUNDS.require(data.columns, *ROUNDS.keys, *columns)
        return data, int(data["sample"].max()) + 1 if len(data) else 0
    return round_frame(_batch(data)), data.num_samples


def trajectory_of(data: Batch | pd.DataFrame, sample: int) -> pd.DataFrame:
    """Return the tokens of one sample, with `position`, both log-probs and `text`.

    A frame without the column `text` gives one without.

    Raises
    ------
    FrameError
        If there is no such sample, or the frame lacks a column.
    """
    if isinstance(data, pd.DataFrame):
        TOKENS.require(data.columns, *TOKENS.keys, "diff", *_TRAJECTORY)
        _check_sample(sample, int(data["sample"].max()) + 1 if len(data) else 0)
        return data[data["sample"] == sample].reset_index(drop=True)
    _check_sample(sample, _batch(data).num_samples)
    return token_frame(data[sample], columns=(*_TRAJECTORY, "text"))


def _batch(data: object) -> Batch:
    if isinstance(data, Batch):
        return data
    raise FrameError.build(
        expected="a Batch or a DataFrame",
        found=type(data).__name__,
        advice="Open a file with `rounddiag.load(path)` first.",
    )


def _check_sample(sample: int, num_samples: int) -> None:
    if not 0 <= sample < num_samples:
        raise FrameError.build(
            key="sample",
            expected=f"a sample from 0 to {num_samples - 1}"
            if num_samples
            else "a batch with samples",
            found=str(sample) if num_samples else "none",
            advice="Count samples from 0, as in `rounddiag.sample_frame(batch)`.",
        )
