"""The figure of corrections: what each keeps of the update, and how far it moves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.core.corrections import corrections, find_unbeaten
from rounddiag.core.measured import Measured
from rounddiag.figures._parts.canvas import (
    Theme,
    ThemeName,
    empty_figure,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.data import note_unknown_rounds
from rounddiag.figures._parts.labels import (
    NO_TOKENS,
    format_number,
    hover_text,
    shorten_name,
    wrap,
)
from rounddiag.findings import diagnose
from rounddiag.schema import CORRECTION_ROWS, CORRECTIONS, Correction
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.wording import pluralize

_TITLE = "What corrections do to the update"
_ROW, _BOTTOM = 24, 100  # pixels
# Characters of a line: titles of the axes, and under the title.
_TITLE_WIDTH, _AXIS_WIDTH, _LINE = 12, 24, 56
_NUM_ROWS = 8  # as many as a reader compares
_ALIKE = 0.05  # of a panel, the width of a dot: closer ones look the same
# The panels, from left to right, with the value of no change.
_PANELS = {"tokens_kept": 1.0, "share_at_limit": 0.0, "moved": 0.0}
_GAP = 0.06  # between panels, of the width
_OWN, _UNBEATEN = "▸", "◆"


def plot_corrections(
    data: Data,
    names: Sequence[str | Correction] | None = None,
    *,
    a: str | None = None,
    b: str | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot what each correction keeps of the update, and how far it moves the step.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, or what `corrections` made of one without `by`.
    names : sequence of str or Correction, optional
        Of a batch: as in `corrections`. Left out, the rule of the run, where its
        settings are known, and the first presets that look different, eight in all.
    a, b : str, optional
        The scores of the ratio; left out, that of the batch's loss, as in
        `corrections`.
    theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: a row is a correction. The panels show the share of tokens that it
    keeps; the share whose weight is clipped, which counts no longer how far engines
    are apart; and how far the step moves. A dotted line is no change. A rule that keeps
    all and has most tokens at the limit only multiplies the step. A diamond marks a
    preset that no other beats on both the bias that is left and the effective sample
    size. There is none while a fact or a reversal says that an engine is wrong, whose
    numbers are no noise to be corrected; nor of a frame, which does not say it.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> list(rd.plot_corrections(batch, ["none", "tis"]).data[0].x)
    [1.0, 1.0]
    """
    inputs = open_measured(data, a or "old", b or "rollout")
    rows = inputs.frame
    if rows is None:
        rows = corrections(inputs.require_batch(), names, a=a, b=b)
    CORRECTION_ROWS.require(rows.columns, "correction", *_PANELS)
    colors = theme_of(theme)
    if rows["num_tokens"].eq(0).all():
        return empty_figure(_TITLE, NO_TOKENS, colors)
    own, wrong = rows.attrs.get("own_rule", ""), _find_wrong_engine(inputs)
    unbeaten = find_unbeaten(rows) if wrong == "" else set()
    rows = _choose(rows) if names is None else rows
    lines = [*note_unknown_rounds(inputs), *_describe(rows, own, wrong)]
    figure = new_figure(
        _TITLE,
        [wrap(line, _LINE) for line in lines],
        colors,
        plot=_ROW * len(rows),
        bottom=_BOTTOM,
    )
    labels = []
    for name in map(str, rows["correction"]):
        before = f"{_OWN} " if name == own else ""
        after = f" {_UNBEATEN}" if name in unbeaten else ""
        labels.append(f"{before}{hover_text(name)}{after}")
    hover = [_hover(row) for row in rows.to_dict("records")]
    width = (1 - _GAP * (len(_PANELS) - 1)) / len(_PANELS)
    for index, (name, unchanged) in enumerate(_PANELS.items()):
        axis = f"x{index + 1 if index else ''}"
        _add_panel(figure, rows[name], unchanged, labels, hover, axis, colors)
        left = index * (width + _GAP)
        largest = max(1.0, float(rows[name].max()))
        figure.layout[axis.replace("x", "xaxis")] = {
            "domain": [left, left + width],
            "title": {"text": wrap(CORRECTION_ROWS[name].meaning, _TITLE_WIDTH)},
            "range": [-0.04 * largest, 1.06 * largest],
            "nticks": 4,
            "showgrid": True,
        }
    ratio = rows.attrs.get("ratio", inputs.pair.fill("{a} / {b}"))
    title = {"text": wrap(f"{ratio} ratio", _AXIS_WIDTH)}
    figure.update_layout(
        yaxis={"autorange": "reversed", "showgrid": False, "title": title}
    )
    return figure


def _choose(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the first rows that do not look like one before, and others if few do."""
    points = np.nan_to_num(rows[[*_PANELS]].to_numpy(dtype=np.float64))
    chosen: list[int] = []
    for index, point in enumerate(points):
        if not (np.abs(points[chosen] - point).max(axis=1, initial=0) < _ALIKE).any():
            chosen.append(index)
    others = [index for index in range(len(rows)) if index not in chosen]
    return rows.iloc[sorted([*chosen, *others][:_NUM_ROWS])]


def _find_wrong_engine(inputs: Measured) -> str | None:
    """Return the first fact or reversal that an engine is wrong; None where unknown."""
    if inputs.batch is None:
        return None
    pair = inputs.pair
    names = (
        finding.name
        for finding in diagnose(inputs.batch, a=pair.a, b=pair.b)
        if finding.is_bug and finding.kind in ("fact", "reversal")
    )
    return next(names, "")


def _describe(rows: pd.DataFrame, own: str, wrong: str | None) -> list[str]:
    facts, left_out = rows.attrs, int(rows.get("num_left_out", pd.Series([0])).max())
    lines = []
    if facts.get("has_advantages") is False:
        lines.append("no advantages: every token counts as much")
    if left_out:
        lines.append(f"left out: up to {pluralize(left_out, 'token')} without a weight")
    if own:
        lines.append(f"{_OWN} the rule of this run")
    if wrong:
        lines.append(f"mend the engine first: {shorten_name(wrong)}")
    elif wrong is not None:
        lines.append(f"{_UNBEATEN} no rule has less bias left and a larger sample size")
    return lines


def _add_panel(
    figure: go.Figure,
    values: pd.Series[float],
    unchanged: float,
    labels: list[str],
    hover: list[str],
    axis: str,
    theme: Theme,
) -> None:
    steps: dict[str, list[object]] = {"x": [], "y": []}
    for value, label in zip(values.tolist(), labels, strict=True):
        steps["x"] += [unchanged, value, None]
        steps["y"] += [label, label, None]
    figure.add_scatter(
        x=values.tolist(),
        y=labels,
        xaxis=axis,
        mode="markers",
        zorder=1,  # the line ends below the dot
        marker={"size": 9, "color": theme.text},
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
    )
    line = {"color": theme.quiet, "width": 2}
    figure.add_scatter(**steps, xaxis=axis, mode="lines", line=line, hoverinfo="skip")
    figure.add_vline(
        x=unchanged, xref=axis, line={"color": theme.muted, "width": 1, "dash": "dot"}
    )


def _hover(row: Mapping[Any, Any]) -> str:
    known = CORRECTIONS.get(str(row["correction"]))
    lines = [f"<b>{hover_text(str(row['correction']))}</b>"]
    if known is not None:
        lines += [escape(text) for text in (known.meaning, known.source) if text]
    for column in CORRECTION_ROWS.columns:
        value = row.get(column.name)
        if column.dtype == "float64" and isinstance(value, float):
            lines.append(f"{column.meaning}: {format_number(value)}")
    return "<br>".join(lines)
