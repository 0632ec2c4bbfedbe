"""The weights of corrections, and what they do to an update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.core.weights import Ratios, token_weights
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import CORRECTIONS, Correction

Formula: TypeAlias = Callable[[list[tuple[float, float, float, float]]], list[float]]

LN2, STEP = math.log(2), math.log(1.6)


def batch_of(*log_ratios: list[float], **fields: Any) -> rd.Batch:
    """Two samples or more whose tokens have these log ratios; padded with mask 0."""
    width = max(map(len, log_ratios))
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in log_ratios])
    diff = torch.tensor([[*r, *[9.0] * (width - len(r))] for r in log_ratios])
    rollout = torch.full_like(diff, -3.0)
    return rd.Batch.from_padded(
        response_ids=torch.ones_like(mask),
        response_mask=mask,
        rollout_log_probs=rollout,
        old_log_probs=rollout + diff,
        **fields,
    )


# One token at a ratio of 4, one at 1; a sample of 1.6, 1 / 1.6, 1 (a product of 1).
BATCH = batch_of([2 * LN2, 0.0], [STEP, -STEP, 0.0])


WEIGHTS: list[tuple[str, list[float]]] = [
    ("none", [1, 1, 1, 1, 1]),
    ("tis", [2, 1, 1.6, 0.625, 1]),
    ("tis_trl", [3, 1, 1.6, 0.625, 1]),
    ("icepop", [4, 1, 1.6, 0.625, 1]),
    ("mis_prime_rl", [4, 1, 1.6, 0.625, 1]),
    ("sequence_tis", [2, 2, 1, 1, 1]),
    ("sequence_tis_skyrl", [4, 4, 1, 1, 1]),
    ("sequence_mask_trl", [0, 0, 1, 1, 1]),
    ("sequence_rejection", [0, 0, 1, 1, 1]),
    ("product_mask_skyrl", [0, 0, 1, 1, 1]),
    ("geometric", [0, 0, 1, 1, 1]),
    ("geometric_skyrl", [0, 0, 1, 1, 1]),
    ("geometric_openrlhf", [4, 1, 1.6, 0.625, 1]),
    ("seq_mask_tis", [0, 0, 1.6, 0.625, 1]),
    # A mean k3 of (3 - ln 4) / 2, and of (1.6 + 0.625 - 2) / 3.
    ("k3_rejection", [0, 0, 0, 0, 0]),
    ("veto", [1, 1, 1, 1, 1]),
    # Probabilities of 0.05 to 0.2 differ by less than 0.3.
    ("ipo_prime_rl", [4, 1, 1.6, 0.625, 1]),
    ("dppo_prime_rl", [4, 1, 1.6, 0.625, 1]),
]


@pytest.mark.parametrize(("name", "weights"), WEIGHTS)
def test_weights(name: str, weights: list[float]) -> None:
    assert token_weights(BATCH, name).tolist() == pytest.approx(weights, abs=1e-6)


def test_weights_are_columns_of_the_token_frame() -> None:
    frame = rd.token_frame(BATCH, ["weight_tis", "weight_veto"])
    assert frame["weight_tis"].tolist() == pytest.approx([2, 1, 1.6, 0.625, 1])
    assert frame["weight_veto"].tolist() == [1] * 5
    with pytest.raises(BatchError, match="expected a score `current`"):
        rd.token_frame(BATCH, ["weight_ppo_clip"])


def test_every_correction_of_the_mismatch_is_in_the_table_above() -> None:
    tested = {name for name, _ in WEIGHTS}
    assert tested == {c.name for c in CORRECTIONS.values() if c.weight != "update"}


def _tokens(one: rd.Batch) -> Iterator[list[tuple[float, float, float, float]]]:
    """Of each sample: log ratio, both log-probs and advantage of each token."""
    advantages = one.advantages
    assert advantages is not None
    rows = (one.log_probs("old"), one.log_probs("rollout"), advantages)
    for sample in range(one.num_samples):
        at = slice(int(one.offsets[sample]), int(one.offsets[sample + 1]))
        keep = one.response_mask[at] == 1
        old, rollout, advantage = (row[at][keep] for row in rows)
        columns = (old - rollout, old, rollout, advantage)
        yield [*zip(*(column.tolist() for column in columns), strict=True)]


def _of_tokens(rule: Callable[[float, float, float, float], float]) -> Formula:
    return lambda sample: [rule(*one) for one in sample]


def _seq_mask_tis(sample: list[tuple[float, float, float, float]]) -> list[float]:
    mean = math.exp(sum(one[0] for one in sample) / len(sample))
    return [math.exp(one[0]) if 0.999 <= mean <= 1.002 else 0 for one in sample]


def _dppo(log_ratio: float, old: float, rollout: float, advantage: float) -> float:
    apart = math.exp(old) - math.exp(rollout)
    is_off = apart > 0.2 if advantage > 0 else apart < -0.2
    return 0.0 if is_off else math.exp(log_ratio)


# As their documentation and configuration have them: slime (`--tis-clip` 2,
# `--tis-clip-low` 0, icepop), NeMo-RL (`tis`, `icepop`, `seq-mask-tis`) and prime-rl
# (`token_mask_low`, `token_mask_high`; the mask of its DPPO loss).
FORMULAS: dict[str, Formula] = {
    "tis": _of_tokens(lambda log_ratio, *_: min(max(math.exp(log_ratio), 0.0), 2.0)),
    "icepop": _of_tokens(
        lambda log_ratio, *_: (
            math.exp(log_ratio) if 0.5 <= math.exp(log_ratio) <= 5 else 0.0
        )
    ),
    "seq_mask_tis": _seq_mask_tis,
    "mis_prime_rl": _of_tokens(
        lambda log_ratio, *_: (
            math.exp(log_ratio) if 1 / 8 <= math.exp(log_ratio) <= 8 else 0.0
        )
    ),
    "ipo_prime_rl": _of_tokens(
        lambda log_ratio, old, rollout, _: (
            math.exp(log_ratio) if abs(math.exp(old) - math.exp(rollout)) <= 0.3 else 0
        )
    ),
    "dppo_prime_rl": _of_tokens(_dppo),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_weights_equal_the_formulas_of_trainers_on_50_batches(name: str) -> None:
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        mask = (torch.rand(8, 30, generator=generator) < 0.8).long()
        mask[:, 0] = 1
        rollout = torch.rand(8, 30, generator=generator).clamp(min=1e-4).log()
        size = 10 ** (3 * torch.rand(8, 1, generator=generator) - 3)
        noise = size * torch.randn(8, 30, generator=generator)
        batch = rd.Batch.from_padded(
            response_ids=torch.ones_like(mask),
            response_mask=mask,
            rollout_log_probs=rollout,
            old_log_probs=(rollout + noise).clamp(max=-1e-6),
            advantages=torch.randn(8, 30, generator=generator),
        )
        expected = [one for row in _tokens(batch) for one in FORMULAS[name](row)]
        found = token_weights(batch, name)
        assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_token_that_is_far_off_drops_its_whole_sample() -> None:
    batch = batch_of([0.0, -math.log(1e5)], [0.0, math.log(99)])
    assert token_weights(batch, "veto").tolist() == [0, 0, 1, 1]


def test_ppo_stops_a_gradient_only_beyond_the_range_in_its_direction() -> None:
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0]])
    base = batch_of([0.0] * 5, advantages=advantages)
    current = base.log_probs("old") + torch.log(torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1]))
    batch = batch_of(
        [0.0] * 5, advantages=advantages, scores={"current": current[None]}
    )
    expected = [0.0, 1.5, 0.5, 0.0, 1.1]
    assert token_weights(batch, "ppo_clip").tolist() == pytest.approx(expected)


def test_a_ratio_at_the_end_of_the_range_keeps_its_gradient() -> None:
    old = batch_of([0.0] * 2).log_probs("old")[None]
    advantages = torch.tensor([[1.0, -1.0]])
    batch = batch_of([0.0] * 2, advantages=advantages, scores={"current": old})
    for bounds in ((0.5, 1.0), (1.0, 2.0)):
        clip = replace(CORRECTIONS["ppo_clip"], bounds=bounds)
        assert token_weights(batch, clip).tolist() == [1.0, 1.0]


def test_a_correction_of_the_update_needs_its_log_probs() -> None:
    with pytest.raises(BatchError, match="expected a score `current`"):
        rd.corrections(BATCH, ["ppo_clip"])
    assert not {"ppo_clip", "gspo_clip"} & {*rd.corrections(BATCH)["correction"]}


def test_what_a_correction_does_to_the_update() -> None:
    # Weights 2, 1, 1.6, 0.625, 1 on advantages 1, 1, -2, -2, -2.
    rows = rd.corrections(BATCH, ["tis"], advantages=np.array([1.0, -2.0]))
    (row,) = rows.to_dict("records")
    assert row["num_tokens"] == 5
    assert row["tokens_kept"] == row["samples_kept"] == row["gradient_share"] == 1
    assert row["mean_weight"] == pytest.approx(6.225 / 5)
    assert row["max_weight"] == 2
    assert row["effective_sample_size"] == pytest.approx(
        6.225**2 / (5 * (4 + 1 + 1.6**2 + 0.625**2 + 1))
    )
    assert row["gradient_kept"] == pytest.approx((3 + 2 * 3.225) / 8)
    pulled = [2, 1, 3.2, 1.25, 2]
    norm = math.hypot(*pulled) * math.hypot(1, 1, 2, 2, 2)
    assert row["cosine"] == pytest.approx((3 + 2 * (3.2 + 1.25 + 2)) / norm)


def test_shares_by_a_column_sum_to_the_step() -> None:
    rows = rd.corrections(BATCH, ["icepop", "sequence_mask_trl"], by="sample")
    assert rows["sample"].tolist() == [0, 1, 0, 1]
    assert rows["samples_kept"].tolist() == [1, 1, 0, 1]
    assert rows["gradient_share"].tolist() == pytest.approx(
        [5 / 8.225, 3.225 / 8.225, 0, 1]
    )


def test_tokens_without_a_finite_ratio_are_left_out_and_counted() -> None:
    batch = batch_of([math.nan, 0.0], [math.inf, LN2])
    rows = rd.corrections(batch, ["tis"])
    assert rows["num_tokens"].tolist() == [2]
    assert rows.attrs["num_nonfinite"] == 2
    weights = token_weights(batch, "tis")
    assert np.isnan(weights).tolist() == [True, False, True, False]


def test_without_a_token_nothing_is_defined() -> None:
    batch = rd.Batch.from_padded(
        response_ids=torch.ones(1, 2, dtype=torch.long),
        response_mask=torch.zeros(1, 2),
        rollout_log_probs=torch.zeros(1, 2),
        old_log_probs=torch.zeros(1, 2),
    )
    (row,) = rd.corrections(batch, ["tis"]).to_dict("records")
    assert row["num_tokens"] == 0
    assert math.isnan(row["cosine"])


def test_a_correction_of_your_own() -> None:
    mine = Correction(
        name="kpop",
        meaning="dropped above a divergence",
        source="",
        weight="one",
        estimator="binary_kl",
        bounds=(0.0, 0.1),
    )
    # p = 4 e^-3 and e^-3: the larger divergence is that of the first from the second.
    p, q = 4 * math.exp(-3), math.exp(-3)
    forward = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    assert forward > 0.1
    assert token_weights(BATCH, mine).tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["tiss"]}, "Did you mean 'tis'"),
        ({"advantages": np.ones(3)}, "expected 2 values, one per sample, or 5"),
        ({"by": "nothing"}, "nothing"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FrameError, match=message):
        rd.corrections(BATCH, **options)


def oracle(correction: Correction, log_ratio: list[list[float]]) -> list[float]:
    """Token weights by plain loops."""
    found = []
    for row in log_ratio:
        statistic = {
            "token": row,
            "all": row,
            "sum": [math.fsum(row)] * len(row),
            "mean": [math.fsum(row) / len(row)] * len(row),
        }[correction.level]
        values = [math.exp(x) for x in statistic]
        if correction.estimator == "k1":
            values = [math.exp(-x) for x in statistic]
        if correction.estimator == "k3":
            each = [math.exp(x) - 1 - x for x in row]
            values = [math.fsum(each) / len(row)] * len(row)
        low, high = correction.bounds
        keep = [low <= value <= high for value in values]
        if correction.level == "all":
            keep = [all(keep)] * len(row)
        total = math.exp(math.fsum(row))
        for x, is_kept in zip(row, keep, strict=True):
            weight = {"one": 1.0, "token": math.exp(x), "sample": total}
            clipped = weight[correction.weight]
            if correction.weight != "one":
                clipped = min(max(clipped, correction.clip[0]), correction.clip[1])
            found.append(clipped if is_kept else 0.0)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_weights_equal_those_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 0.3, rng.integers(1, 9)).tolist() for _ in range(12)]
    batch = batch_of(*rows)
    exact = Ratios.of(batch, "old", "rollout", None).log_ratio
    split = np.split(exact, np.cumsum([*map(len, rows)])[:-1])
    for correction in CORRECTIONS.values():
        if correction.weight != "update" and "prob_diff" not in correction.estimator:
            expected = oracle(correction, [one.tolist() for one in split])
            found = token_weights(batch, correction)
            np.testing.assert_allclose(
                found, expected, rtol=1e-6, err_msg=str(correction)
            )


@pytest.mark.parametrize(
    ("name", "limit", "bounds", "largest"),
    [
        ("icepop", 25.0, (0.25, 25.0), math.inf),  # both as far, in logarithms
        ("geometric", 1.001**0.5, (0.999**0.5, 1.001**0.5), math.inf),
        ("tis", 1.5, (0.0, math.inf), 1.5),
        ("sequence_rejection", 4.0, (0.25, 4.0), 2.0),  # its cap stays
        ("k3_rejection", 0.5, (0.0, 0.5), math.inf),
    ],
)
def test_another_limit_of_a_correction(
    name: str, limit: float, bounds: tuple[float, float], largest: float
) -> None:
    changed = CORRECTIONS[name].limited(limit)
    assert changed.limit == limit
    assert changed.bounds == pytest.approx(bounds)
    assert changed.clip[1] == largest


@pytest.mark.parametrize(("name", "limit"), [("icepop", 1.0), ("k3_rejection", 0.0)])
def test_a_limit_that_keeps_nothing_is_refused(name: str, limit: float) -> None:
    with pytest.raises(FrameError, match="`limit`: expected a"):
        CORRECTIONS[name].limited(limit)
