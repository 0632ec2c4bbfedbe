"""The figures of the overview: means per round, and the heatmap of all samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.core import sample_frame
from rounddiag.core.scores import has_pair
from rounddiag.errors import FrameError
from rounddiag.figures._parts.axes import LogAxis
from rounddiag.figures._parts.canvas import ThemeName, empty_figure, theme_of
from rounddiag.figures._parts.display import caption
from rounddiag.figures._parts.labels import (
    BESIDE_TICKS,
    hover_text,
    plain_text,
    shorten_name,
    subject,
)
from rounddiag.figures.actions import EDGE, plot_actions, plot_endings
from rounddiag.figures.heatmap import plot_heatmap
from rounddiag.figures.rounds import plot_rounds
from rounddiag.figures.trajectory import plot_trajectory
from rounddiag.schema import METRICS
from rounddiag.stats.heatmap_rows import Order, order_rows, summarize_samples
from rounddiag.widgets.corrections import DROPPED, mark_dropped
from rounddiag.widgets.filters import FilteredBatch
from rounddiag.widgets.session import Session
from rounddiag.widgets.state import ACTION, State

# Pixels around the plot of a pane. Left: tick labels, and the title of the heatmap.
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 20, 18, 20
_LINE = 15  # pixels of each further line above a plot
_KEY_SIZE = 36  # and the narrowest one, of actions
_LABEL_SIZE = 50  # characters that a narrow pane has room for
# Between panels, as a share of the plot: a label, and half of a tick's.
_PANEL_GAP = 0.17
_FEW_TICKS = 4
# Above the rows: many of them reach below the pane.
_COLOR_BAR = {
    "thickness": 10,
    "ypad": 4,
    "title": None,
    "yref": "container",
    "y": 1,
    "yanchor": "top",
}
_LABEL_ABOVE = {
    "showarrow": False,
    "xref": "paper",
    "x": 0,
    "xanchor": "left",
    "align": "left",
    "y": 1,
    "yanchor": "bottom",
}
# The margins have room for each label: to measure them takes longer than to draw them.
_FITS = {"automargin": False, "ticklabeloverflow": "allow"}
_SHORT = 7
_NO_MARGINALS = {"marginals": False}
_PARTS_OF_ROUNDS = {"token", "text", "role"}
# A pane has room for the means alone: counts are in the hover text.
_MEANS_ALONE = {"counts": False}


_ABOUT_ACTIONS = [
    "x: round; y: sample",
    "a letter: the kind of action begins with it",
    "! an error in the round, or in what was observed after it",
    "= the same actions as in the round before",
    "○ the picture after it is stored with the same bytes",
    "right: how the sample ended, and its reward",
]


def overview_figures(session: Session, theme: ThemeName | None) -> dict[str, bytes]:
    """Return the JSON of both figures; rounds are at the same places in both."""
    heatmap = heatmap_figure(session, theme)
    align_rounds(heatmap, session)
    key = _packed(caption(heatmap)[1:]) if _shows_actions(session) else []
    fit_pane(heatmap, labels_above=False)
    if heatmap.data:
        meta, top = {**heatmap.layout.meta, "bands": bands(session, theme)}, 40
        if key:
            text, top = "<br>".join(key), 8 + _LINE * len(key)
            at_edge = {"yref": "paper", "xshift": -_LEFT}
            heatmap.add_annotation(text=text, **at_edge, **_LABEL_ABOVE)
            meta["notes"] = _ABOUT_ACTIONS
        else:
            bar = heatmap.data[-1].marker.colorbar
            meta["notes"] = [f"colour: {plain_text(bar.title.text)}", *meta["notes"]]
            bar.update(_COLOR_BAR)
            _shorten_hover(heatmap, session.state)
        # The bar and its numbers, or the key; half of a row's name.
        heatmap.update_layout(meta=meta, margin={"t": top, "b": 24})
    rounds = rounds_pane(session, theme)
    return {"rounds": rounds, "heatmap": heatmap.to_json().encode()}


def _shows_actions(session: Session) -> bool:
    is_empty = empty_reason(session.filtered_batch)
    return session.state.metric == ACTION and not is_empty


def _packed(parts: Sequence[str]) -> list[str]:
    """Put parts into as few lines as a narrow pane has room for."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}  {part}".strip()
        if lines[-1] and len(plain_text(longer)) > _KEY_SIZE:
            lines.append(part)
        else:
            lines[-1] = longer
    return lines


def _shorten_hover(figure: go.Figure, state: State) -> None:
    """Name the difference as the page does: its tooltips have three lines."""
    names = " − ".join(map(hover_text, (state.a, state.b)))
    for trace in figure.data:
        text = trace.hovertemplate or ""
        text = text.replace(f"|{names}| log-prob", "|diff|")
        trace.hovertemplate = text.replace(f"{names} log-prob", "diff") or None


def bands(session: Session, theme: ThemeName | None) -> dict[str, str] | None:
    """Return the colour of each sample, that of the line with its value of `by`.

    A sample has none if its tokens have several values.
    """
    filtered = session.filtered_batch
    if filtered.by is None:
        return None
    pairs = filtered.tokens[["sample", filtered.by]].drop_duplicates()
    values = pairs[filtered.by].sort_values().unique()
    alone = pairs[~pairs["sample"].duplicated(keep=False)]
    colors = dict(zip(values, theme_of(theme).lines, strict=False))
    return {
        str(sample): colors[value]
        for sample, value in zip(alone["sample"], alone[filtered.by], strict=True)
    }


def rounds_pane(session: Session, theme: ThemeName | None) -> bytes:
    """Return the JSON of the upper figure."""
    figure = rounds_figure(session, theme)
    align_rounds(figure, session)
    fit_pane(figure, keys=_key_lines(figure, session))
    return figure.to_json().encode()


def _key_lines(figure: go.Figure, session: Session) -> list[str]:
    """Return the captions that name the lines: their signs have colours."""
    keys = [note for note in caption(figure)[1:] if "<span" in note]
    return [] if session.state.by is None else keys


def token_axes(
    session: Session, theme: ThemeName | None, *, log_probs: bool
) -> dict[str, bytes]:
    """Return the JSON of a token plot of one token; the page puts its tokens in.

    Of a batch without a pair of log-probs it is that of one engine's surprise.
    """
    state = session.state
    metric = "diff" if has_pair(session.batch) else "surprise"
    token = {"sample": 0, "round": 0, "token": 0, "position": 0, metric: 0.0}
    scores = {"old_log_prob": -1.0, "rollout_log_prob": -1.0, "text": ""}
    tokens = pd.DataFrame([{**token, **scores}])
    tokens.attrs["pair"] = [state.a, state.b]
    figure = plot_trajectory(
        tokens,
        sample=0,
        a=state.a,
        b=state.b,
        metric=metric,
        layers={"log_probs": log_probs and metric == "diff"},
        theme=theme,
    )
    figure.layout.annotations = ()  # of two rows of numbers: the page writes one
    fit_pane(figure)
    return {"figure": figure.to_json().encode()}


def fit_pane(
    figure: go.Figure, *, keys: Sequence[str] = (), labels_above: bool = True
) -> None:
    """Make a figure fit a pane: its title becomes notes in `layout.meta`.

    The titles of the axes are notes too. The page sets the size.
    """
    layout = figure.layout
    title, *notes = caption(figure)
    axes = [*figure.select_yaxes()]
    panels = [axis for axis in axes if axis.title.text] if labels_above else []
    labels = [axis.title.text.replace("<br>", " ") for axis in panels]
    num_lines = 1
    if figure.data:
        for axis, label in zip(panels, labels, strict=True):
            short = label.partition(", ")[0].replace(" log-prob", "")
            lines = _lines_above(short, keys)
            name = axis.plotly_name.replace("axis", "")
            text = "<br>".join(lines)
            figure.add_annotation(text=text, yref=f"{name} domain", **_LABEL_ABOVE)
            axis.title = None
            num_lines, keys = max(num_lines, len(lines)), ()
        if labels_above:
            _space_panels(axes)
    else:
        figure.add_annotation(text="<br>".join(notes), showarrow=False)
    x_label = (layout.xaxis.title.text or "").replace("<br>", " ")
    notes = [*(f"y: {label}" for label in labels), f"x: {x_label}", *notes]
    own = layout.meta or {}
    # The height of the pane: four lines take as much as a panel.
    height = max(own.get("panels", 0), len(axes) + (num_lines - 1) / 4)
    texts = {"title": plain_text(title), "notes": [*map(plain_text, notes)]}
    meta = {**own, **texts, "panels": height}
    top = _TOP + _LINE * (num_lines - 1)
    margin = {"l": _LEFT, "r": _RIGHT, "t": top, "b": _BOTTOM}
    layout.shapes = [shape for shape in layout.shapes if not shape.showlegend]
    figure.update_layout(title=None, showlegend=False, meta=meta, margin=margin)
    figure.update_xaxes(title=None, **_FITS)
    figure.update_yaxes(**_FITS)
    name = x_label.partition(" ")[0].strip(",")
    if figure.data and 0 < len(name) <= _SHORT:
        figure.add_annotation(text=name, **BESIDE_TICKS)


def _space_panels(axes: Sequence[go.layout.YAxis]) -> None:
    """Leave room for a label between panels, which are low in a pane."""
    placed = sorted(
        (axis for axis in axes if axis.domain), key=lambda axis: -axis.domain[1]
    )
    heights = [axis.domain[1] - axis.domain[0] for axis in placed]
    scale = (1 - _PANEL_GAP * (len(placed) - 1)) / max(sum(heights), _PANEL_GAP)
    top = 1.0
    for axis, height in zip(placed, heights, strict=True):
        axis.domain = (max(top - scale * height, 0.0), top)
        top -= scale * height + _PANEL_GAP
        axis.nticks = _FEW_TICKS if len(placed) > 1 else axis.nticks


def _lines_above(label: str, keys: Sequence[str]) -> Sequence[str]:
    """Return the label and the key in as few lines as fit; a long key stands alone."""
    for parts in ([label, *keys], keys):
        line = "   ".join(parts)
        if not keys or len(plain_text(line)) <= _LABEL_SIZE:
            return [line]
    return keys


def named_figure(session: Session, name: str) -> go.Figure:
    """Return one of the visible figures."""
    match name:
        case "rounds":
            return rounds_figure(session)
        case "heatmap":
            return heatmap_figure(session)
        case "trajectory":
            sample = session.state.current.sample
            return plot_trajectory(session.batch, sample=sample)
    raise FrameError.build(
        key="figure",
        expected="'rounds', 'heatmap' or 'trajectory'",
        found=repr(name),
        advice="`help(rounddiag)` lists all other figures.",
    )


def rounds_figure(session: Session, theme: ThemeName | None = None) -> go.Figure:
    """Draw the mean of the metric per round.

    It ignores the filter by round, so that other rounds can be chosen in it.
    """
    state, filtered = session.state, session.with_all_rounds()
    if reason := empty_reason(filtered):
        return empty_figure(
            f"{subject(state.mean_metric)} per round", reason, theme_of(theme)
        )
    if state.metric == ACTION:
        rows, samples = _of_actions(session, filtered)
        num_rounds = rows.groupby("sample").size()[samples["sample"]].tolist()
        endings = [*map(_ending, samples["outcome"], samples["reward"])]
        return plot_endings(num_rounds, endings, theme=theme)
    by, diagnosis = filtered.by, session.known_diagnosis
    figure = plot_rounds(
        filtered.data if by is None else filtered.summary_by_group(state.metric),
        metric=state.metric,
        by=by,
        onset=diagnosis.onset if diagnosis and filtered.is_all and by is None else None,
        layers=_MEANS_ALONE,
        theme=theme,
    )
    if by is not None and not METRICS[state.metric].is_signed:
        _set_log_axis(figure)
    return figure


def _ending(outcome: str, reward: float) -> str:
    """Return the score of a sample of which nothing says more than that it ended."""
    if outcome not in ("", "finished") or not 0 <= reward <= 1:
        return outcome
    return "partial" if 0 < reward < 1 else f"score {reward:.0f}"


def _of_actions(
    session: Session, filtered: FilteredBatch
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what happened in the rounds that a filter keeps, and samples in order."""
    rows = session.actions
    if not filtered.is_all:
        keys = ["sample", "round"]
        rows = rows.merge(filtered.tokens[keys].drop_duplicates(), on=keys)
    kept = {*rows["sample"]}
    order = [sample for sample in ordered_samples(session) if sample in kept]
    known = sample_frame(session.full_batch).reindex(columns=["sample_id", "reward"])
    outcomes = session.trajectory_texts.outcomes(order)
    return rows, known.iloc[order].assign(sample=order, outcome=outcomes)


def _set_log_axis(figure: go.Figure) -> None:
    """Give means of groups the axis of their bars: a few are far above all others."""
    lines = [np.asarray(trace.y, float) for trace in figure.data if trace.y is not None]
    sizes = np.concatenate([np.empty(0), *lines])
    ticks = LogAxis.around_values(sizes[np.isfinite(sizes)])
    # The range is plotly's: intervals reach further.
    figure.update_layout(yaxis={**ticks.layout(), "range": None, "rangemode": "normal"})


def heatmap_figure(session: Session, theme: ThemeName | None = None) -> go.Figure:
    """Draw every sample in every round that the filter keeps."""
    figure, rounds = _heatmap(session, theme), session.state.filter.get("round")
    tokens, fates = session.filtered_batch.tokens, session.fates
    if fates is not None and figure.data:
        is_dropped = fates[session.own_columns.flat_index(tokens)] == DROPPED
        mark_dropped(figure, tokens, is_dropped, theme_of(theme))
    first = rounds.get("from") if isinstance(rounds, dict) else None
    if first:
        cover_rounds_before(figure, first, theme)
    return figure


def _heatmap(session: Session, theme: ThemeName | None) -> go.Figure:
    state, filtered = session.state, session.filtered_batch
    if reason := empty_reason(filtered):
        title = f"{subject(state.mean_metric)} per sample and round"
        return empty_figure(title, reason, theme_of(theme))
    if state.metric == ACTION:
        return plot_actions(*_of_actions(session, filtered), theme=theme)
    metric = METRICS[state.metric]
    column = metric.mean_column.name
    is_all, is_plain = filtered.is_all, state.order in get_args(Order)
    figure = plot_heatmap(
        filtered.batch if is_all else filtered.rounds,
        order=state.order if is_all and is_plain else ordered_samples(session),
        metric=column,
        color_range=metric.color_range if state.colors == "fixed" else None,
        layers=_NO_MARGINALS,
        theme=theme,
    )
    if not is_plain:
        figure.layout.yaxis.title.text = f"sample, by {shorten_name(state.order)}"
    return figure


def ordered_samples(session: Session) -> list[int]:
    """Return the samples that the filter keeps, in the order of the heatmap."""
    filtered, order = session.filtered_batch, session.state.order
    metric = METRICS[session.state.mean_metric].mean_column.name
    rounds, batch = filtered.rounds, filtered.batch if filtered.is_all else None
    samples = summarize_samples(batch, rounds, filtered.batch.num_samples)
    if not filtered.is_all:
        samples = samples[samples["num_rounds"] > 0]
    if order in get_args(Order):
        ordered = order_rows(samples, order, metric)
        return [int(sample) for sample in ordered["sample"]]
    worst = order_rows(samples, "worst", metric)["sample"]
    rank = session.own_columns.rank_samples(order)
    return sorted(map(int, worst), key=lambda sample: int(rank[sample]))


def align_rounds(figure: go.Figure, session: Session) -> None:
    """Give the x axis of a figure of rounds the range of all rounds, at full width."""
    batch = session.full_batch
    if batch.num_rounds:
        rounds = [-0.5, int(batch.rounds.round.max()) + 0.5]
        width = EDGE if _shows_actions(session) else 1
        figure.update_layout(xaxis={"range": rounds, "domain": (0, width)})


def cover_rounds_before(figure: go.Figure, index: int, theme: ThemeName | None) -> None:
    """Cover the cells of rounds that the filter leaves out: they have no values."""
    figure.add_shape(
        type="rect",
        x0=-0.5,
        x1=index - 0.5,
        y0=0,
        y1=1,
        yref="y domain",
        fillcolor=theme_of(theme).paper,
        line={"width": 0},
    )


def filter_note(state: State) -> str:
    """Say what the filter leaves of cells; empty if it keeps all of their tokens."""
    if _PARTS_OF_ROUNDS & state.filter.keys():
        return "Hatched: no such round, or the filter keeps no token of it."
    return ""


def empty_reason(filtered: FilteredBatch) -> str:
    """Say why there is no token to show; empty if there is one."""
    if len(filtered.tokens):
        return ""
    if not filtered.batch.num_samples:
        return "the batch has no samples"
    if filtered.is_all:
        return "no generated tokens: the response mask is 0"
    return "the filter keeps no token"
