"""A folder without log-probs in JupyterLab: what happened is in sight, unclicked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import waits_until, write_notebook
from tests.browser.lab import LabNotebook
from tests.browser.server import jupyterlab

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

_CODE = f"""import os, sys
os.chdir({str(ROOT)!r}); sys.path.insert(0, {str(ROOT)!r})
import rounddiag as rd
rd.explore(rd.load("sample_data/osworld"){{rows}})"""
_WIDE = 520  # pixels of the picture at 1440


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1440, 900)])
def test_errors_repeats_and_scores_are_in_sight(
    chromium: Browser, tmp_path: Path, width: int, height: int
) -> None:
    write_notebook(tmp_path / "x.ipynb", _CODE.format(rows=""))
    with jupyterlab(tmp_path, tmp_path) as address:
        lab = LabNotebook(chromium, address, tmp_path)
        lab.page.set_viewport_size({"width": width, "height": height})
        lab.open("x.ipynb")
        lab.run_all()
        node = lab.page.locator(".rdx:not([data-waiting])")
        texts = node.get_by_role("region", name="Samples").locator("svg text")
        for text in ("c=○", "k=○", "!", "• 1"):  # repeats, an error, scores
            shown = texts.get_by_text(text, exact=True).first
            expect(shown).to_be_in_viewport()
        domains = node.get_by_role("list", name="Mean scores").get_by_role("listitem")
        expect(domains).to_contain_text(["all", "chrome", "libreoffice_calc", "os"])
        expect(domains.nth(1)).to_be_in_viewport()
        picture = node.locator(".rdx-current .rdx-picture:has(img)")
        least = _WIDE if width == 1440 else 1

        def is_wide() -> bool:  # a reply may replace it meanwhile
            box = picture.bounding_box()
            return box is not None and box["width"] >= least

        waits_until(is_wide)
        assert lab.console_errors == []
        lab.close()


def test_in_a_narrow_window_the_picture_of_a_trajectory_is_above_its_text(
    chromium: Browser, tmp_path: Path
) -> None:
    write_notebook(tmp_path / "x.ipynb", _CODE.format(rows="[1:2]"))
    with jupyterlab(tmp_path, tmp_path) as address:
        lab = LabNotebook(chromium, address, tmp_path)
        lab.open("x.ipynb")
        lab.run_all()
        lab.set_width(700)
        node = lab.page.locator(".rdx:not([data-waiting])")
        picture = node.locator(".rdx-current .rdx-picture:has(img)")
        picture.wait_for()
        lab.settle()
        above, below = (
            picture.bounding_box(),
            node.locator(".rdx-reading").bounding_box(),
        )
        assert above is not None
        assert below is not None
        assert above["y"] + above["height"] <= below["y"]
        lab.close()
