"""What a correction drops: in words, in a sample, and in cells of the heatmap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.corrections import corrections
from rounddiag.core.loss_ratio import trainers_rule
from rounddiag.core.weights import Ratios
from rounddiag.figures._parts.canvas import Theme
from rounddiag.figures._parts.labels import format_number
from rounddiag.schema import CORRECTIONS, Correction, Pair
from rounddiag.wording import percent, pluralize

# Of a token: its weight is its ratio, is at the largest one, is 0, or is not known.
_KEPT, CAPPED, DROPPED, _UNKNOWN = range(4)
# Length of the stroke over a cell, in pixels: of one token, and of all.
_STROKE = (6, 14)


# One of each kind: of tokens clipped and dropped, of samples clipped, and dropped by
# their mean ratio and by k3. A menu has the others under "more".
_COMMON = ("tis", "icepop", "sequence_tis", "geometric", "k3_rejection")


def offered(batch: Batch) -> list[dict[str, object]]:
    """Return the corrections that a batch allows, for a menu, the run's own first."""
    if batch.old_log_probs is None or batch.rollout_log_probs is None:
        return []
    own = trainers_rule(batch)
    name = "" if own is None else own.name
    return [
        {
            "name": correction.name,
            "is_own": correction.name == name,
            "is_common": correction.name in (name, *_COMMON),
            "meaning": correction.meaning,
            "low": correction.bounds[0],
            "limit": correction.limit,
            "is_ratio": correction.is_ratio,
        }
        for correction in sorted(
            CORRECTIONS.values(), key=lambda correction: correction.name != name
        )
        if correction.limit is not None
        and ("update" not in correction.ratios or "current" in batch.scores)
    ]


def chosen_correction(name: str | None, limit: float | None) -> Correction | None:
    """Return the correction of this name, if there is one, with its limit."""
    if name is None:
        return None
    correction = CORRECTIONS[name]
    return correction if limit is None else correction.limited(limit)


def find_fates(batch: Batch, correction: Correction, a: str, b: str) -> Array:
    """Return what a correction does to each generated token."""
    ratios = Ratios.of(batch, *_asked_for(a, b))
    fates = np.full(len(ratios.in_loss), _UNKNOWN, dtype=np.uint8)
    weighed = ratios.weigh(correction)
    known = np.where(weighed.is_clipped, CAPPED, _KEPT)
    known[np.isnan(weighed.weight)] = _UNKNOWN
    fates[ratios.in_loss] = np.where(weighed.weight == 0, DROPPED, known)
    return fates


def _asked_for(a: str, b: str) -> tuple[str | None, str | None]:
    """Leave the ratio to the batch where the standard pair is compared."""
    return (None, None) if Pair(a, b).is_standard else (a, b)


def describe_correction(
    batch: Batch, correction: Correction, fates: Array, pair: Pair
) -> dict[str, Any]:
    """Return the limit of a correction, and what it does to the step in words."""
    a, b = _asked_for(pair.a, pair.b)
    rows = corrections(batch, [correction], a=a, b=b)
    (row,) = rows.to_dict("records")
    dropped, capped = (int((fates == fate).sum()) for fate in (DROPPED, CAPPED))
    share = percent(dropped / max(len(fates), 1))
    parts = [f"drops {pluralize(dropped, 'token')} ({share})"]
    if capped:
        parts.append(f"caps {capped:,}")
    left, moved = row["gradient_kept"], row["moved"]
    if batch.advantages is None:
        parts.append(f"mean weight {format_number(left)}")
    else:
        parts.append(f"{percent(left)} of the gradient weight left")
    parts.append(f"the step moves by {percent(moved)} of its size")
    size = format_number(row["effective_sample_size"])
    parts.append(f"effective sample size {size}")
    if (ratio := rows.attrs["ratio"]) != pair.fill("{a} / {b}"):
        parts.append(f"of the {ratio} ratio")
    text = " · ".join(parts)
    return {"limit": correction.limit, "num_capped": capped, "text": text}


def mark_dropped(
    figure: go.Figure, tokens: pd.DataFrame, is_dropped: Array, theme: Theme
) -> None:
    """Strike the cells of a heatmap that have dropped tokens, longer where more are."""
    rows, pool = figure.layout.meta["samples"], figure.layout.meta["pool"]
    place = np.full(int(tokens["sample"].max()) + 1, -1)
    known = [row for row in rows if row < len(place)]
    place[known] = np.flatnonzero(np.isin(rows, known)) // pool
    row, round_ = place[tokens["sample"]], tokens["round"].to_numpy()
    width = int(round_.max()) + 1
    shown = row >= 0
    cell = (row * width + round_)[shown]
    num = np.bincount(cell)
    dropped = np.bincount(cell, is_dropped[shown], len(num))
    struck = np.flatnonzero(dropped)
    share = dropped[struck] / num[struck]
    figure.add_scatter(
        x=struck % width,
        y=(struck // width + 0.5) * pool - 0.5,
        name="dropped",
        mode="markers",
        marker={
            "symbol": "line-ew",
            "size": _STROKE[0] + (_STROKE[1] - _STROKE[0]) * share,
            "line": {"width": 2, "color": theme.mark},
        },
        hoverinfo="skip",
    )
    figure.data = (figure.data[-1], *figure.data[:-1])  # the key of colours is last
