"""Photograph the explorer for the README, in a real JupyterLab.

python -m tests.browser.photograph
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, ROOT, find_browser
from tests.browser.explorers import IMPORTS, explorer, go_to_evidence, write_notebook
from tests.browser.lab import LabNotebook
from tests.browser.server import jupyterlab

PICTURE = ROOT / "notebooks" / "explorer.png"
_ARE_DRAWN = """() => [...document.querySelectorAll('.rdx img')].every(
  image => image.complete && image.naturalWidth > 0)"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=ARGUMENTS
        )
        home = Path(folder)
        cells = (IMPORTS.format(root=str(ROOT)), "ex = rd.explore(batch)\nex")
        write_notebook(home / "explorer.ipynb", *cells)
        with jupyterlab(home, home) as address:
            lab = LabNotebook(browser, address, home)
            lab.page.set_viewport_size({"width": 1600, "height": 1000})
            lab.open("explorer.ipynb")
            lab.run_all()
            photograph(lab, home / "large.png")
            lab.close()
        browser.close()
        save_small(home / "large.png")


def save_small(path: Path) -> None:
    """Keep as many colours as a small file can have, the rare ones among them."""
    coverage = Image.Quantize.MAXCOVERAGE
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(
            256, coverage, kmeans=4, dither=Image.Dither.NONE
        )
    few.save(PICTURE, "PNG", optimize=True)


def photograph(lab: LabNotebook, path: Path) -> None:
    node = explorer(lab)
    go_to_evidence(lab, node)
    lab.page.mouse.move(0, 0)
    lab.page.wait_for_load_state("networkidle")
    expect(node.locator(".rdx-card-picture:not(:has(img))")).to_have_count(0)
    node.get_by_role("region", name="Screenshot").locator("img").first.wait_for()
    lab.page.wait_for_function(_ARE_DRAWN)
    node.screenshot(path=path)


if __name__ == "__main__":
    main()
