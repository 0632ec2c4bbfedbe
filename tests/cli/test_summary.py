"""`rounddiag summary` of batches that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.cli.summary import describe

NAN, INF = float("nan"), float("inf")


def two_rounds(old: list[float], **meta: Any) -> Batch:
    """Return one sample: round 0 has two tokens, round 1 has one."""
    return Batch.from_padded(
        response_ids=torch.tensor([[1, 2, 3, 4]]),
        response_mask=torch.tensor([[1, 1, 0, 1]]),
        rollout_log_probs=torch.tensor([[-1.0, -1.0, 0.0, -1.0]]),
        old_log_probs=torch.tensor([old]),
        meta=meta,
    )


def test_counts_rounds_the_worst_round_and_sources() -> None:
    batch = two_rounds(
        [-1.5, -1.0, 0.0, -0.5],
        mask_source="response_mask",
        old_log_probs_source="a pass of its own",
        sampling={"temperature": 1.0, "top_p": 0.9},
        num_dropped_rows=3,
    )
    counts, table, worst, sources, _ = describe(batch).split("\n\n")
    assert counts == (
        "1 sample, 2 rounds, 3 generated tokens\n"
        "diff = old_log_prob - rollout_log_prob, in nat; 95 % intervals by sample"
    )
    columns = "round num_samples num_tokens mean_abs_diff ci_low ci_high p99"
    *rows, mark = table.splitlines()
    assert [line.split() for line in rows] == [
        [*columns.split(), "max"],
        ["0*", "1", "2", "0.25", "-", "-", "0.495", "0.5"],
        ["1*", "1", "1", "0.5", "-", "-", "0.5", "0.5"],
    ]
    assert mark == "* reached by fewer than 10 samples"
    assert worst == (
        "worst round: 1, mean |diff| 0.5 nat (too few independent samples for an "
        "interval; 1 sample, 1 token)\n"
        "all tokens of the file: mean diff +0 nat, |diff| > 1 in 0 %"
    )
    assert sources == (
        "mask: response_mask\n"
        "old log-probs: a pass of its own\n"
        "sampling: temperature 1.0, top_p 0.9\n"
        "number of dropped rows: 3\n"
        "tokens left out because diff is not finite: 0"
    )


def test_tokens_that_are_not_finite_are_counted() -> None:
    text = describe(two_rounds([NAN, -2.0, 0.0, INF]))
    assert "worst round: 0, mean |diff| 1 nat (" in text
    assert "\ntokens left out because diff is not finite: 2\n\n" in text


def test_no_round_is_worst_where_none_has_a_finite_diff() -> None:
    text = describe(two_rounds([NAN, NAN, 0.0, INF]))
    worst = "worst round: none; no generated token has a finite diff"
    assert f"\n\n{worst}\n\nmask: " in text


def test_missing_sources_are_not_recorded() -> None:
    parts = describe(two_rounds([0.0, 0.0, 0.0, 0.0], rounds="unknown")).split("\n\n")
    assert parts[3].splitlines() == [
        "mask: not recorded",
        "old log-probs: not recorded",
        "sampling: not recorded",
        "rounds: unknown",
        "tokens left out because diff is not finite: 0",
    ]


def rounds_reached(num_first: int, num_second: int, **others: Any) -> Batch:
    """Return samples with a diff of 0.5 in round 0, and of 1.5 in round 1 of some."""
    second = torch.arange(num_first) < num_second
    mask = torch.stack([torch.ones(num_first), torch.zeros(num_first), second], 1)
    return Batch.from_padded(
        response_ids=torch.ones(num_first, 3, dtype=torch.int64),
        response_mask=mask,
        rollout_log_probs=torch.tensor([[-2.0, 0.0, -2.0]]).repeat(num_first, 1),
        old_log_probs=torch.tensor([[-1.5, 0.0, -0.5]]).repeat(num_first, 1),
        **others,
    )


def test_rounds_of_few_samples_are_marked_and_cannot_be_the_worst() -> None:
    _, table, worst, *_ = describe(rounds_reached(10, 9)).split("\n\n")
    _, first, second, mark = table.splitlines()
    assert first.split()[:3] == ["0", "10", "10"]
    assert second.split()[:3] == ["1*", "9", "9"]
    assert mark == "* reached by fewer than 10 samples"
    assert worst.startswith("worst round not marked *: 0, mean |diff| 0.5 nat (95 % ")


def test_samples_of_one_group_count_as_one() -> None:
    groups = [str(min(i, 9)) for i in range(12)]  # samples 9 to 11 are of one
    batch = rounds_reached(12, 9, group_ids=groups)
    _, table, worst, *_ = describe(batch).split("\n\n")
    assert table.splitlines()[-1] == (
        "* reached by fewer than 10 groups; samples of one group are not independent"
    )
    assert worst.startswith("worst round not marked *: 0, ")


def test_no_round_is_marked_where_many_samples_reach_all() -> None:
    _, table, worst, *_ = describe(rounds_reached(10, 10)).split("\n\n")
    assert "*" not in table
    assert worst.startswith("worst round: 1, mean |diff| 1.5 nat (")


def test_the_overall_mismatch_has_its_sign_and_the_share_of_large_diffs() -> None:
    assert "\nall tokens of the file: mean diff +1 nat, |diff| > 1 in 50 %\n" in (
        describe(rounds_reached(10, 10))
    )


def test_groups_make_the_intervals() -> None:
    batch = Batch.from_padded(
        response_ids=torch.ones(1, 1, dtype=torch.int64),
        response_mask=torch.ones(1, 1),
        rollout_log_probs=torch.zeros(1, 1),
        old_log_probs=torch.zeros(1, 1),
        group_ids=["a"],
    )
    assert "95 % intervals by group" in describe(batch)


@pytest.mark.parametrize("hostile", ["\x1b]0;title\x07", "a\nforged: line"])
def test_text_of_a_file_cannot_command_the_terminal(hostile: str) -> None:
    text = describe(two_rounds([0.0, 0.0, 0.0, 0.0], mask_source=hostile))
    assert f"\nmask: {repr(hostile)[1:-1]}\n" in text


def test_failed_checks_come_first_and_how_many_were_not_testable_last() -> None:
    first, *_, last = describe(two_rounds([0.5, -2.0, 0.0, -3.0])).split("\n\n")
    assert first == (
        "failed check: log-probs are not above 0: 1 token whose old log-prob is above"
        " 0, in 1 sample: sample 0 round 0 position 0"
    )
    lines = last.splitlines()
    assert lines[0] == (
        "Data checks: 8 passed, 1 failed (integrity only, independent of the mismatch)."
    )
    assert lines[1:] == ["Not testable: 13; `rd.check(batch)` lists them."]
