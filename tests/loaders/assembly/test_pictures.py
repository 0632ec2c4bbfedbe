"""Pictures stored as such: a column of PNGs, or verl's `multi_modal_data`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from rounddiag.loaders import load
from tests.loaders.facts import has
from tests.loaders.values import png
from tests.loaders.verl_writer import write


def fields(pad: int = 9) -> dict[str, Any]:
    """One picture in the prompt and one before the second round; no other sample."""
    return {
        "prompts": torch.tensor([[1, pad, pad, 2], [1, 3, 4, 2]]),
        "responses": torch.tensor([[5, 6, 7, pad, pad, pad, 8], [5, 6, 7, 8, 5, 5, 8]]),
        "response_mask": torch.tensor([[1, 1, 0, 0, 0, 0, 1], [1] * 7]),
        "rollout_log_probs": torch.full((2, 7), -1.0),
        "old_log_probs": torch.full((2, 7), -1.5),
    }


SHOTS = [Image.new("RGB", (2, 1)), Image.new("RGB", (3, 1), "red")]
PIXELS = {
    "pixel_values": torch.zeros(20, 3 * 2 * 14 * 14),
    "image_grid_thw": torch.tensor([[1, 2, 4], [1, 6, 2]]),
}
PNGS = [[png(size=(2, 1)), png(size=(3, 1))], []]
PLACED = [[(-3, 0, (2, 1)), (3, 1, (3, 1))], []]
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "by the runs of image tokens": ({**fields(), "images": PNGS}, PLACED),
    # 5 has as many runs of two tokens as the other sample has pictures.
    "the image token of Qwen is known": (
        {**fields(151655), "images": [PNGS[0], [png(size=(4, 1))]]},
        [PLACED[0], [(None, None, (4, 1))]],
    ),
    "of Pillow in memory": ({**fields(), "images": [SHOTS, []]}, PLACED),
    "where the numbers differ no place is invented": (
        {**fields(), "images": [[png(size=(2, 1))], []]},
        [[(None, None, (2, 1))], []],
    ),
    "in the places of those rebuilt from pixels": (
        {**fields(), "multi_modal_inputs": [PIXELS, {}], "images": PNGS},
        PLACED,
    ),
}


@pytest.mark.parametrize(("columns", "places"), CASES.values(), ids=CASES)
def test_pictures_are_placed(columns: dict[str, Any], places: list[Any]) -> None:
    has(load(columns), {"pictures": places})


def test_pictures_of_multi_modal_data_are_read_from_a_pickle(tmp_path: Path) -> None:
    rows = [{"image": SHOTS}, {"image": []}]
    batch = load(write(tmp_path / "a.pkl", fields(), {"multi_modal_data": rows}))
    has(batch, {"pictures": PLACED, "meta.left_out": None})
    assert batch.images[0][1].image().getpixel((0, 0)) == (255, 0, 0)
