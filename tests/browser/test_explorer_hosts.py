"""What a host shows of an explorer that has no widgets: VS Code without its manager."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

import rounddiag as rd
from tests.browser.conftest import ARTEFACTS, ROOT

# VS Code's `NOTEBOOK_DISPLAY_ORDER`, as far as an explorer has it.
ORDER = ["text/html", "image/jpeg", "text/plain"]


def test_a_table_and_a_hint_stand_in_for_it(chromium: Browser) -> None:
    with rd.explore(ROOT / "sample_data" / "image_window.parquet") as explorer:
        data, _ = explorer._repr_mimebundle_()
    shown = next(name for name in ORDER if name in data)
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.set_content(data[shown])
    expect(page.get_by_text("run pip install jupyterlab_widgets")).to_be_visible()
    expect(page.locator("tr").first).to_have_text("roundactiontokensmean |diff| [nat]")
    expect(page.locator("tr")).to_have_count(8)  # a head and the sample's seven rounds
    page.screenshot(path=ARTEFACTS / "explorer_without_widgets.png")
    context.close()
