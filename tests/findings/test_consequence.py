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
    ratios = Ratios.of(batch, "old", "rollout", None)
    assert -ratios.log_ratio.mean() == pytest.approx(0.0027, abs=3e-4)
    assert ratios.ratio.mean() == pytest.approx(0.9999, abs=1e-3)
    # The same by hand: the product of each sample, at most 2, over all its tokens.
    num = np.bincount(ratios.sample)
    product = np.minimum(np.exp(np.bincount(ratios.sample, ratios.log_ratio)), 2)
    by_hand = float((product * num).sum() / num.sum())
    rows = rd.corrections(batch, ["tis", "sequence_tis"]).set_index("correction")
    assert rows.loc["sequence_tis", "gradient_kept"] == pytest.approx(by_hand)
    assert rows.loc["tis", "gradient_kept"] == pytest.approx(1, abs=1e-3)
    assert by_hand == pytest.approx(0.06, abs=0.03)
    found = rd.diagnose(batch)
    assert not any(one.is_bug for one in found)
    rounds, tokens = batch.num_rounds / 32, batch.num_tokens / 32
    assert found.text.endswith(
        f"Weights per sequence would leave {by_hand:.2g} of the step's gradient weight,"
        f" although tokens differ by {ratios.log_ratio.mean():.2g} nat on average: the"
        f" ratios of {rounds:.0f} rounds, {tokens:,.0f} tokens a sample, multiply."
    )
    assert "per sequence" not in rd.diagnose(replace(batch, advantages=None)).text


def test_a_mask_that_drops_the_bug_hides_it() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    given = replace(batch, advantages=torch.ones_like(batch.log_probs("old")))
    late = rd.token_frame(batch)["round"].to_numpy() >= 2  # the place of the finding
    dropped = token_weights(batch, "icepop") == 0
    assert (late & dropped).sum() == dropped.sum() == 70
    assert late.mean() == pytest.approx(0.525, abs=1e-3)
    text = rd.diagnose(given).text
    assert text.endswith(
        "IcePop's mask (ratio 0.5 to 5) would hide the bug: 100% of the 70 tokens that"
        " it drops are among these, which are 53% of all."
    )
    assert "IcePop" not in rd.diagnose(batch).text


@pytest.mark.parametrize(
    ("num_inside", "clause"),
    [
        (19, "95% of the 20 tokens that it drops are among these, which are 25% of"),
        (11, "55% of the 20 tokens that it drops are among these, which are 25% of"),
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
    assert text.startswith("These tokens carry 25% of the step's gradient weight.")
    assert clause in text
    assert ("IcePop" in text) == bool(clause)
