"""Figures: frames to plotly figures, which compute nothing and show nothing."""

from rounddiag.figures.heatmap import plot_heatmap
from rounddiag.figures.reading import TokenText, token_text
from rounddiag.figures.rounds import plot_rounds
from rounddiag.figures.theme import use_theme
from rounddiag.figures.trajectory import plot_trajectory

__all__ = [
    "TokenText",
    "plot_heatmap",
    "plot_rounds",
    "plot_trajectory",
    "token_text",
    "use_theme",
]
