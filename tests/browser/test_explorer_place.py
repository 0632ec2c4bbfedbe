"""What Python says of a place is what the page shows."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from rounddiag import explore, open_run
from tests.browser.conftest import ROOT
from tests.browser.direct import DirectPage

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

IMAGE_WINDOW = ROOT / "sample_data" / "image_window.parquet"


def test_the_page_shows_the_place_that_python_says(chromium: Browser) -> None:
    explorer = explore(IMAGE_WINDOW)
    before = explorer.current  # of the diagnosis, before there is a page
    opened = DirectPage(chromium, explorer)
    assert opened.text(".rdx-title").startswith(f"Sample {before['sample']} ·")
    card = opened.find(".rdx-card[aria-current='true']")
    assert card.get_attribute("data-round") == str(before["round"])
    opened.close()


def test_the_page_goes_where_python_has_gone_meanwhile(chromium: Browser) -> None:
    explorer = explore(IMAGE_WINDOW)
    session = explorer._session
    guess = session.state.current
    opened = DirectPage(chromium, explorer)  # it has asked for the diagnosis, too
    now = explorer.current
    assert now != vars(guess)
    assert opened.text(".rdx-title").startswith(f"Sample {now['sample']} ·")
    shown = opened.find(".rdx-focus dd").all_text_contents()
    assert f"{now['round']}, token {now['token']}" in shown
    opened.close()


def test_a_run_without_a_tokenizer_says_what_to_pass(
    chromium: Browser, tmp_path: Path
) -> None:
    for step in (230, 240):
        shutil.copy(ROOT / "sample_data" / "run" / f"step_{step}.parquet", tmp_path)
    opened = DirectPage(chromium, explore(open_run(tmp_path)))
    assert "rd.open_run(folder, tokenizer=…)" in opened.text(".rdx-text-notes")
    assert opened.text(".rdx-card-action") == "no text"
    assert opened.find(".rdx-text-notes code").bounding_box() is not None
    assert "others of the batch have some" in opened.text(".rdx-screens")
    opened.close()
