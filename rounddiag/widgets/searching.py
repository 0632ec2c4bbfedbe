"""Which tokens a text or a regular expression is found in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.widgets import matching

if TYPE_CHECKING:
    from collections.abc import Sequence

    Array = np.ndarray[Any, Any]

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
        raise _unfit(expected=most, pattern=pattern, why=f"{len(pattern):,} of them")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what may change in Python one day
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        kind = "a regular expression of Python's `re`"
        raise _unfit(expected=kind, pattern=pattern, why=error) from error
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
        raise _unfit(expected=limit, pattern=pattern, why="it is not") from error
    spans: list[tuple[int, int]] = json.loads(done.stdout)
    return spans


def _unfit(*, expected: str, pattern: str, why: object) -> FrameError:
    return FrameError.build(
        key="text",
        expected=expected,
        found=f"{pattern!r:.80} ({why})",
        advice="Write it otherwise, or look for the plain text.",
    )
