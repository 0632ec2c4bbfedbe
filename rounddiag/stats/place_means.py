"""The mean of a metric by round, position, role or probability, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core import token_roles
from rounddiag.core.divergence import MEASURES, TokenMetric, get_measure
from rounddiag.core.measured import Measured
from rounddiag.errors import require_one_of
from rounddiag.schema import PLACE_MEANS
from rounddiag.stats.cells import cell_means
from rounddiag.stats.grouping import (
    SCREENSHOTS,
    Split,
    group_ends,
    images_before_rounds,
    lacking_error,
    range_label,
    round_group,
    split_by,
    split_rounds,
)
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.stats.standardisation import PROB_EDGES, prob_bin, rollout_probs
from rounddiag.stats.summary import round_summary
from rounddiag.text.role_tagging import Tagger

X: TypeAlias = Literal[
    "round",
    "token",
    "position",
    "end",
    "image",
    "images",
    "context",
    "role",
    "probability",
]
# Tokens that are counted in their roles as well.
_ENDS = ("first of a round", "last of a round")
# The metric whose noise is known to scale with 1 - p.
ENVELOPED = "abs_diff"
# Position of a round without a screenshot before it, or with an unknown number of them.
_NOWHERE = -1
# Change of position from one token of a round to the next, where it is not 1.
_STEPS = {"end": -1, "images": 0}


def means_by(
    data: Data,
    x: X,
    *,
    by: str | None = None,
    metric: str = "abs_diff",
    tagger: Tagger | None = None,
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    r"""Return a metric's mean at each place on an axis, with clustered intervals.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch or its file; a token frame for `round`, and with `rollout_log_prob` for
        `probability`.
    x : str
        What the places are:

        - `round`, as in `round_summary`;
        - `token`, the index in the round; `end`, tokens to the end of the round;
          `position`, in the response; `context`, tokens before it, prompt included;
          `image`, tokens since the last screenshot before the round began. Bins double
          in size: 0, 1, 2 to 3, 4 to 7, ...;
        - `images`, screenshots of the sample so far, one by one;
        - `role` (needs a tokenizer), and two more for the first and the last token of
          all rounds, which `overlaps` marks: they are counted in their roles as well;
        - `probability` that a token was sampled with, in bins (`PROB_EDGES`) that
          include their upper edge.
    by : str, optional
        A column of samples or rounds: a row for each of its values at each place, and
        the column comes first. Probabilities are by groups of rounds, in a column
        `rounds`, where it is left out.
    tagger : callable, optional
        Returns (start, stop, role) spans of a round's text;
        `rounddiag.text.tag_actions` by default.
    metric, a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per place that has tokens (`schema.PLACE_MEANS`): `place`, the round,
        the first number of a bin, or the number of a role; `label`, as text; counts;
        `mean` and its interval in the unit of the metric; `is_few`. What has no place
        is in the last row; its `place` is NaN. Of |diff| by probability,
        `envelope` is what rounding errors do: they move a token's log-probability by
        about :math:`(1 - p)` times the error of its logit, scaled to the mean of round
        0, or of the earliest round there is.

    References
    ----------
    The bound that scales with 1 - p: arXiv 2512.23087.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> means_by(batch, "token")[["place", "label", "num_tokens"]].head(3)
       place   label  num_tokens
    0    0.0       0         256
    1    1.0       1         256
    2    2.0  2 to 3         512
    >>> means_by(batch, "role")["label"].iloc[[0, -1]].tolist()
    ['thought', 'last of a round']
    >>> means_by(batch, "probability", by="status")["status"].unique().tolist()
    ['failed', 'solved', 'truncated']
    """
    how = get_measure(metric)
    require_one_of(x, get_args(X), key="x", advice="Choose what the places are.")
    data = open_measured(data, a, b)
    if x == "round":
        rows = round_summary(data, metric=metric, by=by)
        rows = rows.assign(place=rows["round"], label=rows["round"].map(str))
        return rows[[*([] if by is None else [by]), *PLACE_MEANS.dtypes]]
    axis = _axis_of(data, x, tagger)
    split = None if by is None else split_by(data, by)
    if split is None and x == "probability":
        split = split_rounds(data.tokens())
    values = data.values(how)
    means = axis.means(data, values, split, how)
    if x == "role":
        means["overlaps"] = means["place"] >= len(axis.labels) - len(_ENDS)
    if x == "probability" and how.name == ENVELOPED:
        prob = rollout_probs(data)
        mean_prob = axis.means(data, prob, split)["mean"]
        means["envelope"] = _error_scale(data, values, prob) * (1 - mean_prob)
    return data.tag(means)


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """Where tokens are on an axis.

    Attributes
    ----------
    cell: ndarray of int. The number of each token's place.
    places, labels: Of each place.
    tokens: The tokens, where they are not all, once each.
    """

    cell: Array
    places: Sequence[float] | Array
    labels: Sequence[str]
    tokens: Array | None = None

    def means(
        self,
        data: Measured,
        values: Array,
        split: Split | None,
        measure: TokenMetric = MEASURES["abs_diff"],
    ) -> pd.DataFrame:
        """Return the mean of values at each place of each part."""
        num, cell = len(self.labels), self.cell
        at = slice(None) if self.tokens is None else self.tokens
        if split is not None:
            cell = split.codes[at] * np.int64(num) + cell
        rounds = data.rounds
        sample = np.repeat(rounds["sample"].to_numpy(), rounds["num_tokens"])
        means = cell_means(values[at], cell, sample[at], data.clusters, measure)
        parts, place = np.divmod(means.pop("cell").to_numpy(), num)
        means.insert(0, "place", np.asarray(self.places)[place])
        means.insert(1, "label", np.array(self.labels, dtype=object)[place])
        if split is not None:
            split.insert_into(means, parts)
        return means


def _axis_of(data: Measured, x: X, tagger: Tagger | None) -> _Axis:
    if x == "role":
        return _role_axis(data, tagger)
    if x == "probability":
        ends = list(pairwise(PROB_EDGES))
        return _Axis(
            cell=prob_bin(rollout_probs(data)),
            places=[*(low for low, _ in ends), np.nan],
            labels=[*(f"{low:g} to {high:g}" for low, high in ends), "unknown"],
        )
    batch, rounds = data.require_batch(), data.rounds
    num, first = rounds["num_tokens"], _first_positions(batch, rounds, x)
    place = np.repeat(first, num) + data.tokens()["token"].to_numpy() * _STEPS.get(x, 1)
    cell = place if x == "images" else round_group(place)
    beyond = int(cell.max(initial=0)) + 1
    cell[np.repeat(first == _NOWHERE, num)] = beyond
    low = high = np.arange(beyond)
    if x != "images":
        low, high = group_ends(low)
    return _Axis(
        cell=cell,
        places=np.append(low, np.nan),
        labels=[*map(range_label, low.tolist(), high.tolist()), "no screenshot yet"],
    )


def _role_axis(data: Measured, tagger: Tagger | None) -> _Axis:
    """Count all tokens in their roles, and the ends of rounds once more."""
    roles = token_roles(data.require_batch(), tagger)
    num = data.rounds["num_tokens"].to_numpy()
    last = np.cumsum(num) - 1
    names = [*roles.categories, *_ENDS]
    ends = np.repeat([len(names) - 2, len(names) - 1], len(num))
    return _Axis(
        cell=np.concatenate([roles.codes.astype(np.int64), ends]),
        places=range(len(names)),
        labels=names,
        tokens=np.concatenate([np.arange(num.sum()), last - num + 1, last]),
    )


def _error_scale(data: Measured, size: Array, prob: Array) -> float:
    """Fit the envelope to the earliest round: sum of |diff| over sum of 1 - p."""
    index = data.tokens()["round"].to_numpy()
    used = np.isfinite(size) & (prob <= 1)
    used &= index == (index.min() if len(index) else 0)
    room = (1 - prob[used]).sum()
    return float(size[used].sum() / room) if room > 0 else float("nan")


def _first_positions(batch: Batch, rounds: pd.DataFrame, x: X) -> Array:
    start = rounds["start"].to_numpy(np.int64)
    match x:
        case "end":
            return rounds["num_tokens"].to_numpy(np.int64) - 1
        case "position":
            return start
        case "context":
            return start + _prompt_lengths(batch)[rounds["sample"]]
        case "image":
            return _tokens_since_last(batch, rounds["sample"].to_numpy(np.int64), start)
        case "images":
            images = images_before_rounds(batch, x)
            numbers = np.full(len(rounds), _NOWHERE)
            numbers[images.is_known()] = images.values()
            return numbers
    return np.zeros_like(start)


def _prompt_lengths(batch: Batch) -> Array:
    if batch.prompt_offsets is None:
        raise lacking_error(
            "context", "a batch with `prompt_ids`", "a batch without them"
        )
    return np.diff(batch.prompt_offsets.cpu().numpy())


def _tokens_since_last(batch: Batch, sample: Array, start: Array) -> Array:
    """Return the number of tokens from the last screenshot's start to each round.

    `_NOWHERE` for a round before the first screenshot of its sample.
    """
    if batch.images is None:
        raise lacking_error("image", **SCREENSHOTS)
    positions = [shot.position for shots in batch.images for shot in shots]
    if None in positions:
        found = f"{positions.count(None)} of {len(positions)} without it"
        raise lacking_error("image", "screenshots whose `position` is known", found)
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
