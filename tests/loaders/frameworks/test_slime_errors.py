"""slime's files that are damaged, forged or of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.slime_writer import (
    pixels,
    rollouts,
    shards,
    trained_samples,
    write_payload,
    write_rank,
    write_rollouts,
    write_train_file,
)

if TYPE_CHECKING:
    from pathlib import Path

AGAIN = (
    "Dump the step again; older versions that trained with context parallelism wrote a"
    " slice of each sample, which cannot be read."
)
MASK_AGAIN = (
    "Dump the step again; the mask of a rollout that was resumed must grow with its"
    " response (slime pull request 1445)."
)
NO_ROLLOUT = (
    "Let the rollout keep the engine's log-probabilities (`Sample.rollout_log_probs`),"
    " and dump the step again."
)
NOT_COMPUTED = (
    "The trainer computed none: run without `--use-rollout-logprobs`, or with"
    " `--get-mismatch-metrics`, and dump the step again."
)
DAMAGED = "It is cut off, damaged or forged: copy or save it again."


def refused(path: Path) -> str:
    """Return the message of the LoadError that a file ends in, without its path."""
    with pytest.raises(LoadError) as caught:
        load(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("change", "key", "found"),
    [
        ({"rollout_log_probs": None}, "rollout_log_probs", "nothing in row 1"),
        ({"log_probs": None}, "log_probs", "nothing in row 1"),
        ({"loss_masks": "11"}, "loss_masks", "text in row 1"),
        ({"tokens": [1, 1 << 70]}, "tokens", "a list of other values in row 1"),
        ({"tokens": [1, "2"]}, "tokens", "a list of other values in row 1"),
    ],
)
def test_what_is_no_row_of_numbers_is_reported_with_key_and_row(
    change: dict[str, Any], key: str, found: str, tmp_path: Path
) -> None:
    first, second = trained_samples()

    assert refused(write_train_file(tmp_path, [first, second | change])) == (
        f"`{key}`: expected rows of numbers; found {found}."
        f" {MASK_AGAIN if key == 'loss_masks' else AGAIN}"
    )


@pytest.mark.parametrize(
    ("key", "engine", "advice"),
    [
        ("rollout_log_probs", "sampling", NO_ROLLOUT),
        ("log_probs", "training", NOT_COMPUTED),
    ],
)
def test_missing_log_probs_are_reported_with_what_computes_them(
    key: str, engine: str, advice: str, tmp_path: Path
) -> None:
    samples = [row | {key: None} for row in trained_samples()]

    assert refused(write_train_file(tmp_path, samples)) == (
        f"`{key}`: expected the log-probabilities of the {engine} engine; found none."
        f" {advice}"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"entropy": torch.ones(3)},
            "entropy`: expected 2 rows, as long as those of `responses`; found 1 of"
            " 2 rows with another length, by 1: 1 (row 1 has 3, and 2 there)",
        ),
        (
            {"response_lengths": 1},
            "rollout_log_probs`: expected 2 rows, as long as those of `responses`;"
            " found 1 of 2 rows with another length, by 1: 1 (row 1 has 2, and 1"
            " there)",
        ),
        (
            {"response_lengths": 5},
            "response_lengths`: expected 0 to 4 for sample 1, as there are tokens;"
            " found 5",
        ),
        (
            {"response_lengths": "2"},
            "response_lengths`: expected 0 to 4 for sample 1, as there are tokens;"
            " found no number",
        ),
        (
            {"tokens": torch.tensor([1])},
            "response_lengths`: expected 0 to 1 for sample 1, as there are tokens;"
            " found 2",
        ),
    ],
)
def test_false_lengths_are_reported_with_key_and_row(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    first, second = trained_samples()

    assert refused(write_train_file(tmp_path, [first, second | change])) == (
        f"`{message}. {AGAIN}"
    )


def test_several_values_a_token_are_an_error(tmp_path: Path) -> None:
    samples = [
        row | {"loss_masks": torch.ones(row["response_lengths"], 1)}
        for row in trained_samples()
    ]

    assert refused(write_train_file(tmp_path, samples)) == (
        "`loss_masks`: expected one value per token; found rows of 2 dimensions."
        f" {MASK_AGAIN}"
    )


def test_a_mask_of_a_part_of_the_response_is_an_error(tmp_path: Path) -> None:
    first, second = trained_samples()
    change = {"loss_masks": torch.ones(1)}

    assert refused(write_train_file(tmp_path, [first, second | change])) == (
        "`loss_masks`: expected 2 rows, as long as those of `responses`; found 1 of 2"
        f" rows with another length, by 1: 1 (row 1 has 1, and 2 there). {MASK_AGAIN}"
    )


def test_a_mask_of_other_values_is_an_error(tmp_path: Path) -> None:
    first, second = trained_samples()
    change = {"loss_masks": torch.tensor([1, 2])}

    assert "`response_mask`" in refused(
        write_train_file(tmp_path, [first, second | change])
    )


def test_log_probs_that_are_no_numbers_are_kept(tmp_path: Path) -> None:
    first, second = trained_samples()
    change = {"log_probs": torch.tensor([torch.nan, -torch.inf])}
    batch = load(write_train_file(tmp_path, [first, second | change]))

    assert batch.old_log_probs[3:].isnan().tolist() == [True, False]


@pytest.mark.parametrize("samples", [["a"], [None], [[1]]])
def test_samples_that_are_no_dictionaries_are_an_error(
    samples: list[object], tmp_path: Path
) -> None:
    assert refused(write_train_file(tmp_path, samples)) == (
        "expected a whole file of its kind; found `samples` that is not a list of"
        f" dictionaries. {DAMAGED}"
    )


def test_no_samples_are_an_error(tmp_path: Path) -> None:
    assert refused(write_train_file(tmp_path, [])) == (
        "expected samples that were trained on; found none. Pass the file of a rank"
        " that has some."
    )


def test_another_version_is_an_error(tmp_path: Path) -> None:
    payload = {"format_version": 3, "rollout_id": 3, "samples": trained_samples()}

    assert refused(write_payload(tmp_path / "3.pt", payload)) == (
        "expected slime's train data in `format_version` 2; found 3. Update rounddiag,"
        " or dump the step with the slime that it knows."
    )


def test_columns_that_are_no_dictionary_are_an_error(tmp_path: Path) -> None:
    payload = {"rollout_id": 3, "rank": 0, "rollout_data": [1]}

    assert refused(write_payload(tmp_path / "3_0.pt", payload)) == (
        "expected a whole file of its kind; found `rollout_data` that is not a"
        f" dictionary of columns. {DAMAGED}"
    )


def test_a_column_of_another_length_is_left_out(tmp_path: Path) -> None:
    part = shards()[1] | {"truncated": [0, 1], "max_seq_lens": [9, 9, 9]}
    batch = load(write_rank(tmp_path, part))

    assert batch.meta["left_out"] == ["max_seq_lens", "returns", "truncated"]


def test_a_required_column_of_another_length_is_an_error(tmp_path: Path) -> None:
    part = shards()[1] | {"log_probs": []}

    assert refused(write_rank(tmp_path, part)) == (
        "expected a whole file of its kind; found 0 rows of `log_probs`, 1 of"
        f" `response_lengths`. {DAMAGED}"
    )


@settings(
    max_examples=min(60, settings().max_examples),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    at=st.floats(0, 1),
    change=st.binary(max_size=4),
    lost=st.integers(0, 4) | st.just(1 << 20),
    name=st.sampled_from(["train_data", "rollout_data"]),
)
def test_a_damaged_dump_is_an_error_or_a_batch(
    at: float, change: bytes, lost: int, name: str, tmp_path: Path
) -> None:
    path = write_train_file(tmp_path, trained_samples(), shards())
    first, *others = rollouts()
    inputs = {"multimodal_train_inputs": pixels((1, 2, 4))}
    write_rollouts(tmp_path, [first | inputs, *others])
    damaged = tmp_path / name / "3.pt"
    content = damaged.read_bytes()
    place = int(at * len(content))
    damaged.write_bytes(content[:place] + change + content[place + lost :])
    try:
        batch = load(path)
    except LoadError as error:
        if name == "rollout_data" or "unexpected error" in str(error):
            raise
        return
    assert batch.num_samples == 2
