"""Mismatch by the probability that tokens were sampled with."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import rounddiag as rd
from rounddiag.errors import FrameError
from rounddiag.stats import conditional_means, standardise
from rounddiag.stats.standardisation import PROB_EDGES, prob_bin
from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch

LIKELY, RARE = np.log(0.8), np.log(0.02)
FRAME = pd.DataFrame(
    {
        "sample": [0, 0, 0, 1, 1, 1],
        "round": [0, 0, 1, 0, 1, 1],
        "diff": [0.1, -0.5, 0.7, 0.3, -0.9, np.nan],
        "rollout_log_prob": [LIKELY, RARE, RARE, LIKELY, RARE, LIKELY],
    }
)


def test_tokens_are_divided_by_group_of_rounds_and_probability() -> None:
    means = conditional_means(FRAME)

    assert means["rounds"].tolist() == ["0", "0", "1", "1"]
    assert means["prob_low"].tolist() == [0.01, 0.75, 0.01, 0.75]
    assert means["prob_high"].tolist() == [0.05, 0.9, 0.05, 0.9]
    assert means["prob"].tolist() == pytest.approx([0.02, 0.8, 0.02, 0.8])
    assert means["num_tokens"].tolist() == [1, 2, 2, 1]
    assert means["num_samples"].tolist() == [1, 2, 2, 1]
    assert means["num_nonfinite"].tolist() == [0, 0, 0, 1]
    assert means["mean"].tolist() == pytest.approx([0.5, 0.2, 0.8, np.nan], nan_ok=True)


def test_the_envelope_is_scaled_to_the_first_round() -> None:
    means = conditional_means(FRAME)

    scale = (0.1 + 0.5 + 0.3) / (0.2 + 0.98 + 0.2)
    assert means["envelope"].tolist() == pytest.approx(
        [scale * 0.98, scale * 0.2, scale * 0.98, scale * 0.2]
    )


def test_without_a_first_round_the_envelope_is_scaled_to_the_earliest() -> None:
    # Rounds 2 and 3 are one group.
    tokens = pd.DataFrame(
        {
            "sample": [0, 0],
            "round": [2, 3],
            "diff": [0.25, 4.0],
            "rollout_log_prob": [np.log(0.5)] * 2,
        }
    )
    assert conditional_means(tokens)["envelope"].tolist() == pytest.approx([0.25])


def test_rounds_are_weighted_to_the_same_probabilities() -> None:
    means = standardise(FRAME)

    # Of the five finite tokens two are likely and three are rare.
    assert means["mean"].tolist() == pytest.approx([0.3, 0.8])
    assert means["standardised"].tolist() == pytest.approx([0.4 * 0.2 + 0.6 * 0.5, 0.8])
    assert means["covered"].tolist() == pytest.approx([1.0, 0.6])


def test_a_difference_that_is_all_of_probability_is_gone() -> None:
    generator = np.random.default_rng(0)
    later = np.arange(20_000) % 2
    prob = np.where(generator.random(20_000) < np.where(later, 0.2, 0.8), 0.8, 0.02)
    frame = pd.DataFrame(
        {
            "sample": np.arange(20_000) % 50,
            "round": later,
            "diff": np.where(prob > 0.5, 0.1, 0.5),
            "rollout_log_prob": np.log(prob),
        }
    )
    means = standardise(frame)

    assert means["mean"][1] > 2 * means["mean"][0]
    assert means["standardised"].tolist() == pytest.approx([0.3, 0.3], rel=0.05)


def test_what_is_no_probability_has_a_row_of_its_own() -> None:
    frame = FRAME.assign(rollout_log_prob=[0.5, np.nan, LIKELY, 0.0, -np.inf, LIKELY])
    means = conditional_means(frame)

    assert means["num_tokens"].sum() == 6
    first = means[means["rounds"] == "0"]
    assert first["prob_high"].tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert first["num_tokens"].tolist() == [1, 2]


def test_the_edges_can_be_chosen() -> None:
    means = conditional_means(FRAME, edges=[0, 0.5, 1])

    assert means["prob_high"].tolist() == [0.5, 1, 0.5, 1]
    assert list(PROB_EDGES) == sorted(PROB_EDGES)


def test_a_round_of_nothing_finite_has_no_mean() -> None:
    means = standardise(FRAME.assign(diff=[0.1, 0.5, np.nan, 0.3, np.nan, np.nan]))

    assert means["round"].tolist() == [0, 1]
    assert np.isnan(means["standardised"][1])
    assert means["covered"].tolist() == [1.0, 0.0]


def test_a_frame_without_probabilities_is_an_error() -> None:
    with pytest.raises(FrameError, match="without \\['rollout_log_prob'\\]"):
        conditional_means(FRAME.drop(columns="rollout_log_prob"))


def test_a_column_divides_tokens_in_place_of_their_rounds() -> None:
    columns = {"rank": np.array([7, 3, 7])}
    # Probability e^-1 (6 tokens), e^-2 and e^-3 (one each of round 1, and of sample 2).
    batch = hand_batch(sample_columns=columns)
    means = conditional_means(batch, by="rank")

    assert means.columns[0] == "rank"
    assert means["rank"].tolist() == [3, 3, 7, 7]
    assert means["prob_low"].tolist() == [0.01, 0.25, 0.1, 0.25]
    assert means["num_tokens"].tolist() == [1, 3, 2, 2]
    assert means["mean"].tolist() == [2.0, 0.25, 1.0, 0.375]


def test_screenshots_seen_divide_tokens_where_the_batch_has_them() -> None:
    image = EncodedScreenshot(data=b"", round=1)
    batch = hand_batch(images=((image,), (image, image), ()))
    means = conditional_means(batch, by="num_images")

    assert means["num_images"].tolist() == [0, 0, 1, 2]
    assert means["num_tokens"].tolist() == [1, 5, 1, 1]


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        ("diff", [-0.5, 0.2, -0.1]),
        ("k2", [0.125, 0.025, (0.7**2 + 0.9**2) / 4]),
        ("beyond", [0, 0, 1]),
    ],
)
def test_another_metric_is_averaged(metric: str, wanted: list[float]) -> None:
    means = conditional_means(FRAME, metric=metric)

    assert means["mean"].tolist() == pytest.approx([*wanted, np.nan], nan_ok=True)
    assert "envelope" not in means
    assert means["num_nonfinite"].tolist() == [0, 0, 0, 1]


def test_differences_of_probabilities_are_those_of_both_columns() -> None:
    means = conditional_means(FRAME, metric="prob_diff")

    # 0.02 (1 - exp(-0.5)); 0.8 (exp(0.1) - 1) and 0.8 (exp(0.3) - 1).
    wanted = [0.02 * (1 - np.exp(-0.5)), 0.4 * (np.exp(0.1) + np.exp(0.3) - 2)]
    assert means["mean"].tolist()[:2] == pytest.approx(wanted)
    batch = hand_batch()
    tokens = rd.token_frame(batch, ["rollout_log_prob"])
    ours, theirs = (conditional_means(x, metric="prob_diff") for x in (batch, tokens))
    assert ours["mean"].tolist() == pytest.approx(theirs["mean"].tolist(), rel=1e-5)


def test_a_mean_of_sample_means_is_standardised_as_one() -> None:
    frame = pd.DataFrame(
        {
            "sample": [0, 0, 0, 1, 0],
            "round": [0, 0, 0, 0, 1],
            "diff": [0.3, 0.3, 0.6, 0.8, 0.6],
            "rollout_log_prob": [LIKELY, LIKELY, RARE, RARE, RARE],
        }
    )
    means = standardise(frame, metric="train_rollout_logprob_abs_diff")

    assert means["mean"].tolist() == pytest.approx([0.6, 0.6])
    # A token of sample 0 counts a third: 2/3 are likely, 1/3 + 1 + 1 are rare.
    likely, rare = 2 / 9, 7 / 9
    assert means["standardised"].tolist() == pytest.approx(
        [likely * 0.3 + rare * (0.6 / 3 + 0.8) / (4 / 3), 0.6]
    )
    assert means["covered"].tolist() == pytest.approx([1.0, rare])


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (
            "place",
            "`by`: expected one of ['sample', 'diff', 'rollout_log_prob', 'prob'];"
            " found 'place'. Name a column of samples or of rounds.",
        ),
        (
            "prob",
            "`by`: expected a column that is called none of ['prob_low', 'prob_high',"
            " 'num_samples', 'num_tokens', 'num_nonfinite', 'mean', 'ci_low',"
            " 'ci_high', 'is_few', 'prob', 'envelope']; found 'prob'. Give the column"
            " another name.",
        ),
    ],
)
def test_what_cannot_divide_tokens_is_an_error(by: str, message: str) -> None:
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        conditional_means(FRAME.assign(prob=1.0), by=by)


def test_an_unknown_metric_is_an_error() -> None:
    with pytest.raises(FrameError, match=r"^`metric`: expected one of \['abs_diff', "):
        standardise(FRAME, metric="kl")


def test_what_is_below_the_first_edge_has_no_bin() -> None:
    probs = np.array([0.1, 0.2, 0.5, 0.7, 1.5])
    assert prob_bin(probs, [0.2, 0.5, 1]).tolist() == [2, 0, 0, 1, 2]
