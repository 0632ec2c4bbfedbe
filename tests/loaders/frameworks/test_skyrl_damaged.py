"""Files in SkyRL's layout that lack something, or lie: LoadErrors that say what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from rounddiag.loaders import load
from tests.loaders.refusal import refused_file
from tests.loaders.skyrl_writer import small_batch, write, write_state

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "global_step_3_training_input.pkl"


def test_a_field_that_is_none_is_missing(path: Path) -> None:
    fields = {**small_batch(), "loss_mask": None}
    write(path, fields)
    names = ", ".join(key for key, value in fields.items() if value is not None)
    assert refused_file(path) == (
        f"`loss_mask`: expected a tensor; found only {names}. Save the whole"
        " TrainingInputBatch, as `trainer.dump_data_batch=true` does."
    )


@pytest.mark.parametrize(
    ("name", "field"),
    [("action_log_probs", "old_log_probs"), ("rollout_logprobs", "rollout_log_probs")],
)
def test_log_probs_of_one_engine_are_absent(path: Path, name: str, field: str) -> None:
    write(path, {**small_batch(), name: None})
    assert getattr(load(path), field) is None


def misfit(key: str, expected: str, found: str) -> str:
    return (
        f"`{key}`: expected {expected}; found {found}. Dump it again: it is damaged, or"
        " was changed."
    )


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("rollout_logprobs", (2, 2), "shape (2, 3)"),
        ("action_log_probs", (3, 3), "shape (2, 3)"),
        ("attention_mask", (2, 6), "shape (2, 5)"),
        ("loss_mask", (6,), "shape (2, 3)"),
    ],
)
def test_a_field_of_another_shape_is_an_error(
    path: Path, name: str, shape: tuple[int, ...], expected: str
) -> None:
    write(path, {**small_batch(), name: torch.zeros(shape)})

    assert refused_file(path) == misfit(name, expected, f"shape {shape}")


def test_responses_longer_than_sequences_are_an_error(path: Path) -> None:
    wide = {
        name: torch.zeros(2, 6) if value.shape == (2, 3) else value
        for name, value in small_batch().items()
        if value is not None
    }
    write(path, wide)

    assert refused_file(path) == misfit(
        "response_mask", "the last columns of shape (2, 5)", "shape (2, 6)"
    )


@pytest.mark.parametrize("size", [3, -1, "1", 1.0])
def test_a_number_of_padding_rows_that_lies_is_an_error(
    path: Path, size: object
) -> None:
    write(path, small_batch(), {"pad_size": size})

    assert refused_file(path) == misfit(
        "pad_size", "0 to 2, the rows that pad the batch", repr(size)
    )


def test_padding_that_the_loss_looks_at_is_an_error(path: Path) -> None:
    write(path, small_batch(), {"pad_size": 1})

    assert refused_file(path) == misfit(
        "loss_mask", "0 in the rows that pad the batch", "other values"
    )


def test_pictures_of_another_number_of_rows_are_an_error(path: Path) -> None:
    pictures = {
        "pixel_values": [torch.zeros(8, 1176)] * 3,
        "image_grid_thw": [torch.tensor([[1, 2, 4]])] * 3,
    }
    write(path, {**small_batch(), **pictures})

    assert refused_file(path) == misfit(
        "pixel_values", "2 tensors, as there are rows", "3, and 3 grids"
    )


def test_pictures_alone_make_no_groups(path: Path) -> None:
    batch = load(
        write(path, {**small_batch(), "pixel_values": [torch.zeros(0, 1)] * 2})
    )

    assert batch.group_ids is None
    assert batch.images is None


@pytest.mark.parametrize(
    "value",
    [
        {"format": "numpy", "data": b"", "shape": (2, 3), "dtype": "object"},
        {"format": "numpy", "data": "text", "shape": (2, 3), "dtype": "float32"},
        {"format": "torch", "data": 3},
        {"format": "tensor_list", "items": [None]},
        3,
    ],
)
def test_a_tensor_in_another_format_is_an_error(path: Path, value: object) -> None:
    write(path, {**small_batch(), "advantages": value})

    assert "`advantages` in none of SkyRL's formats." in refused_file(path)


@pytest.mark.parametrize("shape", [(2, 3), (1 << 40, 3), (-2, 3), ("2", 3)])
def test_a_shape_that_lies_is_an_error(path: Path, shape: Any) -> None:
    value = {"format": "numpy", "data": b"123", "shape": shape, "dtype": "float32"}
    write(path, {**small_batch(), "advantages": value})

    assert "expected a whole file of its kind" in refused_file(path)


@pytest.mark.parametrize("state", [{}, {"batch_dict": 3}, {"batch_dict": {}}])
def test_a_batch_without_tensors_is_an_error(
    path: Path, state: dict[str, object]
) -> None:
    assert refused_file(write_state(path, state))


@pytest.mark.parametrize(
    "boundaries", [[(0, 1 << 60)], [(1, 0)], [(0, 2), (0, 2)], ["ab"], [3], [(None, 2)]]
)
def test_boundaries_that_lie_number_no_row_twice(
    path: Path, boundaries: list[object]
) -> None:
    write(path, small_batch(), {"policy_mini_batch_boundaries": boundaries})

    assert load(path).sample_columns["policy_mini_batch"].tolist() in (
        [None] * 2,
        [0, 0],
    )
