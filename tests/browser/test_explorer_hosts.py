"""What an explorer shows in hosts other than JupyterLab."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

import rounddiag as rd
from tests.browser.conftest import ARTEFACTS, ROOT
from tests.browser.direct import DirectPage
from tests.browser.lab import ask

# Attributes of a page's body, in turn: those of VS Code, marimo and JupyterLab.
HOSTS = [
    ("data-vscode-theme-kind", "vscode-dark", "dark"),
    ("data-vscode-theme-kind", "vscode-light", "light"),
    ("data-vscode-theme-kind", "vscode-high-contrast", "dark"),
    ("data-vscode-theme-kind", "vscode-high-contrast-light", "light"),
    ("data-vscode-theme-kind", None, "light"),
    ("class", "dark dark-theme", "dark"),
    ("data-jp-theme-light", "true", "light"),  # whatever its classes are
    ("data-jp-theme-light", "false", "dark"),
]
_SET = """([name, value]) => value === null
  ? document.body.removeAttribute(name) : document.body.setAttribute(name, value)"""
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


def test_it_follows_the_theme_of_each_host(opened: DirectPage) -> None:
    ask(opened.page, _SET, ["data-jp-theme-light", None])
    for name, value, theme in HOSTS:
        ask(opened.page, _SET, [name, value])
        expect(opened.node).to_have_attribute("data-theme", theme)
