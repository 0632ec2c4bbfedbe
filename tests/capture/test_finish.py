from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.capture import Recorder
from rounddiag.core import token_frame
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import SUPPRESSED, DataProto
from tests.loaders.facts import has


def test_what_came_after_the_log_probs_is_added(
    proto: DataProto, tmp_path: Path
) -> None:
    del proto.batch["ref_log_prob"], proto.batch["rm_scores"]
    with Recorder(tmp_path, images=2) as recorder:
        recorder.step(0, proto)
        recorder.close()
        before = load_parquet(tmp_path / "step_0.parquet")
        recorder.step(0, proto)
        rejected = proto.batch["response_mask"].clone()
        rejected[1] = 0
        proto.batch |= {
            "response_mask": rejected,
            "advantages": torch.full((2, 12), 2.0),
            "ref_log_prob": torch.full((2, 12), -1.5),
            "token_level_scores": torch.eye(12)[:2] * 3,
        }
        proto.non_tensor_batch["acc"] = [0.5, 1.0]
        recorder.finish(0, proto)
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert recorder.errors == 0
    assert batch.loss_mask.sum() == 3
    assert batch.response_mask.sum() == 7
    expected = {
        "advantages": [2.0] * 23,
        "score.ref": [-1.5] * 23,
        "rewards": [3.0, 3.0],
        "sample.acc": [0.5, 1.0],
    }
    has(batch, expected)
    assert (before.advantages, before.loss_mask, before.rewards) == (None, None, None)
    for both in (before, batch):
        assert both.log_probs("old").tolist() == [-0.75] * 23
        assert [len(row) for row in both.images] == [1, 1]


def test_log_probs_after_the_update_are_the_score_current(
    proto: DataProto, tmp_path: Path
) -> None:
    with Recorder(tmp_path, diagnose=False) as recorder:
        recorder.step(0, proto)
        proto.batch["current_log_probs"] = torch.full((2, 12), -0.625)
        recorder.finish(0, proto)
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert recorder.errors == 0
    assert token_frame(batch, a="current", b="old")["diff"].tolist() == [0.125] * 7


def test_how_far_the_updates_move_the_policy_is_in_the_metrics(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, diagnose=True)
    recorder._verdicts.put = lambda *_: None  # type: ignore[method-assign]
    fields = {
        "responses": torch.tensor([[5, 6, 7, 8]]),
        "response_mask": torch.tensor([[1, 1, 0, 1]]),
        "rollout_log_probs": torch.full((1, 4), -1.0),
        "old_log_probs": torch.full((1, 4), -1.0),
    }
    recorder.step(0, fields)
    current = torch.tensor([[-1.0, -0.5, 9.0, -1.25]])
    recorder.finish(0, {**fields, "current_log_probs": current})
    recorder.close()
    # The diffs are 0, 0.5 and -0.25: two are outside 0.8 to 1.2.
    assert recorder.metrics() == {
        "rounddiag/step": 0.0,
        "rounddiag/update_mean_abs_diff": 0.25,
        "rounddiag/update_kl": pytest.approx(
            (math.exp(0.5) - 1.5 + math.exp(-0.25) - 0.75) / 3
        ),
        "rounddiag/update_clip_share": pytest.approx(2 / 3),
    }


def test_weights_are_a_score_whose_diff_is_their_logarithm(
    proto: DataProto, tmp_path: Path
) -> None:
    weights = proto.batch["response_mask"] * 0.5
    weights[0, 0] = 0  # rejected
    with Recorder(tmp_path) as recorder:
        recorder.step(0, proto)
        recorder.finish(0, {**proto.batch, "rollout_is_weights": weights})
    batch = load_parquet(tmp_path / "step_0.parquet")
    diff = token_frame(batch, a="rollout_is")["diff"]
    expected = torch.tensor([0.0] + [0.5] * 6).log()
    assert torch.equal(torch.tensor(diff), expected)
    unwritten = batch.scores["rollout_is"][batch.response_mask == 0]
    assert unwritten.tolist() == [-0.5] * 16  # the sampler's, as no weight is there


def finished(folder: Path, step: int, later: Any, proto: DataProto) -> Batch:
    with Recorder(folder) as recorder:
        recorder.step(0, proto)
        recorder.finish(step, later)
    return load_parquet(folder / "step_0.parquet")


def test_another_step_is_left_alone(proto: DataProto, tmp_path: Path) -> None:
    later = {**proto.batch, "advantages": torch.zeros(2, 12)}
    assert finished(tmp_path, 10, later, proto).advantages is None
    with Recorder(tmp_path) as recorder:
        recorder.finish(0, later)
        recorder.step(0, proto)
        recorder.step(1, proto)
        recorder.finish(0, later)
    assert recorder.errors == 0
    assert load_parquet(tmp_path / "step_0.parquet").advantages is None


def test_other_rows_are_an_error_and_the_file_stays(
    proto: DataProto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    later = {name: value.flip(0) for name, value in proto.batch.items()}
    later["advantages"] = torch.zeros(2, 12)
    assert finished(tmp_path, 0, later, proto).advantages is None
    assert caplog.messages == [
        "step 0 (finish) was not saved: `responses`: expected those of the step's"
        " first call, in the same order; found others. Call `finish` before the batch"
        f" is split or reordered. {SUPPRESSED}"
    ]
