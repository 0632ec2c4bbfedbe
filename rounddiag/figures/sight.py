"""The figure of sight: a screenshot, and what the model loses without each tile."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.batch import Batch
from rounddiag.batch.address import Address
from rounddiag.core import token_frame
from rounddiag.core.asked import AskedModel
from rounddiag.errors import BatchError, FrameError
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

_LARGEST = (1600, 1600)  # pixels of the picture in the figure
_WIDTH, _HIGHEST = 640, 720  # pixels of the plot
_BESIDE = 70
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
        A round, such as `task-04/2 / r3`; by default the first one that has tiles.
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
    if not isinstance(answer, AskedModel):
        raise FrameError.build(
            expected="an Answer",
            found=f"a {type(answer).__name__}",
            advice="Pass what `rounddiag.ask(batch, model)` returns.",
        )
    colors, batch = theme_of(theme), answer.require_batch()
    sample, number = _find_round(answer, batch, at)
    tiles = answer.tiles.query("sample == @sample and round == @number")
    shot = (batch.images or ())[sample][int(tiles["picture"].iloc[0])]
    most = float(answer.tiles["drop"].abs().max())
    place = _shown(str(Address.of(batch, sample, number)))
    lines = [wrap(_shown(line), _LINE) for line in answer.sentences(sample, number)]
    width, height = shot.size
    shown = min(_WIDTH * height / width, _HIGHEST)
    figure = new_figure(
        f"Where the model looked: {place}",
        [*lines, *_key(colors)],
        colors,
        height=round(shown) + _BESIDE,
        bottom=10,
    )
    _add_picture(figure, shot)
    _add_tiles(figure, tiles, most, colors)
    _add_action(figure, batch, sample, number, shot, colors)
    axis = {"visible": False, "constrain": "domain"}
    figure.update_xaxes(range=[0, width], **axis)
    figure.update_yaxes(range=[height, 0], scaleanchor="x", **axis)
    return figure


def _shown(text: str) -> str:
    """Escape text that names what a file holds; its spaces stay spaces."""
    return " ".join(map(hover_text, text.split()))


def _find_round(answer: AskedModel, batch: Batch, at: str | None) -> tuple[int, int]:
    """Return a round with tiles; an error that says why it has none."""
    tiles, asked, wanted = answer.tiles, answer.rounds, "a round with a map of sight"
    if at is not None:
        place = Address.parse(at).locate(batch)[:2]
        wanted = f"a map of sight at {at}"
        tiles, asked = (
            frame[(frame["sample"] == place[0]) & (frame["round"] == place[1])]
            for frame in (tiles, asked)
        )
    if len(tiles):
        return int(tiles["sample"].iloc[0]), int(tiles["round"].iloc[0])
    reasons = [why for why in asked["no_sight"] if why]
    raise BatchError.build(
        key="at",
        expected=wanted,
        found=reasons[0] if reasons else "none",
        advice="Ask about it: `rounddiag.ask(batch, model, at=...)`.",
    )


def _key(theme: Theme) -> list[str]:
    less, more = (colorize("■", color) for color in theme.changes)
    action = colorize("○", theme.mark)
    return [f"{less} less likely without the tile {more} more likely {action} action"]


def _add_picture(figure: go.Figure, shot: Screenshot) -> None:
    data = b64encode(as_jpeg(shot.image(), _LARGEST)).decode()
    width, height = shot.size
    figure.add_layout_image(
        source=f"data:image/jpeg;base64,{data}",
        xref="x",
        yref="y",
        x=0,
        y=0,
        sizex=width,
        sizey=height,
        sizing="stretch",
        layer="below",
    )


def _add_tiles(
    figure: go.Figure, tiles: pd.DataFrame, most: float, theme: Theme
) -> None:
    """Add rectangles, their numbers, and points in their middles for the scale."""
    for row in tiles.to_dict("records"):
        share = row["drop"] / most if most > 0 else 0.0
        color = theme.changes[0 if share >= 0 else 1]
        is_divided = bool(_inside(tiles, row).sum() > 1)
        figure.add_shape(
            type="rect",
            x0=row["x0"],
            x1=row["x1"],
            y0=row["y0"],
            y1=row["y1"],
            fillcolor=with_opacity(
                color, 0.0 if is_divided else round(_COVER * abs(share), 3)
            ),
            line={
                "width": 4 if is_divided else 1,
                "color": color if abs(share) >= _LEGIBLE else theme.quiet,
            },
        )
        if abs(share) >= _LEGIBLE:
            figure.add_annotation(
                x=(row["x0"] + row["x1"]) / 2,
                y=row["y0"] if is_divided else (row["y0"] + row["y1"]) / 2,
                text=f"{row['drop']:.2g}",
                showarrow=False,
                yshift=11 if is_divided else 0,
                bgcolor=theme.paper,
                borderpad=1,
            )
    less, more = theme.changes
    scale = [
        [0.0, with_opacity(more, _COVER)],
        [0.5, with_opacity(less, 0.0)],
        [1.0, with_opacity(less, _COVER)],
    ]
    figure.add_scatter(
        x=(tiles["x0"] + tiles["x1"]) / 2,
        y=(tiles["y0"] + tiles["y1"]) / 2,
        mode="markers",
        marker={
            "opacity": 0,
            "size": 24,
            "color": tiles["drop"],
            "colorscale": scale,
            "cmin": -most,
            "cmax": most,
            "showscale": most > 0,
            "colorbar": {
                "title": {"text": f"drop [{TILES['drop'].unit}]", "side": "right"},
                "thickness": 12,
                "tickvals": [-most, 0, most],
                "ticktext": [f"{value:.2g}" for value in (-most, 0.0, most)],
            },
        },
        customdata=tiles["drop"],
        hovertemplate="%{customdata:.3g} nat<extra></extra>",
        showlegend=False,
    )


def _inside(tiles: pd.DataFrame, row: Mapping[Any, Any]) -> pd.Series[bool]:
    left, right = tiles["x0"] >= row["x0"], tiles["x1"] <= row["x1"]
    return left & right & (tiles["y0"] >= row["y0"]) & (tiles["y1"] <= row["y1"])


def _add_action(
    figure: go.Figure,
    batch: Batch,
    sample: int,
    number: int,
    shot: Screenshot,
    theme: Theme,
) -> None:
    """Add a ring where the actions of the round have a point."""
    if batch.tokenizer is None:
        return
    frame = token_frame(batch[[sample]], ["text"])
    text = "".join(frame.loc[frame["round"] == number, "text"])
    size, seen = shot.size, shot.seen_size or shot.size
    points = [action.on(size, resized=seen) for action in parse_actions(text)]
    known = np.array([point for point in points if point is not None]).reshape(-1, 2)
    figure.add_scatter(
        x=known[:, 0],
        y=known[:, 1],
        mode="markers",
        marker={
            "symbol": "circle-open",
            "size": 22,
            "color": theme.mark,
            "line": {"width": 3},
        },
        hovertemplate="x %{x:.0f}, y %{y:.0f}<extra>action</extra>",
        showlegend=False,
    )
