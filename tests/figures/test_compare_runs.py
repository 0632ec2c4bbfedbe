"""Two runs: the means of their steps, and what differs in each step and round."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import rounddiag as rd
from rounddiag import plot_compare
from rounddiag.errors import FrameError
from rounddiag.runs import Run
from tests.figures.plots import captions
from tests.runs.step_folders import MEANS, write_steps

# Of all 8 tokens of a step: 6 in round 0, 2 in round 1.
MEAN = (6 * MEANS[0] + 2 * MEANS[1]) / 8


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Run, Run]:
    """Steps 1 to 3, and 2 to 4 of which 3 and 4 are three times as far apart."""
    before = write_steps(tmp_path / "before", {1: 1, 2: 1, 3: 1})
    after = write_steps(tmp_path / "after", {2: 1, 3: 3, 4: 3})
    return rd.open_run(before), rd.open_run(after)


def test_a_line_per_run_and_their_difference_by_step(pair: tuple[Run, Run]) -> None:
    figure = plot_compare(*pair)
    first, other, difference = figure.data[:3]
    assert first.x.tolist() == [1, 2, 3]
    assert first.y.tolist() == pytest.approx([MEAN] * 3)
    assert other.x.tolist() == [2, 3, 4]
    assert other.y.tolist() == pytest.approx([MEAN, 3 * MEAN, 3 * MEAN])
    assert (difference.x.tolist(), difference.yaxis) == ([2, 3], "y2")
    assert difference.y.tolist() == pytest.approx([0, 2 * MEAN])
    assert captions(figure)[1:] == [
        "● before: 3 steps",
        "◆ after: 3 steps",
        "difference: ◆ − ●, 2 steps of both",
    ]
    assert figure.layout.yaxis.title.text == "mean |old − rollout| log-prob [nat]"
    assert figure.layout.yaxis2.title.text == "difference [nat]"


def test_the_heatmap_has_the_difference_of_each_round(pair: tuple[Run, Run]) -> None:
    heat = next(one for one in plot_compare(*pair).data if one.type == "heatmap")
    assert heat.x.tolist() == [2, 3]
    expected = [[0, 2 * MEANS[0]], [0, 2 * MEANS[1]]]
    np.testing.assert_allclose(heat.z, expected, atol=1e-12)
    assert heat.zmin == -heat.zmax


def test_runs_are_named_and_panels_left_out(pair: tuple[Run, Run]) -> None:
    figure = plot_compare({"a": pair[0], "b": pair[1]}, layers={"heatmap": False})
    assert captions(figure)[1:3] == ["● a: 3 steps", "◆ b: 3 steps"]
    assert [one.type for one in figure.data] == ["scatter"] * 3
    bare = plot_compare(
        [pair[0], pair[0]], layers={"heatmap": False, "difference": False}
    )
    assert captions(bare)[1:3] == ["● run 0: 3 steps", "◆ run 1: 3 steps"]
    assert len(bare.data) == 2


def test_runs_without_a_step_of_both(pair: tuple[Run, Run], tmp_path: Path) -> None:
    later = rd.open_run(write_steps(tmp_path / "later", {7: 1}))
    figure = plot_compare(pair[0], later)
    assert captions(figure)[-1] == "difference: ◆ − ●, no step of both"
    assert not [one for one in figure.data if one.type == "heatmap"]


def test_anything_but_two_runs_is_an_error(pair: tuple[Run, Run]) -> None:
    message = "`runs`: expected two runs; found ['Run']"
    with pytest.raises(FrameError, match=re.escape(message)):
        plot_compare(pair[0])
    with pytest.raises(FrameError, match=re.escape("['Run', 'Batch']")):
        plot_compare([pair[0], pair[0].batch(1)])
    with pytest.raises(FrameError, match="`layers`: expected names out of"):
        plot_compare(*pair, layers={"ci": False})
