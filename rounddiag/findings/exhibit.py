"""The numbers that show a finding: one small frame for one figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.findings.finding import Finding
    from rounddiag.findings.view import View

Axis: TypeAlias = Literal["round", "sample", "step", "log_prob"]

_BY_ROUND = frozenset({"image_window", "context_masked", "dropped_image"})
_BY_SAMPLE = frozenset(
    {"bad_worker", "wrong_image", "swapped_rows", "packing_leak", "padding_rows"}
    | {"decode_path", "identical_log_probs"}
)
_BY_STEP = frozenset(
    {"mixed_weights", "stale_cache", "position_ids", "prompt_mismatch"}
    | {"model_mismatch", "truncated_round"}
)
_STEPS = 48
# Points of a cloud; more are thinned evenly, those of the finding last.
_MAX_POINTS = 4_000


@dataclass(frozen=True)
class Exhibit:
    """What a figure of a finding shows.

    Attributes
    ----------
    axis : {"round", "sample", "step", "log_prob"}
    frame : DataFrame
        `x`, `y` and `inside` (whether the finding has it); `num_tokens` behind a mean.
        `y` is mean |diff| in nats, or diff for `log_prob`.
    onset : float or None
        Where on the axis it begins.
    """

    axis: Axis
    frame: pd.DataFrame
    onset: float | None = None


def exhibit(finding: Finding) -> Exhibit:
    """Return the numbers that show a finding best.

    Examples
    --------
    >>> import rounddiag as rd
    >>> diagnosis = rd.diagnose(rd.load("sample_data/image_window.parquet"))
    >>> shown = exhibit(diagnosis[0])
    >>> shown.axis, shown.onset, len(shown.frame)
    ('round', 2, 8)
    """
    view = finding.view
    inside = np.zeros(len(view), dtype=bool)
    inside[finding.indices] = True
    onset = finding.where.get("rounds_from")
    if finding.cause in _BY_ROUND or onset is not None:
        return Exhibit("round", _means(view, view.round, inside), onset)
    if finding.cause in _BY_SAMPLE:
        inside = np.isin(view.sample, finding.samples)
        return Exhibit("sample", _means(view, view.sample, inside))
    if finding.cause in _BY_STEP:
        return Exhibit("step", _by_step(view, inside))
    return Exhibit("log_prob", _cloud(view, inside))


def _means(view: View, by: Array, inside: Array) -> pd.DataFrame:
    import pandas as pd

    x, code = np.unique(by, return_inverse=True)
    num = np.bincount(code)
    return pd.DataFrame(
        {
            "x": x,
            "y": np.bincount(code, weights=view.abs) / num,
            "inside": np.bincount(code, weights=inside) > num / 2,
            "num_tokens": num,
        }
    )


def _by_step(view: View, inside: Array) -> pd.DataFrame:
    """Means over stretches of the response, in the finding's samples and elsewhere."""
    import pandas as pd

    mine = np.isin(view.sample, np.unique(view.sample[inside]))
    edges = np.unique(np.quantile(view.position, np.linspace(0, 1, _STEPS + 1)))
    code = np.clip(
        np.searchsorted(edges, view.position, "right") - 1, 0, len(edges) - 1
    )
    parts = []
    for flag in (True, False):
        chosen = mine == flag
        if not chosen.any():
            continue
        num = np.bincount(code[chosen], minlength=len(edges))
        total = np.bincount(
            code[chosen], weights=view.abs[chosen], minlength=len(edges)
        )
        there = num > 0
        part = {"x": edges[there], "y": total[there] / num[there]}
        parts.append(pd.DataFrame({**part, "inside": flag, "num_tokens": num[there]}))
    return pd.concat(parts, ignore_index=True)


def _cloud(view: View, inside: Array) -> pd.DataFrame:
    import pandas as pd

    every = max(1, -(-len(view) // _MAX_POINTS))
    index = np.arange(0, len(view), every)
    mine = np.flatnonzero(inside)
    mine = mine[:: max(1, -(-len(mine) // _MAX_POINTS))]
    index = np.r_[index[~inside[index]], mine]
    return pd.DataFrame(
        {
            "x": view.r[index],
            "y": view.d[index],
            "inside": inside[index],
            "num_tokens": 1,
        }
    )
