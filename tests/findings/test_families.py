"""Which families of causes are listed at a place, with which clue; what is struck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.findings import CAUSES, FAMILIES, Finding
from rounddiag.findings.causes import Candidate, describe_families, spread_families
from tests.findings.small import LENGTH, arrays, made, rounds_of, shaken


def images(number: int) -> dict[str, Any]:
    """Return columns in which each round adds so many images."""
    return {
        "sample": np.repeat(np.arange(32), 4),
        "round": np.tile(np.arange(4), 32),
        "num_images": np.tile(np.arange(1, 5) * number, 32),
    }


def first_of(where: Any, scale: float = 0.3, **others: Any) -> Finding:
    """Return the first finding where some tokens are shaken."""
    parts = arrays()
    shaken(parts, where(parts), scale)
    return rd.diagnose(made(parts, **others))[0]


def later(parts: Any) -> Any:
    return rounds_of(parts) >= 2


def everywhere(parts: Any) -> Any:
    return parts["mask"] > 0


def test_later_rounds_read_other_ids_another_context_or_other_positions() -> None:
    finding = first_of(later, round_columns=images(1))
    assert [*finding.families] == ["ids", "context", "positions"]
    assert finding.families["context"] == "3 to 4 images come before its tokens"
    assert "image_window" in map(str, finding.candidates)


def test_without_an_image_no_cause_and_no_name_is_about_images() -> None:
    finding = first_of(later, round_columns=images(0))
    assert [*finding.families] == ["ids", "context", "positions"]
    assert [c.cause for c in finding.candidates if c.family == "context"] == [
        "context_masked"
    ]
    assert not any("image" in text for text in describe_families(finding.candidates))


def test_what_later_rounds_spare_is_not_of_weights_settings_or_a_worker() -> None:
    finding = first_of(later, meta={"facts": {"lora_rank": 8}})
    assert not {"weights", "sampling", "worker"} & {*finding.families}


def test_first_rounds_follow_an_update_and_no_context_that_later_rounds_read() -> None:
    finding = first_of(lambda parts: rounds_of(parts) <= 1)
    assert [*finding.families] == ["positions", "weights", "numerics"]
    causes = {c.cause for c in finding.candidates if c.family == "weights"}
    assert causes == {"stale_cache", "mixed_weights"}


def with_roles(lower: Callable[[pd.DataFrame], Any]) -> Finding:
    """Return the first finding of a sound batch, `old` of which is lowered."""
    batch = rd.load("sample_data/healthy.parquet")
    assert batch.old_log_probs is not None
    tokens = rd.token_frame(batch, ["role", "position"])
    at = tokens[lower(tokens)]
    old = batch.old_log_probs.clone()
    size = np.random.default_rng(0).exponential(2.0, len(at))
    offsets = batch.offsets.numpy()[at["sample"]]
    old[offsets + at["position"].to_numpy()] -= torch.from_numpy(size).float()
    return rd.diagnose(replace(batch, old_log_probs=old))[0]


def test_special_tokens_are_those_of_a_template_or_a_mask() -> None:
    finding = with_roles(lambda tokens: tokens["role"] == "special")
    assert {*finding.families} == {"ids", "mask"}


def test_actions_at_the_end_of_rounds_are_no_end_of_a_template() -> None:
    actions = ("action", "coordinates", "typed text", "syntax")
    finding = with_roles(
        lambda tokens: tokens["role"].isin(actions) & (tokens["round"] >= 2)
    )
    assert [*finding.families] == ["ids", "context", "positions"]


def test_missing_mass_is_of_the_sampler_s_settings_though_images_may_be_missing() -> (
    None
):
    parts = arrays()
    noise = np.random.default_rng(0).normal(0, 0.07, parts["old"].shape)
    parts["old"] = np.minimum(parts["old"], -1.0)
    parts["rollout"] = parts["old"] + 0.1 + noise
    finding = rd.diagnose(made(parts, round_columns=images(1)))[0]
    assert finding.cause == "unknown"
    assert "sampling" in finding.families


def test_a_place_that_has_all_tokens_of_older_weights_says_so() -> None:
    parts = arrays()
    is_first = rounds_of(parts) <= 1
    shaken(parts, is_first & (parts["mask"] > 0), 0.3)
    for older, clue in (
        (is_first, "these tokens alone are of older weights; "),
        (rounds_of(parts) <= 2, "0.13 nat become "),
    ):
        version = torch.from_numpy(np.where(older, 3, 4))
        batch = made(parts, token_columns={"weight_version": version})
        assert rd.diagnose(batch)[0].families["weights"].startswith(clue)


def test_one_worker_is_that_of_its_column_and_inputs_are_struck() -> None:
    rank = np.arange(32) % 4
    finding = first_of(
        lambda parts: (rank == 3)[:, None] & (parts["mask"] > 0),
        sample_columns={"rank": rank},
    )
    means = [number.value for number in finding.candidates[0].evidence]
    here, elsewhere = (f"{mean:.2g}" for mean in means)
    clue = f"it follows `rank`; {here} nat here, {elsewhere} elsewhere"
    assert finding.families == {"weights": clue, "worker": clue}


def test_a_mismatch_of_all_tokens_is_of_weights_and_what_facts_name() -> None:
    parts = arrays(noise=0.15)
    finding = rd.diagnose(made(parts, meta={"facts": {"lora_rank": 8}}), kind="dense")[
        0
    ]
    assert finding.kind == "level"
    assert finding.families["weights"].startswith("the facts name a LoRA; ")
    assert "numerics" in finding.families
    assert "image_window" not in map(str, finding.candidates)


@pytest.mark.parametrize(("lean", "is_listed"), [(-0.5, True), (0, True), (1, False)])
def test_rounding_has_no_mean_above_0(lean: float, is_listed: bool) -> None:
    """The mean of a log ratio under the distribution that was drawn is below 0."""
    parts = arrays(noise=0.15)
    square = (0.15 * np.minimum(-parts["rollout"], 1)) ** 2
    parts["old"] = np.minimum(parts["old"] + lean * square, 0)
    finding = rd.diagnose(made(parts), kind="dense")[0]
    assert ("numerics" in finding.families) == is_listed


@pytest.mark.parametrize("value", ["fp8_e4m3", "auto"])
def test_a_cache_of_few_bits_is_named_where_all_before_is_equal(value: str) -> None:
    # One round of 100 to 140 tokens: equal up to token 60, two in three differ then.
    rng = np.random.default_rng(2)
    rows = []
    for number in rng.integers(100, 140, 32).tolist():
        rollout = -3 * rng.random(number) ** 3
        old = rollout.copy()
        at = 60 + rng.permutation(number - 60)[: (number - 60) * 2 // 3]
        old[at] = np.minimum(rollout[at] + 0.3 * (rng.random(len(at)) - 0.5), 0)
        rows.append((rollout, old))
    torch = pytest.importorskip("torch")
    batch = rd.Batch.from_rows(
        response_ids=[torch.arange(len(old)) + 10 for _, old in rows],
        response_mask=[torch.ones(len(old), dtype=torch.int64) for _, old in rows],
        rollout_log_probs=[torch.tensor(rollout) for rollout, _ in rows],
        old_log_probs=[torch.tensor(old) for _, old in rows],
        meta={"facts": {"rollout_kv_cache_dtype": value}},
    )
    finding = rd.diagnose(batch)[0]
    num_before = finding.tokens().groupby("sample")["position"].min().sum()
    equal = f"all {num_before:,} tokens before it are equal"
    named = f"the facts name an FP8 KV cache; {equal}" if "fp8" in value else equal
    assert finding.families["numerics"] == named
    assert not {"ids", "context", "weights", "worker"} & {*finding.families}


def test_ids_that_a_check_found_equal_are_struck() -> None:
    parts = arrays()
    shaken(parts, later(parts), 0.3)
    batch = made(parts)
    same = replace(batch, rollout_ids=tuple(batch.require_ids().reshape(32, -1)))
    assert "ids" in rd.diagnose(batch)[0].families
    assert "ids" not in rd.diagnose(same)[0].families


@pytest.mark.parametrize(
    "where",
    [
        later,
        everywhere,
        lambda parts: rounds_of(parts) == 0,
        lambda parts: (
            np.isin(np.arange(32), [3, 8, 9, 21, 30])[:, None] & (parts["mask"] > 0)
        ),
        lambda _: np.broadcast_to(np.arange(LENGTH) % 23 < 3, (32, LENGTH)),
        lambda _: np.broadcast_to(np.arange(LENGTH) % 23 > 16, (32, LENGTH)),
    ],
)
def test_at_most_three_families_each_with_a_clue_and_causes(where: Any) -> None:
    finding = first_of(where, scale=0.5)
    assert 1 <= len(finding.families) <= 3
    assert all(finding.families.values())
    order = [*FAMILIES]
    places = [order.index(family) for family in finding.families]
    assert all(a < b for a, b in pairwise(places))
    assert {c.family for c in finding.candidates} == {*finding.families}
    assert len({c.cause for c in finding.candidates}) == len(finding.candidates)


def test_causes_have_known_families() -> None:
    assert {row.family for row in CAUSES.values()} == {"", *FAMILIES}


def test_the_name_of_a_family_stands_for_its_causes_with_hypotheses() -> None:
    assert spread_families(["positions", "sampling"]) == [
        "position_ids",
        "temperature",
        "structured_output",
        "truncated_sampling",
        "logit_processor",
    ]
    assert spread_families(["mask", "no_such"]) == ["mask", "no_such"]
    assert Candidate.of("position_ids").family == "positions"
