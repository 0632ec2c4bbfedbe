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

AGAIN = "Dump the step again: a sample has one number per token in each field."
MASK_AGAIN = (
    "Dump the step again; the mask of a rollout that was resumed must grow with its"
    " response (slime pull request 1445)."
)
DAMAGED = "It is cut off, damaged or forged: copy or save it again."


def refused(path: Path) -> str:
    """Return the message of the LoadError that a file ends in, without its path."""
    with pytest.raises(LoadError) as caught:
        load(path)
    return str(caught.value).removeprefix(f"{path}: ")


ROWS = "expected rows of numbers; found"
MISFIT = "expected 2 rows, as long as those of `responses`; found 1 of 2 rows with"
LENGTH = "`response_lengths`: expected 0 to"
# A change of the second sample, and the message.
CHANGES: list[tuple[dict[str, Any], str]] = [
    (
        {"rollout_log_probs": None},
        f"`rollout_log_probs`: {ROWS} nothing in row 1. {AGAIN}",
    ),
    ({"log_probs": None}, f"`log_probs`: {ROWS} nothing in row 1. {AGAIN}"),
    ({"loss_masks": "11"}, f"`loss_masks`: {ROWS} text in row 1. {MASK_AGAIN}"),
    (
        {"tokens": [1, 1 << 70]},
        f"`tokens`: {ROWS} a list of other values in row 1. {AGAIN}",
    ),
    (
        {"tokens": [1, "2"]},
        f"`tokens`: {ROWS} a list of other values in row 1. {AGAIN}",
    ),
    (
        {"entropy": torch.ones(3)},
        f"`entropy`: {MISFIT} another length, by 1: 1 (row 1 has 3, and 2 there)."
        f" {AGAIN}",
    ),
    (
        {"response_lengths": 1},
        f"`rollout_log_probs`: {MISFIT} another length, by 1: 1 (row 1 has 2, and 1"
        f" there). {AGAIN}",
    ),
    (
        {"response_lengths": 5},
        f"{LENGTH} 4 for sample 1, as there are tokens; found 5. {AGAIN}",
    ),
    (
        {"response_lengths": "2"},
        f"{LENGTH} 4 for sample 1, as there are tokens; found no number. {AGAIN}",
    ),
    (
        {"tokens": torch.tensor([1])},
        f"{LENGTH} 1 for sample 1, as there are tokens; found 2. {AGAIN}",
    ),
    (
        {"loss_masks": torch.ones(1)},
        f"`loss_masks`: {MISFIT} another length, by 1: 1 (row 1 has 1, and 2 there)."
        f" {MASK_AGAIN}",
    ),
    (
        {"loss_masks": torch.tensor([1, 2])},
        "`response_mask`: expected a mask of 0 and 1; found the value 2. Pass the mask"
        " itself, not a weight.",
    ),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_field_of_a_sample_that_does_not_fit_is_named(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    first, second = trained_samples()

    assert refused(write_train_file(tmp_path, [first, second | change])) == message


WHOLE = "expected a whole file of its kind; found"
FILES: list[tuple[str, Any, str]] = [
    (
        "samples",
        [
            row | {"loss_masks": torch.ones(row["response_lengths"], 1)}
            for row in trained_samples()
        ],
        "`loss_masks`: expected one value per token; found rows of 2 dimensions."
        f" {MASK_AGAIN}",
    ),
    *(
        (
            "samples",
            samples,
            f"{WHOLE} `samples` that is not a list of dictionaries. {DAMAGED}",
        )
        for samples in (["a"], [None], [[1]])
    ),
    (
        "samples",
        [],
        "expected samples that were trained on; found none. Pass the file of a rank"
        " that has some.",
    ),
    (
        "3.pt",
        {"format_version": 3, "rollout_id": 3, "samples": trained_samples()},
        "expected slime's train data in `format_version` 2; found 3. Update rounddiag,"
        " or dump the step with the slime that it knows.",
    ),
    (
        "3_0.pt",
        {"rollout_id": 3, "rank": 0, "cp_size": 1, "rollout_data": [1]},
        f"{WHOLE} `cp_size` 1. {DAMAGED}",
    ),
    (
        "rank",
        shards()[1] | {"log_probs": []},
        f"{WHOLE} 0 rows of `log_probs`, 1 of `response_lengths`. {DAMAGED}",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), FILES)
def test_a_file_that_lacks_something_says_what(
    name: str, content: Any, message: str, tmp_path: Path
) -> None:
    writers: dict[str, Any] = {"samples": write_train_file, "rank": write_rank}
    folder = tmp_path if name in writers else tmp_path / name
    path = writers.get(name, write_payload)(folder, content)

    assert refused(path) == message


def test_log_probs_that_are_no_numbers_are_kept(tmp_path: Path) -> None:
    first, second = trained_samples()
    change = {"log_probs": torch.tensor([torch.nan, -torch.inf])}
    batch = load(write_train_file(tmp_path, [first, second | change]))

    assert batch.log_probs("old")[3:].isnan().tolist() == [True, False]


def test_a_column_of_another_length_is_left_out(tmp_path: Path) -> None:
    part = shards()[1] | {"truncated": [0, 1], "max_seq_lens": [9, 9, 9]}
    batch = load(write_rank(tmp_path, part))

    assert batch.meta["left_out"] == ["max_seq_lens", "returns", "truncated"]


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
