"""The two figures of all samples, for what a state keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.errors import FrameError
from rounddiag.figures import compare as of_two
from rounddiag.figures import (
    plot_compare,
    plot_heatmap,
    plot_positions,
    plot_rounds,
    plot_trajectory,
)
from rounddiag.figures._parts.canvas import empty_figure, theme_of
from rounddiag.figures._parts.heatmap_cells import choose_color_range
from rounddiag.figures.rounds import RoundOptions
from rounddiag.stats.heatmap_rows import order_rows, samples_of
from rounddiag.widgets.state import METRICS

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures._parts.canvas import ThemeName
    from rounddiag.stats.heatmap_rows import Order
    from rounddiag.widgets.pair import Compared
    from rounddiag.widgets.session import Session, Shown
    from rounddiag.widgets.state import State


# Pixels for the labels of either y axis, and for the right half of a last tick.
_LEFT, _RIGHT = 88, 30


def share_rounds(upper: go.Figure, lower: go.Figure, num_rounds: int) -> None:
    """Put each round of two figures at one place, whatever their width."""
    domain = lower.layout.xaxis.domain or (0, 1)
    for figure in (upper, lower):
        figure.update_layout(
            margin={"l": _LEFT, "r": _RIGHT},
            xaxis={"range": [-0.5, num_rounds - 0.5], "domain": domain},
        )


def hide_before(figure: go.Figure, round_: int, theme: ThemeName | None) -> None:
    """Cover what a heatmap has for rounds before one: nothing is known of them."""
    figure.add_shape(
        type="rect",
        x0=-0.5,
        x1=round_ - 0.5,
        y0=0,
        y1=1,
        yref="y domain",
        fillcolor=theme_of(theme).paper,
        line={"width": 0},
    )


def heatmap_of_two(
    found: Compared, state: State, theme: ThemeName | None = None
) -> go.Figure:
    """Draw the cells of the batch that is looked at, or what they differ by.

    The rows are in the order of both batches; the colours of either have one range.
    """
    metric = METRICS[state.metric]
    if state.heatmap == "batch":
        own = found.sides[found.batch]
        return plot_heatmap(
            own.batch if own.is_all else own.rounds,
            order=found.order(state.order, metric),
            metric=metric,
            color_range=choose_color_range(found.values(metric), metric),
            layers={"marginals": False},
            theme=theme,
        )
    why = found.comparison.why_apart
    if why:
        return empty_figure("Difference per sample and round", why, theme_of(theme))
    cells, known = found.differences(metric), found.comparison.partners[found.batch]
    order = [one for one in found.order(state.order, metric) if one in known]
    return plot_heatmap(
        cells,
        order=order,
        metric="difference",
        layers={"marginals": False},
        theme=theme,
    )


def overview(session: Session, theme: ThemeName | None) -> dict[str, bytes]:
    """Draw the means per round, and the heatmap of samples and rounds under it."""
    rounds, heatmap = rounds_figure(session, theme), heatmap_figure(session, theme)
    numbers = [int(one.rounds.round.max()) for one in session.batches if one.num_rounds]
    if session.state.axis == "round" and numbers:
        share_rounds(rounds, heatmap, max(numbers) + 1)
    return {"rounds": as_bytes(rounds), "heatmap": as_bytes(heatmap)}


def note_on(state: State) -> str:
    """Say what the figures leave out of what is chosen, and why; empty for nothing."""
    keep = state.filter
    others = {"round": keep.rounds, "text": keep.text, "role": keep.role}
    chosen = [f"the filter by {name}" for name, value in others.items() if value]
    chosen += ["by"] if state.by else []
    if state.axis != "round" and chosen:
        without = " and ".join(chosen)
        return f"All tokens of the samples that are kept, without {without}."
    if keep.text or keep.role:
        return "Hatched: no such round, or nothing in it that the filter keeps."
    return ""


def why_none(shown: Shown) -> str:
    """Say why there is no token to show; empty where there are some."""
    if len(shown.tokens):
        return ""
    if not shown.batch.num_samples:
        return "the batch has no samples"
    if shown.is_all:
        return "no generated tokens: the response mask is 0"
    return "the filter keeps no token"


def offered(session: Session) -> dict[str, bool]:
    """Return the layers of the upper figure that there are for what is chosen.

    And whether each is drawn unless `layers` says otherwise.
    """
    if session.comparison is not None:
        return dict.fromkeys(of_two.LAYERS, True)
    state = session.state
    options = RoundOptions(
        metric=state.metric, weight="token", by=state.by, last_aligned=False
    )
    return options.offered


def figure_of(session: Session, name: str) -> go.Figure:
    """Return one figure of what is looked at.

    Raises
    ------
    FrameError
        If there is no such figure.
    """
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
        advice="`rounddiag.figures` has all other figures.",
    )


def rounds_figure(session: Session, theme: ThemeName | None = None) -> go.Figure:
    """Draw the mean of the metric per round, or over another axis.

    Rounds that are filtered out are there too: others can be chosen.
    """
    state, (shown, compared) = session.state, session.of_all_rounds
    known = offered(session)
    layers = {name: is_on for name, is_on in state.layers.items() if name in known}
    if compared is not None:
        return plot_compare(
            compared.data, metric=state.metric, layers=layers, theme=theme
        )
    if why := why_none(shown):
        return empty_figure("Mismatch per round", why, theme_of(theme))
    if state.axis != "round":
        return plot_positions(
            shown.samples, by=state.axis, metric=state.metric, theme=theme
        )
    return plot_rounds(
        shown.data, metric=state.metric, by=state.by, layers=layers, theme=theme
    )


def heatmap_figure(session: Session, theme: ThemeName | None = None) -> go.Figure:
    """Draw every sample in every round that is kept."""
    figure, kept = _heatmap(session, theme), session.state.filter.rounds
    if kept:
        hide_before(figure, kept[0], theme)
    return figure


def _heatmap(session: Session, theme: ThemeName | None) -> go.Figure:
    shown, state, compared = session.shown, session.state, session.compared
    if compared is not None:
        return heatmap_of_two(compared, state, theme)
    if why := why_none(shown):
        return empty_figure("Mismatch per sample and round", why, theme_of(theme))
    metric = METRICS[state.metric]
    if shown.is_all:
        return plot_heatmap(shown.batch, order=state.order, metric=metric, theme=theme)
    order = _kept_samples(shown, state.order, metric)
    return plot_heatmap(shown.rounds, order=order, metric=metric, theme=theme)


def _kept_samples(shown: Shown, order: Order, metric: str) -> list[int]:
    """Return the samples that something is kept of, in an order."""
    rounds = shown.rounds
    samples = samples_of(rounds, rounds, shown.batch.num_samples)
    kept = samples[samples["num_rounds"] > 0]
    found: list[int] = order_rows(kept, order, metric)["sample"].tolist()
    return found


def as_bytes(figure: go.Figure) -> bytes:
    """Return the JSON of a figure."""
    text: str = figure.to_json()
    return text.encode()
