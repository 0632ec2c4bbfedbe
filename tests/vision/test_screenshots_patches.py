"""Screenshots are rebuilt from a processor's patches as the model saw them."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from rounddiag.errors import LoadError
from rounddiag.vision import PatchScreenshot, patch_screenshots

DATA = Path(__file__).parents[1] / "data"
# What each kind of Qwen normalises with, by the side of its patches.
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
NORMALISATION = {14: CLIP, 16: ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))}


def patches_of(pixels: np.ndarray, patch: int, dtype: torch.dtype) -> torch.Tensor:
    """Cut a picture as the processor of Qwen2-VL does, one patch at a time.

    Two by two patches stand together, as they become one token; a patch is channels,
    then two equal frames, then its rows.
    """
    mean, std = NORMALISATION[patch]
    values = (pixels / 255.0 - mean) / std
    height, width = (side // patch for side in pixels.shape[:2])
    rows = []
    for top in range(0, height, 2):
        for left in range(0, width, 2):
            for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
                down, right = (top + y) * patch, (left + x) * patch
                cell = values[down : down + patch, right : right + patch]
                frame = cell.transpose(2, 0, 1)
                rows.append(np.stack([frame, frame], axis=1).reshape(-1))
    return torch.from_numpy(np.stack(rows)).to(dtype)


@pytest.mark.parametrize("patch", [14, 16])
def test_a_picture_is_rebuilt_from_its_patches(patch: int) -> None:
    shape = (4 * patch, 6 * patch, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    patches = patches_of(pixels, patch, torch.float32)
    assert patches.shape == (24, 3 * 2 * patch * patch)
    shot = PatchScreenshot(
        patches=lambda: patches, grid_thw=(1, 4, 6), patch_size=patch, round=2
    )
    assert shot.size == (6 * patch, 4 * patch)
    assert np.array_equal(np.asarray(shot.image()), pixels)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(shot.png()))), pixels)


def test_bfloat16_patches_give_nearly_the_picture() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    patches = patches_of(pixels, 14, torch.bfloat16)
    shot = PatchScreenshot(patches=lambda: patches, grid_thw=(1, 2, 2))
    rebuilt = np.asarray(shot.image()).astype(int)
    assert np.abs(rebuilt - pixels).max() <= 1


def test_patches_are_read_when_the_picture_is_asked_for() -> None:
    asked = []

    def patches() -> torch.Tensor:
        asked.append(1)
        return torch.zeros(4, 3 * 2 * 14 * 14)

    shot = PatchScreenshot(patches=patches, grid_thw=(1, 2, 2))
    assert (shot.size, asked) == ((28, 28), [])
    assert shot.image().size == (28, 28)
    assert asked == [1]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("qwen2-vl_float32", (56, 28)),
        ("qwen2-vl_bfloat16", (28, 56)),
        ("qwen3-vl_float32", (64, 32)),
        ("qwen3-vl_bfloat16", (32, 64)),
    ],
)
def test_what_the_real_processors_made_is_rebuilt(
    kind: str, size: tuple[int, int]
) -> None:
    tensors = load_file(DATA / f"transformers-5.23.0_{kind}.safetensors")
    values, grids = tensors["pixel_values"], tensors["image_grid_thw"].tolist()
    shots = patch_screenshots(lambda a, b: values[a:b], values.shape, grids)
    assert shots is not None
    (shot,) = shots
    assert shot.size == size
    expected = tensors["resized"].numpy().astype(int)
    assert np.abs(np.asarray(shot.image()) - expected).mean() < 0.01
    assert expected.std() > 50  # a picture with something on it


def test_both_frames_of_a_video_are_rebuilt() -> None:
    rows = torch.full((8, 3, 2, 256), -1.0)
    rows[4:, :, 1] = 1.0  # the fourth frame is white
    shot = PatchScreenshot(
        patches=lambda: rows.reshape(8, -1), grid_thw=(2, 2, 2), patch_size=16
    )
    black, white = (0, 0, 0), (255, 255, 255)
    colours = [shot.image(frame).getpixel((31, 31)) for frame in range(4)]
    assert colours == [black, black, black, white]
    assert shot.num_image_tokens == 2
    with pytest.raises(IndexError):
        shot.image(4)


def test_values_that_are_not_finite_are_black_or_white() -> None:
    rows = torch.tensor([torch.nan, torch.inf, -torch.inf]).repeat_interleave(512)
    shot = PatchScreenshot(
        patches=lambda: rows.repeat(4, 1), grid_thw=(1, 2, 2), patch_size=16
    )
    assert shot.image().getpixel((0, 0)) == (0, 255, 0)


@pytest.mark.parametrize(
    ("rows", "grid"),
    [((3, 1176), (1, 2, 2)), ((4, 1536), (1, 2, 2)), ((3, 1176), (1, 3, 1))],
)
def test_patches_that_do_not_fit_their_grid_are_an_error(
    rows: tuple[int, int], grid: tuple[int, int, int]
) -> None:
    shot = PatchScreenshot(patches=lambda: torch.zeros(rows), grid_thw=grid)
    message = (
        f"`pixel_values`: expected ({grid[1] * grid[2]}, 1176) values for the grid "
        f"{grid}, of even sides; found {rows}. The numbers of the batch are not "
        "affected."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        shot.image()


def test_the_pixels_of_a_sample_are_divided_by_its_grids() -> None:
    values = torch.arange(12.0)[:, None].expand(-1, 1536)
    shots = patch_screenshots(
        lambda start, stop: values[start:stop], values.shape, [(1, 2, 2), (1, 2, 4)]
    )
    assert shots is not None
    assert [shot.size for shot in shots] == [(32, 32), (64, 32)]
    assert shots[1].patches()[:, 0].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
