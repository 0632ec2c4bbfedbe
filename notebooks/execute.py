"""Execute the notebooks and add a PNG to every figure, for viewers without a kernel.

    python notebooks/execute.py

Plotly figures keep their interactive form and get a PNG; coloured text, whose styles
GitHub removes, is replaced by a PNG. Needs Chromium or Chrome.
"""

from __future__ import annotations

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import plotly.io as pio
from PIL import Image
from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parent
PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDTH = 800
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def execute(notebook: Path) -> nbformat.NotebookNode:
    """Execute a notebook in its folder."""
    nb = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(
        nb, resources={"metadata": {"path": notebook.parent}}
    ).execute()
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        outputs = cell.get("outputs", [])
        outputs[:] = [one for one in outputs if not is_of_a_session(one)]
    return nb


def is_of_a_session(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is of no use in a notebook that was only opened.

    Without a kernel a widget is an error message (its static table stays), and a page
    ignores the style of a figure in a notebook that its user did not run.
    """
    data = output.get("data", {})
    return WIDGET in data or "rounddiag-theme" in data.get("text/html", "")


def figure_png(figure: dict[str, Any]) -> bytes:
    """Draw a plotly figure."""
    return pio.to_image(figure, "png", WIDTH, figure["layout"].get("height", 450))


def text_png(html: str, page: Page) -> bytes:
    """Take a screenshot of a piece of HTML."""
    page.set_content(f"<body style='margin:0;background:#fff'>{html}</body>")
    return page.locator("body > *").first.screenshot()


def quantize(png: bytes) -> bytes:
    """Reduce a PNG to 48 colours, those of small marks among them."""
    buffer, picture = io.BytesIO(), Image.open(io.BytesIO(png)).convert("RGB")
    reduced = picture.quantize(48, Image.Quantize.MAXCOVERAGE)
    reduced.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def round_numbers(text: str) -> str:
    """Round the numbers of a JSON text to 5 digits."""
    rounded = json.loads(text, parse_float=lambda number: float(f"{float(number):.5g}"))
    return json.dumps(rounded, separators=(",", ":"))


def write(nb: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook, each figure as one line of rounded numbers: half the size."""
    outputs = (one for cell in nb.cells for one in cell.get("outputs", []))
    found = [one.data for one in outputs if PLOTLY in one.get("data", {})]
    texts = [round_numbers(json.dumps(data[PLOTLY])) for data in found]
    for index, data in enumerate(found):
        data[PLOTLY] = f"figure {index}"
    text = nbformat.writes(nb)
    for index, figure in enumerate(texts):
        text = text.replace(f'"{PLOTLY}": "figure {index}"', f'"{PLOTLY}": {figure}')
    path.write_text(f"{text}\n", encoding="utf-8")


def add_pictures(nb: nbformat.NotebookNode, page: Page) -> None:
    """Add a PNG to every figure and coloured text of a notebook."""
    for output in (o for cell in nb.cells for o in cell.get("outputs", [])):
        data = output.get("data", {})
        if PLOTLY in data:
            png = figure_png(data[PLOTLY])
            del data["text/html"]  # words in place of a picture, which is there now
        elif "rd-text" in data.get("text/html", ""):
            png = text_png(data.pop("text/html"), page)
        else:
            continue
        data["image/png"] = base64.b64encode(quantize(png)).decode()


def main() -> None:
    """Execute all notebooks of this folder."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)))
    notebooks = {path: execute(path) for path in sorted(FOLDER.glob("*.ipynb"))}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 600})
        for path, nb in notebooks.items():
            add_pictures(nb, page)
            write(nb, path)
        browser.close()


if __name__ == "__main__":
    main()
