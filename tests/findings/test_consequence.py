"""What a diagnosis says of the update: the gradient weight, and what corrections do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.core.weights import Ratios, token_weights
from rounddiag.findings.consequence import describe_consequence
from rounddiag.findings.view import View
from rounddiag.wording import percent, with_minus
from tests.findings.small import arrays, made

TOKENS, GAP, MOST_ROUNDS = 60, 4, 60


def long_samples(num: int = 32) -> rd.Batch:
    """Sound samples of 40 to 60 rounds, with the level of NeMo-RL's PR 2269.

    Engines differ at one token in five, those that are not sure. The mean ratio of a
    token is 1, as importance sampling has it.
    """
    rng = np.random.default_rng(2269)
    mask = np.tile(np.r_[np.ones(TOKENS), np.zeros(GAP)], (num, MOST_ROUNDS))
    for row, rounds in zip(mask, rng.integers(40, MOST_ROUNDS + 1, num), strict=True):
        row[rounds * (TOKENS + GAP) :] = 0
    unsure = rng.random(mask.shape) < 0.2
    rollout = -1e-4 - rng.exponential(1.0, mask.shape) * unsure
    size = 0.23 * np.minimum(-rollout, 1)
    diff = size * rng.normal(size=mask.shape) - size**2 / 2
    return rd.Batch.from_padded(
        response_ids=torch.from_numpy(rng.integers(10, 60, mask.shape)),
        response_mask=torch.from_numpy(mask).long(),
        rollout_log_probs=torch.from_numpy(rollout).float(),
        old_log_probs=torch.from_numpy(np.minimum(rollout + diff, 0)).float(),
        advantages=torch.ones(mask.shape),
    )


def test_sequence_weights_collapse_although_tokens_agree() -> None:
    """NeMo-RL PR 2269: token weight 0.9999, sequence weight 0.0596, KL 0.0027."""
    batch = long_samples()
    ratios = Ratios.of(batch)
    log_ratio = ratios.log_ratios["mismatch"]
    assert -log_ratio.mean() == pytest.approx(0.0027, abs=3e-4)
    assert ratios.whole.mean() == pytest.approx(0.9999, abs=1e-3)
    # The same by hand: the product of each sample, at most 2, over all its tokens.
    num = np.bincount(ratios.sample)
    product = np.minimum(np.exp(np.bincount(ratios.sample, log_ratio)), 2)
    by_hand = float((product * num).sum() / num.sum())
    rows = rd.corrections(batch, ["tis", "sequence_tis"]).set_index("correction")
    assert rows.loc["sequence_tis", "gradient_kept"] == pytest.approx(by_hand)
    assert rows.loc["tis", "gradient_kept"] == pytest.approx(1, abs=1e-3)
    assert by_hand == pytest.approx(0.06, abs=0.03)
    mean = with_minus(f"{log_ratio.mean():.2g}")
    diagnosis = rd.diagnose(batch)
    assert not any(finding.is_bug for finding in diagnosis)
    rounds, tokens = batch.num_rounds / 32, batch.num_tokens / 32
    assert diagnosis.text.endswith(
        f"Weights per sequence would leave {percent(by_hand)} of the step's gradient"
        f" weight, although tokens differ by {mean} nat on average: the ratios"
        f" of {rounds:.3g} rounds, {tokens:,.0f} tokens a sample, multiply."
    )
    assert "per sequence" not in rd.diagnose(replace(batch, advantages=None)).text


def test_weights_per_sequence_that_are_all_at_their_limit_are_no_health() -> None:
    """Tokens are likelier in training by 0.004 nat each: every sample is doubled."""
    batch = long_samples()
    grown = replace(batch, old_log_probs=batch.log_probs("rollout") + 0.004)
    text = describe_consequence(View.from_batch(grown), [])
    assert text.startswith(
        "Weights per sequence would be at their limit of 2 for 100 % of the step's"
        " gradient weight, although tokens differ by 0.004 nat"
    )


def test_a_mask_that_drops_the_bug_hides_it() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    given = replace(batch, advantages=torch.ones_like(batch.log_probs("old")))
    late = rd.token_frame(batch)["round"].to_numpy() >= 2  # the place of the finding
    dropped = token_weights(batch, "icepop") == 0
    assert (late & dropped).sum() == dropped.sum() == 70
    assert late.mean() == pytest.approx(0.525, abs=1e-3)
    text = rd.diagnose(given).text
    assert (
        "IcePop's mask (ratio 0.5 to 5) would hide the bug: 100 % of the 70 tokens that"
        " it drops are among these, which are 53 % of all."
    ) in text
    assert "IcePop" not in rd.diagnose(batch).text


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({}, "With the trainers' rule `tis`"),
        ({"rollout_is": "token"}, "With this run's rule `tis`"),
        ({"rollout_is": "sequence"}, "With this run's rule `sequence_tis`"),
    ],
)
def test_what_is_touched_and_how_far_the_step_moves_are_two_figures(
    settings: dict[str, Any], rule: str
) -> None:
    """One token in 16 of half the samples; their ratio is e^2, of which 2 is left."""
    parts = arrays()
    parts["old"] = parts["rollout"].copy()
    half = len(parts["old"]) // 2
    parts["old"][:half, ::16] += 2
    meta = {"rollout_correction": settings}
    batch = made(parts, advantages=torch.ones(parts["old"].shape), meta=meta)
    view = View.from_batch(batch)
    bug: Any = SimpleNamespace(is_bug=True, indices=np.flatnonzero(view.diff > 1))
    share = len(bug.indices) / len(view)
    text = describe_consequence(view, [bug])
    name = rule.split("`")[1]
    (row,) = rd.corrections(batch, [name]).to_dict("records")
    percents = [percent(value) for value in (share, 0.5, share, row["moved"])]
    assert text.startswith(
        f"These tokens, {percents[0]} of all in {percents[1]} of samples, carry"
        f" {percents[2]} of the step's gradient weight. {rule} the step moves by"
        f" {percents[3]} of its size."
    )
    if name == "tis":
        assert row["moved"] == pytest.approx(np.sqrt(share))


def test_tokens_outside_the_loss_carry_no_gradient_weight() -> None:
    parts = arrays()
    parts["old"] = parts["rollout"].copy()
    parts["old"][:4] += 2
    mask = torch.ones(parts["old"].shape)
    mask[:2] = 0
    batch = made(parts, advantages=torch.ones(parts["old"].shape), loss_mask=mask)
    view = View.from_batch(batch)
    bug: Any = SimpleNamespace(is_bug=True, indices=np.flatnonzero(view.diff > 1))
    share = percent(2 / (batch.num_samples - 2))
    assert f"carry {share} of the step's" in describe_consequence(view, [bug])


@pytest.mark.parametrize(
    ("num_inside", "clause"),
    [
        (19, "95 % of the 20 tokens that it drops are among these, which are 25 % of"),
        (11, "55 % of the 20 tokens that it drops are among these, which are 25 % of"),
        (10, ""),  # no more than elsewhere
        (0, ""),
    ],
)
def test_a_mask_hides_a_bug_if_most_that_it_drops_is_in_it(
    num_inside: int, clause: str
) -> None:
    """20 of 2,560 tokens are dropped, some of them among the 640 of 8 samples."""
    parts = arrays()
    parts["old"] = parts["rollout"].copy()
    for sample, num in ((0, num_inside), (8, 20 - num_inside)):
        parts["old"][sample, :num] = parts["rollout"][sample, :num] - 2
    batch = made(parts, advantages=torch.ones(parts["old"].shape))
    assert (token_weights(batch, "icepop") == 0).sum() == 20
    view = View.from_batch(batch)
    bug: Any = SimpleNamespace(is_bug=True, indices=np.flatnonzero(view.sample < 8))
    text = describe_consequence(view, [bug])
    assert "carry 25 % of the step's gradient weight." in text
    assert clause in text
    assert ("IcePop" in text) == bool(clause)
