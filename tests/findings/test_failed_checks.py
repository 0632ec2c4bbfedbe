"""No verdict contradicts a failed check, and the headline names it with its effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.checks.suite import _FAST, _OTHERS
from rounddiag.findings import view as view_module
from rounddiag.findings.causes import FORMULAS
from tests.findings.small import arrays, made, rounds_of


def equal(num: int = 32) -> dict[str, Any]:
    """Return samples whose engines agree bit for bit."""
    parts = arrays(num)
    parts["old"] = parts["rollout"].copy()
    return parts


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["old", "rollout"])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_values_that_are_not_finite_fail(value: float, name: str, noise: float) -> None:
    parts = arrays(noise=noise)
    hit = np.random.default_rng(2).random(parts["mask"].shape) < 0.4
    parts[name][hit] = value
    diagnosis = rd.diagnose(made(parts))
    assert diagnosis.verdict == "broken"
    assert "log-probs are finite" in diagnosis.headline


def test_one_value_that_is_not_finite_is_not_identical() -> None:
    parts = equal()
    assert rd.diagnose(made(parts)).verdict == "identical"
    parts["old"][3, 5] = np.nan
    diagnosis = rd.diagnose(made(parts))
    assert diagnosis.verdict == "suspicious"
    assert "1 token whose old log-prob is NaN, in 1 sample" in diagnosis.headline


def test_rounds_without_log_probs_beside_equal_ones_are_not_identical() -> None:
    parts = equal()
    parts["rollout"][:8][rounds_of(parts)[:8] == 3] = np.nan
    diagnosis = rd.diagnose(made(parts))
    assert diagnosis.verdict == "suspicious"
    assert diagnosis.caveat == "160 of 2,560 generated tokens have no finite log-prob. "
    noise = np.random.default_rng(1).normal(0, 0.001, parts["old"].shape)
    parts["old"] = np.minimum(parts["old"] + noise, 0)
    assert rd.diagnose(made(parts)).headline.startswith(diagnosis.caveat)


@pytest.mark.parametrize("sample", range(0, 64, 7))
def test_an_unread_sample_that_differs_is_found(
    sample: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = equal(64)
    parts["old"][sample] -= 2.0
    monkeypatch.setattr(view_module, "MAX_TOKENS", 600)
    diagnosis = rd.diagnose(made(parts))
    assert diagnosis.is_thinned
    assert diagnosis.verdict in ("suspicious", "broken")
    if not diagnosis.level.mean_abs_diff:
        assert (
            "80 of 5,120 tokens differ, by 2 nat on average, in 1 sample"
            in diagnosis.headline
        )
        assert f"(the first is {sample})" in diagnosis.headline
        assert "equal log-probs from both" not in str(diagnosis)


def test_a_part_of_an_identical_batch_is_identical(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view_module, "MAX_TOKENS", 600)
    assert rd.diagnose(made(equal(64))).verdict == "identical"


def test_a_part_of_a_batch_says_that_its_rounds_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = made(arrays(64), meta={"rounds": "unknown"})
    whole = rd.diagnose(batch).caveat
    monkeypatch.setattr(view_module, "MAX_TOKENS", 600)
    part = rd.diagnose(replace(batch)).caveat
    assert whole.startswith("The rounds are unknown")
    assert part.startswith("Judged on ")
    assert part.endswith(whole)


def lost(parts: dict[str, Any]) -> rd.Batch:
    """Return samples whose advantages reach the last round only."""
    advantages = (rounds_of(parts) == 3) * parts["mask"] * 1.0
    return made(parts, advantages=torch.from_numpy(advantages))


@pytest.mark.parametrize("parts", [arrays(), equal()])
def test_a_wrong_update_is_not_healthy(parts: dict[str, Any]) -> None:
    assert rd.diagnose(made(parts)).verdict in ("healthy", "identical")
    diagnosis = rd.diagnose(lost(parts))
    assert diagnosis.verdict == "suspicious"
    assert diagnosis.headline.startswith(
        "The earlier rounds are not trained: 32 samples "
    )
    assert "More than noise" not in diagnosis.text
    assert "healthy=" not in diagnosis.text


def copied() -> rd.Batch:
    """Return samples of which the last is the first."""
    parts = arrays()
    for values in parts.values():
        values[31] = values[0]
    return made(parts)


def rewritten() -> rd.Batch:
    """Return samples whose `input_ids` have other ids than prompt and response."""
    return made(arrays(), meta={"input_ids": "2 samples with other ids: sample 3"})


@pytest.mark.parametrize("build", [copied, rewritten, lambda: lost(equal())])
def test_the_headline_names_every_failed_check(build: Any) -> None:
    diagnosis = rd.diagnose(build())
    failed = [
        check
        for check in diagnosis.checks.failed
        if check.name != "the mismatch can be measured"
    ]
    assert failed
    assert all(
        f'failed check "{check.name}")' in diagnosis.headline for check in failed
    )
    assert all(check.effect[1:] in diagnosis.headline for check in failed)
    assert not any(f"{num} failed" in diagnosis.text for num in range(1, 9))


def test_every_check_says_what_its_failure_does() -> None:
    assert all(check.effect for check in (*_FAST, *_OTHERS))


def test_a_failed_check_is_said_once() -> None:
    parts = arrays()
    parts["mask"][:, 30] = 0
    text = rd.diagnose(made(parts)).text
    assert text.count("32 tokens masked between two of a round, in 32 samples (") == 1


def test_logits_in_the_column_are_no_truncated_sampling() -> None:
    """Most are above 0; those that are not lie above the log-probs as well."""
    parts = arrays()
    rng = np.random.default_rng(4)
    shape = parts["mask"].shape
    parts["old"] = np.asarray(-rng.exponential(5.0, shape), dtype=np.float32)
    gap = np.asarray(rng.uniform(4.0, 9.0, shape), dtype=np.float32)
    parts["rollout"] = parts["old"] + gap
    diagnosis = rd.diagnose(made(parts))
    assert "raw_logits" in str(diagnosis)
    assert FORMULAS.isdisjoint(finding.cause for finding in diagnosis)
