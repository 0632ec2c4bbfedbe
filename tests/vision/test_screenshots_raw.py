"""Screenshots of plain pixels are the picture, and lengths that lie say so."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image

from rounddiag.errors import LoadError
from rounddiag.vision import RawScreenshot

MODES = ["RGB", "RGBA", "L", "P", "1"]


def as_pickled(picture: Image.Image) -> RawScreenshot:
    """Take what Pillow's `__getstate__` gives."""
    _, mode, (width, height), palette, data = picture.__getstate__()
    return RawScreenshot(
        mode=mode, width=width, height=height, data=lambda: data, palette=palette
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_picture_comes_back_as_it_was_pickled(mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 11, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels).convert(mode)
    shot = as_pickled(picture)
    assert (shot.size, shot.image().mode) == ((11, 7), mode)
    assert shot.image().convert("RGBA").tobytes() == picture.convert("RGBA").tobytes()
    assert shot.png().startswith(b"\x89PNG")


def raw(mode: str, width: int, height: int, num_bytes: int = 0) -> RawScreenshot:
    return RawScreenshot(
        mode=mode, width=width, height=height, data=lambda: bytes(num_bytes)
    )


@pytest.mark.parametrize(
    ("shot", "found"),
    [
        (raw("RGB", 2, 2, 11), "11 bytes for mode RGB and size (2, 2)"),
        (raw("RGBA", 2, 2, 12), "12 bytes for mode RGBA and size (2, 2)"),
        (raw("1", 9, 2, 3), "3 bytes for mode 1 and size (9, 2)"),
        (raw("RGB", 0, 2), "0 bytes for mode RGB and size (0, 2)"),
        (raw("L", -3, -3, 9), "0 bytes for mode L and size (-3, -3)"),
        (raw("F", 1, 1, 4), "0 bytes for mode F and size (1, 1)"),
    ],
)
def test_a_length_that_lies_is_an_error(shot: RawScreenshot, found: str) -> None:
    message = (
        "`images`: expected the pixels of a picture in 1, L, P, RGB, RGBA; found "
        f"{found}. The numbers of the batch are not affected."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        shot.image()


def test_more_pixels_than_pillow_allows_are_not_read() -> None:
    def data() -> bytes:
        raise AssertionError

    shot = RawScreenshot(mode="1", width=10**6, height=10**6, data=data)
    message = (
        f"`images`: expected at most {Image.MAX_IMAGE_PIXELS} pixels; found a larger "
        "picture. The numbers of the batch are not affected."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        shot.image()


@pytest.mark.parametrize("palette", [[256, 0, 0], [-1], [0] * 900, ["a"]])
def test_a_palette_of_no_colours_is_an_error(palette: list[int]) -> None:
    shot = RawScreenshot(
        mode="P", width=1, height=1, data=lambda: b"\0", palette=palette
    )
    message = (
        "`images`: expected up to 768 numbers from 0 to 255; found a palette of "
        "others. The numbers of the batch are not affected."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        shot.image()
