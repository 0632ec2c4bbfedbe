"""Figures: frames to plotly figures, which compute nothing and show nothing.

One file per figure: `rounds`, `heatmap`, `trajectory`, `probabilities`, `log_ppl`,
`tail`, `positions`, `conditional`, `roles` and `compare`; `run` shows many steps,
`compare_runs` those of two runs, `finding` the evidence of a finding,
`legs` the factors of the importance ratio, `corrections` what they do to an update,
`proof` how near each hypothesis of a proof comes, `colored_text`
the text of samples; `_parts` has what figures share.
"""

from rounddiag.figures._parts.canvas import use_theme
from rounddiag.figures._parts.display import png
from rounddiag.figures.colored_text import TokenText, token_text
from rounddiag.figures.compare import plot_compare
from rounddiag.figures.conditional import plot_conditional
from rounddiag.figures.corrections import plot_corrections
from rounddiag.figures.finding import plot_finding
from rounddiag.figures.heatmap import plot_heatmap
from rounddiag.figures.legs import plot_legs
from rounddiag.figures.positions import plot_positions
from rounddiag.figures.probabilities import plot_probabilities
from rounddiag.figures.proof import plot_proof
from rounddiag.figures.roles import plot_roles
from rounddiag.figures.rounds import plot_rounds
from rounddiag.figures.run import plot_run
from rounddiag.figures.tail import plot_tail
from rounddiag.figures.trajectory import plot_trajectory

__all__ = [
    "TokenText",
    "plot_compare",
    "plot_conditional",
    "plot_corrections",
    "plot_finding",
    "plot_heatmap",
    "plot_legs",
    "plot_positions",
    "plot_probabilities",
    "plot_proof",
    "plot_roles",
    "plot_rounds",
    "plot_run",
    "plot_tail",
    "plot_trajectory",
    "png",
    "token_text",
    "use_theme",
]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
