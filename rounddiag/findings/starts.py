"""Where a place begins: at a round, or at a position in the context.

Later rounds have longer contexts, so that either describes much the same tokens. The
split that leaves the least inside wins; what cannot be told apart is said as both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rounddiag._typing import Array
from rounddiag.findings.bins import distinct
from rounddiag.findings.view import ROUNDING, View

# Nats of log-likelihood: slices nearer to the best are in its 95 % support interval
# (half of the 95 % quantile of chi-squared with one degree of freedom).
SUPPORT = 1.92
# The onset is the first round whose ratio to equally likely tokens is above that of
# round 0 by this part of the whole rise, on a logarithmic scale: a cumulative effect
# reaches its full size some rounds later. With 0.2 one interval of
# `tests.faults.bench --set` is narrower; 0.6 changes nothing.
_PART = 0.4


@dataclass(frozen=True)
class Start:
    """What some tokens begin to differ at.

    Attributes
    ----------
    column: `round`, `context_length` or `decoding_step`.
    tied: A position in the context that splits them as well as a round.
    """

    column: str
    value: int
    tied: int | None = None


# Columns of what a place begins at.
START_COLUMNS = frozenset({"round", "decoding_step", "context_length"})


def columns_of_starts(view: View) -> dict[str, Array]:
    """Return what a place may begin at, of each token.

    The position in the context is known with the prompts only.
    """
    columns = {"round": view.round, "decoding_step": view.num_before}
    lengths = view.facts.prompt_length
    if lengths is not None:
        columns["context_length"] = view.position + lengths[view.sample]
    return columns


def find_start(view: View, base: Array) -> Start | None:
    """Return whether a round, a position or a generated token splits some tokens best.

    A position is better than a round only if the tokens on which both disagree are as
    those on the side of the position: growing differences are split anywhere. None if
    neither is better.
    """
    if not view.round[base].any():
        return None
    size = np.log(view.abs_diff + ROUNDING)
    size = (size - view.of_equally_likely(size))[base]
    columns = columns_of_starts(view)
    splits = {name: _split(values[base], size) for name, values in columns.items()}
    first, of_rounds, num_rounds = splits.pop("round")
    column, (at, gain, num) = max(splits.items(), key=lambda split: split[1][1])
    if gain - of_rounds - np.log(num / num_rounds) <= SUPPORT:
        return Start("round", first, _find_tied(columns, base, splits, first))
    inside, late = columns[column][base] >= at, view.round[base] >= first
    middle = (size[inside & late].mean() + size[~inside & ~late].mean()) / 2
    sides = ((late & ~inside, -1), (inside & ~late, 1))
    is_sharp = all(
        sign * (size[part].mean() - middle) > 0 for part, sign in sides if part.any()
    )
    return Start(column, at) if is_sharp else None


def _find_tied(
    columns: dict[str, Array],
    base: Array,
    splits: dict[str, tuple[int, float, int]],
    first: int,
) -> int | None:
    if "context_length" not in splits:
        return None
    at = splits["context_length"][0]
    late = columns["context_length"][base] >= at
    return at if (late == (columns["round"][base] >= first)).all() else None


def _split(values: Array, size: Array) -> tuple[int, float, int]:
    """Return where sizes differ most, its log-likelihood, and the number of values.

    The likelihood is that of normal sizes around the means of both parts.
    """
    known, code = distinct(values)
    if len(known) < 2:  # noqa: PLR2004 nothing to split
        return int(known[0]), -np.inf, 1
    num, total = np.bincount(code), np.bincount(code, weights=size)
    before, below = np.cumsum(num)[:-1], np.cumsum(total)[:-1]
    explained = below**2 / before + (total.sum() - below) ** 2 / (len(size) - before)
    best = int(explained.argmax())
    left = max(float((size**2).sum() - explained[best]), ROUNDING)
    return int(known[best + 1]), -len(size) / 2 * np.log(left), len(known) - 1


def log_ratio(total: Array, usual: Array) -> Array:
    """Return the logarithm of |diff| over that of equally likely tokens."""
    return np.log(np.maximum(total, 1e-9) / np.maximum(usual, 1e-9))


def first_rounds(total: Array, usual: Array, latest: int) -> Array:
    """Return the first round above round 0 by a part of the rise, at most `latest`."""
    total, usual = np.atleast_2d(total), np.atleast_2d(usual)
    ratio = log_ratio(total, usual)
    late = log_ratio(total[:, latest:].sum(1), usual[:, latest:].sum(1))
    rise = late - ratio[:, 0]
    later = (ratio - ratio[:, :1] > _PART * rise[:, None]) & (usual > 0)
    later[:, 0] = False
    first = np.where(later.any(axis=1), later.argmax(axis=1), latest)
    return np.clip(first, 1, latest)
