"""The tokens of a batch that a filter keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rounddiag.checks.words import listed
from rounddiag.core import token_frame
from rounddiag.errors import FrameError
from rounddiag.figures.sources import check_sample
from rounddiag.widgets.searching import tokens_with

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.widgets.state import Filter

    Array = np.ndarray[Any, Any]

Field = TypeVar("Field")

_KINDS = {"sample": int, "group": str, "text": str, "role": str}


def kept_tokens(
    batch: Batch,
    keep: Filter,
    *,
    a: str = "old",
    b: str = "rollout",
    columns: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the token frame of what a filter keeps.

    Parameters
    ----------
    batch : Batch
    keep : Filter
        A token is kept where all that is set holds: its `sample`; its `group`; a
        `reward` from low to high and a round in `rounds`, both ends included; `text`
        that a match in its round, which may reach over tokens, shares a character with;
        its `role`.
    a, b : str
        The scores to compare.
    columns : sequence of str
        As `rounddiag.token_frame` has them.

    Returns
    -------
    DataFrame
        With the batch's numbers of samples; empty where nothing is kept.

    Raises
    ------
    FrameError
        If there is no such sample, group or role, the batch lacks what is asked for, a
        range is none, or a regular expression is none or takes longer than 5 seconds.

    Examples
    --------
    >>> import rounddiag as rd
    >>> from rounddiag.widgets.state import Filter
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> found = kept_tokens(batch, Filter(sample=3, text="click("), columns=["text"])
    >>> found["text"].tolist()
    [' click', '(', ' click', '(']
    """
    _check_kinds(keep)
    in_sample = _samples(batch, keep)
    part = batch if in_sample.all() else batch.where(in_sample)
    needed = {"text": bool(keep.text), "role": keep.role is not None}
    more = [name for name in needed if needed[name] and name not in columns]
    frame = token_frame(part, [*columns, *more], a=a, b=b)
    frame["sample"] = np.flatnonzero(in_sample).astype(np.int32)[frame["sample"]]
    return frame[_tokens(frame, keep)].drop(columns=more).reset_index(drop=True)


def _samples(batch: Batch, keep: Filter) -> Array:
    """Tell which samples are kept."""
    found = np.ones(batch.num_samples, dtype=bool)
    if keep.sample is not None:
        check_sample(keep.sample, batch.num_samples)
        found &= np.arange(batch.num_samples) == keep.sample
    if keep.group is not None:
        names = np.array(_needed("group", "group_ids", batch.group_ids))
        _check("group", keep.group, [*dict.fromkeys(names.tolist())])
        found &= names == keep.group
    if keep.reward is not None:
        low, high = _ends("reward", keep.reward)
        rewards = _needed("reward", "rewards", batch.rewards).double().cpu().numpy()
        found &= (low <= rewards) & (rewards <= high)
    return found


def _tokens(frame: pd.DataFrame, keep: Filter) -> Array:
    """Tell which tokens of the samples are kept."""
    found = np.ones(len(frame), dtype=bool)
    if keep.rounds is not None:
        found &= frame["round"].between(*_ends("rounds", keep.rounds)).to_numpy()
    if keep.role is not None:
        _check("role", keep.role, [*frame["role"].cat.categories])
        found &= (frame["role"] == keep.role).to_numpy()
    if keep.text:
        starts = np.flatnonzero(frame["token"] == 0)
        found &= tokens_with(
            keep.text, frame["text"].tolist(), starts, is_regex=keep.is_regex
        )
    return found


def _check_kinds(keep: Filter) -> None:
    for name, kind in _KINDS.items():
        value = getattr(keep, name)
        if value is not None and not isinstance(value, kind):
            expected = {int: "a number of a sample", str: "a text"}[kind]
            raise _unfit(key=name, expected=expected, found=f"{value!r:.80}")


def _needed(key: str, field: str, values: Field | None) -> Field:
    if values is None:
        wanted = f"a batch with `{field}`"
        raise _unfit(key=key, expected=wanted, found="a batch without them")
    return values


def _check(key: str, value: str, known: list[str]) -> None:
    if value not in known:
        names = listed([*map(repr, known)], len(known), most=8)
        raise _unfit(key=key, expected=f"one of {names}", found=f"{value!r:.80}")


def _ends(key: str, value: object) -> tuple[float, float]:
    match value:
        case (int() | float() as low, int() | float() as high):
            return low, high
    pair = "two numbers, the lowest and the highest"
    raise _unfit(key=key, expected=pair, found=f"{value!r:.80}")


def _unfit(*, key: str, expected: str, found: str) -> FrameError:
    advice = "Leave it out of the filter, or choose another."
    return FrameError.build(key=key, expected=expected, found=found, advice=advice)
