"""The figure of sight: a screenshot, and what the model loses without each tile."""

from __future__ import annotations

from base64 import b64encode

import pandas as pd
import plotly.graph_objects as go

from rounddiag.batch import Batch
from rounddiag.batch.address import Address
from rounddiag.core import token_frame
from rounddiag.core.scores import AskedModel, require_answer
from rounddiag.errors import BatchError
from rounddiag.figures._parts.canvas import (
    Theme,
    ThemeName,
    colorize,
    new_figure,
    theme_of,
    with_opacity,
)
from rounddiag.figures._parts.labels import hover_text, wrap
from rounddiag.schema import TILES
from rounddiag.vision import Screenshot, parse_actions
from rounddiag.vision.screenshots import as_jpeg
from rounddiag.wording import pluralize, with_minus

_LARGEST = (1600, 1600)  # pixels of the picture in the figure
_WIDTH, _HIGHEST = 640, 720  # pixels of the plot
_LINE = 76
_COVER = 0.8  # opacity of the largest drop
_LEGIBLE = 0.1  # share of the largest drop from which on a tile has its number


def plot_sight(
    answer: AskedModel, *, at: str | None = None, theme: ThemeName | None = None
) -> go.Figure:
    """Plot where a model looked: the drop of each tile, on the screenshot.

    Parameters
    ----------
    answer : Answer
        As `rounddiag.ask` returns it.
    at : str, optional
        A round, such as `task-04/2 / r3`, or a sample; by default the first round that
        has tiles.
    theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: each tile of the last screenshot before the round was shown in its
    mean colour, one at a time. The colour is the log-prob that the coordinates of the
    round lose by that, or all its tokens if it has none: the stronger, the more they
    depend on the tile. Where nothing is lost, the tile is clear; the other colour is a
    gain. The scale is the same for all rounds of the answer. The tile with the largest
    drop is divided once more. The ring is where the agent acted.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> answer = rd.ask(batch, "sample_data/model", at="task-04/2 / r3")
    >>> len(plot_sight(answer).layout.images)
    1
    """
    colors, batch = theme_of(theme), require_answer(answer).require_batch()
    place = _find_round(answer, batch, at)
    own = answer.tiles[["sample", "round"]].eq([*place]).all(axis=1)
    tiles = answer.tiles[own]
    shots = () if batch.images is None else batch.images[place[0]]
    index = int(tiles["picture"].iloc[0])
    if index >= len(shots):
        raise BatchError.build(
            key="answer",
            expected=f"one whose batch has screenshot {index} of sample {place[0]}",
            found=pluralize(len(shots), "screenshot"),
            advice="Load the batch with its pictures, and pass it:"
            " `rounddiag.load_answer(path, batch)`.",
        )
    shot = shots[index]
    less, more = (colorize("■", color) for color in colors.changes)
    ring = colorize("○", colors.mark)
    key = f"{less} less likely without the tile {more} more likely {ring} action"
    statements = [
        text for *place_of, text in answer.statements if (*place_of,) == place
    ]
    width, height = shot.size
    figure = new_figure(
        f"Where the model looked: {_shown(str(Address.of(batch, *place)))}",
        [*(wrap(_shown(text), _LINE) for text in statements), key],
        colors,
        plot=round(min(_WIDTH * height / width, _HIGHEST)),
        bottom=10,
    )
    data = b64encode(as_jpeg(shot.image(), _LARGEST)).decode()
    figure.add_layout_image(
        source=f"data:image/jpeg;base64,{data}",
        xref="x",
        yref="y",
        x=0,
        y=0,
        layer="below",
        sizex=width,
        sizey=height,
        sizing="stretch",
    )
    most = float(answer.tiles["drop"].abs().max())
    _add_tiles(figure, tiles, most, colors)
    figure.add_trace(_scale(tiles, most, colors))
    figure.add_trace(_action(batch, place, shot, colors))
    axis = {"visible": False, "constrain": "domain"}
    figure.update_xaxes(range=[0, width], **axis)
    figure.update_yaxes(range=[height, 0], scaleanchor="x", **axis)
    return figure


def _shown(text: str) -> str:
    """Escape text that names what a file holds; its spaces stay spaces."""
    return " ".join(map(hover_text, text.split()))


def _find_round(answer: AskedModel, batch: Batch, at: str | None) -> tuple[int, int]:
    """Return a round with tiles; an error that says why it has none."""
    known = zip(answer.tiles["sample"], answer.tiles["round"], strict=True)
    place = (None, None) if at is None else Address.parse(at).locate(batch)[:2]

    def is_there(*own: int) -> bool:
        pairs = zip(place, own, strict=True)
        return all(part in (None, number) for part, number in pairs)

    for own in known:
        if is_there(*own):
            return own
    statements = [text for *own, text in answer.statements if is_there(*own)]
    why = [text for text in statements if text.startswith("Sight was not")]
    raise BatchError.build(
        key="at",
        expected="a round with a map of sight" + (f" at {at}" if at else ""),
        found=why[0].rstrip(".") if why else "none",
        advice="Ask about it: `rounddiag.ask(batch, model, at=...)`.",
    )


def _add_tiles(
    figure: go.Figure, tiles: pd.DataFrame, most: float, theme: Theme
) -> None:
    """Add rectangles, and the numbers of large ones; a divided tile is a frame."""
    for row in tiles.to_dict("records"):
        share = row["drop"] / most if most > 0 else 0.0
        color = theme.changes[0 if share >= 0 else 1]
        opacity = 0 if row["is_divided"] else round(_COVER * abs(share), 3)
        is_large = abs(share) >= _LEGIBLE
        figure.add_shape(
            type="rect",
            fillcolor=with_opacity(color, opacity),
            line_color=color if is_large else theme.quiet,
            line_width=4 if row["is_divided"] else 1,
            **{edge: row[edge] for edge in ("x0", "y0", "x1", "y1")},
        )
        middle = (row["x0"] + row["x1"]) / 2, (row["y0"] + row["y1"]) / 2
        if is_large:
            figure.add_annotation(
                x=middle[0],
                y=row["y0"] if row["is_divided"] else middle[1],
                yshift=11 if row["is_divided"] else 0,
                text=with_minus(f"{row['drop']:.2g}"),
                showarrow=False,
                bgcolor=theme.paper,
            )


def _scale(tiles: pd.DataFrame, most: float, theme: Theme) -> go.Scatter:
    """Return points that are not seen, with the numbers and the scale of all rounds."""
    less, more = theme.changes
    strengths = [(more, _COVER), (more, 0), (less, 0), (less, _COVER)]
    colors = [with_opacity(color, opacity) for color, opacity in strengths]
    ticks = [-most, 0.0, most]
    bar = {
        "title": {"text": f"drop [{TILES['drop'].unit}]", "side": "right"},
        "thickness": 12,
        "tickvals": ticks,
        "ticktext": [with_minus(f"{value:.2g}") for value in ticks],
    }
    return go.Scatter(
        x=(tiles["x0"] + tiles["x1"]) / 2,
        y=(tiles["y0"] + tiles["y1"]) / 2,
        mode="markers",
        marker={
            "opacity": 0,
            "size": 24,
            "color": tiles["drop"],
            "colorbar": bar,
            "cmin": -most,
            "cmax": most,
            "showscale": most > 0,
            "colorscale": [*zip((0.0, 0.5, 0.5, 1.0), colors, strict=True)],
        },
        hovertemplate="%{marker.color:.3g} nat<extra></extra>",
        showlegend=False,
    )


def _action(
    batch: Batch, place: tuple[int, int], shot: Screenshot, theme: Theme
) -> go.Scatter:
    """Return a ring where each action of the round has its point."""
    points: list[tuple[float, float]] = []
    if batch.tokenizer is not None:
        frame = token_frame(batch[[place[0]]], ["text"])
        text = "".join(frame.loc[frame["round"] == place[1], "text"])
        seen = shot.seen_size or shot.size
        found = (action.on(shot.size, resized=seen) for action in parse_actions(text))
        points = [point for point in found if point is not None]
    ring = {"size": 22, "color": theme.mark, "line": {"width": 3}}
    return go.Scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode="markers",
        marker={"symbol": "circle-open", **ring},
        hovertemplate="x %{x:.0f}, y %{y:.0f}<extra>action</extra>",
        showlegend=False,
    )
