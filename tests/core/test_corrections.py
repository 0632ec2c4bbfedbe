"""The weights of corrections, and what they do to an update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.core.corrections import find_unbeaten
from rounddiag.core.weights import Ratios, token_weights
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import CORRECTIONS, Correction, Edges, Mask, Weight

Token: TypeAlias = tuple[float, float, float, float]  # log ratio, a, b, advantage
Formula: TypeAlias = Callable[[list[Token]], list[float]]

LN2, STEP = math.log(2), math.log(1.6)
NAN, INF = math.nan, math.inf


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


def updated(*log_ratios: float, **fields: Any) -> rd.Batch:
    """One sample whose tokens have these log ratios of the update, 0 of the engines."""
    base = batch_of([0.0] * len(log_ratios))
    current = base.log_probs("old") + torch.tensor(log_ratios)
    advantages = fields.pop("advantages", [1.0] * len(log_ratios))
    return batch_of(
        [fields.pop("mismatch", 0.01)] * len(log_ratios),
        scores={"current": current[None] + 0.01},
        advantages=torch.tensor([advantages]),
        meta={"old_log_probs_source": "a pass of its own"},
        **fields,
    )


# One token at a ratio of 4, one at 1; a sample of 1.6, 1 / 1.6, 1 (a product of 1).
BATCH = batch_of([2 * LN2, 0.0], [STEP, -STEP, 0.0])
# A mean of 6.225 / 5 over tokens.
MEAN = 1.245

WEIGHTS: list[tuple[str, list[float]]] = [
    ("none", [1, 1, 1, 1, 1]),
    ("tis", [2, 1, 1.6, 0.625, 1]),
    ("tis_normalised", [2 / MEAN, 1 / MEAN, 1.6 / MEAN, 0.625 / MEAN, 1 / MEAN]),
    ("tis_trl", [3, 1, 1.6, 0.625, 1]),
    ("icepop", [4, 1, 1.6, 0.625, 1]),
    ("token_mask_trl", [0, 1, 1.6, 0.625, 1]),
    ("mis_prime_rl", [4, 1, 1.6, 0.625, 1]),
    ("icepop_prime_rl", [4, 1, 1.6, 0.625, 1]),
    ("mis_slime", [0, 1 / MEAN, 1.6 / MEAN, 0.625 / MEAN, 1 / MEAN]),
    ("sequence_tis", [2, 2, 1, 1, 1]),
    ("sequence_tis_skyrl", [4, 4, 1, 1, 1]),
    ("sequence_mask_trl", [0, 0, 1, 1, 1]),
    ("sequence_truncate_trl", [3, 3, 1, 1, 1]),
    ("sequence_rejection", [0, 0, 1, 1, 1]),
    ("product_mask_skyrl", [0, 0, 1, 1, 1]),
    ("geometric", [0, 0, 1, 1, 1]),
    ("geometric_skyrl", [0, 0, 1, 1, 1]),
    ("geometric_openrlhf", [4, 1, 1.6, 0.625, 1]),
    ("seq_mask_tis", [0, 0, 1.6, 0.625, 1]),
    # A mean k3 of (3 - ln 4) / 2, and of (1.6 + 0.625 - 2) / 3.
    ("k3_rejection", [0, 0, 0, 0, 0]),
    ("veto", [1, 1, 1, 1, 1]),
    # Probabilities of 0.03 to 0.2 differ by less than 0.2.
    ("ipo_prime_rl", [4, 1, 1.6, 0.625, 1]),
    ("dppo_prime_rl", [4, 1, 1.6, 0.625, 1]),
    ("dppo_tv_skyrl", [4, 1, 1.6, 0.625, 1]),
    ("dppo_kl_skyrl", [4, 1, 1.6, 0.625, 1]),
    # No advantage is negative.
    ("off_policy_mask_trl", [1, 1, 1, 1, 1]),
]


@pytest.mark.parametrize(("name", "weights"), WEIGHTS)
def test_weights(name: str, weights: list[float]) -> None:
    assert token_weights(BATCH, name).tolist() == pytest.approx(weights, abs=1e-6)


# Update ratios of 1.5, 1.5, 0.5, 0.5, 1.1, 4 with advantages of both signs; their mean
# log ratio is 0.151. The ratio of both engines is 1.01.
UPDATES = [math.log(ratio) for ratio in (1.5, 1.5, 0.5, 0.5, 1.1, 4.0)]
SIGNS = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]
SAME, GEOMETRIC = math.exp(0.01), math.exp(sum(UPDATES) / 6)
OF_UPDATE: list[tuple[str, list[float]]] = [
    ("ppo_clip", [0, 1.5, 0.5, 0, 1.1, 4]),
    ("ppo_dual_clip", [0, 1.5, 0.5, 0, 1.1, 0]),
    ("ppo_clip_tis", [0, 1.5 * SAME, 0.5 * SAME, 0, 1.1 * SAME, 0]),
    ("cispo", [1.2, 1.2, 0.8, 0.8, 1.1, 1.2]),
    ("cispo_skyrl", [1.5, 1.5, 1, 1, 1.1, 4]),
    ("cispo_trl", [1.5, 1.5, 0.5, 0.5, 1.1, 4]),
    ("gspo_clip", [0, GEOMETRIC, 0, GEOMETRIC, 0, GEOMETRIC]),
    ("gspo_clip_verl", [GEOMETRIC] * 6),  # 1.16
    # Probabilities of 0.05 differ by less than 0.2, and the divergence is 0.08.
    ("dppo_tv_verl", [1.5, 1.5, 0.5, 0.5, 1.1, 3]),
    ("dppo_kl_verl", [1.5, 1.5, 0.5, 0.5, 1.1, 3]),
    ("off_policy_mask_slime", [1, 1, 1, 1, 1, 1]),  # the update likes the tokens more
]


@pytest.mark.parametrize(("name", "weights"), OF_UPDATE)
def test_weights_of_an_update(name: str, weights: list[float]) -> None:
    batch = updated(*UPDATES, advantages=SIGNS)
    assert token_weights(batch, name).tolist() == pytest.approx(weights, abs=2e-4)


def test_every_preset_is_in_a_table_above() -> None:
    assert {name for name, _ in (*WEIGHTS, *OF_UPDATE)} == {*CORRECTIONS}


def test_weights_are_columns_of_the_token_frame() -> None:
    frame = rd.token_frame(BATCH, ["weight_tis", "weight_veto"])
    assert frame["weight_tis"].tolist() == pytest.approx([2, 1, 1.6, 0.625, 1])
    assert frame["weight_veto"].tolist() == [1] * 5
    with pytest.raises(BatchError, match="expected a score `current`"):
        rd.token_frame(BATCH, ["weight_ppo_clip"])


@pytest.mark.parametrize(
    ("name", "advantage", "kept"),
    [
        ("off_policy_mask_trl", -1.0, False),
        ("off_policy_mask_trl", 1.0, True),
        ("off_policy_mask_slime", -1.0, False),
        ("off_policy_mask_slime", 0.0, True),
    ],
)
def test_samples_that_training_likes_less_are_dropped_at_a_negative_advantage(
    name: str, advantage: float, *, kept: bool
) -> None:
    """A mean of -log ratio of 0.6 and of 0.4 nat: TRL's threshold is 0.5."""
    batch = updated(-1.2, 0.0, advantages=[advantage] * 2, mismatch=0.0)
    assert token_weights(batch, name).tolist() == [float(kept)] * 2
    near = updated(-0.8, 0.0, advantages=[advantage] * 2, mismatch=0.0)
    is_within = kept or name == "off_policy_mask_trl"
    assert token_weights(near, name).tolist() == [float(is_within)] * 2


# What each trainer makes of a sample of one odd token and one of a ratio of 1.
LOW = math.exp(-20)
EDGES: list[tuple[str, float, list[float]]] = [
    # verl clamps: a token of -inf leaves 2e-9. It drops what it cannot compare.
    ("tis", -INF, [LOW, 1]),
    ("tis", INF, [2, 1]),
    ("tis", NAN, [NAN, 1]),
    ("icepop", NAN, [0, 1]),
    ("sequence_tis", -INF, [LOW, LOW]),
    ("sequence_tis", NAN, [NAN, NAN]),
    *(
        (name, odd, [0.0, 0.0])
        for name in ("geometric", "k3_rejection")
        for odd in (-INF, NAN)
    ),
    ("sequence_rejection", -INF, [0, 0]),
    # SkyRL keeps what it cannot compare.
    *(
        (name, odd, [float(kept)] * 2)
        for name in ("veto", "product_mask_skyrl", "geometric_skyrl")
        for odd, kept in ((-INF, 0), (INF, 0), (NAN, 1))
    ),
    ("sequence_tis_skyrl", -INF, [LOW, LOW]),
    # TRL takes an unknown token for one of a ratio of 1.
    ("tis_trl", NAN, [1, 1]),
    ("tis_trl", -INF, [0, 1]),
    ("sequence_mask_trl", INF, [0, 0]),
    ("sequence_mask_trl", -INF, [0, 0]),
    ("sequence_mask_trl", NAN, [1, 1]),
    ("geometric_openrlhf", -INF, [0, 0]),
    ("geometric_openrlhf", NAN, [0, 0]),
    # NeMo-RL: no weight for the token, and no word in the mean.
    ("seq_mask_tis", INF, [0, 1]),
    ("seq_mask_tis", NAN, [0, 1]),
    # prime-rl keeps an unknown token, whose loss is then unknown.
    ("ipo_prime_rl", NAN, [NAN, 1]),
    ("ipo_prime_rl", 12.0, [0, 1]),
]


@pytest.mark.parametrize(("name", "odd", "weights"), EDGES)
def test_edges(name: str, odd: float, weights: list[float]) -> None:
    found = token_weights(batch_of([odd, 0.0]), name)
    np.testing.assert_allclose(found, weights, rtol=1e-6)


def test_a_token_outside_the_loss_is_in_no_share_and_spoils_what_it_spoils() -> None:
    mask = torch.tensor([[0, 1], [1, 1]])
    batch = batch_of([NAN, LN2], [0.0, 0.0], loss_mask=mask)
    rows = rd.corrections(batch, ["tis", "sequence_tis", "sequence_tis_skyrl"])
    assert rows["num_tokens"].tolist() == [3, 3, 3]
    assert rows["mean_weight"].tolist()[:2] == pytest.approx([4 / 3, 4 / 3])
    # SkyRL multiplies by its mask, and NaN times 0 is NaN: the sample has no weight.
    assert rows["num_left_out"].tolist() == [0, 0, 1]
    assert np.isnan(token_weights(batch, "tis")).tolist() == [True] + [False] * 3


def test_what_has_no_weight_is_counted() -> None:
    batch = batch_of([NAN, 0.0], [INF, LN2])
    rows = rd.corrections(batch, ["tis", "sequence_tis", "veto", "ipo_prime_rl"])
    assert rows["num_tokens"].tolist() == [4] * 4
    assert rows["num_left_out"].tolist() == [1, 2, 0, 1]
    assert rows["mean_weight"].tolist()[:3] == pytest.approx([5 / 3, 2, 0.5])
    assert rows.attrs["num_nonfinite"] == 2


def _tokens(batch: rd.Batch) -> Iterator[list[Token]]:
    """Of each sample, its tokens that the loss counts."""
    assert batch.advantages is not None
    assert batch.loss_mask is not None
    rows = (batch.log_probs("old"), batch.log_probs("rollout"), batch.advantages)
    for sample in range(batch.num_samples):
        at = slice(int(batch.offsets[sample]), int(batch.offsets[sample + 1]))
        keep = (batch.response_mask[at] * batch.loss_mask[at]) == 1
        old, rollout, advantage = (row[at][keep] for row in rows)
        columns = (old - rollout, old, rollout, advantage)
        yield [*zip(*(column.tolist() for column in columns), strict=True)]


def _exp(value: float) -> float:
    return INF if value > 700 else math.exp(value)


def _float32(value: float) -> float:
    return value if value < 3.4028235e38 else INF


def _of_tokens(rule: Callable[[float, float, float, float], float]) -> Formula:
    return lambda sample: [rule(*token) for token in sample]


def _seq_mask_tis(sample: list[Token]) -> list[float]:
    """`loss_functions.py` of NeMo-RL, 006907a9: `nan_to_num` of both."""
    logs = [token[0] if math.isfinite(token[0]) else 0.0 for token in sample]
    mean = math.exp(sum(logs) / len(logs)) if logs else 1
    ratios = [_float32(_exp(token[0])) for token in sample]
    known = [ratio if math.isfinite(ratio) else 0.0 for ratio in ratios]
    return [ratio if 0.999 <= mean <= 1.002 else 0.0 for ratio in known]


def _ipo(log_ratio: float, old: float, rollout: float, _: float) -> float:
    """`IPOLoss.loss` of prime-rl, September 2026: capped, unless it is masked."""
    if abs(_exp(old) - _exp(rollout)) > 0.3:
        return 0.0
    return math.nan if math.isnan(log_ratio) else min(_exp(log_ratio), 1e4)


def _icepop(log_ratio: float, *_: float) -> float:
    """`IcePopLoss.loss` of prime-rl, September 2026."""
    is_masked = log_ratio < math.log(0.2) or log_ratio > math.log(5)
    return 0.0 if is_masked else _exp(log_ratio)


def _dppo(log_ratio: float, old: float, rollout: float, advantage: float) -> float:
    """`default_loss_fn` of prime-rl until 2026-08-27."""
    apart = _exp(old) - _exp(rollout)
    is_off = apart > 0.2 if advantage > 0 else apart < -0.2
    return 0.0 if is_off else _exp(log_ratio)


def _mis(samples: list[list[Token]]) -> list[float]:
    """`compute_mis_weights` of slime's `mis.py`, with its example's `mis.yaml`."""
    clamped = [[min(max(token[0], -20), 20) for token in one] for one in samples]
    weights = [[min(math.exp(x), 2.0) for x in one] for one in clamped]
    mean = math.fsum(chain(*weights)) / sum(map(len, weights))
    found = []
    for sample, own, logs in zip(samples, weights, clamped, strict=True):
        is_vetoed = any(token[0] < math.log(1e-4) for token in sample)
        kept = [0.5 <= math.exp(x) <= 2 and not is_vetoed for x in logs]
        found += [w / mean * keep for w, keep in zip(own, kept, strict=True)]
    return found


FORMULAS: dict[str, Formula] = {
    "seq_mask_tis": _seq_mask_tis,
    "ipo_prime_rl": _of_tokens(_ipo),
    "icepop_prime_rl": _of_tokens(_icepop),
    "dppo_prime_rl": _of_tokens(_dppo),
}
# slime's `vanilla_tis_function` and `icepop_function` clamp nothing.
UNCLAMPED = {"tis": (0.0, 2.0, False), "icepop": (0.5, 5.0, True)}


def _random_batch(seed: int, *, odd: bool) -> rd.Batch:
    """Samples of several noises; with tokens of 25 nats and more, and of none."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(8, 30, generator=generator) < 0.8).long()
    mask[:, 0] = 1
    rollout = torch.rand(8, 30, generator=generator).clamp(min=1e-4).log()
    size = 10 ** (3 * torch.rand(8, 1, generator=generator) - 3)
    noise = size * torch.randn(8, 30, generator=generator)
    old = (rollout + noise).clamp(max=-1e-6)
    if odd:
        place = torch.rand(8, 30, generator=generator)
        for index, value in enumerate((-INF, NAN, -25.0, -120.0)):
            old[(place > 0.03 * index) & (place < 0.03 * index + 0.01)] = value
            rollout[(place > 0.03 * index + 0.5) & (place < 0.03 * index + 0.51)] = (
                value
            )
    return rd.Batch.from_padded(
        response_ids=torch.ones_like(mask),
        response_mask=mask,
        rollout_log_probs=rollout,
        old_log_probs=old,
        advantages=torch.randn(8, 30, generator=generator),
        loss_mask=(torch.rand(8, 30, generator=generator) < 0.9).long(),
    )


def _assert_close(found: np.ndarray[Any, Any], expected: list[float]) -> None:
    """Equal within the rounding of float32, relative, and NaN where it is NaN."""
    known = found[~np.isnan(found) | np.isnan(expected)]
    assert len(known) == len(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", FORMULAS)
def test_weights_equal_the_formulas_of_trainers_on_50_batches(name: str) -> None:
    for seed in range(50):
        batch = _random_batch(seed, odd=True)
        expected = [*chain(*map(FORMULAS[name], _tokens(batch)))]
        ratios = Ratios.of(batch)
        _assert_close(ratios.weigh(CORRECTIONS[name]).weight, expected)


@pytest.mark.parametrize("name", UNCLAMPED)
def test_weights_equal_those_of_slime_on_50_batches(name: str) -> None:
    low, high, drops = UNCLAMPED[name]
    rule = replace(CORRECTIONS[name], edges=Edges())
    for seed in range(50):
        batch = _random_batch(seed, odd=True)
        exact = [_exp(token[0]) for sample in _tokens(batch) for token in sample]
        expected = [
            (ratio if low <= ratio <= high else 0.0)
            if drops
            else (ratio if math.isnan(ratio) else min(max(ratio, low), high))
            for ratio in exact
        ]
        _assert_close(Ratios.of(batch).weigh(rule).weight, expected)
        plain = _random_batch(seed, odd=False)
        weights = Ratios.of(plain).weigh(CORRECTIONS["mis_slime"]).weight
        _assert_close(weights, _mis([*_tokens(plain)]))


def test_a_ratio_at_the_end_of_the_range_keeps_its_gradient() -> None:
    batch = updated(0.0, 0.0, advantages=[1.0, -1.0])
    for bounds in ((0.5, 1.0), (1.0, 2.0)):
        clip = Mask(bounds, ratio="update", sign="away")
        rule = Correction("own", weight=(Weight(ratio="update"),), mask=(clip,))
        assert token_weights(batch, rule).tolist() == pytest.approx([1.0, 1.0])


def test_a_correction_of_the_update_needs_its_log_probs() -> None:
    with pytest.raises(BatchError, match="expected a score `current`"):
        rd.corrections(BATCH, ["ppo_clip"])
    assert not {"ppo_clip", "gspo_clip"} & {*rd.corrections(BATCH)["correction"]}


def test_what_a_correction_does_to_the_update() -> None:
    # Weights 2, 1, 1.6, 0.625, 1 on advantages 1, 1, -2, -2, -2; ratios 4, 1, 1.6...
    rows = rd.corrections(BATCH, ["tis"], advantages=np.array([1.0, -2.0]))
    (row,) = rows.to_dict("records")
    assert row["num_tokens"] == 5
    assert row["tokens_kept"] == row["samples_kept"] == row["gradient_share"] == 1
    assert row["share_at_limit"] == pytest.approx(0.2)
    assert row["mean_weight"] == pytest.approx(6.225 / 5)
    assert row["max_weight"] == 2
    assert row["effective_sample_size"] == pytest.approx(
        6.225**2 / (5 * (4 + 1 + 1.6**2 + 0.625**2 + 1))
    )
    assert row["gradient_kept"] == pytest.approx((3 + 2 * 3.225) / 8)
    pulled = [2, 1, 3.2, 1.25, 2]
    norm = math.hypot(*pulled) * math.hypot(1, 1, 2, 2, 2)
    assert row["cosine"] == pytest.approx((3 + 2 * (3.2 + 1.25 + 2)) / norm)
    away = math.hypot(1, 0, 2 * 0.6, 2 * 0.375, 0)
    assert row["moved"] == pytest.approx(away / math.hypot(1, 1, 2, 2, 2))
    assert row["bias_left"] == pytest.approx(2 / math.hypot(4, 1, 3.2, 1.25, 2))


def test_a_mean_over_what_a_rejection_leaves_divides_by_it() -> None:
    """2 of 5 tokens are rejected: verl's mean over tokens divides by 3."""
    names = ["product_mask_skyrl", "sequence_rejection"]
    rows = rd.corrections(BATCH, names)
    assert rows["mean_weight"].tolist() == pytest.approx([0.6, 1])
    assert rows["gradient_kept"].tolist() == pytest.approx([0.6, 1])
    scaled = [0, 0, 5 / 3, 5 / 3, 5 / 3]
    away = math.hypot(*(weight - 1 for weight in scaled)) / math.sqrt(5)
    assert rows["moved"].tolist() == pytest.approx([math.sqrt(2 / 5), away])


def test_a_rule_at_its_limit_looks_no_longer_best() -> None:
    """Every sample is doubled: all are kept, with one weight, and the step doubles."""
    batch = batch_of([LN2, LN2], [LN2 / 2, LN2])
    (row,) = rd.corrections(batch, ["sequence_tis"]).to_dict("records")
    kept = ("tokens_kept", "effective_sample_size", "cosine")
    assert [row[name] for name in kept] == pytest.approx([1, 1, 1])
    assert row["share_at_limit"] == row["moved"] == pytest.approx(1)


def test_presets_that_no_other_beats_are_marked() -> None:
    frame = rd.corrections(BATCH)
    rows, unbeaten = frame.set_index("correction"), find_unbeaten(frame)
    bias, size = rows["bias_left"], rows["effective_sample_size"]
    for name in rows.index:
        beats = (bias < bias[name]) & (size > size[name])
        is_defined = math.isfinite(size[name])
        assert (name in unbeaten) == (is_defined and not beats.any()), name
    assert "mis_prime_rl" in unbeaten  # no bias is left
    assert "k3_rejection" not in unbeaten  # all is dropped


def test_shares_by_a_column_sum_to_the_step() -> None:
    rows = rd.corrections(BATCH, ["icepop", "sequence_mask_trl"], by="sample")
    assert rows["sample"].tolist() == [0, 1, 0, 1]
    assert rows["samples_kept"].tolist() == [1, 1, 0, 1]
    assert rows["gradient_share"].tolist() == pytest.approx(
        [5 / 8.225, 3.225 / 8.225, 0, 1]
    )


def test_rows_of_one_value_equal_those_of_a_batch_of_it() -> None:
    """The sums of groups are computed by other means than those of a step."""
    batch = _random_batch(3, odd=True)
    names = ["tis", "veto", "k3_rejection", "seq_mask_tis", "dppo_prime_rl"]
    columns = ["num_left_out", "tokens_kept", "samples_kept", "max_weight"]
    columns += ["effective_sample_size", "cosine", "share_at_limit"]
    rows = rd.corrections(batch, names, by="sample")
    for sample in range(batch.num_samples):
        own = rows[rows["sample"] == sample]
        alone = rd.corrections(batch[sample : sample + 1], names)
        for column in columns:
            found, expected = own[column].to_numpy(), alone[column].to_numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("old", "meta", "name"),
    [
        ("rollout", {}, "current / rollout"),
        (None, {}, "current / rollout"),
        ("own", {}, "old / rollout, or current / rollout"),
        ("own", {"old_log_probs_source": "a pass of its own"}, "old / rollout"),
        ("own", {"rollout_correction": {"bypass_mode": False}}, "old / rollout"),
        (
            "own",
            {"facts": {"rollout_correction": {"bypass_mode": True}}},
            "current / rollout",
        ),
    ],
)
def test_the_ratio_is_the_one_that_the_loss_used(
    old: str | None, meta: dict[str, Any], name: str
) -> None:
    """Ratios of 2 between the engines, and of 4 with the update."""
    batch = batch_of([LN2, LN2], meta=meta)
    rollout = batch.log_probs("rollout")
    scores = {"current": (rollout + 2 * LN2)[None]}
    batch = batch_of([LN2, LN2], meta=meta, scores=scores)
    if old != "own":
        batch = replace(batch, old_log_probs=None if old is None else rollout)
    rows = rd.corrections(batch, ["mis_prime_rl", "ppo_clip"])
    assert rows.columns.name == rows.attrs["ratio"] == name
    ratio, update = (4, 4) if name.startswith("current") else (2, 2)
    assert rows["max_weight"][0] == pytest.approx(ratio)
    assert Ratios.of(batch).log_ratios["update"][0] == pytest.approx(math.log(update))
    if old == "own":
        asked = rd.corrections(batch, ["mis_prime_rl"], a="current", b="rollout")
        assert asked["max_weight"][0] == pytest.approx(4)
        assert asked.columns.name == "current / rollout"


def test_without_an_update_the_ratio_is_that_before_it() -> None:
    meta = {"rollout_correction": {"bypass_mode": True}}
    rows = rd.corrections(batch_of([LN2], meta=meta), ["tis"])
    assert rows.columns.name == "old / rollout"
    assert rows.attrs["why"] == "before the update"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"rollout_is": "token", "rollout_is_threshold": 2.0}, "tis"),
        ({"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}, "icepop"),
        ({"rollout_is": None, "rollout_rs": None}, "none"),
        ({"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}, "k3_rejection"),
        (
            {
                "rollout_is": "sequence",
                "rollout_rs": "seq_sum_k1",
                "rollout_rs_threshold": "0.5_2.0",
            },
            "sequence_rejection",
        ),
        ({"bypass_mode": True, "rollout_is": "token"}, "ppo_dual_clip"),
        (
            {"bypass_mode": True, "loss_type": "reinforce", "rollout_is": "sequence"},
            "sequence_tis",
        ),
        ({"rollout_is": "token", "rollout_is_threshold": 3.0}, "verl"),
    ],
)
def test_the_rule_of_the_run_is_first(settings: dict[str, Any], name: str) -> None:
    scores = {"current": torch.full((1, 2), -2.9)}
    meta = {"facts": {"rollout_correction": settings}}
    rows = rd.corrections(batch_of([0.1, 0.2], meta=meta, scores=scores))
    assert rows["correction"][0] == rows.attrs["own_rule"] == name
    assert rows["correction"].is_unique


def test_settings_that_are_not_known_choose_nothing() -> None:
    for settings in ({"rollout_is": "word"}, {"rollout_is_threshold": 2.0}, {}):
        meta = {"rollout_correction": settings}
        rows = rd.corrections(batch_of([0.1], meta=meta))
        assert "own_rule" not in rows.attrs


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
    mask = Mask((0.0, 0.05), "binary_kl")
    mine = Correction("kpop", weight=(), mask=(mask,))
    # p = 4 e^-3 and q = e^-3: KL(q, p), of what was sampled from what is trained.
    p, q = 4 * math.exp(-3), math.exp(-3)
    divergence = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
    assert 0.05 < divergence < p * math.log(p / q)
    assert token_weights(BATCH, mine).tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["tiss"]}, "Did you mean 'tis'"),
        ({"names": []}, "expected one correction or more"),
        ({"advantages": np.ones(3)}, "expected 2 values, one per sample, or 5"),
        ({"by": "nothing"}, "nothing"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FrameError, match=message):
        rd.corrections(BATCH, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Weight((2.0, 0.5)),
        lambda: Weight((-1.0, 0.5)),
        lambda: Weight(outside="drop"),
        lambda: Mask((1.5, 2.0), sign="away"),
        lambda: Mask((math.nan, 2.0)),
    ],
)
def test_a_field_that_would_do_nothing_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(FrameError, match="`bounds`: expected"):
        make()


def _statistic(token: Token, quantity: str) -> float:
    log_ratio, a, b, _ = token
    p, q = math.exp(a), math.exp(b)
    rest = (1 - q) * math.log((1 - q) / (1 - p))
    values = {"k1": -log_ratio, "k2": log_ratio**2 / 2, "prob_diff": abs(p - q)}
    values |= {"k3": math.exp(log_ratio) - 1 - log_ratio, "ratio": log_ratio}
    return {**values, "binary_kl": q * (b - a) + rest}[quantity]


def _over(values: list[float], level: str) -> list[float]:
    total = {"sum": math.fsum(values), "mean": math.fsum(values) / len(values)}
    return [total.get(level, value) for value in values]


def _factor(part: Weight, samples: list[list[Token]]) -> list[float]:
    logs = chain(*(_over([token[0] for token in own], part.level) for own in samples))
    low, high = part.bounds
    ratios = [math.exp(value) for value in logs]
    if part.outside == "drop":
        return [ratio if low <= ratio <= high else 0.0 for ratio in ratios]
    clipped = [min(max(ratio, low), high) for ratio in ratios]
    mean = math.fsum(clipped) / len(clipped) if part.is_normalised else 1
    return [ratio / mean for ratio in clipped]


def _keep(part: Mask, sample: list[Token]) -> list[bool]:
    low, high = part.bounds
    if part.is_ratio:
        low, high = (math.log(bound) if bound else -INF for bound in (low, high))
    values = _over([_statistic(token, part.quantity) for token in sample], part.level)
    keep = [low <= value <= high for value in values]
    for index, (log_ratio, _, _, advantage) in enumerate(sample):
        keep[index] |= part.sign == "away" and log_ratio * advantage <= 0
        keep[index] |= part.sign == "negative" and advantage >= 0
    return [all(keep)] * len(keep) if part.level == "all" else keep


def oracle(rule: Correction, samples: list[list[Token]]) -> list[float]:
    """Token weights of the mismatch by plain loops over finite tokens."""
    found = [1.0] * sum(map(len, samples))
    for factor in rule.weight:
        own = _factor(factor, samples)
        found = [w * ratio for w, ratio in zip(found, own, strict=True)]
    for part in rule.mask:
        keep = [*chain(*(_keep(part, sample) for sample in samples))]
        found = [w if is_kept else 0.0 for w, is_kept in zip(found, keep, strict=True)]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_weights_equal_those_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 0.3, rng.integers(1, 9)).tolist() for _ in range(12)]
    width = max(map(len, rows))
    advantages = torch.from_numpy(rng.normal(size=(12, width)))
    mask = torch.ones(12, width, dtype=torch.long)
    batch = batch_of(*rows, advantages=advantages, loss_mask=mask)
    samples = [*_tokens(batch)]
    for rule in CORRECTIONS.values():
        if "update" not in rule.ratios:
            found = Ratios.of(batch).weigh(rule).weight
            np.testing.assert_allclose(
                found, oracle(rule, samples), rtol=1e-5, err_msg=str(rule)
            )


@pytest.mark.parametrize(
    ("name", "limit", "bounds"),
    [
        ("icepop", 25.0, (0.25, 25.0)),  # both as far, in logarithms
        ("geometric", 1.001**0.5, (0.999**0.5, 1.001**0.5)),
        ("tis", 1.5, (0.0, 1.5)),
        ("sequence_rejection", 4.0, (0.25, 4.0)),
        ("k3_rejection", 0.5, (0.0, 0.5)),
    ],
)
def test_another_limit_of_a_correction(
    name: str, limit: float, bounds: tuple[float, float]
) -> None:
    changed = CORRECTIONS[name].limited(limit)
    assert changed.limit == limit
    assert changed.bounds == pytest.approx(bounds)
    before, after = CORRECTIONS[name].parts, changed.parts
    assert after[1:] == before[1:]  # the cap of a rule that rejects stays
    assert replace(after[0], bounds=before[0].bounds) == before[0]


@pytest.mark.parametrize(
    ("name", "limit"), [("icepop", 1.0), ("k3_rejection", 0.0), ("none", 2.0)]
)
def test_a_limit_that_keeps_nothing_is_refused(name: str, limit: float) -> None:
    with pytest.raises(FrameError, match="`limit`: expected a"):
        CORRECTIONS[name].limited(limit)
