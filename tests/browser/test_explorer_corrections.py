"""Corrections in the explorer: the menu, the slider, and tokens that are dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

import rounddiag as rd
from rounddiag.core.weights import token_weights
from rounddiag.schema import CORRECTIONS
from rounddiag.wording import percent
from tests.browser.conftest import ROOT
from tests.browser.direct import DirectPage

# The place of a token with a ratio of 0.00017.
START = {"sample": 28, "round": 3, "token": 9}
MENU = "Order, correction, colours and scores"


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    return rd.load(ROOT / "sample_data" / "image_window.parquet")


@pytest.fixture(scope="module")
def one_page(chromium: Browser, batch: rd.Batch) -> Iterator[DirectPage]:
    opened = DirectPage(chromium, rd.explore(batch, current=START), size=(1280, 800))
    yield opened
    assert opened.complaints == []
    opened.close()


@pytest.fixture
def page(one_page: DirectPage) -> DirectPage:
    """The explorer as when it has just opened."""
    one_page.reset()
    return one_page


def knows(page: DirectPage, **wanted: Any) -> None:
    """Wait until Python has entries of the state, and the page has drawn them."""
    for _ in range(100):
        state = page.explorer.state
        if all(state[key] == pytest.approx(wanted[key]) for key in wanted):
            break
        page.page.wait_for_timeout(50)
    assert {key: page.explorer.state[key] for key in wanted} == pytest.approx(wanted)
    page.settle()


def struck(page: DirectPage) -> list[str]:
    return page.texts(".rdx-chunk > .rdx-struck")


def test_a_correction_strikes_what_it_drops(page: DirectPage, batch: rd.Batch) -> None:
    line = page.find(".rdx-corrected")
    assert not line.is_visible()
    page.page.get_by_label(MENU, exact=True).click()
    page.page.get_by_label("correction", exact=True).select_option("icepop")
    knows(page, correction="icepop", limit=None)
    tokens = rd.token_frame(batch, ["text"])
    own = tokens["sample"].to_numpy() == START["sample"]
    dropped = token_weights(batch, "icepop") == 0
    assert struck(page) == tokens["text"][own & dropped].tolist()
    assert "TULIP" in struck(page)
    now = page.find(".rdx-chunk > .rdx-struck.rdx-now")
    look = now.evaluate("node => getComputedStyle(node).textDecorationLine")
    assert look == "line-through"
    assert "0.5 to 5" in line.inner_text()
    num = int(dropped.sum())
    share = percent(num / len(dropped))
    assert f"drops {num} tokens ({share})" in line.inner_text()
    figure = page.explorer.figure("heatmap")
    (cells,) = [trace for trace in figure.data if trace.name == "dropped"]
    of_cells = tokens[dropped].drop_duplicates(["sample", "round"])
    rows = list(figure.layout.meta["samples"])
    assert {*zip(cells.x.tolist(), cells.y.tolist(), strict=True)} == {
        (int(cell["round"]), float(rows.index(cell["sample"])))
        for _, cell in of_cells.iterrows()
    }


def test_the_slider_moves_both_bounds_by_keys(
    page: DirectPage, batch: rd.Batch
) -> None:
    page.explorer.state = {"correction": "icepop"}
    page.settle()
    slider = page.page.get_by_label("Limit of the correction, logarithmic")
    slider.focus()
    for _ in range(20):  # 20 stops of 0.05: a tenth of the logarithm
        page.page.keyboard.press("ArrowLeft")
    knows(page, limit=5**0.1)
    narrow = CORRECTIONS["icepop"].limited(5**0.1)
    assert narrow.bounds == pytest.approx((0.5**0.1, 5**0.1))
    assert slider.get_attribute("aria-valuetext") == "0.933033 to 1.17462"
    num = int((token_weights(batch, narrow) == 0).sum())
    assert f"drops {num} tokens" in page.text(".rdx-corrected")
    page.page.get_by_label("No correction").click()
    knows(page, correction=None, limit=None)
    assert struck(page) == []
    assert not page.find(".rdx-corrected").is_visible()


def test_weights_at_their_limit_look_otherwise(
    page: DirectPage, batch: rd.Batch
) -> None:
    weights = token_weights(batch, "tis")
    tokens = rd.token_frame(batch)
    first = tokens[weights == 2].iloc[0]
    place = {key: int(first[key]) for key in ("sample", "round", "token")}
    page.explorer.state = {"correction": "tis", "current": place}
    page.settle()
    own = tokens["sample"].to_numpy() == place["sample"]
    capped = page.find(".rdx-chunk > .rdx-capped")
    assert capped.count() == np.count_nonzero(weights[own] == 2) > 0
    assert struck(page) == []
    line = page.find(".rdx-corrected")
    assert "up to 2" in line.inner_text()
    assert "drops 0 tokens (0 %) · caps 5" in line.inner_text()


def test_both_halves_of_a_line_are_readable_in_a_narrow_pane(page: DirectPage) -> None:
    page.explorer.state = {"correction": "icepop"}
    page.resize(760, 800)
    around = page.find(".rdx-corrected").bounding_box()
    button = page.find(".rdx-corrected button").bounding_box()
    assert around is not None
    assert button is not None
    assert button["x"] + button["width"] <= around["x"] + around["width"] + 1
