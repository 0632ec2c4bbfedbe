"""Static pictures of figures."""

from __future__ import annotations

import re
import struct

import pytest

from rounddiag import plot_rounds
from rounddiag.errors import RounddiagError
from rounddiag.figures._parts.display import png
from tests.batches import hand_batch
from tests.browser.conftest import NO_BROWSER, find_browser


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason=NO_BROWSER)
def test_a_picture_is_a_png_of_that_width() -> None:
    found = png(plot_rounds(hand_batch()), width=500)
    assert found[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", found[16:20]) == (500,)


def test_without_kaleido_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(*_: object, **__: object) -> bytes:
        message = "\nImage export requires Kaleido.\n$ pip install kaleido"
        raise RuntimeError(message)

    figure = plot_rounds(hand_batch())
    monkeypatch.setattr(type(figure), "to_image", missing)
    message = (
        "expected kaleido, and Chrome or Chromium, to draw a picture; found Image"
        " export requires Kaleido. Run `pip install kaleido` where this Python is,"
        " and install Chromium, or name it in the environment variable BROWSER_PATH."
    )
    with pytest.raises(RounddiagError, match=f"^{re.escape(message)}$"):
        png(figure)
