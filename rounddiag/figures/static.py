"""Pictures of figures, for pages that cannot draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    import plotly.graph_objects as go


def png(fig: go.Figure, width: int = 900, height: int | None = None) -> bytes:
    """Draw a figure as a PNG.

    Parameters
    ----------
    fig : plotly.graph_objects.Figure
    width : int
        In pixels.
    height : int, optional
        In pixels; the figure's own when left out.

    Returns
    -------
    bytes

    Raises
    ------
    RounddiagError
        If kaleido, or a browser that it can start, is missing.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> preview = png(rd.plot_rounds(batch))  # doctest: +SKIP
    """
    try:
        picture: bytes = fig.to_image(format="png", width=width, height=height)
    except RuntimeError as error:  # what plotly and kaleido raise for either
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RounddiagError.build(
            expected="kaleido, and Chrome or Chromium, to draw a picture",
            found=lines[0].rstrip("."),
            advice="Run `pip install kaleido` where this Python is, and install"
            " Chromium, or name it in the environment variable BROWSER_PATH.",
        ) from error
    return picture
