"""The trajectory shows every token of one sample; long ones keep their extremes."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rounddiag import plot_trajectory, token_frame
from rounddiag.errors import FrameError
from tests.batches import hand_batch, padded
from tests.figures.plots import shapes, words

NAN, INF = math.nan, math.inf
# Traces, in the order in which they are drawn.
MORE, LESS, CROSSES, ROLLOUT, OLD, WORDS = range(6)


def test_stems_are_the_diffs_by_sign_side_by_side() -> None:
    traces = plot_trajectory(hand_batch(), sample=1).data
    # diffs 0, 0.25, -0.5 in round 0, a gap of one, then 2 in round 1
    np.testing.assert_array_equal(traces[MORE].x, [1, 1, 1, 4, 4, 4])
    np.testing.assert_array_equal(traces[MORE].y, [0, 0.25, NAN, 0, 2, NAN])
    np.testing.assert_array_equal(traces[LESS].x, [2, 2, 2])
    np.testing.assert_array_equal(traces[LESS].y, [0, -0.5, NAN])
    assert traces[MORE].line.color != traces[LESS].line.color


def test_both_log_probs_break_between_rounds_and_show_a_lone_token() -> None:
    traces = plot_trajectory(hand_batch(), sample=0).data
    x = np.array([-0.4, 0, 1, 1.4, NAN, 2.6, 3, 3.4, NAN], dtype=np.float32)
    np.testing.assert_array_equal(traces[OLD].x, x)
    old = [-0.5, -0.5, -1.25, -1.25, NAN, -1, -1, -1, NAN]
    np.testing.assert_array_equal(traces[OLD].y, old)
    rollout = [-1, -1, -1, -1, NAN, -2, -2, -2, NAN]
    np.testing.assert_array_equal(traces[ROLLOUT].y, rollout)
    assert traces[OLD].yaxis == traces[ROLLOUT].yaxis == "y2"


def test_axes_and_ticks_tell_round_and_real_position() -> None:
    figure = plot_trajectory(hand_batch(), sample=1)
    layout = figure.layout
    assert layout.xaxis.title.text == "round, and position in the response"
    assert layout.yaxis.title.text == "old − rollout log-prob [nat]"
    assert layout.xaxis.tickvals == (0, 4)
    assert layout.xaxis.ticktext == ("<b>0</b><br>1", "<b>1</b><br>5")
    assert [note.text for note in layout.annotations] == ["<b>round</b><br>position"]
    bands = [(band.x0, band.x1) for band in shapes(figure)]
    assert bands == [(-0.5, 2.5), (3.5, 4.5)]


def test_hovering_a_token_gives_its_numbers() -> None:
    words = plot_trajectory(hand_batch(), sample=1).data[WORDS]
    # diff, old, rollout, round, token, position
    np.testing.assert_array_equal(words.customdata[2], [-0.5, -1.5, -1, 0, 2, 3])
    np.testing.assert_array_equal(words.y, [0, 0.25, -0.5, 2])


def test_hostile_text_is_shown_and_not_obeyed() -> None:
    hostile = ["", "<b>x</b>", "<script>alert(1)</script>", '<a href="j">', "", "\n "]
    batch = hand_batch(tokenizer=lambda ids: "".join(hostile[i % 6] for i in ids))
    assert plot_trajectory(batch, sample=1).data[WORDS].text == (
        "&lt;b&gt;x&lt;/b&gt;",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        '&lt;a·href="j"&gt;',
        "↵·",
    )


def test_a_diff_that_is_not_finite_is_a_cross_and_not_a_stem() -> None:
    batch = padded([[1] * 4], [[NAN, -INF, INF, -1.0]], [[-1.0, -1, -1, -1.5]])
    figure = plot_trajectory(batch, sample=0)
    assert list(figure.data[CROSSES].x) == [0, 1, 2]
    np.testing.assert_array_equal(figure.data[MORE].y, [0, 0.5, NAN])
    assert len(figure.data[LESS].y) == 0
    assert "3 tokens whose diff is not finite" in words(figure)
    np.testing.assert_array_equal(figure.data[WORDS].y, [0, 0, 0, 0.5])
    np.testing.assert_array_equal(figure.data[WORDS].customdata[1][:2], [-INF, -INF])


def test_a_long_sample_is_thinned_keeps_its_extremes_and_says_so() -> None:
    num = 30_000
    diff = np.zeros(num, dtype=np.float32)
    diff[[12_001, 12_002]] = 3, -4
    diff[12_003] = NAN
    figure = plot_trajectory(trajectory(diff, np.arange(num) // 10_000), sample=0)
    shown = figure.data[WORDS]
    drawn = shown.customdata[:, 5]
    assert {0, 9999, 10_000, 12_001, 12_002, 12_003, 19_999, num - 1} <= set(drawn)
    assert len(drawn) < 4_000
    share = f"drawn: {len(drawn):,} of 30,000 tokens, extremes of diff kept"
    assert share in words(figure)
    np.testing.assert_array_equal(shown.customdata[drawn == 12_001, 0], [3])


def test_a_sample_of_4000_tokens_is_drawn_whole() -> None:
    diff = np.ones(4_000, dtype=np.float32)
    figure = plot_trajectory(trajectory(diff, 0 * np.arange(len(diff))), sample=0)
    assert len(figure.data[WORDS].x) == 4_000
    assert "drawn" not in words(figure)


def test_of_many_rounds_only_as_many_are_labelled_as_fit() -> None:
    rounds = np.arange(60)
    figure = plot_trajectory(trajectory(0.1 * rounds, rounds), sample=0)
    layout = figure.layout
    assert len(shapes(figure)) == 60
    width_of_a_label = 300 / 118 * np.diff(layout.xaxis.tickvals).min()
    assert width_of_a_label >= 20  # pixels, in a figure of 400
    assert layout.xaxis.ticktext[0] == "<b>0</b><br>0"


def test_a_short_round_has_its_number_where_its_position_does_not_fit() -> None:
    rounds = np.repeat([0, 1, 2], [100, 12, 100])
    layout = plot_trajectory(trajectory(0.1 * rounds, rounds), sample=0).layout
    assert layout.meta["rounds"] == [0, 1, 2]
    assert layout.xaxis.ticktext == ("<b>0</b><br>0", "<b>1</b><br>100", "<b>2</b>")


def test_a_frame_of_tokens_is_drawn_too_without_text() -> None:
    columns = ["position", "old_log_prob", "rollout_log_prob"]
    figure = plot_trajectory(token_frame(hand_batch(), columns), sample=1)
    whole = plot_trajectory(hand_batch(), sample=1)
    np.testing.assert_array_equal(figure.data[MORE].y, whole.data[MORE].y)
    assert figure.data[WORDS].text is None
    assert "%{text}" not in figure.data[WORDS].hovertemplate


def test_a_sample_may_be_a_number_of_a_frame() -> None:
    figure = plot_trajectory(hand_batch(), sample=np.int64(1))  # type: ignore[arg-type]
    assert figure == plot_trajectory(hand_batch(), sample=1)


@pytest.mark.parametrize("sample", [3, -1, 1.0, True, None])
def test_an_unknown_sample_is_refused_with_the_range(sample: Any) -> None:
    message = (
        f"`sample`: expected a sample from 0 to 2; found {sample!r}."
        " Count samples from 0, as in `rounddiag.sample_frame(batch)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_trajectory(hand_batch(), sample=sample)


def test_a_batch_without_samples_is_refused() -> None:
    message = (
        "`sample`: expected a batch with samples; found none."
        " Count samples from 0, as in `rounddiag.sample_frame(batch)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot_trajectory(hand_batch().where([False] * 3), sample=0)


def trajectory(diff: np.ndarray, rounds: np.ndarray) -> pd.DataFrame:
    """A token frame of one sample, in which a token's position is its row."""
    place = np.arange(len(diff))
    log_probs = {"rollout_log_prob": 0 * diff, "old_log_prob": diff}
    keys = {"sample": 0, "round": rounds, "token": place}
    return pd.DataFrame({**keys, "diff": diff, "position": place, **log_probs})


def test_the_layout_says_where_each_round_begins() -> None:
    layout = plot_trajectory(hand_batch(), sample=1).layout
    assert layout.meta == {"rounds": [0, 1], "starts": [0, 4]}


def test_the_lower_panel_can_be_left_out() -> None:
    upper = plot_trajectory(hand_batch(), sample=1, layers={"log_probs": False})
    assert [trace.yaxis for trace in upper.data] == [None, None, None, "y"]
    assert upper.layout.yaxis.domain == (0, 1)
    assert upper.layout.xaxis.anchor == "y"


def test_a_frame_without_log_probs_has_the_upper_panel() -> None:
    tokens = token_frame(hand_batch(), ["position"])
    words = plot_trajectory(tokens, sample=1, layers={"log_probs": False}).data[-1]
    # diff, round, token, position
    np.testing.assert_array_equal(words.customdata[2], [-0.5, 0, 2, 3])
    assert words.hovertemplate == (
        "diff %{customdata[0]:.3~g} nat<br>round %{customdata[1]}, token"
        " %{customdata[2]}, position %{customdata[3]}<extra></extra>"
    )


def test_a_sample_without_a_finite_value_says_so() -> None:
    batch = padded([[1, 0, 1]], [[NAN] * 3], [[-1.0, 0, -1.5]])
    figure = plot_trajectory(batch, sample=0)
    text = re.sub("<[^>]*>", " ", words(figure))
    assert "log-prob by the training engine: none is finite" in text
    assert "2 tokens whose diff is not finite" in text
    assert figure.data[CROSSES].x.tolist() == [0, 2]


def test_gaps_of_many_rounds_leave_most_of_the_width_to_tokens() -> None:
    rounds = np.repeat(np.arange(100), 100)
    figure = plot_trajectory(trajectory(0.1 * rounds, rounds), sample=0)
    first, last = figure.layout.xaxis.range
    assert last - first < 1.6 * len(rounds)
