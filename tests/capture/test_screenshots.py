from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rounddiag.capture import save_batch
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import PIXELS, DataProto


def test_screenshots_of_the_first_samples_with_their_round(
    proto: DataProto, tmp_path: Path
) -> None:
    save_batch(proto, tmp_path / "batch.parquet", images=1)
    images = load_parquet(tmp_path / "batch.parquet").images
    assert [len(row) for row in images] == [1, 0]
    assert images[0][0].round == 1
    assert images[0][0].size == (8 * 14, 4 * 14)


def test_a_large_one_is_made_small(proto: DataProto, tmp_path: Path) -> None:
    proto.non_tensor_batch["multi_modal_inputs"][0] = {
        "pixel_values": torch.zeros(2 * 100, PIXELS),
        "image_grid_thw": torch.tensor([[1, 2, 100]]),
    }
    save_batch(proto, tmp_path / "batch.parquet")
    images = load_parquet(tmp_path / "batch.parquet").images
    assert images[0][0].size == (768, 15)
    assert images[0][0].seen_size == (100 * 14, 2 * 14)


@pytest.mark.parametrize(
    "row",
    [
        {},
        None,
        {"pixel_values": torch.zeros(32, PIXELS)},
        {
            "pixel_values": torch.zeros(31, PIXELS),
            "image_grid_thw": torch.tensor([[1, 4, 8]]),
        },
        {
            "pixel_values": torch.zeros(32, 768),
            "image_grid_thw": torch.tensor([[1, 4, 8]]),
        },
        {
            "pixel_values": torch.zeros(1, 3, 64, 64),
            "image_grid_thw": torch.tensor([[1, 4, 8]]),
        },
    ],
    ids=["text only", "none", "no grid", "cut off", "other patches", "other model"],
)
def test_what_cannot_be_rebuilt_costs_no_numbers(
    proto: DataProto, tmp_path: Path, row: object
) -> None:
    proto.non_tensor_batch["multi_modal_inputs"][0] = row
    save_batch(proto, tmp_path / "batch.parquet")
    batch = load_parquet(tmp_path / "batch.parquet")
    assert [len(shots) for shots in batch.images] == [0, 1]
    assert batch.log_probs("old").tolist() == [-0.75] * 23
