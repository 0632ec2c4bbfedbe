"""Figures: frames to plotly figures, which compute nothing and show nothing."""

from rounddiag.figures.compare import plot_compare
from rounddiag.figures.conditional import plot_conditional
from rounddiag.figures.finding import plot_finding
from rounddiag.figures.heatmap import plot_heatmap
from rounddiag.figures.log_ppl import plot_log_ppl
from rounddiag.figures.positions import plot_positions
from rounddiag.figures.probabilities import plot_probabilities
from rounddiag.figures.reading import TokenText, token_text
from rounddiag.figures.roles import plot_roles
from rounddiag.figures.rounds import plot_rounds
from rounddiag.figures.static import png
from rounddiag.figures.tail import plot_tail
from rounddiag.figures.theme import use_theme
from rounddiag.figures.trajectory import plot_trajectory

__all__ = [
    "TokenText",
    "plot_compare",
    "plot_conditional",
    "plot_finding",
    "plot_heatmap",
    "plot_log_ppl",
    "plot_positions",
    "plot_probabilities",
    "plot_roles",
    "plot_rounds",
    "plot_tail",
    "plot_trajectory",
    "png",
    "token_text",
    "use_theme",
]
