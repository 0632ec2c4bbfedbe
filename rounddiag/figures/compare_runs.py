"""The figure of two runs: their means over steps, and how rounds differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.errors import FrameError
from rounddiag.figures._parts.axes import choose_axis
from rounddiag.figures._parts.canvas import colorize, empty_figure
from rounddiag.figures._parts.data import PlotInputs, prepare
from rounddiag.figures._parts.labels import NO_TOKENS, shorten_name
from rounddiag.figures._parts.means import axis_title, unit_suffix
from rounddiag.figures._parts.panels import (
    MAX_POINTS,
    MEANS_HEIGHT,
    STEP_HOVER,
    Panel,
    add_heatmap,
    heatmap_panel,
    new_panel_figure,
    place_rounds,
    step_axis,
)
from rounddiag.figures._parts.scales import add_color_bar, change_scale
from rounddiag.runs import Run
from rounddiag.runs.step_tables import average_steps, pair_rounds
from rounddiag.schema import METRICS
from rounddiag.wording import pluralize

_LAYERS = ("difference", "heatmap")
_TITLE = "Mismatch over training, compared"
_TWO = 2
_DIFFERENCE = 110  # height of the panel of differences, in pixels
_KEY = 44  # characters of a line of the key


@dataclass(frozen=True, kw_only=True)
class RunPair:
    """Two runs that are compared.

    Attributes
    ----------
    names: Short, and safe in plotly's pseudo HTML.
    means: The mean of each step of either run, over the tokens of all rounds.
    rounds: As `runs.step_tables.pair_rounds` gives them.
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
        return [*self.inputs.theme.batches[:2]]


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
        summaries[0], a, b, metric=metric, layers=layers, known=_LAYERS, theme=theme
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
    panels = _panels(pair, means)
    figure = new_panel_figure(
        _TITLE,
        _captions(pair),
        [*panels.values()],
        step_axis(means["step"]),
        inputs.theme,
        has_heatmap="heatmap" in panels,
    )
    axes = dict(zip(panels, ("y", "y2", "y3"), strict=False))
    _add_means(figure, pair)
    if "difference" in axes:
        _add_difference(figure, pair, axes["difference"])
    if "heatmap" in axes:
        _add_heatmap(figure, pair, axes["heatmap"])
    return figure


def _panels(pair: RunPair, means: pd.DataFrame) -> dict[str, Panel]:
    """Return the panels that are drawn, from the top."""
    inputs = pair.inputs
    bare = means.assign(ci_low=means["mean"], ci_high=means["mean"])
    title = {"title": {"text": axis_title(inputs.metric, inputs.pair)}}
    of_means = {**choose_axis(bare, inputs.metric).layout(), **title}
    panels = {"means": Panel(height=MEANS_HEIGHT, axis=of_means)}
    if inputs.layers["difference"]:
        unit = METRICS[inputs.metric].unit
        text = f"difference [{unit}]" if unit else "difference"
        axis = {"title": {"text": text}, "zeroline": True, "nticks": 5}
        panels["difference"] = Panel(height=_DIFFERENCE, axis=axis)
    if inputs.layers["heatmap"] and len(pair.rounds) > 0:
        panels["heatmap"] = heatmap_panel(pair.rounds)
    return panels


def _captions(pair: RunPair) -> list[str]:
    signs = [colorize(*one) for one in zip("●◆", pair.colors, strict=True)]
    first, other = (
        f"{sign} {name}: {pluralize(len(means), 'step')}"
        for sign, name, means in zip(signs, pair.names, pair.means, strict=True)
    )
    count = len(pair.steps)
    paired = f"{pluralize(count, 'step')} of both" if count else "no step of both"
    return [first, other, f"difference: {signs[1]} − {signs[0]}, {paired}"]


def _add_means(figure: go.Figure, pair: RunPair) -> None:
    for name, color, symbol, means in zip(
        pair.names, pair.colors, ("circle", "diamond"), pair.means, strict=True
    ):
        figure.add_scatter(
            x=means["step"].to_numpy(),
            y=means["mean"].to_numpy(),
            mode="lines+markers" if len(means) <= MAX_POINTS else "lines",
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
        mode="lines+markers" if len(steps) <= MAX_POINTS else "lines",
        line={"color": pair.colors[1], "width": 1.5},
        marker={"symbol": "diamond", "size": 5, "color": pair.colors[1]},
        hovertemplate="<b>step %{x:,}</b><br>difference %{y:.3g}"
        f"{unit_suffix(pair.inputs.metric)}<extra></extra>",
    )


def _add_heatmap(figure: go.Figure, pair: RunPair, axis: str) -> None:
    """Draw the difference of each step and round that both have, as a colour."""
    names = ("difference", "baseline_mean", "mean")
    steps, (difference, *means) = place_rounds(pair.rounds, *names)
    scale, inputs = change_scale(difference), pair.inputs
    add_heatmap(
        figure,
        places=steps,
        values=difference,
        has_value=np.zeros(difference.shape, dtype=bool),
        customdata=np.dstack(means),
        hover=f"{STEP_HOVER}difference %{{z:.3g}}{unit_suffix(inputs.metric)}"
        "<br>%{customdata[0]:.3g} and %{customdata[1]:.3g}",
        scale=scale,
        axis=axis,
        theme=inputs.theme,
    )
    title = f"difference: {axis_title(inputs.metric, inputs.pair, width=_KEY)}"
    add_color_bar(figure, scale, difference, title, inputs.theme)
