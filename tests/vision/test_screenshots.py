"""Screenshots are what the model saw, and bad ones say so."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from rounddiag.errors import LoadError
from rounddiag.vision import EncodedScreenshot, PatchScreenshot
from rounddiag.vision.screenshots import CLIP_MEAN, CLIP_STD


def patches_of(pixels: np.ndarray, patch: int, dtype: torch.dtype) -> torch.Tensor:
    """Cut a picture as the processor of Qwen2-VL does, one patch at a time.

    Two by two patches stand together, as they become one token; a patch is channels,
    then two equal frames, then its rows.
    """
    values = (pixels / 255.0 - CLIP_MEAN) / CLIP_STD
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


@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP"])
def test_an_encoded_picture_is_decoded(name: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (5, 3), "#123456").save(buffer, format=name)
    shot = EncodedScreenshot(data=buffer.getvalue())
    assert (shot.size, shot.round) == ((5, 3), None)
    assert Image.open(io.BytesIO(shot.png())).format == "PNG"
    assert (shot.png() == shot.data) is (name == "PNG")


def encoded(name: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (50, 50)).save(buffer, format=name)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data", [b"", b"<script>", encoded("BMP"), encoded("PNG")[:60]]
)
def test_what_is_no_picture_is_said(data: bytes) -> None:
    message = (
        f"`images`: expected a picture in PNG, JPEG, WEBP; found {len(data)} bytes "
        f"that start with {data[:8]!r}. The numbers of the batch are not affected."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        EncodedScreenshot(data=data).image()
