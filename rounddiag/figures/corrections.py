"""The figure of corrections: what each keeps of the update, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from rounddiag.core.corrections import corrections
from rounddiag.core.measured import Measured
from rounddiag.figures._parts.canvas import (
    TOP,
    Theme,
    ThemeName,
    empty_figure,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.data import note_unknown_rounds
from rounddiag.figures._parts.labels import NO_TOKENS, format_number, hover_text, wrap
from rounddiag.schema import CORRECTION_ROWS, CORRECTIONS, Correction
from rounddiag.stats.inputs import Data, open_measured

_TITLE = "What corrections do to the update"
_ROW, _BOTTOM = 24, 84  # pixels
_TITLE_WIDTH, _LINE = 15, 56  # characters of a line of an axis title; under the title
# The panels, from left to right, and the part of the width of each.
_PANELS = ("tokens_kept", "effective_sample_size", "cosine")
_GAP = 0.06


def plot_corrections(
    data: Data,
    names: Sequence[str | Correction] | None = None,
    *,
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot what each correction keeps of the update.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, or what `corrections` made of one without `by`.
    names : sequence of str or Correction, optional
        Of a batch: as in `corrections`.
    a, b, theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: a row is a correction. The panels show the share of tokens that it
    keeps; the effective sample size of its weights, which says how many tokens still
    count; and the cosine between the weights of the step with and without it. Where
    engines agree all of them are 1. A correction far left in the second panel, although
    tokens agree, multiplies small differences over long samples. One that drops few
    tokens and changes the cosine little hides what it drops: `corrections(batch,
    by="role")` says where that is.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> list(rd.plot_corrections(batch, ["none", "tis"]).data[0].x)
    [1.0, 1.0]
    """
    inputs = open_measured(data, a, b)
    rows = _get_rows(inputs, names)
    colors = theme_of(theme)
    if not rows["num_tokens"].any():
        return empty_figure(_TITLE, NO_TOKENS, colors)
    ratio = inputs.pair.fill("{a} / {b} ratio")
    lines = [
        *note_unknown_rounds(inputs),
        wrap(f"weights of the {ratio}; dotted: no change", _LINE),
    ]
    height = TOP + _ROW * len(rows) + _BOTTOM
    figure = new_figure(_TITLE, lines, colors, height=height, bottom=_BOTTOM)
    width = (1 - _GAP * (len(_PANELS) - 1)) / len(_PANELS)
    names_of_rows = [hover_text(name) for name in rows["correction"]]
    hover = [_hover(row) for row in rows.to_dict("records")]
    for index, name in enumerate(_PANELS):
        axis = f"x{index + 1 if index else ''}"
        _add_panel(figure, rows[name], names_of_rows, hover, ratio, axis, colors)
        left = index * (width + _GAP)
        figure.layout[axis.replace("x", "xaxis")] = {
            "domain": [left, left + width],
            "title": {"text": wrap(CORRECTION_ROWS[name].meaning, _TITLE_WIDTH)},
            "range": [-0.04, 1.06],
            "tickvals": [0, 0.5, 1],
            "showgrid": True,
        }
    figure.update_layout(yaxis={"autorange": "reversed", "showgrid": False})
    return figure


def _get_rows(
    inputs: Measured, names: Sequence[str | Correction] | None
) -> pd.DataFrame:
    if inputs.frame is None:
        pair = inputs.pair
        return corrections(inputs.require_batch(), names, a=pair.a, b=pair.b)
    CORRECTION_ROWS.require(inputs.frame.columns, "correction", *_PANELS)
    return inputs.frame


def _add_panel(
    figure: go.Figure,
    values: pd.Series[float],
    names: list[str],
    hover: list[str],
    ratio: str,
    axis: str,
    theme: Theme,
) -> None:
    """Draw a dot in each row, with a line from 1, which is no change."""
    steps: dict[str, list[object]] = {"x": [], "y": []}
    for value, name in zip(values.tolist(), names, strict=True):
        steps["x"] += [1.0, value, None]
        steps["y"] += [name, name, None]
    figure.add_scatter(
        x=values.tolist(),
        y=names,
        xaxis=axis,
        mode="markers",
        marker={"size": 9, "color": theme.text},
        customdata=hover,
        hovertemplate=f"%{{customdata}}<br>of the {ratio}<extra></extra>",
    )
    line = {"color": theme.quiet, "width": 2}
    figure.add_scatter(**steps, xaxis=axis, mode="lines", line=line, hoverinfo="skip")
    figure.add_vline(
        x=1, xref=axis, line={"color": theme.muted, "width": 1, "dash": "dot"}
    )


def _hover(row: Mapping[Any, Any]) -> str:
    known = CORRECTIONS.get(str(row["correction"]))
    lines = [f"<b>{hover_text(str(row['correction']))}</b>"]
    if known is not None:
        lines += [hover_text(text) for text in (known.meaning, known.source) if text]
    for column in CORRECTION_ROWS.columns:
        value = row.get(column.name)
        if column.dtype == "float64" and isinstance(value, float):
            lines.append(f"{column.meaning}: {format_number(value)}")
    return "<br>".join(lines)
