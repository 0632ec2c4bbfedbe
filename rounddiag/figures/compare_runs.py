"""The figure of two runs: their means over steps, and how rounds differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.errors import FrameError
from rounddiag.figures._parts.axes import choose_axis
from rounddiag.figures._parts.canvas import (
    TOP,
    colorize,
    empty_figure,
    new_figure,
)
from rounddiag.figures._parts.data import prepare
from rounddiag.figures._parts.labels import NO_TOKENS, shorten_name
from rounddiag.figures._parts.means import axis_title, unit_suffix
from rounddiag.figures._parts.scales import BOTTOM, add_color_bar, change_scale
from rounddiag.runs import Run
from rounddiag.runs.step_tables import average_steps, pair_rounds
from rounddiag.schema import METRICS, ROUND, STEP
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from rounddiag.figures._parts.data import PlotInputs


LAYERS = ("difference", "heatmap")
_TITLE = "Mismatch over training, compared"
_TWO = 2
# Heights in pixels: of the means, of their difference, of a row of the heatmap and of
# the fewest and most rows; and between panels.
_MEANS, _DIFFERENCE, _ROW, _MIN_ROWS, _MAX_ROWS, _GAP = 230, 110, 14, 5, 24, 34
_BOTTOM, _KEY = 52, 44
# Longer lines have no markers.
_MAX_POINTS = 80


@dataclass(frozen=True, kw_only=True)
class RunPair:
    """Two runs that are compared.

    Attributes
    ----------
    names : list of str
        Short, and safe in plotly's pseudo HTML.
    means : list of DataFrame
        The mean of each step of either run, over the tokens of all rounds.
    rounds : DataFrame
        As `runs.step_tables.pair_rounds` gives them.
    inputs : PlotInputs
    """

    names: list[str]
    means: list[pd.DataFrame]
    rounds: pd.DataFrame
    inputs: PlotInputs

    @property
    def steps(self) -> pd.DataFrame:
        """The steps of both: `step`, the means, and their `difference`."""
        first, other = self.means
        pairs = first.merge(other, on="step", suffixes=("_before", ""))
        return pairs.assign(difference=pairs["mean"] - pairs["mean_before"])

    @property
    def colors(self) -> list[str]:
        """Colours of the lines; they do not encode a magnitude."""
        return [self.inputs.theme.text, self.inputs.theme.lines[0]]


def name_runs(runs: object, other: object = None) -> dict[str, Run] | None:
    """Return two runs by their names; None if they are not runs."""
    if other is not None:
        runs = [runs, other]
    chosen = [runs] if isinstance(runs, Run) else runs
    found = chosen.values() if isinstance(chosen, Mapping) else chosen
    many = [*found] if isinstance(found, Iterable) else []
    if not any(isinstance(one, Run) for one in many):
        return None
    if len(many) != _TWO or not all(isinstance(one, Run) for one in many):
        raise FrameError.build(
            key="runs",
            expected="two runs",
            found=str([type(one).__name__ for one in many])[:80],
            advice="Use `rounddiag.plot_compare(run, other)`.",
        )
    if isinstance(chosen, Mapping):
        return {str(name): run for name, run in chosen.items()}
    names = [PurePath(run.path).name or run.path for run in many]
    if names[0] == names[1]:
        names = ["run 0", "run 1"]
    return dict(zip(names, many, strict=True))


def compare_runs(
    runs: Mapping[str, Run],
    *,
    metric: str,
    a: str,
    b: str,
    layers: Mapping[str, bool] | None,
    theme: Any,  # noqa: ANN401 as `plot_compare` has it
) -> go.Figure:
    """Draw the figure of two runs; see `plot_compare`."""
    summaries = [run.summary(metric=metric, a=a, b=b) for run in runs.values()]
    inputs = prepare(
        summaries[0], a, b, metric=metric, layers=layers, known=LAYERS, theme=theme
    )
    pair = RunPair(
        names=[shorten_name(name) for name in runs],
        means=[average_steps(one) for one in summaries],
        rounds=pair_rounds(*summaries),
        inputs=inputs,
    )
    means = pd.concat(pair.means, ignore_index=True)
    if means["mean"].isna().all():
        return empty_figure(_TITLE, NO_TOKENS, inputs.theme)
    has_pairs = len(pair.rounds) > 0
    has_heatmap = inputs.layers["heatmap"] and has_pairs
    panels = {
        "means": _MEANS,
        **({"difference": _DIFFERENCE} if inputs.layers["difference"] else {}),
        **({"heatmap": _height(pair)} if has_heatmap else {}),
    }
    bottom = BOTTOM if "heatmap" in panels else _BOTTOM
    plot = sum(panels.values()) + _GAP * (len(panels) - 1)
    height = plot + TOP + bottom
    figure = new_figure(
        _TITLE, _captions(pair), inputs.theme, height=height, bottom=bottom
    )
    axes = dict(zip(panels, ("y", "y2", "y3"), strict=False))
    _set_axes(figure, pair, panels, axes, means)
    _add_means(figure, pair)
    if "difference" in axes:
        _add_difference(figure, pair, axes["difference"])
    if "heatmap" in axes:
        _add_heatmap(figure, pair, axes["heatmap"])
    return figure


def _height(pair: RunPair) -> int:
    num_rounds = int(pair.rounds["round"].max()) + 1
    return _ROW * min(max(num_rounds, _MIN_ROWS), _MAX_ROWS)


def _captions(pair: RunPair) -> list[str]:
    signs = [colorize(*one) for one in zip("●◆", pair.colors, strict=True)]
    first, other = (
        f"{sign} {name}: {pluralize(len(means), 'step')}"
        for sign, name, means in zip(signs, pair.names, pair.means, strict=True)
    )
    count = len(pair.steps)
    paired = f"{pluralize(count, 'step')} of both" if count else "no step of both"
    return [first, other, f"difference: {signs[1]} - {signs[0]}, {paired}"]


def _add_means(figure: go.Figure, pair: RunPair) -> None:
    for name, color, symbol, means in zip(
        pair.names, pair.colors, ("circle", "diamond"), pair.means, strict=True
    ):
        figure.add_scatter(
            x=means["step"].to_numpy(),
            y=means["mean"].to_numpy(),
            mode="lines+markers" if len(means) <= _MAX_POINTS else "lines",
            line={"color": color, "width": 1.5},
            marker={"symbol": symbol, "size": 5, "color": color},
            customdata=means["num_tokens"].to_numpy(),
            hovertemplate=f"<b>{name}, step %{{x:,}}</b>"
            f"<br>mean %{{y:.3g}}{unit_suffix(pair.inputs.metric)}"
            "<br>%{customdata:,} tokens<extra></extra>",
        )


def _add_difference(figure: go.Figure, pair: RunPair, axis: str) -> None:
    steps = pair.steps
    figure.add_scatter(
        x=steps["step"].to_numpy(),
        y=steps["difference"].to_numpy(),
        yaxis=axis,
        mode="lines+markers" if len(steps) <= _MAX_POINTS else "lines",
        line={"color": pair.colors[1], "width": 1.5},
        marker={"symbol": "diamond", "size": 5, "color": pair.colors[1]},
        hovertemplate="<b>step %{x:,}</b><br>difference %{y:.3g}"
        f"{unit_suffix(pair.inputs.metric)}<extra></extra>",
    )


def _add_heatmap(figure: go.Figure, pair: RunPair, axis: str) -> None:
    """Draw the difference of each step and round that both have, as a colour."""
    rows = pair.rounds
    steps = np.sort(rows["step"].unique())
    shape = int(rows["round"].max()) + 1, len(steps)
    place = rows["round"], np.searchsorted(steps, rows["step"])
    found = {
        name: np.full(shape, np.nan) for name in ("difference", "baseline_mean", "mean")
    }
    for name, values in found.items():
        values[place] = rows[name]
    scale = change_scale(found["difference"])
    unit = unit_suffix(pair.inputs.metric)
    figure.add_heatmap(
        x=steps,
        z=found["difference"],
        yaxis=axis,
        customdata=np.dstack([found["baseline_mean"], found["mean"]]),
        hovertemplate="<b>step %{x:,}, round %{y}</b>"
        f"<br>difference %{{z:.3g}}{unit}"
        "<br>%{customdata[0]:.3g} and %{customdata[1]:.3g}<extra></extra>",
        hoverongaps=False,
        zmin=scale.low,
        zmax=scale.high,
        colorscale=scale.linear_colors(pair.inputs.theme),
        showscale=False,
    )
    title = axis_title(pair.inputs.metric, pair.inputs.pair, width=_KEY)
    add_color_bar(
        figure,
        scale,
        found["difference"],
        f"difference: {title}",
        pair.inputs.theme,
    )


def _set_axes(
    figure: go.Figure,
    pair: RunPair,
    panels: Mapping[str, int],
    axes: Mapping[str, str],
    means: pd.DataFrame,
) -> None:
    """Put the panels below one another, over one axis of steps."""
    steps = np.sort(means["step"].unique())
    half = float(np.median(np.diff(steps))) / 2 if len(steps) > 1 else 0.5
    figure.update_layout(
        xaxis={
            "title": {"text": STEP.label},
            "range": [float(steps[0]) - half, float(steps[-1]) + half],
            "anchor": [*axes.values()][-1],
            "tickformat": ",d",
        }
    )
    bare = means.assign(ci_low=means["mean"], ci_high=means["mean"])
    unit = METRICS[pair.inputs.metric].unit
    titles: dict[str, dict[str, Any]] = {
        "means": {
            **choose_axis(bare, pair.inputs.metric).layout(),
            "title": {"text": axis_title(pair.inputs.metric, pair.inputs.pair)},
        },
        "difference": {
            "title": {"text": f"difference [{unit}]" if unit else "difference"},
            "zeroline": True,
            "nticks": 5,
        },
        "heatmap": {"title": {"text": ROUND.label}},
    }
    if "heatmap" in panels:
        num_rounds = int(pair.rounds["round"].max()) + 1
        titles["heatmap"] |= {
            "range": [num_rounds - 0.5, -0.5],
            "dtick": max(1, num_rounds // _MIN_ROWS),
        }
    plot = sum(panels.values()) + _GAP * (len(panels) - 1)
    top = plot
    for name, height in panels.items():
        key = f"yaxis{axes[name].removeprefix('y')}"
        domain: Sequence[float] = [(top - height) / plot, top / plot]
        figure.layout[key] = {"domain": domain, **titles[name]}
        top -= height + _GAP
