"""The figure of sight: tiles over the screenshot, one scale, and the action."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rounddiag as rd
from rounddiag.errors import BatchError, FrameError
from rounddiag.figures._parts.canvas import LIGHT
from rounddiag.proof import Answer
from rounddiag.proof.alternatives import as_frame
from rounddiag.proof.answer import TABLES
from tests.figures.plots import words

SAMPLE_DATA = Path(__file__).parents[2] / "sample_data"


@pytest.fixture(scope="module")
def answer() -> Answer:
    """An answer by hand about two rounds, the second without sight."""
    batch = rd.load(SAMPLE_DATA / "healthy.parquet")[18:19]
    keys: dict[str, Any] = {"sample": 0, "round": 3}
    tiles = {
        "x0": [0, 224, 224, 336],
        "y0": [0, 0, 0, 0],
        "x1": [224, 448, 336, 448],
        "y1": [336, 336, 336, 336],
        "drop": [-0.5, 2.0, 1e-5, 1.5],
        "is_divided": [False, True, False, False],
    }
    frames: dict[str, Any] = {n: as_frame(table, {}) for n, table in TABLES.items()}
    frames["tiles"] = as_frame(TABLES["tiles"], {**keys, **tiles, "picture": 3})
    statements = ((0, 3, "It looked."), (0, 0, "Sight was not measured: no picture."))
    return Answer(
        **frames,
        statements=statements,
        asked=(),
        model="a model",
        seconds=1.0,
        batch=batch,
    )


def fills(figure: Any) -> list[str]:
    return [shape.fillcolor for shape in figure.layout.shapes if shape.fillcolor]


def test_a_tile_is_as_strong_as_its_drop_and_zero_is_clear(answer: Answer) -> None:
    figure = rd.plot_sight(answer, theme="light")
    opacity = [float(fill.rsplit(",", 1)[1].rstrip(")")) for fill in fills(figure)]
    # A gain, the tile that is divided, and its parts.
    assert opacity == pytest.approx([0.8 * 0.25, 0.0, 0.0, 0.8 * 0.75])
    first, *others = fills(figure)
    less, more = LIGHT.changes
    assert first.startswith(f"rgba({int(more[1:3], 16)}")
    assert all(each.startswith(f"rgba({int(less[1:3], 16)}") for each in others)
    assert [note.text for note in figure.layout.annotations] == ["−0.5", "2", "1.5"]
    (scale, action) = figure.data
    assert (scale.marker.cmin, scale.marker.cmax) == (-2.0, 2.0)
    assert scale.marker.colorbar.ticktext == ("−2", "0", "2")
    assert (action.x[0], action.y[0]) == pytest.approx((400, 169), abs=40)
    picture = figure.layout.images[0]
    assert (picture.sizex, picture.sizey) == (448, 336)
    assert "It looked." in words(figure)


def test_all_rounds_have_one_scale(answer: Answer) -> None:
    more = pd.concat([answer.tiles, answer.tiles.assign(round=0, drop=8.0)])
    figure = rd.plot_sight(replace(answer, tiles=more), at="task-04/2 / r3")
    assert figure.data[0].marker.cmax == 8.0


def test_a_sample_has_its_first_map(answer: Answer) -> None:
    figure = rd.plot_sight(answer, at="task-04/2")
    assert figure == rd.plot_sight(answer, at="task-04/2 / r3")
    for at in ("", 0):
        with pytest.raises(BatchError, match="expected a place such as"):
            rd.plot_sight(answer, at=at)  # type: ignore[arg-type]


def test_what_has_no_map_is_an_error_that_says_why(answer: Answer) -> None:
    with pytest.raises(BatchError, match="found Sight was not measured: no picture"):
        rd.plot_sight(answer, at="task-04/2 / r0")
    with pytest.raises(BatchError, match="found none"):
        rd.plot_sight(answer, at="task-04/2 / r1")
    with pytest.raises(BatchError, match="expected an answer with its batch"):
        rd.plot_sight(replace(answer, batch=None))
    with pytest.raises(FrameError, match="found a str"):
        rd.plot_sight("answer")  # type: ignore[arg-type]
    batch = answer.require_batch()
    for images in (None, ((),)):
        bare = replace(answer, batch=replace(batch, images=images))
        with pytest.raises(BatchError, match="found 0 screenshots"):
            rd.plot_sight(bare)
