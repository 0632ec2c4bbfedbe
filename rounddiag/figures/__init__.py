"""Figures: frames to plotly figures, which compute nothing and show nothing.

One file per figure, named like its function (`rounds` has `plot_rounds`), which is a
name of `rounddiag` itself. Beside them, `colored_text` has the text of samples,
`actions` what the explorer shows without log-probs, and `_parts` what figures share.

Ten rules that every picture follows:

1. A colour has one meaning. Orange and blue are the sign of the mismatch, magenta is
   the finding, grey is all else, and the scale from blue to yellow is a size that its
   bar names. Rounds in their order go from light to dark green, the values of a column
   have colours of their own.
2. Colour is never alone: a shape, a dash, a hatch or a place says the same.
3. Zero is the paper, so that a sound batch looks empty. What does not exist is hatched,
   what is missing or left out is counted in words.
4. A name stands at what it names: at the end of a line, above a panel, at a row. What
   has no such place is a line under the title, in its own colour and shape. No legend
   stands in a box.
5. An axis says what is plotted, of which tokens, with its unit in brackets, and whether
   a difference has its sign or is absolute.
6. A mean has its 95 % interval, over samples or their groups and never over tokens, and
   the counts behind it. It is hollow where fewer than 5 are independent.
7. An axis of means begins at 0. It is logarithmic where values span powers of ten.
8. What is compared has one axis and one range of colours, and the range is printed.
9. Text has a contrast of 4.5 in both themes. Nothing overlaps or is cut off from 500 to
   1920 pixels; a figure in a pane of the explorer has neither title nor caption.
10. A figure shows what a frame has. It fits, smooths and resamples nothing, and its
    hover text has the exact numbers and counts.
"""

from rounddiag.figures._parts.canvas import use_theme
from rounddiag.figures._parts.display import png
from rounddiag.figures.colored_text import TokenText

__all__ = ["TokenText", "png", "use_theme"]


def __dir__() -> list[str]:
    """List the public names, without the modules that hold them."""
    return __all__
