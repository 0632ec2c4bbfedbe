"""What holds for every figure: its arguments, its scores, and what has no tokens."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch

from rounddiag import token_frame
from rounddiag.core.scores import select_scores
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import METRICS
from rounddiag.stats import cell_frame
from tests.batches import MASK, ROLLOUT, hand_batch, padded
from tests.figures.plots import PLOTS, captions, plot

WITHOUT_LAYERS = [
    f"plot_{name}"
    for name in (
        "compare",
        "conditional",
        "positions",
        "probabilities",
        "roles",
        "tail",
    )
]
LAYERS = {
    "plot_heatmap": ["marginals"],
    "plot_rounds": ["quantiles", "survivors", "counts"],
    "plot_trajectory": ["log_probs"],
}
OF_METRICS = ["compare", "conditional", "positions", "roles", "rounds"]
OF_COLUMNS = ["conditional", "positions", "probabilities", "roles", "rounds", "tail"]
# The scores of the legs of a ratio are fixed.
OF_PAIRS = [name for name in PLOTS if name != "plot_legs"]
REF = [[-1.5] * 6, [-0.25] * 6, [-2.0] * 6]


# What a figure needs a frame for: its rows, its columns, and who builds it.
TOKEN = "generated token", "token_frame"
COLUMNS = {
    "plot_conditional": (*TOKEN, "sample round diff rollout_log_prob"),
    "plot_corrections": (
        *("correction", "corrections"),
        "correction tokens_kept share_at_limit moved",
    ),
    "plot_legs": (
        *("value of a column and leg", "legs"),
        "round leg num_tokens mean_log_ratio mean_abs_log_ratio k3"
        " effective_sample_size",
    ),
    "plot_heatmap": (
        *("sample and round", "round_frame"),
        "sample round num_tokens mean_abs_diff max_abs_diff mean_abs_diff",
    ),
    "plot_positions": (
        *("place", "stats.means_by"),
        "place label num_samples num_tokens num_nonfinite mean ci_low ci_high is_few",
    ),
    "plot_roles": (
        *("place", "stats.means_by"),
        "place label num_samples num_tokens num_nonfinite mean ci_low ci_high is_few"
        " overlaps",
    ),
    "plot_probabilities": (*TOKEN, "sample round token rollout_log_prob old_log_prob"),
    "plot_rounds": (
        *("round", "round_summary"),
        "round num_samples num_tokens num_nonfinite share_zero mean ci_low ci_high p50"
        " p90 p99 max",
    ),
    "plot_tail": (*TOKEN, "round diff"),
    "plot_trajectory": (
        *TOKEN,
        "sample round token diff position rollout_log_prob old_log_prob",
    ),
}


def fails(message: str, name: str, data: Any, **options: Any) -> None:
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        plot(name, data, **options)


@pytest.mark.parametrize("name", LAYERS)
def test_an_unknown_layer_is_an_error(name: str) -> None:
    message = (
        f"`layers`: expected one of {LAYERS[name]}; found 'violin'."
        " `{name: False}` leaves a layer out, `update_traces` hides a trace."
    )
    fails(message, name, hand_batch(), layers={"violin": False})


@pytest.mark.parametrize("name", WITHOUT_LAYERS)
def test_layers_that_were_removed_are_an_error(name: str) -> None:
    message = (
        "`layers`: expected no such argument, which 0.3.0 removed; found {'ci': False}."
        " `figure.update_traces(visible=False)` hides a trace,"
        " `error_y_visible=False` its intervals."
    )
    fails(message, name, hand_batch(), layers={"ci": False})


@pytest.mark.parametrize("name", OF_METRICS)
def test_an_unknown_metric_is_an_error(name: str) -> None:
    message = (
        f"`metric`: expected one of {sorted(METRICS)}; found 'k_3'. Did you mean 'k3'?"
    )
    fails(message, f"plot_{name}", hand_batch(), metric="k_3")


@pytest.mark.parametrize("name", [name for name in PLOTS if name != "plot_compare"])
def test_other_data_is_an_error(name: str) -> None:
    message = (
        "expected a Batch or a DataFrame; found a int. Open a file with"
        " `rounddiag.load(path)` first; of a run, pass a step: `run.batch(step)`."
    )
    fails(message, name, 3)


@pytest.mark.parametrize("name", OF_PAIRS)
def test_a_frame_of_another_pair_is_an_error(name: str) -> None:
    message = (
        "expected a Batch, to choose `a` and `b`; found a frame of the pair 'old',"
        " 'rollout'. Choose them in `rounddiag.token_frame(batch, a=..., b=...)`."
    )
    fails(message, name, token_frame(hand_batch()), a="current")


@pytest.mark.parametrize("name", OF_PAIRS)
def test_a_score_that_the_batch_lacks_is_an_error(name: str) -> None:
    message = (
        "expected one of the scores ['old', 'rollout']; found 'current'. Name a score"
        " that the batch has."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        plot(name, hand_batch(), a="current")


@pytest.mark.parametrize("name", COLUMNS)
def test_a_frame_without_the_columns_is_an_error(name: str) -> None:
    rows, builder, columns = COLUMNS[name]
    names = columns.split()
    missing = [column for column in names if column != "round"]
    message = (
        f"expected a frame with one row per {rows} and the columns {names}; found"
        f" ['round'], without {missing}. Build it with `rounddiag.{builder}(batch)`."
    )
    fails(message, name, pd.DataFrame({"round": [0]}))


@pytest.mark.parametrize("name", ["conditional", "heatmap", "tail"])
def test_a_frame_gives_the_figure_of_its_batch(name: str) -> None:
    batch = hand_batch(scores={"ref": torch.tensor(REF)})
    columns = ["rollout_log_prob", "old_log_prob"]
    frame = token_frame(batch, columns, a="ref")
    if name == "heatmap":
        frame = cell_frame(select_scores(batch, "ref", "rollout"))
    assert plot(f"plot_{name}", frame) == plot(f"plot_{name}", batch, a="ref")


@pytest.mark.parametrize("name", OF_COLUMNS)
def test_more_than_8_values_of_a_column_are_an_error(name: str) -> None:
    shape = 9, 2
    batch = padded(
        torch.ones(shape, dtype=torch.int64),
        torch.full(shape, -1.0),
        torch.full(shape, -1.5),
        sample_columns={"rank": np.arange(9)},
    )
    message = (
        "`by`: expected a column of at most 8 values, a line each; found 'rank' with 9"
        " values. Put values into bins in a column of your own, and name that one."
    )
    fails(message, f"plot_{name}", batch, by="rank")


@pytest.mark.parametrize("name", PLOTS)
def test_no_tokens_are_reported_instead_of_drawn(name: str) -> None:
    figure = plot(name, padded([[0, 0]], [[0.0, 0.0]], [[0.0, 0.0]]))
    assert figure.data == ()
    assert captions(figure)[1:] == ["no generated tokens: the response mask is 0"]


@pytest.mark.parametrize("name", OF_PAIRS)
def test_another_pair_is_named_everywhere_and_drawn(name: str) -> None:
    scores = {"ref": torch.tensor(REF), "current": torch.tensor(ROLLOUT)}
    batch = hand_batch(scores=scores)
    figure = plot(name, batch, a="ref", b="current")
    texts = visible_texts(figure)
    assert "ref" in texts
    assert "current" in texts
    assert not re.search(r"\b(old|rollout|training|sampling)\b", texts)
    # The same numbers as the standard pair of a batch with these log-probs.
    same = plot(name, padded(MASK, REF, ROLLOUT))
    assert len(figure.data) == len(same.data)
    for trace, other in zip(figure.data, same.data, strict=True):
        one, two = trace.to_plotly_json(), other.to_plotly_json()
        for key in {"x", "y", "z", "customdata"} & {*one, *two}:
            np.testing.assert_array_equal(one[key], two[key])


def visible_texts(figure: go.Figure) -> str:
    plain = json.loads(figure.to_json())
    found: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            found.extend(
                text
                for key, text in value.items()
                if key in {"text", "hovertemplate"} and isinstance(text, str)
            )
            value = [*value.values()]
        if isinstance(value, list):
            for part in value:
                collect(part)

    del plain["layout"]["template"]
    collect(plain)
    return "\n".join(found)


@pytest.mark.parametrize("name", PLOTS)
def test_unknown_rounds_are_the_first_line(name: str) -> None:
    batch = hand_batch(meta={"rounds": "unknown"})
    note = "the rounds are unknown: `rd.check(batch)` says why"

    lines = captions(plot(name, batch))

    assert lines[1].endswith(note)
    assert not any(note in line for line in captions(plot(name, hand_batch())))


def test_legs_of_the_whole_step_are_one_bar() -> None:
    figure = plot("plot_legs", hand_batch(), by=None)
    bar, size = figure.data
    assert [list(trace.x) for trace in (bar, size)] == [[0], [0]]
    assert figure.layout.xaxis.ticktext == ("all",)
