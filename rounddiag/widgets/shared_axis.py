"""One axis of rounds for two figures that stand one over the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.figures.theme import theme_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.theme import ThemeName

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
