"""`rounddiag summary` of batches that can be checked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.cli import main
from rounddiag.cli.summary import describe
from tests.findings.small import arrays, made, shaken

NAN, INF = float("nan"), float("inf")


def paragraphs(batch: Batch) -> list[str]:
    """Return the paragraphs after the diagnosis and the failed checks."""
    parts = describe(batch).split("\n\n")
    counts = next(i for i, part in enumerate(parts) if "generated token" in part[:60])
    return parts[counts:]


def two_rounds(old: list[float], **meta: Any) -> Batch:
    """Return one sample: round 0 has two tokens, round 1 has one."""
    return Batch.from_padded(
        response_ids=torch.tensor([[1, 2, 3, 4]]),
        response_mask=torch.tensor([[1, 1, 0, 1]]),
        rollout_log_probs=torch.tensor([[-1.0, -1.0, 0.0, -1.0]]),
        old_log_probs=torch.tensor([old]),
        meta=meta,
    )


def test_counts_rounds_and_sources() -> None:
    batch = two_rounds(
        [-1.5, -1.0, 0.0, -0.5],
        mask_source="response_mask",
        old_log_probs_source="a pass of its own",
        sampling={"temperature": 1.0, "top_p": 0.9},
        num_dropped_rows=3,
    )
    counts, table, worst, sources, _ = paragraphs(batch)
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
    assert mark == "* reached by fewer than 5 samples"
    assert worst == ("all tokens of the file: mean diff +0 nat, |diff| > 1 in 0 %")
    assert sources == (
        "mask: response_mask\n"
        "old log-probs: a pass of its own\n"
        "sampling: temperature 1.0, top_p 0.9\n"
        "number of dropped rows: 3\n"
        "tokens left out because diff is not finite: 0"
    )


JOB = Path(__file__).parents[1] / "data" / "harbor-0.26.0"


def test_a_job_of_trajectories_is_one_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are not the steps of a run, whatever the command."""
    assert main(["summary", str(JOB)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("not_measurable: This batch")
    assert "\n\n2 samples, " in text
    assert "level: " not in text
    assert main(["check", str(JOB)]) == 1
    assert ", step " not in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["report", str(JOB), "-o", str(page)]) == 0
    assert page.stat().st_size > 1_000_000


def test_missing_sources_are_not_recorded() -> None:
    parts = paragraphs(two_rounds([0.0, 0.0, 0.0, 0.0], rounds="unknown"))
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


def test_rounds_of_few_samples_are_marked_and_without_a_finding_none_is_worst() -> None:
    _, table, overall, *_ = paragraphs(rounds_reached(10, 4))
    _, first, second, mark = table.splitlines()
    assert first.split()[:3] == ["0", "10", "10"]
    assert second.split()[:3] == ["1*", "4", "4"]
    assert mark == "* reached by fewer than 5 samples"
    assert overall.startswith("all tokens of the file: ")
    assert "*" not in paragraphs(rounds_reached(10, 10))[1]


def test_samples_of_one_group_count_as_one() -> None:
    groups = [str(min(i, 4)) for i in range(12)]  # samples 4 to 11 are of one
    batch = rounds_reached(12, 4, group_ids=groups)
    _, table, *_ = paragraphs(batch)
    assert table.splitlines()[-1] == (
        "* reached by fewer than 5 groups; samples of one group are not independent"
    )


FACTS = {"rollout_engine": "vllm", "parallel": {"rollout_tensor": 2, "nodes": 1}}
SOUND = [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (
            two_rounds([-1.0, -2.0, 0.0, 0.25]),
            " nat (too few samples for an interval; ",
        ),
        (
            two_rounds(SOUND, facts=FACTS),
            "\nfacts of the run: rollout_engine vllm,"
            " parallel (rollout_tensor 2, nodes 1)\n",
        ),
        (
            two_rounds([NAN, -2.0, 0.0, INF]),
            "worst round: 0, mean |diff| 1 nat (",
        ),
        (
            two_rounds([NAN, -2.0, 0.0, INF]),
            "\ntokens left out because diff is not finite: 2\n\n",
        ),
        (
            two_rounds([NAN, NAN, 0.0, INF]),
            "\n\nworst round: none; no generated token has a finite diff\n\nmask: ",
        ),
        (
            rounds_reached(10, 10),
            "\nall tokens of the file: mean diff +1 nat, |diff| > 1 in 50 %\n",
        ),
        (rounds_reached(10, 10, group_ids=["a"] * 10), "95 % intervals by group"),
        # Text of a file cannot command the terminal.
        (
            two_rounds(SOUND, mask_source="\x1b]0;title\x07"),
            "\nmask: \\x1b]0;title\\x07\n",
        ),
        (
            two_rounds(SOUND, mask_source="a\nforged: line"),
            "\nmask: a\\nforged: line\n",
        ),
        (
            rounds_reached(2, 2).where([False, False]),
            "not_measurable: The batch has no generated token.",
        ),
    ],
)
def test_what_the_summary_says(batch: Batch, text: str) -> None:
    said = describe(batch)
    assert text in said
    assert " nan " not in said


def test_failed_checks_come_before_the_counts_and_those_not_testable_last() -> None:
    batch = two_rounds([0.5, -2.0, 0.0, -3.0])
    parts = describe(batch).split("\n\n")
    failed, last = parts[1], parts[-1]
    assert parts[2].startswith("1 sample, 2 rounds, 3 generated tokens\n")
    assert failed == (
        "failed check (bug): log-probs are not above 0: 1 token whose old log-prob is"
        " above 0, in 1 sample: sample 0 round 0 position 0"
    )
    lines = last.splitlines()
    assert lines[0] == (
        "Data checks: 9 passed, 1 failed (integrity only, independent of the mismatch)."
    )
    num = sum(result.status == "not testable" for result in rd.check(batch))
    assert lines[1:] == [f"Not testable: {num}; `rd.check(batch)` lists them."]


def test_the_verdict_and_the_findings_come_first() -> None:
    parts = describe(rd.load("sample_data/image_window.parquet")).split("\n\n")
    verdict, cause, level, usual = parts[0].splitlines()
    assert verdict == (
        "broken: 74 tokens differ by more than a factor of 2, from round 2 on, in 26 of"
        " 64 samples."
    )
    assert cause.startswith("Cause not known; possible: ")
    assert "context and images" in cause
    assert level == (
        "level: mean |diff| 0.07624 nat (95 % interval 0.03034 to 0.1221; 4,143 tokens"
        " of 64 samples)"
    )
    assert usual.startswith("range: up to ")
    heading, first, *_ = parts[1].splitlines()
    assert heading.split() == ["share", "kind", "where"]
    assert first.startswith("  98 %  place     74 tokens differ ")


def test_the_onset_is_named_in_place_of_the_worst_round() -> None:
    text = describe(rd.load("sample_data/image_window.parquet"))
    # Token-weighted means of the rounds: 2.675e-3 over 0 and 1, 0.1427 over 2 to 7.
    assert (
        "\n\nonset: round 2 (95 % interval: this round alone), mean |diff| 0.002675 nat"
        " before and 0.1427 nat from there on\n"
    ) in text
    assert "worst round" not in text


def test_a_value_of_a_column_cannot_command_the_terminal() -> None:
    parts = arrays()
    rank = np.array(["\x1b[1m", "b", "c", "d"])[np.arange(32) % 4]
    shaken(parts, (rank == "\x1b[1m")[:, None] & (parts["mask"] > 0), 0.3)
    text = describe(made(parts, sample_columns={"rank": rank}))
    assert "rank \\x1b[1m, in 8 of 32 samples" in text
    assert "\x1b" not in text


def test_the_file_that_was_read_is_named_before_the_sources(tmp_path: Path) -> None:
    rd.save(two_rounds([0.0, 0.0, 0.0, 0.0]), tmp_path / "step_3.parquet")

    text = describe(rd.load(tmp_path))

    assert f"\n\nfile: {tmp_path / 'step_3.parquet'}\nmask: " in text
