"""The axes of a trajectory: rounds with their positions, a panel or two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.figures.labels import wrapped
from rounddiag.schema import DIFF, POSITION, ROUND

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.token_scene import TokenScene

# Bottom and top of both panels, as shares of the plot.
_DIFF, _LOG_PROBS, _ALONE = (0.49, 1.0), (0.0, 0.4), (0.0, 1.0)
# Characters of an axis title that a panel has room for.
_AXIS = 34
# Ticks must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
# Pixels per character of a tick label, and between labels.
_CHARACTER, _BETWEEN = 6.5, 8


def set_axes(figure: go.Figure, scene: TokenScene) -> None:
    """Name the axes, mark rounds, and share the plot between the panels drawn."""
    has_diff, has_log_probs = scene.layers["diff"], scene.layers["log_probs"]
    ticks, labels = _ticks(scene)
    figure.update_layout(
        hovermode="x",
        hoversubplots="axis",
        hoverdistance=-1,
        xaxis={
            "title": {"text": f"{ROUND.label}, and {POSITION.label}"},
            "range": [scene.place[0] - 1, scene.place[-1] + 1],
            "tickvals": ticks,
            "ticktext": labels,
            "tickangle": 0,
            "anchor": "y2" if has_log_probs else "y",
        },
    )
    if has_diff:
        figure.layout.yaxis = {
            "title": {"text": wrapped(scene.pair.label(DIFF), _AXIS)},
            "domain": _DIFF if has_log_probs else _ALONE,
            "zeroline": True,
        }
    if has_log_probs:
        figure.layout.yaxis2 = {
            "title": {"text": "log-prob [nat]"},
            "domain": _LOG_PROBS if has_diff else _ALONE,
        }


def _ticks(scene: TokenScene) -> tuple[list[int], list[str]]:
    """Label the start of as many rounds as fit without touching."""
    longest = len(str(scene.tokens["position"].max()))
    share = (longest * _CHARACTER + _BETWEEN) / _PLOT_WIDTH
    place = scene.place
    apart = share * (place[-1] - place[0] + 2)
    chosen: list[int] = []
    for start in scene.starts:
        if not chosen or place[start] - place[chosen[-1]] >= apart:
            chosen.append(start)
    rows = scene.tokens.iloc[chosen]
    pairs = zip(rows["round"], rows["position"], strict=True)
    return place[chosen].tolist(), [f"<b>{round_}</b><br>{at}" for round_, at in pairs]
