"""Whether a model looked: what its tokens lose without the picture, tile by tile.

The picture, or a tile of it, is shown in the mean colour of the picture: its grid, its
image tokens and all positions stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.proof.asked_round import AskedRound
from rounddiag.proof.engines.engine import Engine
from rounddiag.proof.trajectory import Request, Samples
from rounddiag.vision import Screenshot

Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right and lower edge, in pixels of the picture as it is drawn."""

_LONG, _SHORT = 4, 3  # tiles along the longer and the shorter side
NUM_PASSES = 2 + _LONG * _SHORT  # of a map that is not refined
_NOTHING = (0, 0, 0, 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class SightMap:
    """What the tokens of a round lose without their picture.

    Attributes
    ----------
    blind: Log-probs with the picture in its mean colour.
    noise: The largest difference of log-probs with equal pixels, computed as those of
        tiles are: the arithmetic of the engine.
    tiles: Each with its drop, a mean over the tokens that are aimed at; those of a
        refined tile last.
    is_whole: Whether no tile is missing.
    """

    blind: Array
    noise: float
    tiles: list[tuple[Box, float]]
    is_whole: bool


def tile_boxes(shot: Screenshot, num_tokens: int) -> list[Box]:
    """Return the tiles of a picture, along the borders of its image tokens.

    4 x 3 of them, 3 x 4 of a tall picture; fewer of one with fewer image tokens.
    """
    width, height = drawn_size(shot)
    side = (width * height / num_tokens) ** 0.5
    columns, rows = max(round(width / side), 1), max(round(height / side), 1)
    if columns * rows != num_tokens:  # not one grid: borders of pixels
        columns, rows = width, height
    across, down = (_LONG, _SHORT) if width >= height else (_SHORT, _LONG)
    x, y = _edges(width, columns, across), _edges(height, rows, down)
    return _boxes(x, y)


def drawn_size(shot: Screenshot) -> tuple[int, int]:
    """Return the size at which tiles of a picture are drawn."""
    return shot.seen_size or shot.size


def look_at(
    engine: Engine,
    asked: AskedRound,
    samples: Samples,
    seen: Array,
    aim: Array,
    *,
    may_go_on: Callable[[], bool],
    may_refine: Callable[[], bool],
    advance: Callable[[], object],
) -> SightMap:
    """Measure the sight of a round.

    Parameters
    ----------
    seen : array
        Log-probs of its tokens with all pictures.
    aim : bool array
        The tokens that drops of tiles are means of.
    may_go_on, may_refine : callable
        Whether one more tile may be scored; and one of a refinement.
    advance : callable
        Called after each pass.
    """

    def score(look: str) -> Array:
        request: Request = asked.request(samples, look)
        (values,) = engine.score([request], samples)
        advance()
        return values

    same, blind = score(_look(_NOTHING)), score("mean")
    noise = float(np.nanmax(np.abs(same - seen)))
    assert asked.shot is not None  # noqa: S101 of a round with a picture

    def drops(
        boxes: list[Box], has_time: Callable[[], bool]
    ) -> Iterator[tuple[Box, float]]:
        for box in boxes:
            if not has_time():
                return
            yield box, float(np.nanmean((same - score(_look(box)))[aim]))

    boxes = tile_boxes(asked.shot, asked.num_image_tokens)
    tiles = [*drops(boxes, may_go_on)]
    is_whole = len(tiles) == len(boxes)
    box, largest = max(tiles, key=lambda tile: tile[1], default=(_NOTHING, 0.0))
    if is_whole and largest > noise:
        tiles += drops(_split(box), may_refine)
    return SightMap(blind=blind, noise=noise, tiles=tiles, is_whole=is_whole)


def _look(box: Box) -> str:
    return "mean_" + "_".join(map(str, box))


def _edges(size: int, parts: int, number: int) -> list[int]:
    """Return the borders of tiles that are whole parts of a side."""
    inner = np.round(np.linspace(0, parts, min(number, parts) + 1))
    return np.round(inner * size / parts).astype(int).tolist()


def _boxes(x: list[int], y: list[int]) -> list[Box]:
    return [
        (left, top, right, lower)
        for top, lower in pairwise(y)
        for left, right in pairwise(x)
        if left < right and top < lower
    ]


def _split(box: Box) -> list[Box]:
    """Return the four quarters of a tile."""
    left, top, right, lower = box
    x, y = [left, (left + right) // 2, right], [top, (top + lower) // 2, lower]
    return _boxes(x, y)
