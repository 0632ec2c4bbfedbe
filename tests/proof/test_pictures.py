"""The picture that every engine is shown, transparent pixels included."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rounddiag.proof.engines.pictures import data_address, draw
from rounddiag.vision import EncodedScreenshot
from tests.proof.test_edits import ONE, requests

LOOKS = ["seen", "stored_colour", "grey", "white", "black"]
# A colour, and how much of it shows: all, half, nothing.
PIXELS = [[(10, 20, 30, 255), (10, 20, 30, 128), (10, 20, 30, 0)]]


def stored(mode: str = "RGBA", **options: Any) -> EncodedScreenshot:
    buffer = io.BytesIO()
    picture = Image.fromarray(np.array(PIXELS, np.uint8))
    picture.convert(mode).save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue(), **options)


def pixels_of(picture: Image.Image) -> list[Any]:
    return [picture.getpixel((at, 0)) for at in range(picture.width)]


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        # vLLM 0.32.0, `rgba_to_rgb`: 10 x 128 / 255 + 255 x 127 / 255 = 132.02.
        ("seen", [(10, 20, 30), (132, 137, 142), (255, 255, 255)]),
        # transformers 5.24.0, `convert_to_rgb` of the Qwen processors.
        ("stored_colour", [(10, 20, 30)] * 3),
    ],
)
def test_transparent_pixels(look: str, expected: list[tuple[int, int, int]]) -> None:
    assert pixels_of(draw(stored(), look)) == expected


@pytest.mark.parametrize("mode", ["RGBA", "RGB", "LA", "P", "L", "1"])
@pytest.mark.parametrize("seen_size", [None, (2, 1)])
def test_a_server_gets_what_a_model_in_this_process_sees(
    mode: str, seen_size: tuple[int, int] | None
) -> None:
    shot = stored(mode, seen_size=seen_size)
    for look in LOOKS:
        sent = base64.b64decode(data_address(shot, look).partition(",")[2])
        received = Image.open(io.BytesIO(sent))
        assert received.mode == "RGB"  # no engine decides about other modes
        assert pixels_of(received) == pixels_of(draw(shot, look))


def test_stored_colours_are_tried_where_pixels_are_transparent() -> None:
    clear, opaque = stored(), stored("RGB").image().convert("RGBA")
    buffer = io.BytesIO()
    opaque.save(buffer, format="PNG")
    plain = EncodedScreenshot(data=buffer.getvalue())
    name = "transparent_pixels_stored_colour"
    (request,) = requests(name, replace(ONE, shots=(plain, clear)))
    assert {each.look for each in request.pictures} == {"stored_colour"}
    assert requests(name, replace(ONE, shots=(plain, plain))) is None
