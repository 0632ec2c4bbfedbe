"""The verdict in the head line: what is wrong, and under it what to do."""

from __future__ import annotations

from playwright.sync_api import Browser

from rounddiag import explore
from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.direct import DirectPage


def test_the_verdict_has_its_headline_and_what_is_next(chromium: Browser) -> None:
    explorer = explore(ROOT / "sample_data" / "image_window.parquet")
    opened = DirectPage(chromium, explorer, size=(1280, 800))
    diagnosis = explorer.diagnosis
    assert opened.text(".rdx-verdict > summary > p > span") == diagnosis.headline
    families = f"Cause not known; possible: {', '.join(diagnosis[0].families)}"
    assert opened.text(".rdx-verdict > summary > div") == families
    panel = "".join(opened.texts(".rdx-verdict > .rdx-panel > p"))
    assert diagnosis.advice.replace("`", "") in panel
    first, second = (
        opened.find(f".rdx-verdict > summary > {tag}").bounding_box()
        for tag in ("p > span", "div")
    )
    assert first is not None
    assert second is not None
    assert second["y"] >= first["y"] + 12
    assert "↵" not in opened.text(".rdx-head")
    ARTEFACTS.mkdir(exist_ok=True)
    opened.screenshot(ARTEFACTS / "explorer_verdict.png")
    opened.close()
