"""How large a report is, how long it takes to write, and to open in a browser.

python -m tests.benchmarks.report

It is open when the heatmap, the token plot and the text are painted. CPU seconds are of
the writing process alone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

import rounddiag as rd
from tests.benchmarks.explorer_cells import batch_of
from tests.browser.conftest import ARGUMENTS, find_browser
from tests.browser.planted import planted

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

NUM_OPENED = 5
_PAINTED = """() => document.querySelectorAll('.rdx-plot svg.main-svg').length >= 3
  && document.querySelector('.rdx-text pre span')
  && !document.querySelector('[data-drawing]')
  && performance.now()"""


def main() -> None:
    cases: dict[str, Callable[[], rd.Batch]] = {
        "512 samples x 60 rounds x 100 tokens": lambda: batch_of(512, 60, 6000),
        "128 samples x 25 rounds x 250 tokens, a fault": lambda: planted(
            Path("sample_data/tokenizer.json").resolve()
        ),
        "64 samples x 4 rounds": lambda: rd.load("sample_data/image_window.parquet"),
    }
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=ARGUMENTS
        )
        for name, make in cases.items():
            batch, file = make(), Path(folder) / "report.html"
            wall, cpu = time.perf_counter(), time.process_time()
            rd.report(batch, file)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            opened = sorted(_opened(page, file) for _ in range(NUM_OPENED))
            print(
                f"{name}: {file.stat().st_size / 1e6:.2f} MB, written in {wall:.1f} s"
                f" ({cpu:.1f} s of CPU), opened in {opened[NUM_OPENED // 2]:.2f} s"
                f" (median of {NUM_OPENED}, most {opened[-1]:.2f})",
                flush=True,
            )
            page.close()
        browser.close()


def _opened(page: Page, file: Path) -> float:
    """Open the file, and return the seconds until all is painted."""
    page.goto(file.as_uri(), wait_until="commit")
    while True:
        painted = page.evaluate(_PAINTED)
        if painted:
            return float(painted) / 1000
        time.sleep(0.02)


if __name__ == "__main__":
    main()
