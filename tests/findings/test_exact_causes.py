"""Causes that ids, masks and values show exactly, on batches worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.checks.fills import FILLS
from rounddiag.checks.images import POSSIBLE
from rounddiag.checks.mask import COVERS_WRITTEN
from rounddiag.findings import View
from rounddiag.findings.detectors.rows import swapped_rows
from rounddiag.findings.detectors.shifts import shifted_log_probs
from tests.findings.small import GAP, LENGTH, ROUNDS, TOKENS, arrays, literal, made


def test_a_recurring_value_far_from_the_other_engine_is_a_fill() -> None:
    # Of 11 tokens all are far: 1 / 2048 if near and far were as likely, less than
    # 1 / 1600. Of 10 tokens it is 1 / 1024.
    old = [[-0.5, -1.5 - row / 8, -0.3] for row in range(11)]
    rollout = [[-0.5, -9.0, -0.3]] * 11
    assert filled(old, rollout) == [*range(1, 33, 3)]
    assert filled(old[:10], rollout[:10]) == []


def test_equal_pairs_of_values_are_siblings_and_no_fill() -> None:
    # Samples of one prompt begin alike: both columns recur together.
    assert filled([[-3.0, -0.5]] * 20, [[-0.25, -0.5]] * 20) == []


def test_zeros_are_fills_if_the_next_surest_tokens_are_near() -> None:
    # In each row the sampler is sure of four tokens: two zeros, and two just below.
    rollout = [[-2.0, 0.0, -0.01, 0.0, -0.02, -1.0]] * 8
    far, near = [-2.1, -1.5, -0.01, -2.5, -0.02, -1.1], [-2.1, 0, -0.01, 0, -0.02, -1.1]
    rows = [[value - row / 64 for value in far] for row in range(8)]
    assert filled(rows, rollout) == sorted([*range(1, 48, 6), *range(3, 48, 6)])
    assert filled([near] * 8, rollout) == []
    # An engine that lacks context is as far from the one as from the other.
    lost = [[-2.1, -1.5, -3.0, -2.5, -2.8, -1.1]] * 8
    rows = [[value - row / 64 for value in each] for row, each in enumerate(lost)]
    assert filled(rows, rollout) == []


def filled(old: list[list[float]], rollout: list[list[float]]) -> list[int]:
    """The positions at which a value fills a column."""
    tokens = FILLS.check(literal(old, rollout)).tokens
    return [] if tokens is None else sorted(tokens.tolist())


def test_zeros_at_the_last_tokens_are_named_with_their_place() -> None:
    parts = arrays(16)
    parts["rollout"][:, -1] = 0.0
    parts["old"][:, -1] = -np.linspace(1, 3, 16)
    first = rd.diagnose(made(parts))[0]
    assert first.cause == "filled_log_probs"
    assert first.num_tokens == 16
    assert "is exactly 0, the last of samples, and −2.00 nat on average" in first.shown
    assert first.tokens()["round"].unique().tolist() == [3]


def test_sure_tokens_are_no_fill() -> None:
    parts = arrays(16)
    parts["rollout"][:, :5] = 0.0
    parts["old"][:, :5] = -1e-6
    assert len(rd.diagnose(made(parts))) == 0


def test_a_lag_of_one_in_a_row() -> None:
    row = [-0.1, -2.0, -0.3, -3.0, -0.5, -1.5, -0.2, -4.0, -0.6]
    late = [-9.0, *row[:-1]]
    view = View.from_batch(literal([row, row], [late, row]))
    (finding,) = shifted_log_probs(view)
    assert finding.cause == "shifted_log_probs"
    assert finding.measures[0].value == 1  # o_i fits r_(i + 1)
    assert set(view.sample[finding.tokens]) == {0}


def test_a_lag_of_the_first_tokens_of_each_round() -> None:
    parts = arrays(16)
    for k in range(ROUNDS):
        begin = k * (TOKENS + GAP)
        late = parts["rollout"][:6, begin + 1 : begin + 5]
        parts["old"][:6, begin : begin + 4] = late
    first = rd.diagnose(made(parts))[0]
    assert (first.cause, first.kind) == ("shifted_log_probs", "reversal")
    assert first.samples.tolist() == [0, 1, 2, 3, 4, 5]
    assert first.num_tokens == 6 * ROUNDS * 4
    assert "at 96 tokens, the first 4 of rounds" in first.shown


def test_a_lag_that_begins_in_a_round_and_ends_with_it_comes_from_other_ids() -> None:
    parts = arrays(8)
    for sample in range(6):
        stop = TOKENS
        parts["rollout"][sample, 8 : stop - 1] = parts["rollout"][sample, 9:stop]
    diagnosis = rd.diagnose(made(parts))
    assert diagnosis[0].cause == "retokenised"
    assert diagnosis[0].samples.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_lag_that_goes_on_to_the_end_of_the_row_is_a_shift() -> None:
    parts = arrays(8)
    keep = parts["mask"][0].astype(bool)
    tokens = np.flatnonzero(keep)[30:]
    parts["rollout"][2, tokens[1:]] = parts["rollout"][2, tokens[:-1]]
    first = rd.diagnose(made(parts))[0]
    assert first.cause == "shifted_log_probs"
    assert first.samples.tolist() == [2]


def test_rows_that_have_the_log_probs_of_each_other() -> None:
    parts = arrays(12)
    parts["rollout"][[3, 8]] = parts["rollout"][[8, 3]]
    finding = swapped_rows(View.from_batch(made(parts)))
    assert finding is not None
    assert finding.where["partners"] == {3: 8, 8: 3}
    assert rd.diagnose(made(parts))[0].cause == "swapped_rows"


def test_rows_far_off_without_a_partner_are_not_swapped() -> None:
    parts = arrays(12)
    parts["rollout"][[3, 8]] = arrays(12, seed=5)["rollout"][[3, 8]]
    assert swapped_rows(View.from_batch(made(parts))) is None


def test_copies_are_found_and_weigh_nothing() -> None:
    batch = made(arrays(12))[[*range(12), 4, 4]]
    diagnosis = rd.diagnose(batch)
    assert diagnosis[0].cause == "padding_rows"
    assert diagnosis[0].samples.tolist() == [12, 13]
    assert diagnosis[0].share == 0


def test_sure_answers_that_come_twice_are_no_copies() -> None:
    row = [-0.01, -0.02, -0.01]
    diagnosis = rd.diagnose(literal([row] * 4, [row] * 4))
    assert "padding_rows" not in [finding.cause for finding in diagnosis]


def test_rows_without_a_generated_token_are_padding() -> None:
    parts = arrays(12)
    parts["mask"][10:] = 0
    first = rd.diagnose(made(parts))[0]
    assert first.cause == "padding_rows"
    assert "every row has a generated token" in first.shown


def test_observations_under_the_mask() -> None:
    parts = arrays(8)
    wide = parts["mask"] == 0
    parts["ids"][:, TOKENS :: TOKENS + GAP] = 5  # how observations begin
    parts["mask"][:] = 1
    parts["old"][wide] = -4.0
    first = rd.diagnose(made(parts))[0]
    assert first.cause == "mask_too_wide"
    assert first.num_tokens == 8 * 3 * GAP


def test_a_header_under_the_mask_has_no_mismatch_and_is_found_by_its_ids() -> None:
    parts = arrays(8)
    for k in (1, 2, 3):
        start = k * (TOKENS + GAP)
        parts["mask"][:, start - 2 : start] = 1
        parts["ids"][:, start - 2 : start] = [7, 8]
        parts["rollout"][:, start - 2 : start] = -0.001
        parts["old"][:, start - 2 : start] = -0.001
    tokens = COVERS_WRITTEN.check(made(parts)).tokens
    assert tokens is not None
    assert len(tokens) == 8 * 3 * 2


def test_holes_where_the_sampler_has_log_probs() -> None:
    parts = arrays(8)
    parts["mask"][:, [5, 30]] = 0
    first = rd.diagnose(made(parts))[0]
    assert (first.kind, first.cause) == ("fact", "mask_punched")
    assert "16 tokens masked between two of a round" in first.location


def test_equal_columns() -> None:
    parts = arrays(6)
    diagnosis = rd.diagnose(made({**parts, "old": parts["rollout"]}))
    assert diagnosis.verdict == "identical"
    assert diagnosis[0].cause == "identical_log_probs"
    assert "bypass" in diagnosis.text


def test_equal_rows_of_two_passes_of_one_engine_are_no_finding() -> None:
    parts = arrays(12)
    current = parts["old"].copy()
    current[4:8] += 0.002 * np.sin(np.arange(LENGTH)) * parts["mask"][4:8]
    scores = {"current": torch.from_numpy(current).float()}
    diagnosis = rd.diagnose(made(parts, scores=scores), a="current", b="old")
    assert "identical_log_probs" not in [finding.cause for finding in diagnosis]


@pytest.mark.parametrize(("step", "expected"), [(1, None), (2, 7)])
def test_position_ids_that_repeat(step: int, expected: int | None) -> None:
    places = torch.arange(20)
    places[12:] = 12 + (torch.arange(8) // step) * step
    prompt = torch.ones(1, 4, dtype=torch.long)
    scores = [[-1.0] * 16]
    batch = literal(scores, scores, position_ids=[places], prompt_ids=prompt)
    result = POSSIBLE.check(batch)
    if expected is None:
        assert result.status == "passed"
    else:
        # Positions 12, 12, 14, 14, ...: four repeat, from response position 9 on.
        assert result.detail.startswith(
            "4 tokens have the position id of the token before"
        )
        assert result.tokens is not None
        assert result.tokens.tolist() == list(range(9, 16))
        assert len(result.tokens) == expected


def test_padding_under_the_mask() -> None:
    parts = arrays(8)
    parts["ids"][:3, -5:] = 0
    for name in ("old", "rollout"):
        parts[name][:3, -5:] = 0.0
    finding = rd.diagnose(made(parts))[0]
    assert finding.cause == "mask_too_wide"
    assert finding.num_tokens == 3 * 5
    assert finding.samples.tolist() == [0, 1, 2]


def test_two_zeros_do_not_recur() -> None:
    parts = arrays()
    parts["rollout"][3, 5:7] = 0
    parts["old"][3, 5:7] = -9
    causes = [finding.cause for finding in rd.diagnose(made(parts))]
    assert "filled_log_probs" not in causes
    parts["rollout"][3, 5:11] = 0
    parts["old"][3, 5:11] = -9
    causes = [finding.cause for finding in rd.diagnose(made(parts))]
    assert "filled_log_probs" in causes


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ([0.5], "impossible_log_probs"),
        ([0.5, 0.5], "filled_log_probs"),
        ([0.5, 0.25], "impossible_log_probs"),
        ([np.nan, np.nan], "filled_log_probs"),
    ],
)
def test_an_impossible_value_that_recurs_is_a_fill(
    values: list[float], cause: str
) -> None:
    parts = arrays()
    parts["rollout"][3, 5 : 5 + len(values)] = values
    assert rd.diagnose(made(parts))[0].cause == cause
