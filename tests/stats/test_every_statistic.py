"""What holds for every statistic: of nothing, of a frame, of groups, of wrong input."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import round_summary, stats, token_frame
from rounddiag.errors import FrameError, LoadError
from rounddiag.stats.intervals import Resampling
from rounddiag.stats.place_means import X
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch, padded

Statistic = Callable[..., pd.DataFrame]
MEANS: dict[str, Statistic] = {
    f"means by {x}": partial(stats.means_by, x=x) for x in get_args(X)
}
BY: dict[str, Statistic] = {  # those that a column divides
    **MEANS,
    "round_summary": round_summary,
    "tail_shares": stats.tail_shares,
}
EVERY: dict[str, Statistic] = {
    **BY,
    "cell_frame": stats.cell_frame,
    "standardise": stats.standardise,
    "survivors": stats.survivors,
}
OF_FRAMES = {*EVERY} - {*MEANS} | {"means by round", "means by probability"}
RANKS = {"rank": np.array([7, 3, 7])}
COLUMNS = ["rollout_log_prob", "old_log_prob", "prob_diff", "rank"]


@pytest.mark.parametrize("name", EVERY)
def test_of_no_tokens_there_are_no_rows(name: str) -> None:
    shots = (EncodedScreenshot(data=b"", position=0, round=0),), (), ()
    own: dict[str, Any] = {
        "sample_columns": RANKS,
        "images": shots,
        "tokenizer": lambda ids: "x" * len(ids),
    }
    empty, prompts = torch.zeros(3, 3), torch.ones(3, 1, dtype=torch.int64)
    batch = padded(empty, empty, empty, prompt_ids=prompts, **own)
    known = EVERY[name](hand_batch(prompt_ids=prompts, **own))
    rows = EVERY[name](batch)
    assert len(rows) == 0
    assert [*rows] == [*known]
    if name in BY:
        divided = EVERY[name](batch, by="rank")
        assert len(divided) == 0
        assert [*divided].index("rank") == 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in sorted(OF_FRAMES)),
        *((name, {"by": "rank"}) for name in sorted(OF_FRAMES & {*BY})),
    ],
)
def test_a_batch_gives_what_its_token_frame_gives(
    name: str, options: dict[str, str]
) -> None:
    statistic = partial(EVERY[name], **options)
    batch = hand_batch(sample_columns=RANKS)
    rows = statistic(token_frame(batch, COLUMNS))
    pd.testing.assert_frame_equal(rows, statistic(batch)[[*rows]])


@pytest.mark.parametrize(
    "name", ["means by token", "means by probability", "round_summary"]
)
def test_intervals_are_of_groups_where_there_are_groups(name: str) -> None:
    old = torch.arange(24.0)[:, None]
    groups = tuple(f"{i // 2:02}" for i in range(24))
    batch = padded(torch.ones(24, 1), old, torch.zeros(24, 1), group_ids=groups)
    rows = EVERY[name](batch)
    totals = old.numpy().reshape(12, 2).sum(1)
    expected = Resampling(12).ratio_interval(totals, np.full(12, 2.0))
    assert (rows["ci_low"][0], rows["ci_high"][0]) == pytest.approx(expected)
    if name in OF_FRAMES:
        tokens = token_frame(batch, ["rollout_log_prob", "prob_diff"])
        named = tokens.assign(group_id=np.array(groups)[tokens["sample"]])
        pd.testing.assert_frame_equal(EVERY[name](named), rows)


@pytest.mark.parametrize("name", ["round_summary", "cell_frame"])
def test_a_number_or_a_path_of_no_file_is_an_error(name: str) -> None:
    message = (
        "expected a Batch or a DataFrame; found a int. Open a file with"
        " `rounddiag.load(path)` first; of a run, pass a step: `run.batch(step)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        getattr(stats, name)(3)
    with pytest.raises(LoadError, match="expected a file, a folder or a glob"):
        getattr(stats, name)("step_40.parquet")


@pytest.mark.parametrize(
    "statistic",
    [
        partial(round_summary, metric="prob_diff"),
        partial(stats.cell_frame, columns=["prob_diff"]),
        lambda tokens: stats.compare_batches([tokens] * 2, metric="prob_diff"),
    ],
)
def test_a_frame_without_probabilities_has_no_difference_of_them(
    statistic: Callable[[Any], object],
) -> None:
    message = (
        "expected a token frame with `prob_diff`; found one without it and without"
        " `rollout_log_prob`. Build it with"
        ' `rounddiag.token_frame(batch, ["prob_diff"])`.'
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        statistic(token_frame(hand_batch()))
