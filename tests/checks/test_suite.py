"""All checks together: on real files, on odd batches, and the fast ones alone."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch
from rounddiag.checks import check
from rounddiag.errors import BatchError
from rounddiag.findings import CAUSES
from rounddiag.loaders import load
from tests.batches import hand_batch, masks, padded, redacted
from tests.checks.chats import (
    CLICK,
    EMPTY,
    END,
    Broken,
    Chat,
    chat,
    picture,
    prompts,
    scored,
)

SAMPLES = Path(__file__).parents[2] / "sample_data"
NAN = float("nan")
EVERYTHING: dict[str, Any] = {
    "tokenizer": Broken(),
    "images": ((picture(1, 2, 2, position=0),),),
    "position_ids": (torch.zeros(4, 2),),
    "rollout_ids": (torch.tensor([5]),),
    **prompts([1]),
}
ODD = {
    "empty": EMPTY,
    "one token": chat([[7]], [[1]]),
    "all NaN": scored([[NAN, NAN]], [[NAN, NAN]]),
    "no generated token": chat([[7, 8]], [[0, 0]], **EVERYTHING),
    "empty response": chat([[]], [[]], **{**EVERYTHING, "position_ids": None}),
    "a tokenizer that fails": chat([[7]], [[1]], **EVERYTHING),
    "ids that are no ids": chat([[-1, 2**62]], [[1, 1]], tokenizer=Chat()),
}


def failed(batch: Batch, *, fast: bool = False) -> list[str]:
    return [result.name for result in check(batch, fast=fast).failed]


@pytest.mark.parametrize("name", ["healthy", "image_window", "stale"])
def test_the_sample_data_breaks_no_contract(name: str) -> None:
    results = check(load(SAMPLES / f"{name}.parquet"))
    assert results.failed == ()
    assert len(results.passed) > 10


def test_a_file_of_verl_keeps_every_contract_that_it_can_break() -> None:
    batch = load(SAMPLES / "image_window_verl.pkl")
    results = check(replace(batch, tokenizer=SAMPLES / "tokenizer.json"))
    assert results.failed == ()
    assert [result.field for result in results.not_testable] == [
        *["rollout_ids"] * 2,
        "min_global_steps",
        *["weight_version"] * 2,
        *["digests of weights"] * 2,
        *["advantages"] * 6,
        "rollout_ids",
        "images",
        "meta",
    ]


def test_the_fast_ones_are_part_of_all() -> None:
    few, every = check(hand_batch(), fast=True), check(hand_batch())
    assert {result.name for result in few} < {result.name for result in every}
    assert len({result.name for result in every}) == len(every)


def test_a_failure_has_advice_and_a_pass_rules_out_its_cause() -> None:
    every = check(hand_batch())
    assert all(result.advice for result in every if result.kind != "note")
    assert {result.cause for result in every if result.kind == "bug"} <= {*CAUSES}
    assert check(replace(hand_batch(), tokenizer=Chat())).refuted == {"mask_punched"}


@pytest.mark.parametrize("batch", ODD.values(), ids=ODD)
def test_odd_batches_are_survived(batch: Batch) -> None:
    for results in (check(batch), check(batch, fast=True)):
        assert all(result.status == "passed" or result.detail for result in results)
        assert "\n" not in "".join(result.name + result.detail for result in results)


def test_a_check_that_cannot_compute_keeps_no_file_from_opening() -> None:
    eighths = [torch.tensor([-1.0, -2.0]).to(torch.float8_e4m3fn)]
    scores = {"rollout_log_probs": eighths, "old_log_probs": eighths}
    batch = chat([[1, 2]], [[1, 1]], **scores)
    by_name = {result.name: result for result in check(batch, fast=True)}[
        "log-probs are finite"
    ]
    assert (by_name.status, by_name.field) == (
        "not testable",
        "rollout_log_probs, old_log_probs",
    )
    # A RuntimeError before torch 2.6.
    assert re.match(
        r"the check itself fails: (NotImplemented|Runtime)Error: ", by_name.detail
    )


def test_of_the_fast_ones_one_asks_a_tokenizer() -> None:
    batch = chat([[7]], [[1]], **EVERYTHING)
    asking = [
        result.name for result in check(batch, fast=True) if result.field == "tokenizer"
    ]
    assert asking == ["the tokenizer is the model's"]


@given(masks(), st.data())
def test_the_samples_that_are_named_are_those_that_break(
    mask: list[list[int]], data: st.DataObject
) -> None:
    shape = (len(mask), len(mask[0]) if mask else 0)
    numbers = st.sampled_from([0.0, -1.0, -2.5, 1.0, NAN, float("inf")])
    size = shape[0] * shape[1]
    old, rollout = (
        torch.tensor(data.draw(st.lists(numbers, min_size=size, max_size=size)))
        for _ in range(2)
    )
    batch = padded(
        torch.tensor(mask).reshape(shape), old.reshape(shape), rollout.reshape(shape)
    )
    named = {result.name: result.samples for result in check(batch, fast=True)}
    written = torch.tensor(mask).reshape(shape) != 0
    above = ((old > 0) | (rollout > 0)).reshape(shape) & written
    infinite = torch.zeros(shape, dtype=torch.bool)
    for values in (old.reshape(shape), rollout.reshape(shape)):
        infinite |= ~values.isfinite() & written & ~all_nan_runs(values, written)
    assert named["log-probs are not above 0"] == rows_with(above)
    assert named["log-probs are finite"] == rows_with(infinite)


def all_nan_runs(values: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    """The tokens of runs of the mask at which nothing is known."""
    flags = torch.zeros_like(written)
    for sample, row in enumerate(written.tolist()):
        for is_written, run in groupby(range(len(row)), key=row.__getitem__):
            at = list(run)
            flags[sample, at] = is_written and bool(values[sample, at].isnan().all())
    return flags


def rows_with(flags: torch.Tensor) -> tuple[int, ...]:
    return tuple(sample for sample, row in enumerate(flags) if row.any())


def test_samples_that_are_named_exist_and_break_the_contract_alone() -> None:
    rollout = [[-1.0, -2.0], [1.0, -2.0], [-1.0, 3.0]]
    batch = scored(rollout, [[-1.5, -2.0]] * 3)
    (only,) = check(batch, fast=True).failed
    assert only.samples == (1, 2)
    assert failed(batch[:1]) == []
    assert failed(batch[1:]) == [only.name]


def test_a_batch_shows_what_failed_once_it_was_checked() -> None:
    batch = scored([[-1.0]], [[0.5]])
    assert "failed" not in repr(batch)
    (failed,) = check(batch, fast=True).failed
    assert "failed_checks=1" in repr(batch)
    assert f"{failed.name}: {failed.detail}" in batch._repr_html_()
    assert "failed" not in repr(batch[:1])


def test_a_fast_check_later_hides_no_failure() -> None:
    batch = chat([[END], [END, 0, CLICK]], [[1], [1, 0, 1]], tokenizer=Chat())
    failed = [result.name for result in check(batch).failed]
    assert "no last round is cut off" in failed
    assert len(check(batch, fast=True).failed) < len(failed)
    assert f"failed_checks={len(failed)}" in repr(batch)


def test_results_are_kept_until_the_batch_changes() -> None:
    batch = scored([[-1.0]], [[-0.5]])
    first = check(batch)
    assert all(one is two for one, two in zip(check(batch), first, strict=True))
    batch.log_probs("old")[0] = 0.5
    assert [result.name for result in check(batch).failed] == [
        "log-probs are not above 0"
    ]


def test_results_are_the_same_on_every_device(device: torch.device) -> None:
    batch = scored([[-1.0, 0.0, NAN]] * 2, [[0.5, -2.0, -1.0]] * 2)
    assert repr(check(batch.to(device))) == repr(check(batch))


def test_token_ids_that_were_left_out_cannot_be_checked() -> None:
    batch = chat([[0, 0], [0, 0]], [[1, 0], [1, 1]], tokenizer=Chat())
    left_out = redacted(batch).lacks("ids")
    assert [
        result.name for result in check(redacted(batch)) if result.detail == left_out
    ] == [
        "the tokenizer is the model's",
        "the mask covers only what the model wrote",
        "no row is a copy of another",
        "responses do not begin with their prompt",
        "turns are separated as in the prompts",
        "every round begins after a header",
        "the end of a turn is in the mask",
        "every round ends with its turn",
        "no last round is cut off",
        "no round resumes inside a turn",
        "the model wrote no vision token",
        "actions are in the frame of the picture",
    ]
    assert left_out not in {result.detail for result in check(batch)}


def test_a_path_is_no_batch() -> None:
    message = (
        "expected a Batch; found a str. Open a file with `rounddiag.load(path)` first."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        check("step_40.parquet")  # type: ignore[arg-type]
