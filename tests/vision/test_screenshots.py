"""Screenshots that are stored as pictures, and bad ones say so."""

from __future__ import annotations

import io
import re
import struct
import zlib

import pytest
from PIL import Image

from rounddiag.errors import LoadError
from rounddiag.vision import EncodedScreenshot


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("PNG", "RGB"), ("JPEG", "RGB"), ("JPEG", "CMYK"), ("WEBP", "RGB")),
        *(("TIFF", mode) for mode in ("P", "CMYK", "I;16", "F", "LAB")),
        *(("BMP", "RGB"), ("BMP", "P"), ("GIF", "P")),
    ],
)
def test_an_encoded_picture_is_decoded(name: str, mode: str) -> None:
    buffer = io.BytesIO()
    Image.new(mode, (5, 3), 7 if mode in {"F", "I;16"} else "#123456").save(
        buffer, format=name
    )
    shot = EncodedScreenshot(data=buffer.getvalue())
    assert (shot.size, shot.round) == ((5, 3), None)
    assert Image.open(io.BytesIO(shot.png())).format == "PNG"
    assert (shot.png() == shot.data) is (name == "PNG")


def encoded(name: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (50, 50)).save(buffer, format=name)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data", [b"", b"<script>", encoded("PCX"), encoded("PNG")[:60]]
)
def test_data_that_is_no_picture_is_refused(data: bytes) -> None:
    message = (
        f"`images`: expected a picture in PNG, JPEG, WEBP, TIFF, BMP, GIF; found "
        f"{len(data)} bytes "
        f"that start with {data[:8]!r}. The numbers of the batch are not affected."
    )
    shot = EncodedScreenshot(data=data)
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        shot.image()


def test_the_size_is_read_without_the_picture() -> None:
    cut_off = encoded("PNG")[:60]
    assert EncodedScreenshot(data=cut_off).size == (50, 50)


def test_the_first_picture_of_several_is_shown() -> None:
    buffer = io.BytesIO()
    red, blue = (Image.new("P", (4, 4), color) for color in ("red", "blue"))
    red.save(buffer, format="GIF", save_all=True, append_images=[blue])
    shown = EncodedScreenshot(data=buffer.getvalue()).image().convert("RGB")
    assert shown.getpixel((1, 1)) == red.convert("RGB").getpixel((1, 1))


@pytest.mark.parametrize("side", [9_600, 20_000, 2**31 - 1])  # a warning, two errors
def test_a_bomb_is_not_decoded(side: int) -> None:
    data = bytearray(encoded("PNG"))
    data[16:24] = struct.pack(">II", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    shot = EncodedScreenshot(data=bytes(data))
    message = (
        f"`images`: expected at most {Image.MAX_IMAGE_PIXELS} pixels; found a larger "
        "picture. The numbers of the batch are not affected."
    )
    for read in (lambda: shot.size, shot.image, shot.png):
        with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
            read()


def test_a_small_jpeg_keeps_its_shape_and_needs_no_colours_of_png() -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (1536, 40)).save(buffer, format="PNG")
    small = EncodedScreenshot(data=buffer.getvalue()).small_jpeg()
    picture = Image.open(io.BytesIO(small))
    assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (768, 20))
