"""One value between batches or frames and what counts, computed when asked for."""

from __future__ import annotations

import gc
import re
import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.core import measured as module
from rounddiag.core.divergence import get_measure
from rounddiag.core.frames import round_frame_and_diffs
from rounddiag.core.measured import Measured
from rounddiag.errors import BatchError, FrameError
from tests.batches import hand_batch


def test_the_sums_of_rounds_are_made_once_per_batch_and_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    def count(batch: rd.Batch) -> tuple[pd.DataFrame, np.ndarray | None]:
        made.append(batch)
        return round_frame_and_diffs(batch)

    monkeypatch.setattr(module, "round_frame_and_diffs", count)
    batch = hand_batch(scores={"current": torch.full((3, 6), -1.5)})
    for _ in range(2):
        rd.plot_rounds(batch)
        rd.plot_heatmap(batch)
        rd.round_summary(batch, metric="k2")
    assert made == [batch]
    for _ in range(2):
        rd.plot_rounds(batch, a="current")
    assert len(made) == 2


def test_a_batch_of_which_something_was_computed_can_be_freed() -> None:
    batch = hand_batch(scores={"current": torch.full((3, 6), -1.5)})
    rd.plot_rounds(batch, a="current")
    known = weakref.ref(batch)
    del batch
    gc.collect()
    assert known() is None


def test_log_probs_that_change_in_place_are_measured_again() -> None:
    batch = hand_batch()
    assert rd.round_summary(batch)["num_nonfinite"].sum() == 0
    batch.log_probs("old")[batch.rounds.start] = torch.nan
    assert rd.round_summary(batch)["num_nonfinite"].tolist() == [3, 2]


def test_a_column_added_to_the_rounds_is_not_kept() -> None:
    data = Measured.of(hand_batch())
    rounds = data.rounds
    rounds["mine"] = 1
    assert "mine" not in data.rounds


def test_a_batch_and_its_token_frame_have_the_same_columns() -> None:
    batch = hand_batch(group_ids=["y", "x", "y"])
    columns = ["rollout_log_prob", "old_log_prob"]
    tokens = rd.token_frame(batch, columns).assign(
        group_id=lambda frame: np.array(["y", "x", "y"])[frame["sample"]]
    )
    one, other = Measured.of(batch), Measured.of(tokens)
    assert one.diff.tolist() == other.diff.tolist()
    for name in ("prob_diff", "k3", "beyond"):
        measure = get_measure(name)
        assert one.values(measure) == pytest.approx(other.values(measure))
    assert one.clusters.tolist() == other.clusters.tolist() == [1, 0, 1]
    assert one.num_samples == other.num_samples == 3


def test_what_is_neither_batch_nor_frame_is_refused() -> None:
    message = (
        "expected a Batch or a DataFrame; found a list. Open a file with"
        " `rounddiag.load(path)` first; of a run, pass a step: `run.batch(step)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        Measured.of([1])  # type: ignore[arg-type]
    with pytest.raises(BatchError, match="expected a Batch"):
        Measured.of(pd.DataFrame()).require_batch()


@pytest.mark.parametrize("name", ["round_summary", "tail_shares", "survivors"])
def test_a_statistic_of_another_pair_is_that_of_a_batch_with_its_scores(
    name: str,
) -> None:
    old = hand_batch().log_probs("old").reshape(3, 6)
    batch = hand_batch(scores={"current": old - 0.25})
    same = replace(batch, old_log_probs=batch.log_probs("old") - 0.25)
    statistic = getattr(rd.stats, name)
    expected = statistic(same)
    found = statistic(batch, a="current")
    pd.testing.assert_frame_equal(found, expected, check_flags=False)


def test_a_path_is_taken_wherever_a_batch_is() -> None:
    path = "sample_data/healthy.parquet"
    batch = rd.load(path)
    pd.testing.assert_frame_equal(rd.round_summary(path), rd.round_summary(batch))
    assert rd.plot_heatmap(path) == rd.plot_heatmap(batch)
    assert rd.plot_compare([path, batch]) == rd.plot_compare([batch, batch])
    found = rd.stats.compare_batches([path, batch])["difference"]
    assert found.tolist() == [0.0] * len(found)


def test_checks_and_metrics_are_of_the_pair_that_was_asked_for() -> None:
    batch = hand_batch()
    scores = {
        "current": batch.log_probs("old") - 0.25,
        "empty": 0 * batch.log_probs("rollout"),
    }
    batch = replace(batch, scores=scores)
    as_old = replace(batch, old_log_probs=scores["current"])
    assert rd.metrics(batch, a="current") == rd.metrics(as_old)
    (failed, *_) = rd.check(batch, a="empty").failed
    assert failed.detail.startswith("`empty` are 0 at all 8")
    assert [one.name for one in rd.check(batch).failed] == [
        one.name for one in rd.check(hand_batch()).failed
    ]


@pytest.mark.parametrize("name", ["sample", "round"])
@pytest.mark.parametrize("kind", ["float64", "Int64", "object"])
def test_keys_that_a_join_made_floats_are_whole(name: str, kind: str) -> None:
    tokens = rd.token_frame(hand_batch())
    joined = tokens.astype({name: kind})
    assert rd.round_summary(joined).equals(rd.round_summary(tokens))


@pytest.mark.parametrize("value", [-1, 0.5, float("nan"), None, "1", pd.NA])
def test_keys_that_are_not_whole_are_refused(value: object) -> None:
    tokens = rd.token_frame(hand_batch())
    column = tokens["sample"].astype(object)
    column.iloc[0] = value
    with pytest.raises(FrameError, match="`sample`: expected whole numbers from 0"):
        rd.round_summary(tokens.assign(sample=column))
