"""Pictures stored as such: a column of PNGs, or verl's `multi_modal_data`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from rounddiag import Batch
from rounddiag.loaders import load
from tests.loaders.verl_writer import write


def png(width: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, 1), "white").save(buffer, format="PNG")
    return buffer.getvalue()


def fields(pad: int = 9) -> dict[str, Any]:
    """One picture in the prompt and one before the second round; no other sample."""
    return {
        "prompts": torch.tensor([[1, pad, pad, 2], [1, 3, 4, 2]]),
        "responses": torch.tensor([[5, 6, 7, pad, pad, pad, 8], [5, 6, 7, 8, 5, 5, 8]]),
        "response_mask": torch.tensor([[1, 1, 0, 0, 0, 0, 1], [1] * 7]),
        "rollout_log_probs": torch.full((2, 7), -1.0),
        "old_log_probs": torch.full((2, 7), -1.5),
    }


def places(batch: Batch) -> list[list[tuple[int | None, int | None, tuple[int, int]]]]:
    assert batch.images is not None
    return [[(s.position, s.round, s.size) for s in row] for row in batch.images]


PLACED = [[(-3, 0, (2, 1)), (3, 1, (3, 1))], []]


def test_a_column_of_pngs_is_placed_by_the_runs_of_image_tokens() -> None:
    batch = load({**fields(), "images": [[png(2), png(3)], []]})

    assert places(batch) == PLACED


def test_the_image_token_of_qwen_is_known() -> None:
    # 5 has as many runs of two tokens as the other sample has pictures.
    shots = [[png(2), png(3)], [png(4)]]
    batch = load({**fields(151655), "images": shots})

    assert places(batch) == [*PLACED[:1], [(None, None, (4, 1))]]


def test_pictures_of_multi_modal_data_are_read_from_a_pickle(tmp_path: Path) -> None:
    shots = [Image.new("RGB", (2, 1)), Image.new("RGB", (3, 1), "red")]
    rows = [{"image": shots}, {"image": []}]
    path = write(tmp_path / "a.pkl", fields(), {"multi_modal_data": rows})

    batch = load(path)

    assert places(batch) == PLACED
    assert batch.images[0][1].image().getpixel((0, 0)) == (255, 0, 0)
    assert "left_out" not in batch.meta


def test_pillow_images_in_memory_are_read_alike() -> None:
    shots = [Image.new("RGB", (2, 1)), Image.new("RGB", (3, 1), "red")]
    batch = load({**fields(), "images": [shots, []]})

    assert places(batch) == PLACED


def test_where_the_numbers_differ_no_place_is_invented() -> None:
    batch = load({**fields(), "images": [[png(2)], []]})

    assert places(batch) == [[(None, None, (2, 1))], []]


def test_pictures_take_the_places_of_those_rebuilt_from_pixels() -> None:
    pixels = {
        "pixel_values": torch.zeros(20, 3 * 2 * 14 * 14),
        "image_grid_thw": torch.tensor([[1, 2, 4], [1, 6, 2]]),
    }
    batch = load(
        {
            **fields(),
            "multi_modal_inputs": [pixels, {}],
            "images": [[png(2), png(3)], []],
        }
    )

    assert places(batch) == PLACED
