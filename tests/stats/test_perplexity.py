"""Log-perplexities of samples, in their first round and in later rounds."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from rounddiag import metrics, token_frame
from rounddiag.errors import FrameError
from rounddiag.stats.perplexity import overall, perplexities
from tests.batches import hand_batch, padded, random_log_probs


def test_a_log_perplexity_is_the_mean_of_minus_log_probs() -> None:
    found = perplexities(hand_batch())

    assert found["sample"].tolist() == [0, 0, 1, 1, 2]
    assert found["is_later"].tolist() == [False, True, False, True, False]
    assert found["num_tokens"].tolist() == [2, 1, 3, 1, 1]
    assert found["rollout_log_ppl"].tolist() == [1.0, 2.0, 1.0, 3.0, 2.0]
    # 0.5 and 1.25 | 1 | 1, 0.75 and 1.5 | 1 | 3.
    old = [0.875, 1.0, 3.25 / 3, 1.0, 3.0]
    assert found["old_log_ppl"].tolist() == pytest.approx(old)


def test_later_rounds_go_together() -> None:
    rollout = [[-1.0, 0.0, -2.0, 0.0, -4.0]]
    found = perplexities(padded([[1, 0, 1, 0, 1]], rollout, rollout))

    assert found["rollout_log_ppl"].tolist() == [1.0, 3.0]


def test_with_one_round_the_means_are_those_that_verl_logs() -> None:
    mask = torch.ones(6, 8)
    batch = padded(mask, random_log_probs((6, 8), 0), random_log_probs((6, 8), 1))
    found, logged = perplexities(batch), metrics(batch)

    for name, key in (("rollout", "rollout"), ("old", "training")):
        mean = found[f"{name}_log_ppl"].mean()
        assert mean == pytest.approx(logged[f"rollout_corr/{key}_log_ppl"], rel=1e-6)


def test_a_token_without_two_finite_log_probs_is_left_out_of_both() -> None:
    old, rollout = [[-1.0, np.nan, -3.0]], [[-2.0, -9.0, -4.0]]
    found = perplexities(padded([[1, 1, 1]], old, rollout))

    assert found["num_nonfinite"].tolist() == [1]
    assert found["rollout_log_ppl"].tolist() == [3.0]
    assert found["old_log_ppl"].tolist() == [2.0]


def test_a_sample_of_which_no_token_is_left_is_not_a_number() -> None:
    found = perplexities(padded([[1, 1]], [[np.nan, -np.inf]], [[-1.0, -1.0]]))

    assert found["num_nonfinite"].tolist() == [2]
    assert found[["rollout_log_ppl", "old_log_ppl"]].isna().to_numpy().all()


def test_a_frame_without_log_probs_is_refused() -> None:
    message = (
        "expected a frame with one row per generated token and the columns ['sample',"
        " 'round', 'rollout_log_prob', 'old_log_prob']; found ['sample', 'round',"
        " 'token', 'diff'], without ['rollout_log_prob', 'old_log_prob']. Build it with"
        " `rounddiag.token_frame(batch)`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        perplexities(token_frame(hand_batch()))


def test_a_column_divides_tokens_in_place_of_first_and_later_rounds() -> None:
    columns = {
        "sample": np.array([0, 0, 1, 1, 2]),
        "round": np.array([0, 1, 0, 1, 0]),
        "engine": np.array(["b", "a", "a", "a", "b"], dtype=object),
    }
    batch = hand_batch(round_columns=columns)
    found = perplexities(batch, by="engine")

    assert found.columns[:2].tolist() == ["sample", "engine"]
    assert found["sample"].tolist() == [0, 0, 1, 2]
    assert found["engine"].tolist() == ["a", "b", "a", "b"]
    assert found["num_tokens"].tolist() == [1, 2, 4, 1]
    assert found["rollout_log_ppl"].tolist() == [2.0, 1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("diffs", "line"),
    [
        ([1.0, -1.0, 3.0, -1.5] * 100_000, "mean diff +0.375 nat, |diff| > 1 in 50 %"),
        ([np.nan, np.inf, -np.inf, -2.0], "mean diff −2 nat, |diff| > 1 in 100 %"),
        ([np.nan, np.inf, -np.inf], ""),
        ([], ""),
    ],
)
def test_a_batch_in_a_line(diffs: list[float], line: str) -> None:
    assert overall(np.array(diffs, dtype=np.float32)) == line
