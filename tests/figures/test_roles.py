"""A forest plot of means by role, the largest mean on top."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rounddiag import load, plot_roles
from rounddiag.errors import BatchError
from rounddiag.stats import role_means
from tests.batches import hand_batch
from tests.figures.means import means_of
from tests.figures.plots import words

NAN = math.nan


def means(**columns: list[Any]) -> pd.DataFrame:
    keys: dict[str, list[Any]] = {
        "role": ["thought", "action", "syntax", "first of a round"],
        "overlaps": [False, False, False, True],
    }
    return means_of(keys, columns)


def test_rows_are_sorted_and_the_largest_mean_is_on_top() -> None:
    figure = plot_roles(means(mean=[0.02, 0.5, NAN, 0.1]))
    assert figure.layout.yaxis.ticktext == (
        *("syntax", "thought", "◆ first of a round", "action"),
    )
    points, crosses = figure.data
    assert points.x.tolist() == pytest.approx([NAN, 0.02, 0.1, 0.5], nan_ok=True)
    assert list(crosses.y) == [0]


def test_intervals_and_counts_are_those_of_the_frame() -> None:
    frame = means(
        mean=[0.01, 0.02],
        ci_low=[0.008, 0.01],
        ci_high=[0.015, 0.05],
        num_tokens=[12345, 4],
    )
    figure = plot_roles(frame)
    points = figure.data[0]
    assert points.error_x.array == pytest.approx([0.005, 0.03])
    assert points.error_x.arrayminus == pytest.approx([0.002, 0.01])
    texts = [note.text for note in figure.layout.annotations]
    assert texts == ["12,345", "4", "tokens"]


def test_what_overlaps_is_a_diamond_and_said() -> None:
    figure = plot_roles(means(mean=[0.01, 0.02, 0.03, 0.04]))
    assert list(figure.data[0].marker.symbol) == ["circle"] * 3 + ["diamond"]
    assert "◆ counted in other roles as well" in words(figure)
    assert "◆" not in words(plot_roles(means(mean=[0.01])))


def test_the_axis_says_what_is_drawn_and_in_which_unit() -> None:
    axis = plot_roles(means(mean=[0.01])).layout.xaxis
    assert axis.title.text == "mean |old − rollout| log-prob [nat]"
    assert axis.type == "log"


def test_what_is_left_out_is_not_counted_twice() -> None:
    figure = plot_roles(means(num_nonfinite=[3, 0, 2, 5]))
    assert "left out: 5 tokens whose diff is not finite" in words(figure)


def test_means_of_zero_are_on_the_logarithmic_axis() -> None:
    figure = plot_roles(means(mean=[0.0, 0.5], ci_low=[NAN] * 2))
    low, _ = figure.layout.xaxis.range
    assert (np.log10(figure.data[0].x) > low).all()
    assert "1 mean exactly 0, drawn at the left edge" in words(figure)


def test_a_batch_and_its_means_give_the_same_figure() -> None:
    batch = load("sample_data/image_window.parquet")
    assert plot_roles(role_means(batch)) == plot_roles(batch)


def test_roles_of_a_tagger_are_escaped_and_cut() -> None:
    batch = load("sample_data/healthy.parquet")
    name = "<script>alert(1)</script>\u202e of a page"
    figure = plot_roles(batch, tagger=lambda _: [(0, 9, name)])
    assert "&lt;script&gt;alert(1)&lt;/…" in figure.layout.yaxis.ticktext
    texts = [text for text, _ in figure.data[0].customdata]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e of a page" in texts


def test_a_batch_without_a_tokenizer_is_refused() -> None:
    message = "This batch has no tokenizer: pass `tokenizer=` to `rd.load`."
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        plot_roles(hand_batch())


def test_a_column_gives_a_point_for_each_of_its_values() -> None:
    frame = means(
        role=["thought", "thought", "action", "last of a round"],
        overlaps=[False, False, False, True],
        mean=[0.5, 0.1, 0.2, 0.3],
        num_tokens=[4, 3, 2, 1],
    ).assign(rank=[3, 7, 3, 7])
    figure = plot_roles(frame, by="rank")
    assert figure.layout.yaxis.ticktext == ("action", "◆ last of a round", "thought")
    three, _, seven, _ = figure.data
    # The first value is on top of its row, the second below.
    assert three.x.tolist() == [0.2, 0.5]
    assert list(three.y) == pytest.approx([0.2, 2.2])
    assert seven.x.tolist() == [0.3, 0.1]
    assert list(seven.y) == pytest.approx([0.8, 1.8])
    assert three.marker.symbol != seven.marker.symbol
    assert three.customdata[0][0] == "action, 3"
    title = re.sub("<[^>]*>", "|", words(figure))
    assert "rank  |●| 3  |■| 7" in title
    counts = [(note.text, note.y) for note in figure.layout.annotations]
    assert counts == [
        ("2", pytest.approx(0.2)),
        ("4", pytest.approx(2.2)),
        ("1", pytest.approx(0.8)),
        ("3", pytest.approx(1.8)),
        ("tokens", 1),
    ]


def test_a_batch_is_divided_as_its_means_are() -> None:
    batch = load("sample_data/image_window.parquet")
    found = role_means(batch, metric="k3", by="status")
    assert plot_roles(found, metric="k3", by="status") == (
        plot_roles(batch, metric="k3", by="status")
    )


def test_means_with_a_sign_have_a_linear_axis_the_largest_size_on_top() -> None:
    frame = means(mean=[0.1, -0.5, 0.2], ci_low=[0, -0.7, 0], ci_high=[0.3, -0.2, 0.4])
    figure = plot_roles(frame, metric="diff")
    assert figure.layout.yaxis.ticktext == ("thought", "syntax", "action")
    assert figure.layout.xaxis.type is None
    assert figure.layout.xaxis.range == pytest.approx((-0.766, 0.466))
    assert figure.layout.xaxis.title.text == "mean old − rollout log-prob [nat]"
    zero = plot_roles(means(mean=[0.0, 0.5]), metric="diff")
    assert "exactly 0" not in words(zero)


def test_a_pair_is_named_as_the_frame_says() -> None:
    frame = means(mean=[0.01])
    frame.attrs["pair"] = ["current", "rollout"]
    axis = plot_roles(frame).layout.xaxis
    assert axis.title.text == "mean |current − rollout|<br>log-prob [nat]"


def test_counts_can_be_left_out() -> None:
    figure = plot_roles(means(mean=[0.01]), layers={"counts": False})
    assert figure.layout.annotations == ()
