"""Figures: frames to plotly figures, which compute nothing and show nothing.

One file per figure, named like its function (`rounds` has `plot_rounds`), which is a
name of `rounddiag` itself. Beside them, `colored_text` has the text of samples, and
`_parts` what figures share.
"""

from rounddiag.figures._parts.canvas import use_theme
from rounddiag.figures._parts.display import png
from rounddiag.figures.colored_text import TokenText

__all__ = ["TokenText", "png", "use_theme"]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
