"""What `rounddiag summary` tells about a batch that can be checked by hand."""

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


def test_it_tells_counts_rounds_the_worst_and_the_sources() -> None:
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
    assert [line.split() for line in table.splitlines()] == [
        [*columns.split(), "max"],
        ["0", "1", "2", "0.25", "-", "-", "0.495", "0.5"],
        ["1", "1", "1", "0.5", "-", "-", "0.5", "0.5"],
    ]
    assert worst == (
        "worst round: 1, mean |diff| 0.5 nat (too few independent samples for an "
        "interval; 1 sample, 1 token)"
    )
    assert sources == (
        "mask: response_mask\n"
        "old log-probs: a pass of its own\n"
        "sampling: temperature 1.0, top_p 0.9\n"
        "number of dropped rows: 3\n"
        "tokens left out, diff not finite: 0"
    )


def test_it_counts_what_is_not_finite() -> None:
    text = describe(two_rounds([NAN, -2.0, 0.0, INF]))
    assert "worst round: 0, mean |diff| 1 nat (" in text
    assert "\ntokens left out, diff not finite: 2\n\n" in text


def test_no_round_is_worst_where_none_has_a_finite_diff() -> None:
    text = describe(two_rounds([NAN, NAN, 0.0, INF]))
    assert "worst round: none, no generated token has a finite diff" in text


def test_it_says_what_the_file_does_not_know() -> None:
    parts = describe(two_rounds([0.0, 0.0, 0.0, 0.0], rounds="unknown")).split("\n\n")
    assert parts[3].splitlines() == [
        "mask: not recorded",
        "old log-probs: not recorded",
        "sampling: not recorded",
        "rounds: unknown",
        "tokens left out, diff not finite: 0",
    ]


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
    assert lines[0] == "8 checks passed, 1 failed"
    assert lines[1:] == ["13 not testable: `rd.check(batch)` names them"]
