"""`rounddiag check FILE`: exit codes, the levels that fail, and the JSON object."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag import Batch
from rounddiag.cli import main
from rounddiag.findings.verdict import Verdict, is_at_least
from tests.findings.small import arrays, made, shaken

HEALTHY, STALE, BROKEN = (
    f"sample_data/{name}.parquet" for name in ("healthy", "stale", "image_window")
)
LEVELS = ["noisy", "stale", "suspicious", "broken"]


def save_batch(batch: Batch, folder: Path) -> str:
    file = folder / "batch.parquet"
    rd.save(batch, file)
    return str(file)


def without_tokens() -> Batch:
    zeros = torch.zeros(2, 2)
    return Batch.from_padded(
        response_ids=torch.ones(2, 2, dtype=torch.int64),
        response_mask=zeros,
        rollout_log_probs=zeros,
        old_log_probs=zeros,
    )


@pytest.mark.parametrize(
    ("verdict", "failing"),
    [
        ("identical", []),
        ("healthy", []),
        ("noisy", LEVELS[:1]),
        ("stale", LEVELS[:2]),
        ("suspicious", LEVELS[:3]),
        ("broken", LEVELS),
        ("not_measurable", LEVELS),
    ],
)
def test_the_order_of_the_verdicts(verdict: Any, failing: list[str]) -> None:
    assert verdict in get_args(Verdict)
    levels: list[Any] = [*LEVELS]
    assert [level for level in levels if is_at_least(verdict, level)] == failing


@pytest.mark.parametrize(
    ("file", "options", "code"),
    [
        (HEALTHY, ["--fail-on", "noisy"], 0),
        (STALE, [], 0),
        (STALE, ["--fail-on", "stale"], 1),
        (BROKEN, [], 1),
        (BROKEN, ["--fail-on", "broken"], 1),
    ],
)
def test_it_fails_at_the_level_or_above(
    file: str, options: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", file, *options]) == code
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith("failed: " if code else "passed: ")
    assert err == ""


def test_it_prints_verdict_level_findings_and_the_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", BROKEN]) == 1
    head, findings, look, result = capsys.readouterr().out.split("\n\n")
    assert head.startswith("broken: 74 tokens differ by more than a factor of 2, ")
    assert "\nlevel: mean |diff| 0.07624 nat (95 % interval 0.03034 to 0.1221; " in head
    first = "  98 %  place     74 tokens differ by more than a factor of 2, "
    assert findings.splitlines()[1].startswith(first)
    call = f"`rounddiag prove {BROKEN} --model MODEL --hypotheses "
    _, names = head.splitlines()[1].removesuffix("` tests them.").split(call)
    assert names == "ids,context,positions"
    place = "step 1584 / task-04/2 / r3 / t2"
    assert look == f"look at: {place} (`rounddiag show` prints it)"
    assert result == (
        "failed: the verdict is broken; suspicious or worse fails, and so does a wrong"
        " update\n"
    )


def test_a_wrong_update_fails_whatever_the_level_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = arrays()
    last = np.zeros_like(parts["rollout"])
    last[:, -20:] = 1.0
    batch = made(parts, advantages=torch.from_numpy(last))
    file = save_batch(batch, tmp_path)
    assert main(["check", file, "--fail-on", "broken"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("suspicious: The earlier rounds are not trained: 32 samples ")
    first, second, *_ = out.splitlines()
    assert "Noise: mean |diff| is " in first
    assert "The update is wrong: advantages that reach the last round only." in second
    plain = json_of(file, capsys)
    assert (plain["verdict"], plain["failed"]) == ("suspicious", True)
    assert [(check["kind"], check["cause"]) for check in plain["failed_checks"]] == [
        ("update", "lost_advantages")
    ]
    assert [
        (finding["kind"], finding["severity"], finding["cause"], finding["share"])
        for finding in plain["findings"]
    ] == [("fact", "update", "lost_advantages", 0.0)]


def test_copies_beside_older_weights_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = rd.load(STALE)
    file = save_batch(batch[[*range(len(batch)), 3, 9, 9, 20]], tmp_path)
    assert main(["check", file]) == 1
    out = capsys.readouterr().out
    assert out.startswith("suspicious: ")
    assert "\nprove it: rounddiag prove " in out
    assert "/batch.parquet --model MODEL --hypotheses stale_weights\n" in out


def test_failed_checks_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = arrays()
    parts["old"][3, 5] = 0.5
    main(["check", save_batch(made(parts), tmp_path)])
    assert (
        "\nfailed check (bug): log-probs are not above 0: 1 token whose old log-prob is"
        " above 0, in 1 sample: sample 3 round 0 position 5\n"
    ) in capsys.readouterr().out


def test_what_cannot_be_measured_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = save_batch(without_tokens(), tmp_path)
    assert main(["check", file, "--fail-on", "broken"]) == 1
    assert capsys.readouterr().out.startswith("not_measurable: ")


def json_of(
    file: str, capsys: pytest.CaptureFixture[str], *options: str
) -> dict[str, Any]:
    main(["check", file, "--json", *options])

    def refuse(name: str) -> None:
        raise AssertionError(name)

    text = capsys.readouterr().out
    assert text.count("\n") == 1
    plain: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return plain


def test_json_has_the_documented_keys(capsys: pytest.CaptureFixture[str]) -> None:
    plain = json_of(BROKEN, capsys, "--fail-on", "broken")
    assert [*plain] == [
        *("file", "verdict", "text", "fail_on", "failed"),
        *("level", "reference", "findings", "failed_checks", "proof"),
    ]
    assert plain["file"] == BROKEN
    assert (plain["verdict"], plain["fail_on"], plain["failed"]) == (
        "broken",
        "broken",
        True,
    )
    assert plain["level"]["num_tokens"] == 4143
    assert plain["level"]["mean_abs_diff"] == pytest.approx(0.0762386, rel=1e-5)
    assert plain["reference"]["kind"] == "vlm"
    assert plain["failed_checks"] == []
    first = plain["findings"][0]
    assert [*first] == [
        *("kind", "cause", "severity", "share", "p", "location", "address"),
        *("num_tokens", "samples", "shown", "evidence", "families"),
        *("candidates", "next_step"),
    ]
    assert (first["kind"], first["cause"]) == ("place", "unknown")
    assert 0 < first["p"] < 0.01
    assert {*first["evidence"][0]} == {"name", "value", "unit", "low", "high"}
    assert "image_window" in [candidate["cause"] for candidate in first["candidates"]]
    assert {*first["candidates"][0]} == {
        *("cause", "family", "clue", "meaning", "test", "hypotheses")
    }


def test_json_has_null_where_a_number_is_not_finite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = json_of(save_batch(without_tokens(), tmp_path), capsys)
    assert plain["verdict"] == "not_measurable"
    assert plain["failed"] is True
    assert plain["level"]["mean_abs_diff"] is None
    assert plain["level"]["num_tokens"] == 0


def test_json_keeps_hostile_text_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = arrays()
    hostile = '"}\n</script>\x1b[1m'
    rank = np.array([hostile, "b", "c", "d"])[np.arange(32) % 4]
    shaken(parts, (rank == hostile)[:, None] & (parts["mask"] > 0), 0.3)
    batch = made(parts, sample_columns={"rank": rank})
    plain = json_of(save_batch(batch, tmp_path), capsys)
    first = plain["findings"][0]
    assert first["samples"] == list(range(0, 32, 4))
    assert hostile in first["location"]


@pytest.mark.parametrize(
    ("file", "code", "verdict", "proof"),
    [
        (HEALTHY, 0, "healthy", None),
        (BROKEN, 1, "suspicious", ("proved", "image_window")),
    ],
)
def test_a_file_with_one_engine_is_judged_by_the_model_of_its_step(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    code: int,
    verdict: str,
    proof: tuple[str, str] | None,
) -> None:
    alone = replace(rd.load(file)[:8], rollout_log_probs=None)
    path = save_batch(alone, tmp_path)
    assert main(["check", path, "--json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    assert (plain["verdict"], plain["proof"]) == ("not_measurable", None)
    assert main(["check", path, "--json", "--model", "sample_data/model"]) == code
    plain = json.loads(capsys.readouterr().out)
    proof_of_file = plain["proof"] and (
        plain["proof"]["verdict"],
        plain["proof"]["cause"],
    )
    assert (plain["verdict"], proof_of_file) == (verdict, proof)
