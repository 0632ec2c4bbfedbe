"""Both engines' probabilities: counted in an image, the worst tokens as points."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from plotly.colors import hex_to_rgb, unlabel_rgb

from rounddiag import Batch, plot_probabilities, token_frame
from rounddiag.errors import FrameError
from rounddiag.figures._parts.canvas import plot_height
from rounddiag.figures._parts.labels import CROSS
from tests.batches import hand_batch, padded, random_log_probs
from tests.figures.plots import words

NAN, INF = math.nan, math.inf
PAIR = ["rollout_log_prob", "old_log_prob"]


def images(figure: go.Figure) -> list[go.Heatmap]:
    return [trace for trace in figure.data if trace.type == "heatmap"]


def marks(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.customdata is not None]


def heads(figure: go.Figure) -> list[str]:
    """What is written over the panels, without the tags."""
    texts = [note.text for note in figure.layout.annotations if "<b>" in note.text]
    return [re.sub("<[^>]*>", "", head.replace("<br>", " | ")) for head in texts]


def test_every_token_is_counted_in_the_bin_of_its_probabilities() -> None:
    half, most = math.log(30.5 / 60), math.log(54.5 / 60)
    old, rollout = [[half, half, 0, most]], [[most, most, 0, half]]
    first, later = images(plot_probabilities(padded([[1, 1, 0, 1]], old, rollout)))

    assert (first.xaxis, later.xaxis) == ("x", "x2")
    assert first.z[30, 54] == 2
    assert later.z[54, 30] == 1
    assert np.nansum(first.z) == 2
    assert np.nansum(later.z) == 1
    assert first.x[54] == pytest.approx(54.5 / 60)


def test_each_panel_says_how_many_and_how_far_apart() -> None:
    # Round 0: 0.5, -0.25 | 0, 0.25, -0.5 | -1; round 1: 1 | 2.
    assert heads(plot_probabilities(hand_batch(), axes="log_prob")) == [
        "first round | 6 tokens | mean |difference| 0.417 | Pearson r 0.9177",
        "later rounds | 2 tokens | mean |difference| 1.5 | Pearson r undefined",
    ]


def test_the_worst_tokens_can_be_clicked_the_worst_first() -> None:
    first, later = marks(plot_probabilities(hand_batch(), axes="log_prob"))

    # sample, round, token, old, rollout, difference; one token is the same to both.
    worst = [[2, 0, 0, -3, -2, -1], [0, 0, 0, -0.5, -1, 0.5], [1, 0, 2, -1.5, -1, -0.5]]
    np.testing.assert_array_equal(first.customdata[:3], worst)
    assert len(first.x) == 5
    assert (first.x[0], first.y[0]) == (-2, -3)
    assert later.customdata[:, :3].tolist() == [[1, 1, 0], [0, 1, 0]]
    assert first.marker.color[0] != first.marker.color[1] == later.marker.color[0]


def test_of_many_tokens_thirty_of_each_panel_are_points() -> None:
    batch = random_batch(4, 500)

    assert [len(panel.x) for panel in marks(plot_probabilities(batch))] == [30, 30]


def test_hostile_text_is_shown_and_not_obeyed() -> None:
    hostile = ["<b>x</b>", "<script>alert(1)</script>", "", '<a href="j">', "é", "\n"]
    batch = hand_batch(tokenizer=lambda ids: "".join(hostile[i % 6] for i in ids))
    first, later = marks(plot_probabilities(batch, axes="log_prob"))

    assert list(later.text) == ["↵", '&lt;a·href="j"&gt;']
    assert first.text[1] == "&lt;b&gt;x&lt;/b&gt;"
    assert later.hovertemplate.startswith("<b>%{text}</b>")


def test_a_token_s_text_is_the_one_of_its_trajectory() -> None:
    batch = random_batch(
        2, 40, tokenizer=lambda ids: "".join(chr(0x61 + i % 26) for i in ids)
    )
    tokens = token_frame(batch, ["text"]).set_index(["sample", "round", "token"])
    for panel in marks(plot_probabilities(batch)):
        keys = map(tuple, panel.customdata[:, :3].astype(int).tolist())
        assert list(panel.text) == [tokens.loc[key, "text"] for key in keys]


def test_a_frame_gives_the_figure_of_its_batch_but_for_the_text() -> None:
    batch = hand_batch()
    figure = plot_probabilities(token_frame(batch, PAIR))
    assert all(panel.text is None for panel in marks(figure))
    assert plot_probabilities(token_frame(batch, [*PAIR, "text"])) == (
        plot_probabilities(batch)
    )


def test_a_log_prob_beyond_the_axis_is_drawn_at_its_edge() -> None:
    figure = plot_probabilities(
        padded([[1, 1]], [[-1e9, -1.0]], [[-1.0, -1.0]]), axes="log_prob"
    )
    assert "1 token beyond the axes, drawn at their edge" in words(figure)
    assert marks(figure)[0].y.tolist() == [-20.0]
    assert marks(figure)[0].customdata[0, 3] == -1e9


def test_what_is_not_finite_is_left_out_and_said() -> None:
    old, rollout = [[NAN, -INF, -1.0]], [[-1.0, -1.0, -1.0]]
    batch = padded([[1, 1, 1]], old, rollout)
    title = words(plot_probabilities(batch, axes="log_prob"))
    assert "left out: 2 tokens without two finite values" in title
    # Of probability 0 there is nothing undefined.
    title = words(plot_probabilities(batch))
    assert "left out: 1 token without two finite values" in title


def test_a_batch_of_one_round_says_that_there_are_no_later_ones() -> None:
    figure = plot_probabilities(padded([[1, 1]], [[-1.0, -2.0]], [[-1.5, -2.0]]))
    assert len(images(figure)) == 1
    assert "no later rounds" in [note.text for note in figure.layout.annotations]
    assert heads(figure)[1] == "later rounds | 0 tokens"


def test_engines_that_agree_have_an_image_and_no_points() -> None:
    figure = plot_probabilities(padded([[1, 1]], [[-1.0, -2.0]], [[-1.0, -2.0]]))
    assert np.nansum(images(figure)[0].z) == 2
    assert [len(panel.x) for panel in marks(figure)] == [0, 0]


def test_a_lone_token_looks_like_few_and_not_like_many() -> None:
    image = images(plot_probabilities(padded([[1]], [[-1.0]], [[-1.0]])))[0]
    assert (image.zmin, image.zmax) == (1, 10)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_lone_token_stands_out_from_the_paper(theme: str) -> None:
    figure = plot_probabilities(hand_batch(), theme=theme)  # type: ignore[arg-type]
    paper = hex_to_rgb(figure.layout.template.layout.paper_bgcolor)
    few = unlabel_rgb(images(figure)[0].colorscale[0][1])
    lights = sorted(luminance(color) for color in (paper, few))
    assert (lights[1] + 0.05) / (lights[0] + 0.05) > 2.5


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("mask", "old", "why"),
    [
        ([[1]], [[NAN]], f"{CROSS} 1 token, none with two finite values"),
    ],
)
def test_nothing_to_draw_is_said(
    mask: object, old: object, why: str, theme: str
) -> None:
    figure = plot_probabilities(padded(mask, old, [[-1.0]]), theme=theme)  # type: ignore[arg-type]
    assert why in words(figure)
    assert figure.data == ()


@pytest.mark.parametrize("axes", ["probability", "log_prob"])
def test_however_many_tokens_the_figure_stays_small(axes: str) -> None:
    figure = plot_probabilities(random_batch(64, 2000), axes=axes)  # type: ignore[arg-type]
    assert len(json.dumps(json.loads(figure.to_json()))) < 300_000


def test_unknown_axes_are_refused() -> None:
    message = (
        "`axes`: expected one of ['probability', 'log_prob']; found 'prob'."
        " Did you mean 'log_prob'?"
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_probabilities(hand_batch(), axes="prob")  # type: ignore[arg-type]


def luminance(color: tuple[float, float, float]) -> float:
    """How light a colour looks, from 0 to 1 (WCAG 2, with a power of 2.2)."""
    return float(np.dot([0.2126, 0.7152, 0.0722], (np.array(color) / 255) ** 2.2))


def random_batch(num_samples: int, width: int, **others: object) -> Batch:
    """Samples of rounds of 9 tokens, on which the engines differ at random."""
    shape = num_samples, width
    mask = (torch.arange(width) % 10 < 9).expand(shape)
    return padded(
        mask, random_log_probs(shape, 0), random_log_probs(shape, 1), **others
    )


def test_a_column_gives_a_panel_for_each_of_its_values() -> None:
    columns = {"rank": np.array([7, 3, 5])}
    batch = hand_batch(sample_columns=columns)
    figure = plot_probabilities(batch, axes="log_prob", by="rank")
    assert heads(figure) == [
        "rank 3 | 4 tokens | mean |difference| 0.688 | Pearson r -0.1325",
        "rank 5 | 1 token | mean |difference| 1 | Pearson r undefined",
        "rank 7 | 3 tokens | mean |difference| 0.583 | Pearson r 0.1890",
    ]
    places = [(panel.xaxis, panel.yaxis) for panel in images(figure)]
    assert places == [("x", "y"), ("x2", "y"), ("x3", "y2")]
    assert [panel.customdata[:, 0].tolist() for panel in marks(figure)] == [
        [1, 1, 1],
        [2],
        [0, 0, 0],
    ]
    tokens = token_frame(batch, [*PAIR, "text", "rank"])
    assert plot_probabilities(tokens, axes="log_prob", by="rank") == figure


def test_rows_of_panels_do_not_overlap() -> None:
    columns = {"rank": np.array([7, 3, 5])}
    figure = plot_probabilities(hand_batch(sample_columns=columns), by="rank")
    layout, plot = figure.layout, plot_height(figure)
    (low, high), (lower, middle) = layout.yaxis.domain, layout.yaxis2.domain
    assert lower == 0
    assert (1 - high) * plot == pytest.approx(60)
    # Ticks of the upper row and heads of the lower one are between, in pixels.
    assert (low - middle) * plot == pytest.approx(26 + 5 + 60)
    assert layout.yaxis2.range == layout.yaxis.range
    assert layout.xaxis3.domain == layout.xaxis.domain


def test_no_tokens_have_no_values_to_make_panels_of() -> None:
    batch = hand_batch(sample_columns={"rank": np.arange(3)})[:0]
    title = words(plot_probabilities(batch, by="rank"))
    assert "no generated tokens: the response mask is 0" in title
