"""The tokens of a batch that a filter keeps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rounddiag.core import token_frame
from rounddiag.errors import FrameError
from rounddiag.figures._parts.data import check_sample
from rounddiag.widgets import regex_worker as matching
from rounddiag.wording import join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.widgets.state import Filter


_SECONDS = 5  # for all rounds together
_MAX_PATTERN = 1000  # characters


def tokens_with(
    text: str, pieces: Sequence[str], starts: Array, *, is_regex: bool = False
) -> Array:
    """Tell which tokens share a character with a match; case counts.

    Parameters
    ----------
    text : str
        Looked for as it stands, or as a regular expression.
    pieces : sequence of str
        As `rounddiag.text.pieces` gives them.
    starts : ndarray of int
        Indices of `pieces` where a round begins: a match may reach over tokens, and
        stays within a round.
    is_regex : bool

    Returns
    -------
    ndarray of bool, one per token

    Raises
    ------
    FrameError
        If the expression is none, or takes longer than 5 seconds.

    Examples
    --------
    >>> tokens_with("(1", ["click", "(", "12", "3)"], np.array([0])).tolist()
    [False, True, True, False]
    """
    limits = pairwise([*starts.tolist(), len(pieces)])
    texts = ["".join(pieces[begin:stop]) for begin, stop in limits]
    if is_regex:
        spans = _searched(_checked(text), texts)
    else:
        spans = matching.matched(re.escape(text), texts)
    ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    return _touched(np.array(spans, dtype=np.int64).reshape(-1, 2), ends)


def _touched(spans: Array, ends: Array) -> Array:
    """Tell which of the tokens that end at these characters lie in a span."""
    begins = np.r_[0, ends[:-1]][: len(ends)]
    # The rest of a character that several tokens make is empty, and goes with it.
    last = np.maximum.accumulate(np.where(begins < ends, np.arange(len(ends)), 0))
    begins, ends = begins[last], ends[last]
    after = np.searchsorted(spans[:, 1], begins, side="right")
    start = np.append(spans[:, 0], np.iinfo(np.int64).max)[after]
    found: Array = start < ends
    return found


def _checked(pattern: str) -> str:
    if len(pattern) > _MAX_PATTERN:
        most = f"at most {_MAX_PATTERN:,} characters"
        raise _unfit_searching(
            expected=most, pattern=pattern, why=f"{len(pattern):,} of them"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may change in Python one day
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        kind = "a regular expression of Python's `re`"
        raise _unfit_searching(expected=kind, pattern=pattern, why=error) from error
    return pattern


def _searched(pattern: str, texts: list[str]) -> list[tuple[int, int]]:
    """Match in a process that is ended when it takes too long."""
    command = [sys.executable, "-I", "-W", "ignore", str(matching.__file__)]
    asked = json.dumps([pattern, texts])
    try:
        done = subprocess.run(  # noqa: S603 our own script; the expression is its input
            command,
            input=asked,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        limit = f"a regular expression that is done within {_SECONDS} seconds"
        raise _unfit_searching(
            expected=limit, pattern=pattern, why="it is not"
        ) from error
    spans: list[tuple[int, int]] = json.loads(done.stdout)
    return spans


def _unfit_searching(*, expected: str, pattern: str, why: object) -> FrameError:
    return FrameError.build(
        key="text",
        expected=expected,
        found=f"{pattern!r:.80} ({why})",
        advice="Write it otherwise, or look for the plain text.",
    )


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
            raise _unfit_filtering(key=name, expected=expected, found=f"{value!r:.80}")


def _needed(key: str, field: str, values: Field | None) -> Field:
    if values is None:
        wanted = f"a batch with `{field}`"
        raise _unfit_filtering(key=key, expected=wanted, found="a batch without them")
    return values


def _check(key: str, value: str, known: list[str]) -> None:
    if value not in known:
        names = join_names([*map(repr, known)], len(known), most=8)
        raise _unfit_filtering(
            key=key, expected=f"one of {names}", found=f"{value!r:.80}"
        )


def _ends(key: str, value: object) -> tuple[float, float]:
    match value:
        case (int() | float() as low, int() | float() as high):
            return low, high
    pair = "two numbers, the lowest and the highest"
    raise _unfit_filtering(key=key, expected=pair, found=f"{value!r:.80}")


def _unfit_filtering(*, key: str, expected: str, found: str) -> FrameError:
    advice = "Leave it out of the filter, or choose another."
    return FrameError.build(key=key, expected=expected, found=found, advice=advice)
