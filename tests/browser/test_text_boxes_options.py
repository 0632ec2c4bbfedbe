"""No word touches another or is cut with any option of a figure either."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.schema import METRICS
from rounddiag.vision import RawScreenshot
from tests.browser.hard_batches import HOSTILE, NAMES, hard_batches
from tests.browser.text_boxes import FigurePage, Theme, clashes, plots_with
from tests.runs.step_folders import summary_frame

NARROW: list[tuple[Theme, int]] = [("light", 400)]
HARD = hard_batches()
NAMED = HARD["hostile names"]
ROUNDS = rd.round_frame(NAMED)[["sample", "round"]]
# With the columns that metrics are made of.
MEASURED = replace(
    NAMED,
    entropy=-NAMED.log_probs("rollout"),
    round_columns={
        "sample": ROUNDS["sample"].to_numpy(),
        "round": ROUNDS["round"].to_numpy(),
        "round_seconds": np.linspace(0, 1e5, len(ROUNDS)),
        "round_reward": np.linspace(-1, 1, len(ROUNDS)),
    },
    images=tuple(
        tuple(
            RawScreenshot(
                mode="L", width=1, height=1, data=partial(bytes, [at % 3]), round=at
            )
            for at in rows["round"].tolist()
        )
        for _, rows in ROUNDS.groupby("sample")
    ),
)
CELL_METRICS = (
    "mean_abs_diff",
    "mean_diff",
    "max_abs_diff",
    "k3",
    "prob_diff",
    "beyond",
    "round_reward",
)
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "quantiles": ("plot_rounds", {"layers": {"quantiles": True}}),
    "one panel": (
        "plot_rounds",
        {"layers": {"counts": False, "quantiles": True}},
    ),
    "from the end": ("plot_rounds", {"last_aligned": True}),
    "slime": ("plot_rounds", {"metric": "train_rollout_logprob_abs_diff"}),
    "signed": ("plot_heatmap", {"metric": "mean_diff"}),
    "largest": ("plot_heatmap", {"metric": "max_abs_diff", "order": "worst"}),
    "k3": ("plot_heatmap", {"metric": "k3", "order": "rounds"}),
    "log-probs": ("plot_probabilities", {"axes": "log_prob"}),
    "along the response": ("plot_positions", {"along": "response"}),
    "to the end": ("plot_positions", {"along": "end"}),
}
# These need groups, rewards or values.
NAMED_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "by": ("plot_rounds", {"by": "rank"}),
    "by, from the end": ("plot_rounds", {"by": "rank", "last_aligned": True}),
    "groups": ("plot_heatmap", {"order": "group"}),
    "rewards": ("plot_heatmap", {"order": "reward"}),
}


@pytest.mark.parametrize("option", [*OPTIONS, *NAMED_OPTIONS])
def test_no_words_of_an_option_touch(option: str, figure_page: FigurePage) -> None:
    name, options = {**OPTIONS, **NAMED_OPTIONS}[option]
    kinds = ["hostile names"]
    kinds += ["100 rounds", "1 token", "all NaN"] if option in OPTIONS else []
    found = [
        one
        for kind in kinds
        for one in clashes(figure_page, name, HARD[kind], **options)
    ]
    assert found == []


@pytest.mark.parametrize("name", plots_with("by"))
def test_no_words_of_eight_values_touch(name: str, figure_page: FigurePage) -> None:
    assert clashes(figure_page, name, NAMED, by="rank") == []


@pytest.mark.parametrize("name", plots_with("metric"))
def test_no_words_of_a_metric_touch(name: str, figure_page: FigurePage) -> None:
    metrics = CELL_METRICS if name == "plot_heatmap" else METRICS
    data = dict.fromkeys(NAMES[:2], MEASURED) if name == "plot_compare" else MEASURED
    options = {"sample": 0} if name == "plot_trajectory" else {}
    found = [
        clash
        for metric in metrics
        for clash in clashes(figure_page, name, data, NARROW, metric=metric, **options)
    ]
    assert found == []


@pytest.mark.parametrize("metric", ["diff", "k3"])
def test_no_words_of_a_run_touch(metric: str, figure_page: FigurePage) -> None:
    rows = summary_frame(first=3)
    assert clashes(figure_page, "plot_run", rows, NARROW, metric=metric) == []


@pytest.mark.parametrize("name", plots_with("a"))
def test_no_words_of_another_pair_touch(name: str, figure_page: FigurePage) -> None:
    score = f"{HOSTILE} rescored by another engine"
    paired = replace(NAMED, scores={score: NAMED.log_probs("old") - 0.1})
    data = dict.fromkeys(NAMES[:2], paired) if name == "plot_compare" else paired
    options = {"sample": 0} if name == "plot_trajectory" else {}
    found = clashes(figure_page, name, data, NARROW, a=score, **options)
    assert found == []
