"""Run the notebooks and put a picture beside every figure, for pages without a kernel.

    python notebooks/execute.py

A plotly figure keeps its interactive form and gets a PNG; coloured text, whose styles
a page like GitHub removes, becomes a PNG. Needs Chromium or Chrome.
"""

from __future__ import annotations

import base64
import io
import shutil
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import plotly.io as pio
from PIL import Image
from playwright.sync_api import Page, sync_playwright

import rounddiag as rd

FOLDER = Path(__file__).parent
PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDTH = 900
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def execute(notebook: Path) -> nbformat.NotebookNode:
    """Run a notebook in its folder."""
    nb = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(
        nb, resources={"metadata": {"path": notebook.parent}}
    ).execute()
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        outputs = cell.get("outputs", [])
        # A widget without its kernel is an error line: the table before it stays.
        outputs[:] = [one for one in outputs if WIDGET not in one.get("data", {})]
    return nb


def picture_of_figure(figure: dict[str, Any]) -> bytes:
    """Draw a plotly figure."""
    return pio.to_image(figure, "png", WIDTH, figure["layout"].get("height", 450))


def picture_of_text(html: str, page: Page) -> bytes:
    """Photograph a piece of HTML."""
    page.set_content(f"<body style='margin:0;background:#fff'>{html}</body>")
    return page.locator("body > *").first.screenshot()


def small(png: bytes) -> bytes:
    """Keep 128 colours, which is all that these drawings have."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128).save(buffer, "PNG")
    return buffer.getvalue()


def add_pictures(nb: nbformat.NotebookNode, page: Page) -> None:
    """Give every figure and coloured text of a notebook its picture."""
    for output in (o for cell in nb.cells for o in cell.get("outputs", [])):
        data = output.get("data", {})
        if PLOTLY in data:
            png = picture_of_figure(data[PLOTLY])
        elif "rd-text" in data.get("text/html", ""):
            png = picture_of_text(data.pop("text/html"), page)
        else:
            continue
        data["image/png"] = base64.b64encode(small(png)).decode()


def main() -> None:
    """Run all notebooks of this folder, and draw the picture of the README."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)))
    notebooks = {path: execute(path) for path in sorted(FOLDER.glob("*.ipynb"))}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": 600})
        for path, nb in notebooks.items():
            add_pictures(nb, page)
            nbformat.write(nb, path)
        browser.close()
    batch = rd.load(FOLDER.parent / "sample_data" / "image_window.parquet")
    picture = picture_of_figure(rd.plot_rounds(batch).to_plotly_json())
    (FOLDER / "image_window.png").write_bytes(small(picture))


if __name__ == "__main__":
    main()
