"""The figure of a run: means per round over steps, and a heatmap of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import hex_to_rgb, unlabel_rgb

from rounddiag.core.divergence import get_measure
from rounddiag.errors import FrameError, require_one_of
from rounddiag.figures._parts.axes import MeanAxis, choose_axis, note_zeros
from rounddiag.figures._parts.canvas import (
    Theme,
    ThemeName,
    colorize,
    scale_colors,
)
from rounddiag.figures._parts.data import PlotInputs, prepare, without_layers
from rounddiag.figures._parts.labels import format_number, wrap
from rounddiag.figures._parts.lines import RoundLine
from rounddiag.figures._parts.means import (
    add_heading,
    add_means,
    axis_title,
    explain_marks,
    unit_suffix,
)
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
from rounddiag.figures._parts.scales import add_color_bar, choose_scale
from rounddiag.figures.legs import add_legs_of_steps, describe_legs
from rounddiag.findings.reference import named_range
from rounddiag.runs import Run, find_breaks, find_changes
from rounddiag.runs.change_points import Break
from rounddiag.runs.diagnosis import Event
from rounddiag.schema import LEGS, ROUND, RUN, STEPS, Pair
from rounddiag.wording import pluralize

PANELS = ("reward", "entropy", "length", "legs")
_TITLE = "Mismatch over training"
# The columns of a run's summary that the figure needs.
_COLUMNS = (
    *("num_samples", "num_tokens", "num_nonfinite", "mean", "ci_low", "ci_high"),
)
_MAX_LINES = 8  # more lines cannot be distinguished
_PANEL = 70  # height of a panel beside the means, in pixels
_RIBBON = 0.12
_KEY, _LINE = 54, 64  # characters of a line of the key, and of any
_MOST_MARKS = 4  # in the caption


@dataclass(frozen=True, kw_only=True)
class RunScene:
    """What the figure of a run shows.

    Attributes
    ----------
    rows: Its summary: a row per step and round.
    rounds: Those with a line.
    """

    rows: pd.DataFrame
    rounds: list[int]
    inputs: PlotInputs
    axis: MeanAxis

    @property
    def colors(self) -> dict[int, str]:
        """The colour of each line: along one scale, by round."""
        colors = scale_colors(self.inputs.theme, len(self.rounds))
        return dict(zip(self.rounds, colors, strict=True))

    def line(self, round_: int) -> pd.DataFrame:
        """Return the rows of a round, by step."""
        return self.rows[self.rows["round"] == round_].sort_values("step")


@without_layers
def plot_run(
    run: Run | pd.DataFrame,
    *,
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
    rounds: Sequence[int] | None = None,
    panels: Sequence[str] = (),
    kind: str | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mean of a metric in each round over the steps of a run.

    Parameters
    ----------
    run : Run or DataFrame
        A run, or its summary, made with the same metric.
    rounds : sequence of int, optional
        The rounds with a line, at most 8; evenly chosen when left out.
    panels : sequence of {"reward", "entropy", "length", "legs"}
        What to draw below, of a run only: means over the samples of a step; the factors
        of the ratio that a trainer uses, as `rounddiag.legs` has them.
    kind : str, optional
        A key of `rounddiag.findings.REFERENCE`, whose usual |diff| is the band; that of
        the run when left out. A frame has no band without it, and another pair than
        `old` and `rollout` has none.
    metric, a, b, theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: in a healthy run all lines stay level inside the band, rounds a
    little apart from one another. A step up in all rounds at once is a change of the
    engines: a restart, another precision, weights that no longer arrive. A step up from
    some round on is one of the context, such as images that one engine drops. Slow
    growth goes with what training changes: longer answers, rarer tokens, a cache that
    is never reset. A single spike that goes back is usual. Step 0, before the first
    update, stands apart: a mismatch at step 0 is not caused by training. Dashed lines
    mark the steps that `Run.changes` finds; the band is the usual range of the kind of
    run; ribbons are 95 % intervals. An empty cell of the heatmap is a step without that
    round.

    Examples
    --------
    >>> import rounddiag as rd
    >>> summary = rd.round_summary(rd.load("sample_data/healthy.parquet"))
    >>> frame = pd.concat([summary.assign(step=step) for step in range(3)])
    >>> rd.plot_run(frame, kind="vlm").layout.xaxis.title.text
    'training step'
    """
    rows, beside = _get_rows(run, metric, Pair(a, b), panels)
    legs = run.legs() if "legs" in panels and isinstance(run, Run) else None
    inputs = prepare(rows, a, b, metric=metric, theme=theme)
    metric, chosen = inputs.metric, inputs.theme
    if rows.empty:
        return inputs.empty_figure(_TITLE)
    usual = _usual(run, metric, kind) if inputs.pair.is_standard else None
    scene = RunScene(
        rows=rows,
        rounds=_choose_rounds(rows, rounds),
        inputs=inputs,
        axis=_axis(rows, metric, usual),
    )
    marks = _find_breaks(rows, metric)
    events = run.events() if isinstance(run, Run) else []
    stacked = _panels(scene, panels)
    figure = new_panel_figure(
        _TITLE,
        [
            *_unknown_rounds(run),
            *_captions(scene, usual, marks),
            *_list_marks("▽", events),
            *([] if legs is None else describe_legs(legs, chosen)),
        ],
        stacked,
        step_axis(rows["step"]),
        chosen,
        has_heatmap=True,
    )
    if usual is not None:
        _add_band(figure, scene, usual[1])
    for round_ in scene.rounds:
        _add_line(figure, scene, round_)
    _add_panels(figure, panels, beside, legs, chosen)
    _add_heatmap(figure, scene, f"y{len(stacked)}")
    for mark in marks:
        _add_mark(figure, mark, chosen)
    _add_events(figure, events, chosen)
    return figure


def _get_rows(
    run: Run | pd.DataFrame, metric: str, pair: Pair, panels: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the summary, and the means of steps for other panels."""
    for name in panels:
        advice = "Leave it out for the mismatch alone."
        require_one_of(name, PANELS, key="panels", advice=advice)
    if isinstance(run, Run):
        beside = run.step_summary() if panels else pd.DataFrame()
        return run.summary(metric=metric, a=pair.a, b=pair.b), beside
    if not isinstance(run, pd.DataFrame):
        raise FrameError.build(
            expected="a Run or its summary",
            found=f"a {type(run).__name__}",
            advice="Open a folder of step files with `rounddiag.open_run(folder)`.",
        )
    RUN.require(run.columns, *RUN.keys, *_COLUMNS)
    if panels:
        raise FrameError.build(
            key="panels",
            expected="a Run, which has the means of steps",
            found="a frame",
            advice="Pass the run itself.",
        )
    return run, pd.DataFrame()


def _unknown_rounds(run: Run | pd.DataFrame) -> list[str]:
    """State at how many steps of a run the rounds are unknown, if any."""
    facts: Any = run.step_summary()["facts"] if isinstance(run, Run) else []
    count = sum(json.loads(text).get("rounds") == "unknown" for text in facts)
    note = f"the rounds of {pluralize(count, 'step')} are unknown"
    return [f"{note}: `rd.check(batch)` says why"] if count else []


def _choose_rounds(rows: pd.DataFrame, rounds: Sequence[int] | None) -> list[int]:
    known = sorted({int(round_) for round_ in rows["round"]})
    if rounds is None:
        places = np.linspace(0, len(known) - 1, min(_MAX_LINES, len(known)))
        return [known[round(place)] for place in places]
    unknown = [round_ for round_ in rounds if round_ not in known]
    if unknown or not 0 < len(rounds) <= _MAX_LINES:
        raise FrameError.build(
            key="rounds",
            expected=f"1 to {_MAX_LINES} rounds from {known[0]} to {known[-1]}",
            found=str([*rounds])[:80],
            advice="Leave it out for rounds chosen evenly.",
        )
    return [*dict.fromkeys(int(round_) for round_ in rounds)]


def _usual(
    run: Run | pd.DataFrame, metric: str, kind: str | None
) -> tuple[str, float] | None:
    """Return the usual range of the metric: its meaning and its end."""
    if metric != "abs_diff":  # no other has published levels
        return None
    assumed = ""
    if kind is None:
        if not isinstance(run, Run):
            return None
        kind, is_stated = run.kind
        assumed = "" if is_stated else ", assumed"
    usual = named_range(kind)
    return f"{usual.meaning}{assumed}", usual.usual


def _axis(rows: pd.DataFrame, metric: str, usual: tuple[str, float] | None) -> MeanAxis:
    if usual is None:
        return choose_axis(rows, metric)
    end = pd.DataFrame([dict.fromkeys(("mean", "ci_low", "ci_high"), usual[1])])
    return choose_axis(pd.concat([rows[[*end]], end], ignore_index=True), metric)


def _panels(scene: RunScene, names: Sequence[str]) -> list[Panel]:
    title = {"title": {"text": axis_title(scene.inputs.metric, scene.inputs.pair)}}
    means = {**scene.axis.layout(), **title}
    others = {"nticks": 3, "rangemode": "tozero"}  # zero is what legs are read from
    return [
        Panel(height=MEANS_HEIGHT, axis=means),
        *(Panel(height=_PANEL, axis=others) for _ in names),
        heatmap_panel(scene.rows),
    ]


def _find_breaks(rows: pd.DataFrame, metric: str) -> list[Break]:
    steps = np.sort(rows["step"].unique()).tolist()
    return find_breaks(find_changes(rows, metric=metric), steps, metric=metric)


def _captions(
    scene: RunScene, usual: tuple[str, float] | None, marks: Sequence[Break]
) -> list[str]:
    lines = [ROUND.label]
    for round_, color in scene.colors.items():
        if len(lines[-1].split("  ")) > _MAX_LINES:
            lines.append("")
        lines[-1] += f"  {colorize('●', color)} {round_}"
    if usual is not None:
        end = f"{format_number(usual[1])}{unit_suffix(scene.inputs.metric)}"
        lines.append(wrap(f"▒ usual: up to {end} ({usual[0]})", _LINE))
    lines += _list_marks("┆", marks)
    if (scene.rows["step"] == 0).any():
        lines.append("◇ step 0, before the first update")
    drawn = scene.rows[scene.rows["round"].isin(scene.rounds)]
    lines += note_zeros(drawn, scene.axis, "lower")
    return lines + [line for line in explain_marks(drawn) if not line.startswith("○")]


def _list_marks(sign: str, marks: Sequence[Break | Event]) -> list[str]:
    """Return the caption of marks: the first ones, and how many more there are."""
    lines = [f"{sign} {escape(str(mark))}" for mark in marks[:_MOST_MARKS]]
    if len(marks) > _MOST_MARKS:
        lines.append(f"{sign} and {len(marks) - _MOST_MARKS:,} more")
    return lines


def _add_band(figure: go.Figure, scene: RunScene, end: float) -> None:
    figure.add_shape(
        type="rect",
        xref="x domain",
        x0=0,
        x1=1,
        yref="y",
        y0=scene.axis.low,
        y1=end,
        fillcolor=scene.inputs.theme.shade,
        line={"width": 0},
        layer="below",
    )


def _add_line(figure: go.Figure, scene: RunScene, round_: int) -> None:
    """Draw the means of a round; those of step 0 stand apart."""
    rows, color = scene.line(round_), scene.colors[round_]
    heads = [f"step {step:,}, round {round_}" for step in rows["step"]]
    rows = rows.assign(place=rows["step"], head=heads)
    later = rows[rows["step"] > 0]
    _add_ribbon(figure, scene, later, color)
    for part, is_first in ((later, False), (rows[rows["step"] == 0], True)):
        if part.empty:
            continue
        has_points = is_first or len(part) <= MAX_POINTS
        add_means(
            figure,
            RoundLine(name="", rows=part, color=color),
            scene.inputs,
            values=scene.axis.place(part["mean"]).to_numpy(),
            floor=scene.axis.zero,
            has_intervals=is_first,
            mode="markers" if is_first else "lines+markers" if has_points else "lines",
            line={"color": color, "width": 1.5},
            marker={
                "size": 8 if is_first else 4,
                "symbol": "diamond-open" if is_first else "circle",
                "color": color,
            },
        )


def _add_ribbon(
    figure: go.Figure, scene: RunScene, rows: pd.DataFrame, color: str
) -> None:
    """Shade the intervals of a line; those that are undefined leave a gap."""
    known = rows[rows["ci_low"].notna() & rows["ci_high"].notna()]
    if known.empty:
        return
    limits = scene.axis.low, scene.axis.high
    low, high = (known[name].clip(*limits) for name in ("ci_low", "ci_high"))
    parts = hex_to_rgb(color) if color.startswith("#") else unlabel_rgb(color)
    fill = f"rgba({','.join(f'{float(part):.0f}' for part in parts)},{_RIBBON})"
    figure.add_scatter(
        x=np.concatenate([known["step"], known["step"][::-1]]),
        y=np.concatenate([high, low[::-1]]),
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=fill,
        hoverinfo="skip",
    )


def _add_panels(
    figure: go.Figure,
    panels: Sequence[str],
    steps: pd.DataFrame,
    legs: pd.DataFrame | None,
    theme: Theme,
) -> None:
    """Draw the panels below the means, of which the first has the axis y2."""
    for number, name in enumerate(panels, 2):
        if legs is not None and name == "legs":
            add_legs_of_steps(figure, legs, f"y{number}", theme)
            add_heading(figure, f"y{number}", LEGS["mean_log_ratio"].label, theme)
        else:
            _add_panel(figure, steps, name, f"y{number}", theme)


def _add_panel(
    figure: go.Figure, steps: pd.DataFrame, name: str, axis: str, theme: Theme
) -> None:
    column, values = STEPS[name], steps[name]
    unit = f" {column.unit}" if column.unit else ""
    figure.add_scatter(
        x=steps["step"].to_numpy(),
        y=values.to_numpy(),
        yaxis=axis,
        mode="lines",
        line={"color": theme.muted, "width": 1.5},
        hovertemplate=f"<b>step %{{x:,}}</b><br>{column.meaning} %{{y:.3g}}{unit}"
        "<extra></extra>",
    )
    is_known = bool(values.notna().any())
    heading = column.label if is_known else f"{column.label}: not in the files"
    add_heading(figure, axis, heading, theme)


def _add_heatmap(figure: go.Figure, scene: RunScene, axis: str) -> None:
    steps, (means, samples) = place_rounds(scene.rows, "mean", "num_samples")
    scale = choose_scale(means, is_signed=get_measure(scene.inputs.metric).is_signed)
    add_heatmap(
        figure,
        places=steps,
        values=means,
        has_value=~np.isnan(samples),
        customdata=np.nan_to_num(samples).astype(np.int64),
        hover=f"{STEP_HOVER}mean %{{z:.3g}}{unit_suffix(scene.inputs.metric)}"
        "<br>%{customdata:,} samples",
        scale=scale,
        axis=axis,
        theme=scene.inputs.theme,
    )
    title = axis_title(scene.inputs.metric, scene.inputs.pair, width=_KEY)
    add_color_bar(figure, scale, means, title, scene.inputs.theme)


def _add_mark(figure: go.Figure, mark: Break, theme: Theme) -> None:
    line = {"color": theme.text, "width": 1, "dash": "dot"}
    ends = dict.fromkeys(("x0", "x1"), (mark.previous + mark.step) / 2)
    figure.add_shape(type="line", **ends, y0=0, y1=1, yref="paper", line=line)


def _add_events(figure: go.Figure, events: Sequence[Event], theme: Theme) -> None:
    for step, alike in groupby(events, key=lambda event: event.step):
        facts = [*alike]
        figure.add_annotation(
            x=(facts[0].previous + step) / 2,
            y=1,
            xref="x",
            yref="y domain",
            yanchor="middle",
            text="▽",
            hovertext="<br>".join(escape(str(fact)) for fact in facts),
            showarrow=False,
            font={"color": theme.text, "size": 13},
        )
