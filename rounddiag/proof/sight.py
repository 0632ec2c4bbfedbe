"""Whether a model looked: what a round loses without its last picture, tile by tile.

The picture, or a tile of it, is shown in the mean colour of the picture: its grid, its
image tokens and all positions stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.proof.engines.pictures import COLOURS
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.trajectory import Request, Samples, Trajectory, cut_request

Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right and lower edge, in pixels of the picture as it is drawn."""

_LONG, _SHORT = 4, 3  # tiles along the longer and the shorter side
NUM_PASSES = 2 + _LONG * _SHORT  # of a map that is not refined
_NO_TILE = (0, 0, 0, 0)
_EMPTY = {"pad", "zeros", *COLOURS}  # looks that show nothing


@dataclass(frozen=True, eq=False)
class AskedRound:
    """A round in the context of its chain, from `begin` to `stop` of the trajectory.

    `index` and `picture` are the number of the last picture before it, in the
    trajectory and among those of the sample; -1 without one.
    """

    sample: int
    round: int
    trajectory: Trajectory
    begin: int
    stop: int
    index: int
    picture: int

    @classmethod
    def find(cls, samples: Samples, sample: int, number: int) -> AskedRound:
        """Find a round of the batch among the chains of its sample."""
        split = samples.chains
        mine = {each: split.chains[each] for each in split.of_sample(sample)}
        each = next(at for at, chain in mine.items() if number in chain.rounds)
        whole, chain = samples[each], mine[each]
        begin, stop = whole.rounds[number - chain.rounds.start]
        index = sum(first < begin for first, _ in whole.spans) - 1
        picture = chain.shown[index] if index >= 0 else index
        return cls(sample, number, whole, begin, stop, index, picture)

    def requests(
        self, samples: Samples, hypothesis: Hypothesis | None = None
    ) -> list[Request]:
        """Return the passes that score it, of a hypothesis where it has a place."""
        edit = None if hypothesis is None else hypothesis.edit
        edits = edit and edit(self.trajectory, samples)
        edits = edits or Request.of_sample(self.trajectory)
        every = [edits] if isinstance(edits, Request) else edits
        mine = (request.score_only(self.begin, self.stop) for request in every)
        cut = (cut_request(request, samples) for request in mine)
        return [request for request in cut if request is not None]

    def shows(self, requests: Sequence[Request]) -> bool:
        """Return whether a pass has what its last picture shows."""
        own = self.trajectory.sample, self.index
        return any(
            (each.sample, each.index) == own and each.look not in _EMPTY
            for request in requests
            for each in request.pictures
        )


def tile_boxes(size: tuple[int, int], num_tokens: int) -> list[Box]:
    """Return the tiles of a picture, along the borders of its image tokens.

    4 x 3 of them, 3 x 4 of a tall picture; fewer of one with fewer image tokens.
    """
    width, height = size
    side = (width * height / num_tokens) ** 0.5
    columns, rows = max(round(width / side), 1), max(round(height / side), 1)
    if columns * rows != num_tokens:  # not one grid: borders of pixels
        columns, rows = width, height
    across, down = (_LONG, _SHORT) if width >= height else (_SHORT, _LONG)
    return _boxes(_edges(width, columns, across), _edges(height, rows, down))


def look_at(
    engine: Any,  # noqa: ANN401 one that scores
    asked: AskedRound,
    samples: Samples,
    seen: Array,
    aim: Array,
    *,
    has_time: Callable[[bool], bool],
    advance: Callable[[], object],
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return columns of `SIGHT` and `TILES`, and how many tiles the picture has.

    `seen` are the log-probs with all pictures; `aim` the tokens that drops of tiles are
    means of; `has_time` says whether one more tile may be scored, with True one of a
    refinement. The noise is by how much a token differs with equal pixels, computed as
    those of tiles are. Quarters of a divided tile are last.
    """
    shot = asked.trajectory.shots[asked.index]
    drawn = shot.seen_size or shot.size  # at which tiles are painted
    (plain,) = asked.requests(samples)
    start, stop = asked.trajectory.spans[asked.index]

    def score(look: str) -> Array:
        shown = list(plain.pictures)
        shown[asked.index] = replace(shown[asked.index], look=look)
        (values,) = engine.score([replace(plain, pictures=tuple(shown))], samples)
        advance()
        return values

    def drops(boxes: list[Box], *, refines: bool) -> Iterator[tuple[Box, float]]:
        for box in boxes:
            if not has_time(refines):
                return
            yield box, float(np.nanmean((same - score(_look(box)))[aim]))

    same, blind = score(_look(_NO_TILE)), score("mean")
    noise = np.abs(same - seen)
    boxes = tile_boxes(drawn, stop - start)
    tiles = [*drops(boxes, refines=False)]
    box, largest = max(tiles, key=lambda tile: tile[1], default=(_NO_TILE, 0.0))
    if len(tiles) == len(boxes) and largest > np.nanmax(noise):
        left, top, right, lower = box
        x, y = [left, (left + right) // 2, right], [top, (top + lower) // 2, lower]
        tiles += drops(_boxes(x, y), refines=True)
    scale = np.divide(shot.size * 2, drawn * 2)
    edges = (np.array([each for each, _ in tiles]).reshape(-1, 4) * scale).round()
    sight = {"log_prob_blind": blind, "drop": seen - blind, "noise": noise}
    columns = {
        **dict(zip(("x0", "y0", "x1", "y1"), edges.T, strict=True)),
        "drop": [drop for _, drop in tiles],
        "is_divided": [each == box and len(tiles) > len(boxes) for each, _ in tiles],
    }
    return sight, columns, len(boxes)


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
