"""Screenshots that are stored as pictures, and bad ones say so."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image

from rounddiag.errors import LoadError
from rounddiag.vision import EncodedScreenshot


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
