"""The two figures of all samples, for what a state keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.errors import FrameError
from rounddiag.figures import plot_heatmap, plot_positions, plot_rounds, plot_trajectory
from rounddiag.widgets.side_by_side import heatmap_of_two, rounds_of_both
from rounddiag.widgets.state import METRICS

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.theme import ThemeName
    from rounddiag.widgets.session import Session
    from rounddiag.widgets.state import State


def overview(session: Session, theme: ThemeName | None) -> dict[str, bytes]:
    """Draw the means per round, and the heatmap of samples and rounds."""
    figures = {
        "rounds": rounds_figure(session, theme),
        "heatmap": heatmap_figure(session, theme),
    }
    return {name: as_bytes(figure) for name, figure in figures.items()}


def note_on(state: State) -> str:
    """Say what is chosen and does not count in the upper figure; empty for nothing."""
    keep = state.filter
    others = {"round": keep.rounds, "text": keep.text, "role": keep.role}
    chosen = [f"the filter by {name}" for name, value in others.items() if value]
    chosen += ["by"] if state.by else []
    if state.axis == "round" or not chosen:
        return ""
    return f"All tokens of the samples that are kept, without {' and '.join(chosen)}."


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
    """Draw the mean of the metric per round, or over another axis."""
    shown, state, compared = session.shown, session.state, session.compared
    if compared is not None:
        return rounds_of_both(compared, state, theme)
    if state.axis != "round":
        return plot_positions(
            shown.samples, by=state.axis, metric=state.metric, theme=theme
        )
    return plot_rounds(
        shown.data, metric=state.metric, by=state.by, layers=state.layers, theme=theme
    )


def heatmap_figure(session: Session, theme: ThemeName | None = None) -> go.Figure:
    """Draw every sample in every round."""
    shown, state, compared = session.shown, session.state, session.compared
    if compared is not None:
        return heatmap_of_two(compared, state, theme)
    data = shown.batch if shown.is_all else shown.rounds
    return plot_heatmap(
        data, order=state.order, metric=METRICS[state.metric], theme=theme
    )


def as_bytes(figure: go.Figure) -> bytes:
    """Return the JSON of a figure."""
    text: str = figure.to_json()
    return text.encode()
