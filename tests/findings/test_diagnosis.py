"""Verdicts, stacked causes, errors, and detectors of one's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import BatchError, FrameError, LoadError
from rounddiag.findings import (
    CAUSES,
    DETECTORS,
    REFERENCE,
    Evidence,
    Level,
    View,
    detectors,
    register,
)
from rounddiag.findings import view as view_module
from rounddiag.findings.level import mean_of_sums
from rounddiag.findings.reference import guess_kind
from tests.batches import redacted
from tests.findings.small import arrays, literal, made, rounds_of, shaken


@pytest.mark.parametrize(
    ("name", "verdict", "causes"),
    [
        ("healthy", "healthy", []),
        ("stale", "stale", ["stale_weights"]),
        ("image_window", "broken", ["unknown"]),
    ],
)
def test_the_sample_data_is_named_right(
    name: str, verdict: str, causes: list[str]
) -> None:
    diagnosis = rd.diagnose(rd.load(f"sample_data/{name}.parquet"))
    assert diagnosis.verdict == verdict
    assert [finding.cause for finding in diagnosis][: len(causes) or None] == causes


def test_the_level_is_that_of_a_plain_loop() -> None:
    old, rollout = [[-0.5, -1.0], [-2.0, -0.25]], [[-1.0, -1.0], [-1.0, -0.25]]
    level = Level.from_view(View.from_batch(literal(old, rollout)))
    diffs = [0.5, 0.0, -1.0, 0.0]
    assert level.mean_abs_diff == 0.375
    assert level.median_abs_diff == 0.25
    assert level.kl == pytest.approx(sum(np.exp(d) - 1 - d for d in diffs) / 4)
    assert level.mult_prob_error == pytest.approx(
        sum(np.exp(abs(d)) for d in diffs) / 4
    )
    p, q = np.exp(np.ravel(old)), np.exp(np.ravel(rollout))
    assert level.prob_diff == pytest.approx(np.abs(p - q).mean())
    assert level.pearson == pytest.approx(np.corrcoef(p, q)[0, 1])
    assert (level.num_tokens, level.num_samples) == (4, 2)


def test_a_clustered_error_is_that_of_the_sums_of_clusters() -> None:
    values, cluster = np.array([1.0, 2.0, 6.0]), np.array([5, 5, 9])
    # Mean 3; sums -3 and 3; sqrt(18 * 2) / 3.
    sums, sizes = np.bincount(cluster, values), np.bincount(cluster)
    assert mean_of_sums(sums, sizes) == (3.0, 2.0)


@pytest.mark.parametrize(
    ("old", "rollout", "reason"),
    [
        ([[float("nan")] * 3], [[-1.0] * 3], "None of the 3 generated tokens"),
        ([[0.0] * 3], [[-1.0, -2.0, -0.5]], "`old_log_probs` are 0 at all 3"),
        ([[-1.0, -2.0, -0.5]], [[0.0] * 3], "`rollout_log_probs` are 0 at all 3"),
    ],
)
def test_what_cannot_be_measured_says_why(
    old: list[list[float]], rollout: list[list[float]], reason: str
) -> None:
    diagnosis = rd.diagnose(literal(old, rollout))
    assert diagnosis.verdict == "not_measurable"
    assert reason in diagnosis.text


def test_a_batch_without_generated_tokens() -> None:
    mask = torch.zeros((2, 3), dtype=torch.int64)
    diagnosis = rd.diagnose(
        literal([[0.0] * 3] * 2, [[0.0] * 3] * 2, response_mask=mask)
    )
    assert diagnosis.verdict == "not_measurable"
    assert "no generated token" in diagnosis.text


@pytest.mark.parametrize("diff", [0.0, 0.001])
def test_one_sample_is_described_and_not_judged(diff: float) -> None:
    diagnosis = rd.diagnose(literal([[-1.0 - diff]], [[-1.0]]))
    assert diagnosis.verdict == ("identical" if diff == 0 else "not_measurable")
    assert len(diagnosis) == 0
    if diff:
        assert "a mean |diff| of 0.001 nat" in diagnosis.text


def test_one_sample_with_impossible_values_is_a_bug() -> None:
    parts = arrays(1)
    parts["rollout"][0, 3:20] = 0.5
    assert rd.diagnose(made(parts)).verdict in ("suspicious", "broken")


def test_nan_and_infinity_are_left_out_and_reported() -> None:
    parts = arrays()
    parts["old"][3, 5], parts["rollout"][4, 6] = np.nan, -np.inf
    diagnosis = rd.diagnose(made(parts))
    assert diagnosis.level.num_tokens == 32 * 80 - 2
    assert np.isfinite(diagnosis.level.mean_abs_diff)
    assert "log-probs are finite" in diagnosis[0].shown


def test_noise_above_the_range_is_no_bug() -> None:
    batch = made(arrays(noise=0.095))
    diagnosis = rd.diagnose(batch)
    assert diagnosis.verdict == "noisy"
    assert [(finding.kind, finding.cause, finding.is_bug) for finding in diagnosis] == [
        ("level", "unknown", False)
    ]
    assert rd.diagnose(batch, kind="moe").verdict == "healthy"


def test_a_healthy_batch_gives_the_level_of_the_noise() -> None:
    sound, noisy = made(arrays(noise=0.001)), made(arrays(noise=0.008))
    assert rd.diagnose(noisy).verdict == "healthy"
    diagnosis = rd.diagnose(noisy, healthy=sound)
    assert diagnosis.verdict != "healthy"
    assert diagnosis.reference.source == "the batch passed as `healthy`"


def test_two_causes_are_found_one_after_the_other() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    parts["rollout"][:6, -1] = 0.0
    parts["old"][:6, -1] = [-1.0, -1.5, -2.0, -2.5, -3.0, -3.5]
    diagnosis = rd.diagnose(made(parts))
    assert [(finding.kind, finding.cause) for finding in diagnosis] == [
        ("place", "unknown"),
        ("fact", "filled_log_probs"),
    ]
    assert [finding.num_tokens for finding in diagnosis] == [32 * 40 - 6, 6]
    shares = [finding.share for finding in diagnosis]
    total = sum(shares) + diagnosis.rest.mean_abs_diff * diagnosis.rest.num_tokens / (
        diagnosis.level.mean_abs_diff * diagnosis.level.num_tokens
    )
    assert total == pytest.approx(1)


def test_another_pair_of_scores() -> None:
    parts = arrays()
    scores = {"ref": torch.from_numpy(parts["rollout"]).float()}
    batch = made(parts, scores=scores)
    assert rd.diagnose(batch, a="ref", b="rollout").verdict == "identical"


def test_errors_name_what_was_expected() -> None:
    batch = made(arrays(4))
    with pytest.raises(FrameError, match="Did you mean 'dense'"):
        rd.diagnose(batch, kind="dence")
    with pytest.raises(FrameError, match="expected a Batch or a DataFrame; found"):
        rd.diagnose(40)  # type: ignore[call-overload]
    with pytest.raises(LoadError, match="found nothing"):
        rd.diagnose("step_40.parquet")
    with pytest.raises(BatchError, match="expected one of the scores"):
        rd.diagnose(batch, a="reference")
    with pytest.raises(FrameError, match="expected a Finding"):
        rd.plot_finding(batch)  # type: ignore[arg-type]
    with pytest.raises(
        BatchError, match="at least 5 samples with generated tokens; found none"
    ):
        rd.diagnose(batch, healthy=batch[[]])
    with pytest.raises(BatchError, match=r"at least 5 samples .*found 4 samples"):
        rd.diagnose(batch, healthy=batch)


def test_every_detector_names_a_known_cause() -> None:
    assert set(DETECTORS) <= set(CAUSES)
    assert {detector.kind for detector in DETECTORS.values()} == {"fact", "reversal"}
    assert detectors.__doc__


def test_a_detector_of_ones_own_takes_part() -> None:
    @register("odd_samples", kind="fact")
    def odd_samples(view: View) -> Evidence:
        tokens = view.sample % 2 == 1
        return Evidence(tokens=tokens, shown="Odd samples.", next_step="Look.")

    try:
        assert odd_samples is not None
        first = rd.diagnose(made(arrays()))[0]
        assert (first.kind, first.cause, first.shown) == (
            "fact",
            "odd_samples",
            "Odd samples.",
        )
        assert set(first.tokens()["sample"] % 2) == {1}
    finally:
        del DETECTORS["odd_samples"]


def test_what_it_prints() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 1.0)
    diagnosis = rd.diagnose(made(parts))
    frame = diagnosis.frame
    assert frame["cause"].tolist() == [diagnosis[0].cause]
    assert diagnosis.headline == (
        "291 tokens differ by more than a factor of 2, from round 2 on."
    )
    assert diagnosis.text.startswith(f"{diagnosis.headline}\n")
    assert frame["kind"].tolist() == ["place"]
    assert "Cause not known; possible: " in diagnosis.text
    sound = rd.diagnose(made(arrays()))
    assert sound.frame.empty
    assert sound.text.startswith("Noise: mean |diff| is 0.00")


def test_html_is_escaped() -> None:
    parts = arrays()
    rank = np.where(np.arange(32) % 4 == 3, "<b>3</b>", "0")
    shaken(parts, (rank != "0")[:, None] & (parts["mask"] > 0), 0.3)
    diagnosis = rd.diagnose(made(parts, sample_columns={"rank": rank}))
    assert "<b>3</b>" in diagnosis[0].location
    assert "<b>3</b>" not in diagnosis._repr_html_()


@pytest.mark.parametrize(
    ("meta", "kind"),
    [
        ({"sampling": {"dtype": "bfloat16"}}, ("dense", True)),
        ({"model": "Qwen3-30B-A3B"}, ("moe", True)),
        ({"sampling": {"quantization": "fp8"}}, ("fp8", True)),
        ({}, ("dense", False)),
    ],
)
def test_the_kind_is_guessed_from_meta(
    meta: dict[str, object], kind: tuple[str, bool]
) -> None:
    assert guess_kind(made(arrays(2), meta=meta)) == kind


def test_ranges_are_in_order_and_have_sources() -> None:
    for reference in REFERENCE.values():
        assert 0 < reference.usual < reference.limit
        assert reference.source


def test_a_long_batch_is_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = View.from_batch(made(arrays(64)))
    monkeypatch.setattr(view_module, "MAX_TOKENS", len(whole) // 4)
    monkeypatch.setattr(view_module, "_BLOCK", 5)
    part = View.from_batch(made(arrays(64)))
    assert part.is_thinned
    assert len(part) == len(whole) // 4
    assert set(part.round) == {0, 1, 2, 3}
    # Tokens of a block stand together; each is what it is in the whole batch.
    at = np.searchsorted(whole.flat, part.flat)
    assert (whole.flat[at] == part.flat).all()
    assert (whole.log_prob_a[at] == part.log_prob_a).all()
    follows = (np.diff(part.flat) == 1) & (np.diff(part.segment) == 0)
    assert follows.sum() / len(part) == pytest.approx(0.8, abs=0.05)


def test_a_long_batch_has_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    # 64 samples of four rounds of 20 tokens: an even number in all of them.
    parts = arrays(64)
    shaken(parts, rounds_of(parts) == 1, 1.0)
    whole = rd.diagnose(made(parts))
    monkeypatch.setattr(view_module, "MAX_TOKENS", 64 * 80 // 2)
    monkeypatch.setattr(view_module, "_BLOCK", 20)
    part = rd.diagnose(made(parts))
    assert part.is_thinned
    assert part.verdict == whole.verdict
    assert "in round 1" in part.headline
    read = part.level.num_tokens
    assert part.headline.startswith(f"Judged on {read:,} of 5,120 generated tokens. ")
    assert part.level.mean_abs_diff == pytest.approx(whole.level.mean_abs_diff, rel=0.2)


def test_a_redacted_batch_is_diagnosed_without_its_ids() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    batch = redacted(made(parts))
    assert rd.diagnose(batch)[0].where["rounds_from"] == 2


@pytest.mark.slow
def test_a_million_positions() -> None:
    rng = np.random.default_rng(0)
    rollout = -rng.exponential(1, (16, 65_536)).astype(np.float32)
    old = np.minimum(rollout + rng.normal(0, 0.01, rollout.shape), 0)
    old[:, 40_000:] = rollout[:, 40_000:] - np.abs(rng.normal(0, 0.2, (16, 25_536)))
    batch = rd.Batch.from_padded(
        response_ids=torch.from_numpy(rng.integers(0, 999, rollout.shape)),
        response_mask=torch.ones(rollout.shape, dtype=torch.int64),
        rollout_log_probs=torch.from_numpy(rollout),
        old_log_probs=torch.from_numpy(old).float(),
    )
    diagnosis = rd.diagnose(batch)
    assert not diagnosis.is_thinned
    assert diagnosis.level.num_tokens == 16 * 65_536
    (condition,) = diagnosis[0].where["place"].conditions
    assert condition.column == "decoding_step"
    assert condition.value == pytest.approx(40_000, rel=0.05)
