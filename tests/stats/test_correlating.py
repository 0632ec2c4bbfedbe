"""Correlations of samples."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import sample_frame
from rounddiag.errors import FrameError
from rounddiag.stats import correlations
from rounddiag.stats.intervals import NUM_DRAWS
from tests.batches import hand_batch, padded, random_log_probs


def frame(num: int = 40, **columns: object) -> pd.DataFrame:
    values = np.linspace(0.1, 0.5, num)
    return pd.DataFrame({"sample": range(num), "mean_abs_diff": values, **columns})


def pearson(x: list[float], y: list[float]) -> float:
    """Pearson's r, term by term; NaN where one does not vary."""
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    pairs = [(a - mean_x, b - mean_y) for a, b in zip(x, y, strict=True)]
    scale = math.fsum(a * a for a, _ in pairs) * math.fsum(b * b for _, b in pairs)
    return math.fsum(a * b for a, b in pairs) / math.sqrt(scale) if scale else math.nan


def by_loops(
    x: list[float], y: list[float], group: list[int], quantile: float
) -> tuple[float, float, float]:
    """The correlation and its interval, draw by draw and sample by sample."""
    num = max(group) + 1
    drawn = []
    generator = np.random.default_rng(0)
    for times in generator.multinomial(num, np.full(num, 1 / num), NUM_DRAWS):
        taken = [i for i, g in enumerate(group) for _ in range(times[g])]
        if len({x[i] for i in taken}) > 1 < len({y[i] for i in taken}):
            known = pearson([x[i] for i in taken], [y[i] for i in taken])
            drawn.append(math.atanh(known))
    mean = math.fsum(drawn) / len(drawn)
    spread = math.sqrt(math.fsum((z - mean) ** 2 for z in drawn) / len(drawn))
    value = pearson(x, y)
    middle, reach = math.atanh(value), quantile * spread
    return value, math.tanh(middle - reach), math.tanh(middle + reach)


def test_what_rises_with_the_mismatch_has_correlation_one() -> None:
    found = correlations(frame(reward=-np.arange(40.0), num_tokens=np.arange(40) ** 3))

    assert found["column"].tolist() == ["reward", "num_tokens"]
    assert found["num_samples"].tolist() == [40, 40]
    assert found["pearson"][0] == pytest.approx(-1)
    ends = found[["pearson_low", "pearson_high"]].to_numpy()[0].tolist()
    assert ends == pytest.approx([-1, -1])
    assert found["spearman"].tolist() == pytest.approx([-1, 1])
    expected = np.corrcoef(np.linspace(0.1, 0.5, 40), np.arange(40) ** 3)[0, 1]
    assert found["pearson"][1] == pytest.approx(expected)
    assert found["pearson_low"][1] <= expected <= found["pearson_high"][1]


@pytest.mark.parametrize(
    ("size", "quantile"),
    # t at 97.5 % with 23 and with 11 degrees of freedom.
    [(1, 2.0686576), (2, 2.2009852)],
)
def test_correlations_and_their_intervals_are_those_of_plain_loops(
    size: int, quantile: float
) -> None:
    generator = np.random.default_rng(4)
    y = np.exp(generator.standard_normal(24))
    x = y + generator.standard_normal(24)
    group = [i // size for i in range(24)]
    names = [f"{g:02}" for g in group]
    samples = frame(24, reward=x, group_id=names).assign(mean_abs_diff=y)
    row = correlations(samples).iloc[0]

    of_values = by_loops(x.tolist(), y.tolist(), group, quantile)
    assert row[["pearson", "pearson_low", "pearson_high"]].tolist() == pytest.approx(
        of_values
    )
    ranks = [np.argsort(np.argsort(values)).tolist() for values in (x, y)]
    of_ranks = by_loops(ranks[0], ranks[1], group, quantile)
    assert row[["spearman", "spearman_low", "spearman_high"]].tolist() == pytest.approx(
        of_ranks
    )


def test_draws_without_the_one_success_tell_nothing() -> None:
    # A third of the draws have no success; the others say what is known.
    x = [0.3] * 11 + [1.0]
    y = [0.1, 0.4, 0.2, 0.5, 0.3, 0.6, 0.2, 0.4, 0.1, 0.5, 0.3, 0.6]
    samples = frame(12, reward=x).assign(mean_abs_diff=y)
    row = correlations(samples).iloc[0]
    value, low, high = by_loops(x, y, list(range(12)), 2.2009852)
    assert row[["pearson", "pearson_low", "pearson_high"]].tolist() == pytest.approx(
        [value, low, high]
    )
    assert low > -0.99
    assert high < 0.99


def test_what_has_nothing_to_do_with_it_has_an_interval_around_zero() -> None:
    noise = np.random.default_rng(1).standard_normal(40)
    found = correlations(frame(reward=noise))

    assert found["pearson_low"][0] < 0 < found["pearson_high"][0]
    assert found["spearman_low"][0] < 0 < found["spearman_high"][0]


def test_few_groups_have_no_interval() -> None:
    reward = np.random.default_rng(1).standard_normal(40)
    found = correlations(frame(reward=reward, group_id=["a", "b", "c", "d"] * 10))

    assert np.isfinite(found["pearson"][0])
    assert np.isnan(found[["pearson_low", "spearman_high"]].to_numpy()).all()


def test_groups_make_the_interval_wider() -> None:
    # Every group's samples are one sample twelve times: 20 facts, not 240.
    alone = frame(20, reward=np.random.default_rng(2).standard_normal(20))
    repeated = pd.concat([alone] * 12, ignore_index=True)
    grouped = repeated.assign(group_id=[str(i) for i in repeated["sample"]])

    def width(samples: pd.DataFrame) -> float:
        row = correlations(samples).iloc[0]
        return float(row["pearson_high"] - row["pearson_low"])

    assert width(grouped) > 2 * width(repeated)
    assert width(grouped) == pytest.approx(width(alone), rel=0.2)


def test_the_index_of_a_frame_says_nothing() -> None:
    samples = frame(20, reward=np.random.default_rng(2).standard_normal(20))
    other = samples.set_axis([7] * 20)
    pd.testing.assert_frame_equal(correlations(other), correlations(samples))


def test_a_column_that_does_not_vary_or_is_text_is_left_out() -> None:
    found = correlations(frame(reward=1.0, sample_id=["a"] * 40))

    assert found["column"].tolist() == []


def test_samples_without_a_value_are_left_out() -> None:
    reward = np.where(np.arange(40) < 10, np.nan, np.arange(40.0))
    found = correlations(frame(reward=reward))

    assert found["num_samples"].tolist() == [30]


def test_entropy_is_the_mean_over_the_tokens_of_a_sample() -> None:
    nan, inf = math.nan, math.inf
    # Tokens at 0 1 3 | 1 2 3 5 | 0; what is not finite is left out.
    entropy = torch.tensor(
        [
            [1.0, 2.0, 99.0, 6.0, 99.0, 99.0],
            [99.0, 1.0, nan, 2.0, 99.0, inf],
            [2.5, 99.0, 99.0, 99.0, 99.0, 99.0],
        ]
    )
    batch = hand_batch(entropy=entropy)
    found = correlations(batch)
    row = found[found["column"] == "entropy"].iloc[0]
    # |diff|: 0.5 0.25 1 | 0 0.25 0.5 2 | 1.
    wanted = pearson([3.0, 1.5, 2.5], [1.75 / 3, 2.75 / 4, 1.0])
    assert row["num_samples"] == 3
    assert row["pearson"] == pytest.approx(wanted)
    assert "entropy" not in correlations(hand_batch())["column"].tolist()


def test_a_sample_without_tokens_has_no_entropy() -> None:
    batch = padded(
        [[1, 1], [0, 0], [1, 0]],
        [[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]],
        torch.zeros(3, 2),
        entropy=torch.tensor([[1.0, 3.0], [5.0, 5.0], [1.0, 5.0]]),
    )
    found = correlations(batch).set_index("column")
    assert found["num_samples"]["entropy"] == 2
    assert found["pearson"]["entropy"] == pytest.approx(-1)


def test_each_value_of_a_column_is_correlated_by_itself() -> None:
    old, rollout = random_log_probs((30, 4), 1), random_log_probs((30, 4), 2)
    ranks = np.arange(30) % 2
    rewards = torch.from_numpy(np.random.default_rng(3).standard_normal(30))
    batch = padded(
        torch.ones(30, 4),
        old,
        rollout,
        rewards=rewards,
        sample_columns={"rank": ranks},
    )
    found = correlations(batch, by="rank")
    assert found.columns.tolist()[:2] == ["rank", "column"]
    for rank in (0, 1):
        alone = correlations(sample_frame(batch)[ranks == rank])
        of_rank = found[found["rank"] == rank].drop(columns="rank")
        pd.testing.assert_frame_equal(of_rank.reset_index(drop=True), alone)


def test_a_column_of_rounds_that_divides_no_samples_is_refused() -> None:
    columns = {
        "sample": np.array([0, 0, 1, 1, 2]),
        "round": np.array([0, 1, 0, 1, 0]),
        "replica": np.array([4, 4, 7, 7, 4]),
        "version": np.array([1, 2, 1, 1, 1]),
    }
    batch = hand_batch(round_columns=columns, rewards=torch.tensor([0.0, 1.0, 0.5]))
    found = correlations(batch, by="replica")
    assert set(found["replica"]) == {4}
    message = (
        "`by`: expected a column that has one value for all rounds of a sample; found"
        " several values of 'version'. Use a column with one"
        " value per sample."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        correlations(batch, by="version")


def test_the_worst_samples_of_a_file_do_not_count() -> None:
    columns = {"picked": np.array(["random", "random", "worst"])}
    batch = hand_batch(rewards=torch.tensor([0.0, 1.0, 9.0]))
    batch = replace(batch, sample_columns=columns, meta={"capture": {"rounds": []}})
    assert set(correlations(batch)["num_samples"]) == {2}


def test_an_empty_batch_has_no_correlation() -> None:
    empty = torch.zeros(0, 3)
    batch = padded(empty, empty, empty, entropy=empty)

    assert len(correlations(batch)) == 0
    assert len(correlations(batch, by="num_rounds")) == 0


def test_a_frame_without_means_is_an_error() -> None:
    with pytest.raises(FrameError, match="without \\['mean_abs_diff'\\]"):
        correlations(frame().drop(columns="mean_abs_diff"))
