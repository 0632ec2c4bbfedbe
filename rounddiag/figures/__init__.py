"""Figures: frames to plotly figures, which compute nothing and show nothing.

One file per figure, named like its function (`rounds` has `plot_rounds`), which is a
name of `rounddiag` itself. Files without one: `log_ppl` draws the samples of
`probabilities`, `colored_text` the text of samples; `_parts` has what figures share.
"""

from rounddiag.figures._parts.canvas import use_theme
from rounddiag.figures._parts.display import png
from rounddiag.figures.colored_text import TokenText

__all__ = ["TokenText", "png", "use_theme"]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
