"""The screenshots of the worst round of a report."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from PIL import Image

from rounddiag.vision import EncodedScreenshot
from tests.batches import hand_batch
from tests.export.pages import page_of

if TYPE_CHECKING:
    from pathlib import Path


def shot(color: str = "red", *, round_: int = 0) -> EncodedScreenshot:
    buffer = io.BytesIO()
    Image.new("RGB", (1536, 40), color).save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue(), round=round_)


def test_screenshots_of_the_worst_round_are_small_jpegs(tmp_path: Path) -> None:
    images = ((shot(), shot(round_=1)), (shot(),), (shot(),))
    page = page_of(hand_batch(images=images), tmp_path, worst=2)
    # Mean |diff| of round 0: 4 values, 2.0 / 6 tokens; of round 1: (1 + 2) / 2 tokens.
    assert page.titles[-1] == "Screenshots of round 1"
    assert "1 of 1 screenshot shown to the model just before round 1" in page.text
    (image,) = page.images
    assert image["alt"] == "Screenshot: sample 0, 1536 x 40 pixels"
    kind, _, data = (image["src"] or "").partition(",")
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (768, 20)


def test_a_damaged_screenshot_is_reported(tmp_path: Path) -> None:
    broken = EncodedScreenshot(data=b"<script>", round=1)
    page = page_of(hand_batch(images=((broken,), (), ())), tmp_path)
    assert page.images == []
    assert "Sample 0: its screenshot cannot be shown. `images`: expected a picture" in (
        page.text
    )
    assert "8 bytes that start with b'<script>'" in page.text
