"""A folder without log-probs in JupyterLab: what happened is in sight, unclicked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import waits_until
from tests.browser.lab import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from playwright.sync_api import Locator

    from tests.browser.lab import LabNotebook

_CODE = f"""import os, sys
os.chdir({str(ROOT)!r}); sys.path.insert(0, {str(ROOT)!r})
import rounddiag as rd
rd.explore(rd.load("sample_data/osworld"){{rows}})"""
# What the line above the controls says from now on.
_NOTE = """() => {
  const node = document.querySelector('.rdx-silence');
  globalThis.said = [];
  new MutationObserver(() => said.push(node.textContent))
    .observe(node, { childList: true });
}"""
_WIDE = 520  # pixels of the picture at 1440


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1440, 900)])
def test_errors_repeats_and_scores_are_in_sight(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
    width: int,
    height: int,
) -> None:
    with next_cells(f"trajectories_{width}.ipynb", _CODE.format(rows="")) as lab:
        lab.page.set_viewport_size({"width": width, "height": height})
        lab.run_all()
        node = lab.page.locator(".rdx:not([data-waiting])")
        texts = node.get_by_role("region", name="Samples").locator("svg text")
        for text in ("c=○", "k=○", "!", "0.5"):  # repeats, an error, scores
            shown = texts.get_by_text(text, exact=True).first
            expect(shown).to_be_in_viewport()
        domains = node.get_by_role("list", name="Mean scores").get_by_role("listitem")
        expect(domains).to_contain_text(["all", "chrome", "libreoffice_calc", "os"])
        for domain in domains.all():
            expect(domain).to_be_in_viewport(ratio=1)
        region = node.get_by_role("region", name="Samples")
        for part in ("repeated", "unchanged"):  # the end of a line of the key
            line = region.locator("svg text tspan", has_text=part).last
            assert is_within(line, region.locator("svg").first)
        picture = node.locator(".rdx-current .rdx-picture:has(img)")
        least = _WIDE if width == 1440 else 1

        def is_wide() -> bool:  # a reply may replace it meanwhile
            box = picture.bounding_box()
            return box is not None and box["width"] >= least

        waits_until(is_wide)
        silence = node.locator(".rdx-silence")
        ask(lab.page, _NOTE)
        node.get_by_role("radio", name="change").check()
        label = node.locator("svg text", has_text="mean share of the picture")
        expect(label).to_be_visible()
        expect(silence).to_be_hidden()
        said = ask(lab.page, "() => globalThis.said")
        assert "Reading the screenshots of 34 rounds…" in said
        assert lab.console_errors == []


def is_within(part: Locator, whole: Locator) -> bool:
    """Return whether a box is between the left and the right edge of another."""
    one, other = part.bounding_box(), whole.bounding_box()
    assert one is not None
    assert other is not None
    left, right = one["x"] - other["x"], one["x"] + one["width"] - other["x"]
    return left >= 0 and right <= other["width"]


def test_in_a_narrow_window_the_picture_of_a_trajectory_is_above_its_text(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> None:
    with next_cells("trajectory_narrow.ipynb", _CODE.format(rows="[1:2]")) as lab:
        lab.run_all()
        lab.set_width(700)
        node = lab.page.locator(".rdx:not([data-waiting])")
        picture = node.locator(".rdx-current .rdx-picture:has(img)")
        picture.wait_for()
        reading = node.locator(".rdx-reading")

        def is_above() -> bool:  # a reply may replace it meanwhile
            above, below = picture.bounding_box(), reading.bounding_box()
            return (
                above is not None
                and below is not None
                and above["y"] + above["height"] <= below["y"]
            )

        waits_until(is_above)
