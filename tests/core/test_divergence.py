"""Metrics of tokens: one definition each, checked by hand."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import token_frame
from rounddiag.core.divergence import MEASURES, get_measure, k3, read_prob_diffs
from rounddiag.core.scores import select_scores
from rounddiag.core.sums import prob_diffs
from rounddiag.errors import FrameError
from rounddiag.schema import METRICS
from tests import oracle
from tests.batches import hand_batch

DIFF = np.array([0.0, 0.5, -1.0], dtype=np.float32)


def test_a_ratio_is_clipped_below_0_8_and_above_1_2() -> None:
    # exp of these: 1.197, 1.221, 0.803 and 0.795; the range has no symmetry in logs.
    differences = np.array([0.18, 0.2, -0.22, -0.23])
    assert get_measure("clip_share").values(differences).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        ("abs_diff", [0, 0.5, 1]),
        ("diff", [0, 0.5, -1]),
        ("prob_diff", [0, 0.5, -1]),  # a column of its own, taken as it is
        ("k1", [0, -0.5, 1]),
        ("k2", [0, 0.125, 0.5]),
        ("k3", [0, math.exp(0.5) - 1.5, math.exp(-1)]),
        ("chi2", [0, math.e - 1, math.exp(-2) - 1]),
        ("beyond", [0, 0, 1]),
        ("train_rollout_logprob_abs_diff", [0, 0.5, 1]),
        ("mismatch_kl", [0, math.exp(0.5) - 1.5, math.exp(-1)]),
        ("token_mult_prob_error", [1, math.exp(0.5), math.e]),
    ],
)
def test_each_metric_of_three_tokens(metric: str, wanted: list[float]) -> None:
    found = get_measure(metric).values(DIFF)
    assert found.tolist() == pytest.approx(wanted, rel=1e-7, abs=1e-12)


def test_every_metric_has_a_column() -> None:
    assert [*MEASURES] == [*METRICS]
    assert [METRICS[name].unit for name in ("k3", "chi2")] == ["nat", ""]


def test_what_trainers_log_has_a_weight_of_its_own() -> None:
    weights = {name: measure.weight for name, measure in MEASURES.items()}
    own = {name: weight for name, weight in weights.items() if weight is not None}
    assert own == oracle.OWN_WEIGHT


def test_large_diffs_are_limited_where_verl_limits_them() -> None:
    large = np.array([100.0, -100.0], dtype=np.float32)
    assert get_measure("chi2").values(large).tolist() == [
        pytest.approx(math.exp(40)),
        pytest.approx(-1),
    ]
    assert get_measure("k3").values(large)[0] == pytest.approx(math.exp(100), rel=1e-6)


@pytest.mark.parametrize("diff", [1e-4, -1e-4, 1e-7])
def test_small_diffs_keep_their_digits(diff: float) -> None:
    small = np.array([diff])
    assert get_measure("k3").values(small)[0] == pytest.approx(diff**2 / 2, rel=1e-4)
    assert get_measure("chi2").values(small)[0] == pytest.approx(2 * diff, rel=1e-3)


def test_a_ratio_at_the_threshold_is_not_beyond() -> None:
    edge = np.array([np.log(2.0), -np.log(2.0), 0.7, -0.7])
    assert get_measure("beyond").values(edge).tolist() == [0, 0, 1, 1]


def test_values_can_be_read_only() -> None:
    column = pd.Series(DIFF).to_numpy()
    column.flags.writeable = False
    for name in METRICS:
        get_measure(name).values(column)
    assert column.tolist() == [0, 0.5, -1]


def test_the_difference_of_probabilities_is_of_the_pair(device: torch.device) -> None:
    other = torch.full((3, 6), -1.0)
    batch = hand_batch(device, scores={"current": other})
    found = prob_diffs(select_scores(batch, "current", "rollout"))
    rollout = [-1, -1, -2, -1, -1, -1, -3, -2]
    wanted = [math.exp(-1) - math.exp(value) for value in rollout]
    assert found.tolist() == pytest.approx(wanted, abs=1e-7)
    frame = token_frame(batch, ["prob_diff"], a="current")
    assert frame["prob_diff"].tolist() == found.tolist()


def test_either_column_of_a_frame_gives_the_differences_of_probabilities() -> None:
    batch = hand_batch()
    wanted = prob_diffs(batch)
    read = read_prob_diffs(token_frame(batch, ["prob_diff"]))
    made = read_prob_diffs(token_frame(batch, ["rollout_log_prob"]))
    assert read is not None
    assert made is not None
    assert read.tolist() == wanted.tolist()
    assert made.tolist() == pytest.approx(wanted.tolist(), abs=1e-7)
    assert read_prob_diffs(token_frame(batch)) is None


def test_a_metric_goes_by_the_column_of_its_mean_too() -> None:
    assert get_measure("mean_abs_diff") is MEASURES["abs_diff"]
    assert get_measure("mean_diff") is MEASURES["diff"]


def test_an_unknown_metric_is_refused() -> None:
    message = (
        f"`metric`: expected one of {sorted(METRICS)}; found 'k_3'. Did you mean 'k3'?"
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        get_measure("k_3")


def test_k3_of_one_number() -> None:
    assert k3(torch.tensor(1.0)).item() == pytest.approx(math.e - 2, rel=1e-6)
