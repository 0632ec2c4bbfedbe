"""Faults planted at places of a step, with the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

import rounddiag as rd
from tests.faults.steps import Array, log_sigmoid, with_log_probs

# A column, a relation and a value: {"role": ("==", "coordinates"), "round": (">=", 5)}.
# `tokens_left` and `rounds_left` count from the end: 0 is the last one. `in` a list, or
# `every` (n, k): every n-th from the k-th on.
Place: TypeAlias = "Mapping[str, tuple[str, Any]]"

WEAK = 3.0  # times the noise of every token there
RARE = 0.05  # of the tokens there
SHIFT = (0.7, 3.0)  # nat
_UP = 0.2  # of shifted tokens, where the log-prob leaves room for it
_COMPARE: dict[str, Callable[[Array, Any], Array]] = {
    "==": lambda values, limit: values == limit,
    ">=": lambda values, limit: values >= limit,
    "<=": lambda values, limit: values <= limit,
    "<": lambda values, limit: values < limit,
    "in": np.isin,
    "every": lambda values, limit: values % limit[0] == limit[1],
}


def place_columns(batch: rd.Batch) -> pd.DataFrame:
    """What a place can be described by: one row per generated token."""
    columns = ["role", "token_id", "rollout_log_prob", "old_log_prob"]
    frame = rd.token_frame(batch, columns=columns)
    sample = frame["sample"].to_numpy()
    rounds = batch.rounds
    size = rounds.num_tokens.numpy()
    num_rounds = np.bincount(rounds.sample.numpy(), minlength=batch.num_samples)
    frame["tokens_left"] = np.repeat(size, size) - 1 - frame["token"].to_numpy()
    frame["rounds_left"] = num_rounds[sample] - 1 - frame["round"].to_numpy()
    for name, values in batch.sample_columns.items():
        frame[name] = values[sample]
    return frame


def tokens_at(frame: pd.DataFrame, place: Place) -> Array:
    """Return which rows of `place_columns` meet all conditions."""
    inside = np.ones(len(frame), dtype=bool)
    for column, (relation, value) in place.items():
        inside &= _COMPARE[relation](frame[column].to_numpy(), value)
    return inside


def plant(
    batch: rd.Batch,
    place: Place,
    strength: str,
    seed: int,
    *,
    columns: pd.DataFrame | None = None,
) -> tuple[rd.Batch, Array, Place]:
    """Plant a fault at a place.

    Parameters
    ----------
    batch : Batch
        A healthy step.
    place : mapping of str to (relation, value)
    strength : {"weak", "rare", "all"}
        3 times the noise on all tokens there; 5 % of them, or all, off by 0.7 to 3 nat.
    seed : int
    columns : DataFrame, optional
        `place_columns(batch)`, to save time.

    Returns
    -------
    batch : Batch
        With other `old_log_probs`.
    affected : array of bool, shape (num_tokens,)
        Which generated tokens, in the order of `rd.token_frame`, have another log-prob.
    truth : mapping
        The place.
    """
    frame = place_columns(batch) if columns is None else columns
    rng = np.random.default_rng([seed, 3])
    affected = tokens_at(frame, place)
    rollout = frame["rollout_log_prob"].to_numpy().astype(float)
    old = frame["old_log_prob"].to_numpy().astype(float)
    if strength == "weak":
        noise = _logit(old) - _logit(rollout)
        moved = log_sigmoid(_logit(rollout) + WEAK * noise)
        affected &= rollout < 0
    else:
        if strength == "rare":
            affected &= rng.random(len(frame)) < RARE
        shift = rng.uniform(*SHIFT, len(frame))
        is_up = (rng.random(len(frame)) < _UP) & (rollout + shift < 0)
        moved = rollout + np.where(is_up, shift, -shift)
    planted = with_log_probs(batch, rollout, np.where(affected, moved, old))
    return planted, affected, place


def _logit(log_prob: Array) -> Array:
    value = np.minimum(log_prob, -1e-12)
    result: Array = value - np.log(-np.expm1(value))
    return result
