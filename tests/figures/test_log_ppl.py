"""Log-perplexities: a point a sample, first round beside later rounds."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
import torch

from rounddiag import plot_probabilities, token_frame
from rounddiag.figures._parts.labels import CROSS
from tests.batches import hand_batch, padded, random_log_probs
from tests.figures.plots import shapes, words

NAN = math.nan
plot_log_ppl = partial(plot_probabilities, axes="log_ppl")


def test_a_point_is_a_sample_and_can_be_clicked() -> None:
    first, later = plot_log_ppl(hand_batch()).data

    assert (first.xaxis, later.xaxis) == ("x", "x2")
    np.testing.assert_array_equal(first.x, [1.0, 1.0, 2.0])
    np.testing.assert_allclose(first.y, [0.875, 3.25 / 3, 3.0], rtol=1e-6)
    # sample, tokens, those left out, old, rollout, difference
    np.testing.assert_array_equal(first.customdata[2], [2, 1, 0, 3, 2, 1])
    assert later.customdata[:, 0].tolist() == [0, 1]


def test_samples_that_training_finds_more_surprising_have_another_colour() -> None:
    first, _ = plot_log_ppl(hand_batch()).data
    less_surprising, *more_surprising = first.marker.color
    assert more_surprising[0] == more_surprising[1] != less_surprising


def test_each_panel_says_how_many_and_how_far_apart() -> None:
    figure = plot_log_ppl(hand_batch())
    heads = [note.text for note in figure.layout.annotations if "<b>" in note.text]
    # Differences -0.125, 0.0833 and 1; -1 and -2.
    assert heads == [
        "<b>first round</b><br>3 samples<br>mean |difference| 0.403"
        "<br>Pearson r 0.9960",
        "<b>later rounds</b><br>2 samples<br>mean |difference| 1.5"
        "<br>Pearson r undefined",
    ]


def test_both_axes_have_the_same_range_with_the_line_on_which_engines_agree() -> None:
    figure = plot_log_ppl(hand_batch())
    layout = figure.layout
    assert layout.xaxis.range == layout.xaxis2.range == layout.yaxis.range
    low, high = layout.yaxis.range
    assert low < 0.875
    assert high > 3
    for line in shapes(figure):
        assert (line.x0, line.y0, line.x1, line.y1) == (low, low, high, high)
    assert [line.xref for line in shapes(figure)] == ["x", "x2"]


def test_the_axes_say_what_is_drawn_and_in_which_unit() -> None:
    layout = plot_log_ppl(hand_batch()).layout
    assert layout.yaxis.title.text == "log-perplexity by the training engine [nat]"
    x_title = "log-perplexity by the sampling engine [nat]"
    assert x_title in [note.text for note in layout.annotations]


def test_many_samples_are_an_image_with_the_worst_on_top() -> None:
    shape = (3000, 4)
    mask = torch.tensor([1, 1, 0, 1]).expand(shape)
    batch = padded(mask, random_log_probs(shape, 0), random_log_probs(shape, 1))
    figure = plot_log_ppl(batch)
    images = [trace for trace in figure.data if trace.type == "heatmap"]
    assert [np.nansum(image.z) for image in images] == [3000, 3000]
    points = [trace for trace in figure.data if trace.customdata is not None]
    assert [len(panel.x) for panel in points] == [30, 30]
    assert "points: up to 30 samples that differ most" in words(figure)


def test_a_sample_a_point_up_to_five_thousand_points_stays_small() -> None:
    shape = (2500, 4)
    mask = torch.tensor([1, 1, 0, 1]).expand(shape)
    batch = padded(mask, random_log_probs(shape, 0), random_log_probs(shape, 1))
    figure = plot_log_ppl(batch)
    assert [len(panel.x) for panel in figure.data] == [2500, 2500]
    assert len(json.dumps(json.loads(figure.to_json()))) < 500_000


def test_a_sample_without_a_finite_token_is_left_out_and_said() -> None:
    figure = plot_log_ppl(padded([[1], [1]], [[NAN], [-1.0]], [[-1.0], [-2.0]]))
    assert figure.data[0].customdata[:, 0].tolist() == [1]
    assert "left out: 1 sample without two finite values" in words(figure)


def test_a_batch_of_one_round_says_that_there_are_no_later_ones() -> None:
    figure = plot_log_ppl(padded([[1]], [[-1.0]], [[-1.0]]))
    assert "no later rounds" in [note.text for note in figure.layout.annotations]
    assert figure.data[0].x.tolist() == [1.0]
    low, high = figure.layout.xaxis.range
    assert low < 1 < high


@pytest.mark.parametrize(
    ("mask", "old", "why"),
    [
        ([[1]], [[NAN]], f"{CROSS} 1 sample, none with two finite values"),
    ],
)
def test_nothing_to_draw_is_said(mask: object, old: object, why: str) -> None:
    figure = plot_log_ppl(padded(mask, old, [[-1.0]]))
    assert why in words(figure)
    assert figure.data == ()


def test_a_column_gives_a_panel_for_each_of_its_values() -> None:
    batch = hand_batch(sample_columns={"status": np.array(["done", "late", "done"])})
    done, late = plot_log_ppl(batch, by="status").data
    assert done.customdata[:, 0].tolist() == [0, 2]
    np.testing.assert_allclose(done.x, [4 / 3, 2.0])
    assert late.x.tolist() == [1.5]
    tokens = token_frame(batch, ["rollout_log_prob", "old_log_prob", "status"])
    assert plot_log_ppl(tokens, by="status") == plot_log_ppl(batch, by="status")


def test_one_value_has_the_width_of_the_figure() -> None:
    batch = hand_batch(sample_columns={"rank": np.array([1, 1, 1])})
    figure = plot_log_ppl(batch, by="rank")
    assert figure.layout.xaxis.domain == (0, 1)
    assert len(figure.data) == 1


def test_layers_can_be_left_out() -> None:
    figure = plot_log_ppl(hand_batch(), layers={"points": False, "diagonal": False})
    assert shapes(figure) == []
    assert [note.text for note in figure.layout.annotations][-2:] == ["left out"] * 2
    assert "surprising" not in words(figure)
