"""What is named, and what is not: the wrong answers that were given before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.findings import (
    CAUSES,
    DETECTORS,
    REFERENCE,
    Cause,
    Evidence,
    Range,
    View,
    register,
)
from rounddiag.findings.detectors.rows import swapped_rows
from rounddiag.findings.noise import Noise
from tests.batches import redacted
from tests.findings.small import TOKENS, Array, arrays, literal, made, rounds_of, shaken


def names(diagnosis: rd.findings.Diagnosis) -> list[tuple[str, str]]:
    """The kind and the cause of each finding."""
    return [(finding.kind, finding.cause) for finding in diagnosis]


def test_a_value_that_is_missing_changes_no_finding() -> None:
    # Without ids "the same ids move alike" was "no", which spoke against older weights.
    parts = arrays(noise=0.12)
    batch = made(parts)
    diagnosis, without = (rd.diagnose(part) for part in (batch, redacted(batch)))
    assert diagnosis.verdict == without.verdict
    assert names(diagnosis) == names(without) == [("level", "unknown")]
    assert "stale_weights" in map(str, without[0].candidates)


def test_a_pair_is_measured_although_another_is_not() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    good = torch.from_numpy(parts["rollout"]).float()
    why = "`rollout_log_probs` are 0 at all 2560 generated tokens"
    parts["rollout"] = parts["rollout"] * 0
    batch = made(parts, scores={"vllm": good}, meta={"not_measurable": why})
    assert rd.diagnose(batch).reason == why
    assert rd.diagnose(batch, b="vllm").verdict != "not_measurable"
    assert rd.diagnose(batch, b="vllm").onset is not None


def test_no_absence_is_claimed_from_a_correlation() -> None:
    # r = 0.9 between reward and |diff| of 10 samples was "does not follow reward".
    parts = arrays(10)
    size = np.linspace(0.1, 1, 10)[:, None] + 0 * parts["mask"]
    shaken(parts, size, 0.5)
    rewards = torch.linspace(0, 1, 10)
    assert "does not follow" not in rd.diagnose(made(parts, rewards=rewards)).text


def test_a_version_that_is_missing_is_no_change_of_versions() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.1)
    version = np.full(32 * 4, 7.0)
    version[::4] = np.nan  # one record of each sample is lost
    columns = {
        "sample": np.repeat(np.arange(32), 4),
        "round": np.tile(np.arange(4), 32),
        "weight_version": version,
    }
    diagnosis = rd.diagnose(made(parts, round_columns=columns))
    assert [finding.cause for finding in diagnosis] == ["unknown"]


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_detector_is_asked_whether_or_not_its_cause_is_listed(
    monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    if is_listed:
        row = Cause(meaning="a stop token that one engine did not sample", test="")
        monkeypatch.setitem(CAUSES, "stop_token_scored", row)

    @register("stop_token_scored", kind="fact")
    def stop(view: View) -> Evidence:
        last = np.r_[np.diff(view.segment) != 0, True]
        return Evidence(tokens=last, shown="Only the last token of rounds differs.")

    try:
        parts = arrays()
        parts["old"][:, TOKENS - 1 :: TOKENS + 3] -= 2.0
        assert names(rd.diagnose(made(parts)))[0] == ("fact", "stop_token_scored")
    finally:
        del DETECTORS["stop_token_scored"]


def siblings(noise: float) -> dict[str, Array]:
    """Groups of four samples, of which the second has the text of the first."""
    parts = arrays(noise=0.002)
    for name in ("ids", "rollout"):
        parts[name][1::4] = parts[name][::4]
    rng = np.random.default_rng(5)
    parts["old"][1::4] = np.minimum(
        parts["rollout"][1::4] + rng.normal(0, noise, parts["old"][1::4].shape), 0
    )
    parts["old"] *= parts["mask"]
    return parts


def test_equal_texts_prove_no_swap() -> None:
    # A worker adds noise to one attempt; the other attempt has the same text.
    diagnosis = rd.diagnose(made(siblings(0.5)))
    assert "swapped_rows" not in [finding.cause for finding in diagnosis]
    assert diagnosis.verdict != "healthy"


def test_a_row_that_keeps_its_fit_was_not_swapped() -> None:
    # Rows 1, 5, 9 got the log-probs of rows 0, 4, 8, which have theirs still.
    parts = arrays()
    for row in (1, 5, 9):
        parts["old"][row] = parts["rollout"][row - 1]
    assert swapped_rows(View.from_batch(made(parts))) is None


def test_a_swap_is_found_beside_noise_and_falls_to_it() -> None:
    parts = arrays(noise=0.05)
    parts["rollout"][[3, 8, 20]] = parts["rollout"][[8, 20, 3]]
    (finding,) = rd.diagnose(made(parts))
    assert (finding.kind, finding.cause) == ("reversal", "swapped_rows")
    assert finding.where["partners"] == {3: 20, 8: 3, 20: 8}
    assert finding.shown.startswith("With the `rollout` log-probs of another row, ")
    assert finding.shown.endswith("the noise of the tokens that it does not change.")


def test_a_lag_that_leaves_more_than_the_noise_in_whole_rounds_is_no_shift() -> None:
    parts = arrays(noise=0.002)
    rows = slice(0, 8)
    for k in range(4):
        begin = k * (TOKENS + 3)
        part = parts["rollout"][rows, begin : begin + TOKENS - 1].copy()
        parts["old"][rows, begin + 1 : begin + TOKENS] = part
    rng = np.random.default_rng(2)
    exact = rd.diagnose(made(parts))
    assert names(exact)[0] == ("reversal", "shifted_log_probs")
    parts["old"][rows] += rng.normal(0, 0.1, parts["old"][rows].shape)
    parts["old"] = np.minimum(parts["old"], 0) * parts["mask"]
    rough = rd.diagnose(made(parts))
    assert "shifted_log_probs" not in [finding.cause for finding in rough]
    assert rough.verdict in ("suspicious", "broken")


def test_the_noise_is_that_of_equally_likely_tokens_else_of_the_kind() -> None:
    view = View.from_batch(made(arrays(noise=0.01)))
    sound = view.sample >= 16
    noise = Noise(view=view, unchanged=sound)
    expected = float(view.abs_diff[sound].mean())
    assert noise.of(view.log_prob_b[sound]) == pytest.approx(expected, rel=1e-6)
    none = Noise(view=view, unchanged=view.sample < 4)
    assert not none.is_measured
    assert none.of(view.log_prob_b) == pytest.approx(view.usual.usual, rel=1e-6)
    assert none.source == "what is usual for a dense model in bf16"


def test_older_versions_are_a_fact_unless_another_column_has_these_samples() -> None:
    parts = arrays()
    old = np.arange(32) < 12
    shaken(parts, old[:, None] & (parts["mask"] > 0), 0.5)
    version = np.where(old, 3, 4)
    diagnosis = rd.diagnose(made(parts, sample_columns={"weight_version": version}))
    assert (names(diagnosis), diagnosis.verdict) == (
        [("fact", "stale_weights")],
        "stale",
    )
    columns = {"weight_version": version, "rank": old.astype(int)}
    diagnosis = rd.diagnose(made(parts, sample_columns=columns))
    assert names(diagnosis) == [("place", "unknown")]
    newer = rd.diagnose(made(parts, sample_columns={"weight_version": 7 - version}))
    assert names(newer) == [("place", "unknown")]


def test_copies_beside_older_weights_are_not_stale_alone() -> None:
    parts = arrays()
    old = np.arange(32) < 12
    shaken(parts, old[:, None] & (parts["mask"] > 0), 0.5)
    batch = made(parts, sample_columns={"weight_version": np.where(old, 3, 4)})
    diagnosis = rd.diagnose(batch[[*range(32), 20, 21, 22, 23]])
    assert {cause for _, cause in names(diagnosis)} == {"stale_weights", "padding_rows"}
    assert diagnosis.verdict in ("suspicious", "broken")


def test_impossible_values_at_a_third_of_the_tokens_are_broken() -> None:
    parts = arrays()
    few, many = parts["old"].copy(), parts["old"].copy()
    few[:4][parts["mask"][:4] > 0] = 0.5
    many[:16][parts["mask"][:16] > 0] = 0.001
    assert rd.diagnose(made({**parts, "old": many})).verdict == "broken"
    diagnosis = rd.diagnose(made({**parts, "old": few}))
    assert names(diagnosis)[0] == ("fact", "filled_log_probs")


def test_what_a_place_rules_out_is_no_candidate() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    columns = {
        "sample": np.repeat(np.arange(32), 4),
        "round": np.tile(np.arange(4), 32),
        "num_images": np.zeros(32 * 4, dtype=int),
    }
    without = rd.diagnose(made(parts, round_columns=columns))[0]
    listed = {*map(str, without.candidates)}
    assert not listed & {"temperature", "stale_weights", "wrong_image", "image_window"}
    assert {"retokenised", "position_ids", "context_masked"} <= listed
    images = {**columns, "num_images": np.tile(np.arange(1, 5), 32)}
    listed = {*map(str, rd.diagnose(made(parts, round_columns=images))[0].candidates)}
    assert {"wrong_image", "image_window"} <= listed


def test_what_a_check_refutes_is_no_candidate() -> None:
    parts = arrays()
    shaken(parts, rounds_of(parts) >= 2, 0.3)
    batch = made(parts)
    ids = tuple(batch.require_ids().reshape(32, -1))
    same = replace(batch, rollout_ids=ids)
    listed = [{*map(str, rd.diagnose(each)[0].candidates)} for each in (batch, same)]
    assert ["retokenised" in causes for causes in listed] == [True, False]


def test_two_failed_checks_of_one_cause_are_both_shown() -> None:
    # Sample 5 is a copy of sample 4, and nothing was written in sample 9.
    parts = arrays()
    for name in parts:
        parts[name][5] = parts[name][4]
    parts["mask"][9] = 0
    diagnosis = rd.diagnose(made(parts))
    padding = [finding for finding in diagnosis if finding.cause == "padding_rows"]
    assert sorted(finding.samples.tolist() for finding in padding) == [[5], [9]]
    assert len({finding.location for finding in padding}) == 2
    text = diagnosis.text.lower()
    assert all(finding.location.lower() in text for finding in padding)


def test_a_wrong_update_is_shown_where_log_probs_compare_nothing() -> None:
    parts = arrays()
    parts["old"] = parts["old"] * 0
    advantages = (rounds_of(parts) == 3) * parts["mask"] * 1.0
    diagnosis = rd.diagnose(made(parts, advantages=torch.from_numpy(advantages)))
    assert diagnosis.verdict == "not_measurable"
    assert [finding.cause for finding in diagnosis.updates] == ["lost_advantages"]
    assert diagnosis.text.startswith("`old_log_probs` are 0 at all 2,560")
    assert "The update is wrong: advantages that reach the last round" in diagnosis.text


def test_a_large_k3_without_a_place_is_no_noise() -> None:
    # exp(7.5) - 1 - 7.5 = 1,800 at two of 2,560 tokens: 1.4 on average.
    parts = arrays()
    for row in (3, 20):
        parts["rollout"][row, 30], parts["old"][row, 30] = -8.0, -0.5
    diagnosis = rd.diagnose(made(parts))
    assert diagnosis.level.mean_abs_diff < diagnosis.reference.usual
    assert diagnosis.level.kl == pytest.approx(1.405, abs=0.01)
    assert diagnosis.verdict == "suspicious"
    assert "k3 estimate of KL 1.41, above 0.1" in diagnosis.text
    # A range that allows as much for the mean does not forbid it for k3.
    batch = made(parts)
    assert rd.diagnose(batch, healthy=batch).verdict == "healthy"


def test_a_mean_that_a_range_calls_usual_is_not_suspicious_for_its_k3(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All tokens differ by 1 nat, half of them up: (e + 1/e) / 2 - 1 = 0.54.
    rows = [[-2.13, -3.13] * 8] * 8
    batch = literal(rows, [[-3.13, -2.13] * 8] * 8)
    mine = Range(meaning="run of mine", usual=1.1, limit=1.5, source="measured")
    monkeypatch.setitem(REFERENCE, "mine", mine)
    diagnosis = rd.diagnose(batch, kind="mine")
    assert diagnosis.level.kl == pytest.approx(0.543, abs=1e-3)
    assert diagnosis.verdict == "healthy"


def disagreeing(rows: tuple[int, ...]) -> dict[str, Array]:
    """Sound samples; in some rows one token is likely to one engine alone."""
    parts = arrays()
    for row in rows:
        parts["rollout"][row, 30], parts["old"][row, 30] = -0.5, -2.6
    return parts


@pytest.mark.parametrize(
    ("kind", "rows", "severity", "verdict"),
    [
        ("dense", (3, 20), "bug", "suspicious"),
        ("dense", (3,), "note", "healthy"),  # one cluster
        ("moe", (3, 20), "note", "healthy"),
        (None, (3, 20), "note", "healthy"),  # a dense model is assumed
    ],
)
def test_a_confident_disagreement_is_a_bug_in_a_stated_dense_model(
    kind: str | None, rows: tuple[int, ...], severity: str, verdict: str
) -> None:
    meta = {"facts": {"kind": kind}} if kind else {}
    diagnosis = rd.diagnose(made(disagreeing(rows), meta=meta))
    (finding,) = diagnosis
    assert (finding.kind, finding.cause, finding.severity) == (
        "fact",
        "unknown",
        severity,
    )
    # Two tokens are no weights. A router of experts can make them, if there is one.
    causes = [*map(str, finding.candidates)]
    assert ("moe_routing" in causes) == (kind != "dense")
    assert {"retokenised"} <= {*causes} <= {*CAUSES} - {"stale_weights"}
    assert diagnosis.verdict == verdict
    assert finding.tokens()["sample"].tolist() == list(rows)
    expected = f"{len(rows)} token{'s' * (len(rows) > 1)} that one engine finds likely"
    assert finding.location.startswith(expected)
    assert diagnosis.headline.startswith(expected) == (severity == "bug")


def drawn(**sampling: object) -> rd.Batch:
    """32 samples of 40 ids drawn from a coin of 0.6, which old gives 0.5.

    The mean of exp(old - rollout) is 0.6 * 0.5 / 0.6 + 0.4 * 0.5 / 0.4 = 1.
    """
    ids = (np.random.default_rng(3).random((32, 40)) < 0.6).astype(int)
    parts = {
        "rollout": np.log(np.where(ids == 1, 0.6, 0.4)),
        "old": np.full(ids.shape, np.log(0.5)) + 1e-3 * np.sin(np.arange(40)),
        "ids": ids,
        "mask": np.ones_like(ids),
    }
    return made(parts, meta={"sampling": sampling})


def of_another_coin(batch: rd.Batch, heads: float) -> rd.Batch:
    """The batch with ids that another coin drew, and the log-probs of the first."""
    ids = np.random.default_rng(4).random((32, 40)) < heads
    values = torch.from_numpy(np.log(np.where(ids, 0.6, 0.4)).ravel()).float()
    return replace(batch, rollout_log_probs=values)


@pytest.mark.parametrize(
    ("sampling", "is_said"),
    [
        ({"temperature": 1.0}, True),
        ({"temperature": 1.0, "top_p": 0.9}, False),
        ({"temperature": 1.0, "repetition_penalty": 1.1}, False),
        ({"temperature": 0.7, "logprobs_mode": "processed_logprobs"}, True),
        ({"temperature": 0.7}, False),
        ({}, False),  # the file states nothing
    ],
)
def test_the_mean_of_exp_diff_is_1_for_the_ids_of_the_sampler(
    sampling: dict[str, object], is_said: bool
) -> None:
    batch = drawn(**sampling)
    assert rd.diagnose(batch).mass == ""
    # 0.3 * 0.5 / 0.6 + 0.7 * 0.5 / 0.4 = 1.125
    diagnosis = rd.diagnose(of_another_coin(batch, 0.3))
    assert diagnosis.mass.startswith("The mean of exp(old - rollout) is 1.1") == is_said
    assert diagnosis.mass in diagnosis.text
    # 0.9 * 0.5 / 0.6 + 0.1 * 0.5 / 0.4 = 0.875: large terms may be missing.
    assert rd.diagnose(of_another_coin(batch, 0.9)).mass == ""


@pytest.mark.parametrize("kind", ["text", "time", "number"])
def test_the_time_of_sampling_does_not_hide_the_version(kind: str) -> None:
    parts = arrays()
    old = np.arange(32) < 12
    shaken(parts, old[:, None] & (parts["mask"] > 0), 0.5)
    times = np.where(old, "2026-11-01T10", "2026-11-01T12").astype("datetime64[s]")
    known = {"text": times.astype(str), "time": times, "number": times.astype(float)}
    columns = {"generated_at": known[kind], "weight_version": np.where(old, 3, 4)}
    diagnosis = rd.diagnose(made(parts, sample_columns=columns))
    assert names(diagnosis) == [("fact", "stale_weights")]
    assert "with weight version 3" in diagnosis.text
    assert "`generated_at`: one value for each version" in diagnosis.text


def test_versions_of_tokens_name_older_weights_too() -> None:
    parts = arrays()
    version = np.full(parts["mask"].shape, 4)
    version[:12] = 3
    shaken(parts, (version == 3) & (parts["mask"] > 0), 0.5)
    columns = {"weight_versions": torch.tensor(version)}
    diagnosis = rd.diagnose(made(parts, token_columns=columns))
    assert names(diagnosis) == [("fact", "stale_weights")]
    # In the second half of rounds only: samples span two versions.
    version[:12, : len(version[0]) // 2] = 4
    parts = arrays()
    shaken(parts, (version == 3) & (parts["mask"] > 0), 0.5)
    columns = {"weight_versions": torch.tensor(version)}
    diagnosis = rd.diagnose(made(parts, token_columns=columns))
    assert ("fact", "mixed_weights") in names(diagnosis)


def test_a_sampler_ahead_of_its_trainer_is_not_stale() -> None:
    parts = arrays()
    ahead = np.arange(32) < 12
    shaken(parts, ahead[:, None] & (parts["mask"] > 0), 0.5)
    for version in (np.where(ahead, 7, 5), np.where(ahead, 5, 7)):
        batch = made(parts, sample_columns={"weight_version": version}, step=5)
        diagnosis = rd.diagnose(batch)
        assert ("fact", "newer_weights") in names(diagnosis)
        assert "stale_weights" not in [cause for _, cause in names(diagnosis)]
        assert diagnosis.verdict in ("suspicious", "broken")


def test_versions_that_are_unknown_do_not_hide_those_that_are_known() -> None:
    parts = arrays()
    old = np.arange(32) < 12
    shaken(parts, old[:, None] & (parts["mask"] > 0), 0.5)
    version = np.where(old, 3.0, 4.0)
    version[[20, 21]] = np.nan
    diagnosis = rd.diagnose(made(parts, sample_columns={"weight_version": version}))
    assert names(diagnosis) == [("fact", "stale_weights")]
    assert "versions unknown in 2 of 32 samples" in diagnosis.text
